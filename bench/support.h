// SPDX-License-Identifier: Apache-2.0
// What every op's bench shares: flags, timing, the machine's read bandwidth in the same run, one
// row a case.
//
//   <op>_bench [--isa NAME] [--threads N] [--rounds N] [--only TEXT] [--working-set MIB]
//
// --only runs the cases whose name holds TEXT. --working-set 0 keeps one copy of the weights: what
// the arithmetic takes when memory is out of the way, as far as the caches hold the copy.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu.h"
#include "base/memory.h"
#include "base/threads.h"
#include "ops/kernels.h"

namespace lacuna::bench {

inline double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Weights of a bench exceed every cache, so that no case is a cache benchmark unless asked for.
inline constexpr std::size_t kWorkingSet = std::size_t{256} << 20;

struct Spread {
  double p10, p50, p90;
};

class Bench {
 public:
  Bench(int argc, char** argv) : isa_(usable_isas().back()), threads_(usable_cores()) {
    for (int i = 1; i + 1 < argc; i += 2) {
      const std::string_view flag = argv[i];
      if (flag == "--isa") {
        setenv("LACUNA_ISA", argv[i + 1], 1);
        const auto isa = choose_isa();
        if (!isa.ok()) fail(isa.error().what);
        isa_ = *isa;
      } else if (flag == "--threads") {
        threads_ = std::max(1, std::atoi(argv[i + 1]));
      } else if (flag == "--rounds") {
        rounds_ = std::max(1, std::atoi(argv[i + 1]));
      } else if (flag == "--only") {
        only_ = argv[i + 1];
      } else if (flag == "--working-set") {
        working_set_ = static_cast<std::size_t>(std::max(0, std::atoi(argv[i + 1]))) << 20;
      } else {
        fail(fmt::format("unknown flag {}", flag));
      }
    }
    pool_ = std::make_unique<ThreadPool>(threads_);
    fmt::print("{}, {} threads, {}; GB/s beside the read bandwidth of the same moment\n",
               cpu_model(), threads_, isa_name(isa_));
    fmt::print("{:<44} {:>10} {:>10} {:>10} {:>8} {:>8} {:>6}\n", "case", "us p10", "us p50",
               "us p90", "GB/s", "GFLOP/s", "%peak");
  }

  const Kernels& kernels() const { return kernels_for(isa_); }
  ThreadPool& pool() { return *pool_; }
  std::size_t working_set() const { return working_set_; }  // bytes of weights to go around in

  // Runs body(round) `rounds` times and prints one row. `bytes` and `flops` are of one call.
  template <class Body>
  void row(const std::string& name, double bytes, double flops, const Body& body) {
    if (name.find(only_) == std::string::npos) return;
    const FlushDenormals flush;
    std::vector<double> us;
    const double peak_before = read_gbs();
    for (int r = 0; r < rounds_; ++r) {
      const double start = now_us();
      body(r);
      us.push_back(now_us() - start);
    }
    const double peak = (peak_before + read_gbs()) / 2;
    std::sort(us.begin(), us.end());
    const double p50 = us[us.size() / 2];
    const double gbs = bytes / p50 / 1e3;
    fmt::print("{:<44} {:>10.1f} {:>10.1f} {:>10.1f} {:>8.1f} {:>8.1f} {:>6.0f}\n", name,
               us[us.size() / 10], p50, us[us.size() * 9 / 10], gbs, flops / p50 / 1e3,
               100 * gbs / peak);
    std::fflush(stdout);
  }

 private:
  [[noreturn]] static void fail(const std::string& what) {
    fmt::print(stderr, "{}\n", what);
    std::exit(2);
  }

  // A plain sum over memory that no cache holds.
  double read_gbs() {
    if (!memory_) {
      memory_ = Pages::anonymous(kWorkingSet);
      if (!memory_) fail("no memory for the read probe");
      std::memset(memory_.data(), 1, kWorkingSet);
    }
    std::vector<std::uint64_t> sums(threads_);
    const double start = now_us();
    pool_->run(threads_, [&](int task, int) {
      const std::size_t part = kWorkingSet / sizeof(std::uint64_t) / threads_;
      const auto* p = reinterpret_cast<const std::uint64_t*>(memory_.data()) + part * task;
      std::uint64_t s[8] = {};
      for (std::size_t i = 0; i + 8 <= part; i += 8) {
        for (int k = 0; k < 8; ++k) s[k] += p[i + k];
      }
      for (const std::uint64_t v : s) sums[task] += v;
    });
    const double us = now_us() - start;
    for (const std::uint64_t v : sums) sink_ = sink_ + v;
    return static_cast<double>(kWorkingSet) / us / 1e3;
  }

  Isa isa_;
  int threads_;
  int rounds_ = 41;
  std::string only_;
  std::size_t working_set_ = kWorkingSet;
  Pages memory_;  // of the read probe, in huge pages as the weights are
  std::unique_ptr<ThreadPool> pool_;
  volatile std::uint64_t sink_ = 0;
};

}  // namespace lacuna::bench
