// SPDX-License-Identifier: Apache-2.0
// Memory this process may use, and memory taken from the system in whole pages.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lacuna {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Pages from the system at an address that is a multiple of kHugePage, and asked to be huge ones.
// Given back when the object goes; empty when the system refused, with the reason in errno.
class Pages {
 public:
  static Pages anonymous(std::size_t bytes);        // zeroed, to read and write
  static Pages of_file(int fd, std::size_t bytes);  // a file from its start, read-only

  Pages() = default;
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;
  ~Pages();

  explicit operator bool() const { return data_ != nullptr; }
  std::uint8_t* data() const { return data_; }
  std::size_t size() const { return size_; }
  void make_read_only();

 private:
  static Pages map(std::size_t bytes, int protection, int flags, int fd);

  std::uint8_t* data_ = nullptr;
  std::size_t size_ = 0;
};

// What the system says is available, cut to what the cgroup leaves.
std::uint64_t available_memory_bytes();

}  // namespace lacuna
