// SPDX-License-Identifier: Apache-2.0
#include "base/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

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
