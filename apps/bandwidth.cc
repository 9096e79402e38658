// SPDX-License-Identifier: Apache-2.0
#include "bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>

#include "base/threads.h"

namespace lacuna {
namespace {

constexpr std::size_t kWords = (std::size_t{256} << 20) / sizeof(std::uint64_t);
constexpr int kTasks = 64;
constexpr std::size_t kTaskWords = kWords / kTasks;
constexpr int kPasses = 4;

// Eight sums, so that no addition waits for the one before it.
std::uint64_t read_all(const std::uint64_t* words) {
  std::uint64_t sums[8] = {};
  for (std::size_t i = 0; i < kTaskWords; i += 8)
    for (int j = 0; j < 8; ++j) sums[j] += words[i + j];
  std::uint64_t sum = 0;
  for (const std::uint64_t s : sums) sum += s;
  return sum;
}

}  // namespace

double measure_read_bandwidth(int threads) {
  const std::unique_ptr<std::uint64_t[]> words(new (std::nothrow) std::uint64_t[kWords]);
  if (!words) return 0;
  ThreadPool pool(std::max(1, threads));
  pool.run(kTasks, [&](int task, int) {
    std::uint64_t* const begin = words.get() + task * kTaskWords;
    std::fill(begin, begin + kTaskWords, static_cast<std::uint64_t>(task));
  });
  std::atomic<std::uint64_t> sink{0};  // the reads must not be optimised away
  double best_seconds = 1e9;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool.run(kTasks, [&](int task, int) { sink += read_all(words.get() + task * kTaskWords); });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best_seconds = std::min(best_seconds, seconds.count());
  }
  const double bytes = static_cast<double>(kWords * sizeof(std::uint64_t));
  return bytes / best_seconds / 1e9;
}

}  // namespace lacuna
