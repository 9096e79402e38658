// SPDX-License-Identifier: Apache-2.0
// Read bandwidth of this moment: all threads stream through more memory than any cache holds.
// Prints the median of the passes, in GB/s. Depends on nothing of lacuna, so that neither side of a
// comparison brings its own yardstick.
//
//   probe THREADS
#include <sys/mman.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kBytes = std::size_t{1} << 30;
constexpr std::size_t kAhead = 4096;  // bytes between a prefetch and its load
constexpr int kPasses = 9;
constexpr int kVectors = 8;  // sums side by side, so that no addition waits for the one before

using Vector = std::uint64_t __attribute__((vector_size(64)));
constexpr std::size_t kStep = kVectors * sizeof(Vector);

std::uint64_t read_all(const char* begin, std::size_t bytes) {
  Vector sums[kVectors] = {};
  for (std::size_t at = 0; at + kStep <= bytes; at += kStep) {
    for (int i = 0; i < kVectors; ++i) {
      const char* line = begin + at + i * sizeof(Vector);
      __builtin_prefetch(line + kAhead, 0, 0);
      Vector v;
      std::memcpy(&v, line, sizeof v);
      sums[i] += v;
    }
  }
  for (int i = 1; i < kVectors; ++i) sums[0] += sums[i];
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < sizeof(Vector) / sizeof(std::uint64_t); ++i) sum += sums[0][i];
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc == 2 ? std::atoi(argv[1]) : 0;
  if (threads < 1 || threads > 1024) {
    std::fprintf(stderr, "usage: probe THREADS (from 1 to 1024)\n");
    return 2;
  }
  // The room behind the end is for the prefetches of the last lines.
  void* map = mmap(nullptr, kBytes + kAhead + kStep, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) {
    std::fprintf(stderr, "probe: no %zu bytes of memory\n", kBytes);
    return 1;
  }
  madvise(map, kBytes, MADV_HUGEPAGE);
  char* const memory = static_cast<char*>(map);
  const std::size_t part = kBytes / threads / kStep * kStep;

  std::vector<double> rates;
  std::vector<std::uint64_t> sums(threads);
  std::chrono::steady_clock::time_point start;
  std::barrier line_up(threads);
  const auto work = [&](int thread) {
    char* const mine = memory + part * thread;
    std::memset(mine, thread + 1, part);
    for (int pass = 0; pass < kPasses; ++pass) {
      line_up.arrive_and_wait();
      if (thread == 0) start = std::chrono::steady_clock::now();
      line_up.arrive_and_wait();
      sums[thread] += read_all(mine, part);
      line_up.arrive_and_wait();
      if (thread == 0) {
        const std::chrono::duration<double> s = std::chrono::steady_clock::now() - start;
        rates.push_back(static_cast<double>(part) * threads / s.count() / 1e9);
      }
    }
  };
  std::vector<std::jthread> workers;
  for (int t = 1; t < threads; ++t) workers.emplace_back(work, t);
  work(0);
  workers.clear();
  volatile std::uint64_t sink = 0;
  for (const std::uint64_t s : sums) sink = sink + s;
  std::sort(rates.begin(), rates.end());
  std::printf("%.2f\n", rates[rates.size() / 2]);
}
