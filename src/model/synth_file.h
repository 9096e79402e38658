// SPDX-License-Identifier: Apache-2.0
// Files of a folder that appear together or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/result.h"

namespace lacuna {

// A file that is written under NAME.partial, at any offsets, by several threads.
class PartialFile {
 public:
  // kIo names the file.
  static Result<PartialFile> create(const std::filesystem::path& path);
  PartialFile(PartialFile&& other) noexcept;
  PartialFile(const PartialFile&) = delete;
  ~PartialFile();  // without finish() the file is removed

  // Returns 0 or errno.
  int write(std::uint64_t offset, std::span<const std::uint8_t> bytes) const;
  // Gives the file its name.
  Result<void> finish();

  Error error(int number) const;  // "PATH: No space left on device"

 private:
  PartialFile(std::filesystem::path path, int descriptor);

  std::filesystem::path path_, partial_;
  int descriptor_ = -1;
};

// Removes what was written to a folder, and the folder if it was made for it, unless kept.
class OutputFolder {
 public:
  // Makes the folder and its parents where missing; kIo when the system refuses.
  static Result<OutputFolder> open(const std::filesystem::path& folder);
  OutputFolder(OutputFolder&& other) noexcept;
  OutputFolder(const OutputFolder&) = delete;
  ~OutputFolder();

  Result<PartialFile> create(const std::string& name);
  Result<void> write(const std::string& name, std::string_view content);
  void keep() { kept_ = true; }

 private:
  OutputFolder(std::filesystem::path folder, bool made);

  std::filesystem::path folder_;
  std::vector<std::filesystem::path> files_;
  bool made_ = false, kept_ = false;
};

}  // namespace lacuna
