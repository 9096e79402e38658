// SPDX-License-Identifier: Apache-2.0
// A folder of large files: each gets its name when it is complete, and they stay together or not at
// all.
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
  // One that stays as it is when it is not finished, and is gone on with by the next call; it is on
  // the disk before it gets its name.
  static Result<PartialFile> resume(const std::filesystem::path& path);
  static std::filesystem::path partial_path(const std::filesystem::path& path);

  PartialFile(PartialFile&& other) noexcept;
  PartialFile(const PartialFile&) = delete;
  ~PartialFile();  // without finish() the file is removed, unless it was resumed

  // Returns 0 or errno.
  int write(std::uint64_t offset, std::span<const std::uint8_t> bytes) const;
  // Gives the file its name.
  Result<void> finish();

  Error error(int number) const;  // "PATH: No space left on device"

 private:
  static Result<PartialFile> open(const std::filesystem::path& path, bool resumed);
  PartialFile(std::filesystem::path path, int descriptor, bool resumed);

  std::filesystem::path path_, partial_;
  int descriptor_ = -1;
  bool resumed_ = false;
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

// kIo when the disk of `folder`, which need not exist yet, has less room than `wanted` bytes once
// the files `replaced` are gone. Names both numbers.
Result<void> check_room(const std::filesystem::path& folder, std::uint64_t wanted,
                        const std::vector<std::filesystem::path>& replaced);

}  // namespace lacuna
