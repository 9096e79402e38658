// SPDX-License-Identifier: Apache-2.0
// A file that appears whole or not at all: written under another name beside it, then renamed.
#pragma once

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "lacuna/result.h"

namespace lacuna {

class OutputFile {
 public:
  // kIo names the path: it cannot be written, or is there and no regular file (the rename would put
  // a file in the place of a device, too).
  static Result<OutputFile> create(const std::filesystem::path& path);
  OutputFile(OutputFile&&) = default;
  OutputFile& operator=(OutputFile&&) = default;
  ~OutputFile();  // without commit() nothing is left

  Result<void> write(const void* data, std::size_t bytes);
  Result<void> commit();  // gives the file its name

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  OutputFile() = default;
  Error error() const;  // of errno

  std::filesystem::path path_, temporary_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace lacuna
