// SPDX-License-Identifier: Apache-2.0
#include "base/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

namespace lacuna {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

// A number in a file; kUnlimited when the file is not there or says "max".
std::uint64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t n = kUnlimited;
  return file >> n ? n : kUnlimited;
}

std::uint64_t cgroup_left() {
  std::uint64_t left = kUnlimited;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    const std::string folder = "/sys/fs/cgroup" + line.substr(3);
    const std::uint64_t limit = number_in(folder + "/memory.max");
    const std::uint64_t used = number_in(folder + "/memory.current");
    if (limit != kUnlimited && used != kUnlimited) left = limit > used ? limit - used : 0;
  }
  const std::uint64_t limit = number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes");
  const std::uint64_t used = number_in("/sys/fs/cgroup/memory/memory.usage_in_bytes");
  if (limit != kUnlimited && used != kUnlimited)
    left = std::min(left, limit > used ? limit - used : 0);
  return left;
}

}  // namespace

// Reserves a huge page more than is needed, maps at the first aligned address in it, and gives back
// what is left on both sides.
Pages Pages::map(std::size_t bytes, int protection, int flags, int fd) {
  Pages pages;
  if (bytes == 0 || bytes > std::numeric_limits<std::size_t>::max() - 2 * kHugePage) {
    errno = EINVAL;
    return pages;
  }
  const std::size_t room = bytes + kHugePage;
  void* reserved =
      ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return pages;
  auto* begin = static_cast<std::uint8_t*>(reserved);
  const std::size_t skip =
      (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
  if (::mmap(begin + skip, bytes, protection, flags | MAP_FIXED, fd, 0) == MAP_FAILED) {
    const int reason = errno;
    ::munmap(reserved, room);
    errno = reason;
    return pages;
  }
  constexpr std::size_t kPage = 4096;
  const std::size_t end = (skip + bytes + kPage - 1) / kPage * kPage;
  if (skip > 0) ::munmap(begin, skip);
  if (end < room) ::munmap(begin + end, room - end);
  ::madvise(begin + skip, bytes, MADV_HUGEPAGE);  // a wish; without it pages are small
  pages.data_ = begin + skip;
  pages.size_ = bytes;
  return pages;
}

Pages Pages::anonymous(std::size_t bytes) {
  return map(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

Pages Pages::of_file(int fd, std::size_t bytes) { return map(bytes, PROT_READ, MAP_SHARED, fd); }

Pages::Pages(Pages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Pages::~Pages() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

void Pages::make_read_only() {
  if (data_ != nullptr) ::mprotect(data_, size_, PROT_READ);
}

std::uint64_t available_memory_bytes() {
  std::uint64_t available = kUnlimited;
  std::ifstream info("/proc/meminfo");
  std::string key;
  std::uint64_t kib = 0;
  for (std::string unit; info >> key >> kib; std::getline(info, unit)) {
    if (key == "MemAvailable:") available = kib * 1024;
  }
  return std::min(available, cgroup_left());
}

}  // namespace lacuna
