// SPDX-License-Identifier: Apache-2.0
#include "base/cpu.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

namespace lacuna {
namespace {

constexpr std::pair<Isa, const char*> kNames[] = {{Isa::kScalar, "scalar"},
                                                  {Isa::kNeon, "neon"},
                                                  {Isa::kAvx2, "avx2"},
                                                  {Isa::kAvx512, "avx512"},
                                                  {Isa::kAvx512Bf16, "avx512bf16"}};

// Cores a cgroup's quota allows; infinity without one. Looks at version 2 along the path of this
// process's group, then at version 1.
double cgroup_cores() {
  double cores = std::numeric_limits<double>::infinity();
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    std::string path = line.substr(3);
    for (;;) {
      std::ifstream file("/sys/fs/cgroup" + path + "/cpu.max");
      std::string quota;
      double period = 0;
      if (file >> quota >> period && quota != "max" && period > 0) {
        cores = std::min(cores, std::strtod(quota.c_str(), nullptr) / period);
      }
      if (path.empty() || path == "/") break;
      path.resize(path.rfind('/'));
    }
  }
  std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  if (quota_file >> quota && period_file >> period && quota > 0 && period > 0) {
    cores = std::min(cores, quota / period);
  }
  return cores;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

const char* isa_name(Isa isa) {
  for (const auto& [level, name] : kNames) {
    if (level == isa) return name;
  }
  return "unknown";
}

std::vector<Isa> usable_isas() {
  std::vector<Isa> isas{Isa::kScalar};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return isas;
  isas.push_back(Isa::kAvx2);
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
    return isas;
  }
  isas.push_back(Isa::kAvx512);
  if (__builtin_cpu_supports("avx512bf16")) isas.push_back(Isa::kAvx512Bf16);
#elif defined(__aarch64__)
  isas.push_back(Isa::kNeon);  // part of the base architecture
#endif
  return isas;
}

Result<Isa> choose_isa() {
  const std::vector<Isa> usable = usable_isas();
  const char* forced = std::getenv("LACUNA_ISA");
  if (forced == nullptr || *forced == '\0') return usable.back();
  std::string list;
  for (const Isa isa : usable) {
    if (isa_name(isa) == std::string(forced)) return isa;
    list += list.empty() ? isa_name(isa) : std::string(", ") + isa_name(isa);
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("LACUNA_ISA={}: this machine runs {}", forced, list)};
}

int usable_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::set<std::pair<std::string, std::string>> physical;
  int logical = 0;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &mask)) continue;
      ++logical;
      const std::string topology = fmt::format("/sys/devices/system/cpu/cpu{}/topology/", cpu);
      const std::string core = first_line(topology + "core_id");
      if (!core.empty()) physical.emplace(first_line(topology + "physical_package_id"), core);
    }
  }
  int cores = physical.empty() ? logical : static_cast<int>(physical.size());
  if (cores == 0) cores = static_cast<int>(std::thread::hardware_concurrency());
  const double quota = cgroup_cores();
  if (quota < cores) cores = static_cast<int>(std::ceil(quota));
  return std::max(cores, 1);
}

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown CPU";
}

}  // namespace lacuna
