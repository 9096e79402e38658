// SPDX-License-Identifier: Apache-2.0
// The file of packed weights: how it is written, found, checked and thrown away.
//
// Format  A page with the header, a table of one 64-bit checksum per chunk of 2 MiB, zeros up to a
//         multiple of 2 MiB, then the payload. Everything lies on 2 MiB borders and is written in
//         pieces of that size, so that the system can keep it in huge pages.
// Names   NAME-FINGERPRINT.weights, and beside it NAME-FINGERPRINT.weights.verified.
// Whole   A file gets its name when it is complete, and is never changed after. A crash, a full
// disk
//         or a second process cannot leave half of one; a file may be deleted while it is in use.
// Trust   Header and table are compared at every start. The data is compared with its checksums
// when
//         nothing says that this was done: the .verified file holds the identity of the file
//         (device, inode, size, times) and of this boot of the machine. So a file that was copied,
//         restored or touched is read through once, and every file once after a boot, when it comes
//         from the disk anyway; a start after that costs nothing. What this does not see is memory
//         that fails, or a disk that fails between two starts of one boot.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/memory.h"
#include "base/threads.h"
#include "lacuna/result.h"

namespace lacuna {

inline constexpr std::size_t kCacheChunk = kHugePage;

// Guards against damage, not against malice. One changed word of 8 bytes always changes it.
std::uint64_t checksum(std::span<const std::uint8_t> bytes);

// What a file must be for to be used.
struct CacheKey {
  std::string name;               // of the model
  std::uint64_t fingerprint = 0;  // of the checkpoint
  std::uint64_t layout = 0;       // of the matrices and their order
  std::uint64_t bytes = 0;        // of the payload

  std::filesystem::path path(const std::filesystem::path& folder) const;
};

// A file descriptor that closes itself.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept;
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// A whole file, mapped read-only.
class CacheFile {
 public:
  // Nothing when there is no file for `key`, or one whose size, header or table is not right.
  static std::optional<CacheFile> open(const std::filesystem::path& folder, const CacheKey& key);

  const std::uint8_t* payload() const;
  // Whether the data is known to be right (see Trust).
  bool is_verified() const;
  // Compares all of the data with its checksums: the payload offset of the first chunk that differs
  // or cannot be read.
  std::optional<std::uint64_t> find_damage(ThreadPool& pool) const;
  // The data is right. Without the right to write beside the file it is compared at each start.
  void mark_verified() const;

 private:
  friend class CacheWriter;
  std::string identity() const;  // empty when the system does not tell

  std::filesystem::path path_;
  Fd fd_;
  Pages pages_;
  std::vector<std::uint64_t> sums_;  // of the chunks
};

// A file on its way. What is not finished leaves nothing behind.
class CacheWriter {
 public:
  // A file without a name where the file system has such, else one named
  // NAME-FINGERPRINT.weights.partial.XXXXXX, which is locked so that others can see that it is
  // alive.
  enum class Temporary { kUnnamed, kNamed };

  // Makes the folder, removes files of the same model with another fingerprint and what crashed
  // writers left, and takes room for all of it. kIo names the folder and the bytes wanted.
  static Result<CacheWriter> create(const std::filesystem::path& folder, const CacheKey& key,
                                    Temporary preferred = Temporary::kUnnamed);
  CacheWriter(CacheWriter&& other) noexcept = default;
  ~CacheWriter();

  // Whole chunks from payload offset `at` on, a multiple of kCacheChunk; the payload's last may be
  // short. Any order.
  Result<void> write(std::uint64_t at, std::span<const std::uint8_t> chunks);
  // Once all is written. A file that cannot get its name serves this process alone: `note` says so.
  Result<CacheFile> finish(std::string& note) &&;

 private:
  CacheWriter() = default;
  Error disk_error() const;
  Result<void> open_temporary(Temporary preferred);
  Result<void> write_all(std::uint64_t at, std::span<const std::uint8_t> bytes);
  bool give_name();

  std::filesystem::path folder_, path_;
  std::filesystem::path partial_;  // empty: the file has no name
  CacheKey key_;
  Fd fd_;
  std::vector<std::uint64_t> sums_;
};

}  // namespace lacuna
