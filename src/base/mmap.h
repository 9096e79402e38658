// SPDX-License-Identifier: Apache-2.0
// A file mapped read-only, unmapped when the object goes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "lacuna/result.h"

namespace lacuna {

class MappedFile {
 public:
  // Errors: kNotFound when there is no such file, kIo when the system refuses. An empty file maps
  // to an empty span.
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::uint8_t> bytes() const { return {data_, size_}; }

 private:
  const std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

// Advice about a range inside a MappedFile; no other memory may be given. Both cover the pages that
// the range touches, and change nothing but time and memory.
void read_ahead(std::span<const std::uint8_t> range);  // it is needed soon
void drop_pages(std::span<const std::uint8_t> range);  // it is not needed again: resident no more

// A whole small file as text. `max_bytes` guards against a wrong path to something huge (kCorrupt).
Result<std::string> read_text_file(const std::filesystem::path& path,
                                   std::size_t max_bytes = std::size_t{64} << 20);

}  // namespace lacuna
