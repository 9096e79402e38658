// SPDX-License-Identifier: Apache-2.0
#include "bandwidth.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <latch>
#include <thread>
#include <vector>

#include "base/cpu.h"
#include "base/memory.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lacuna {
namespace {

constexpr std::size_t kLeastBytes = std::size_t{64} << 20;
constexpr std::size_t kSmallBytes = std::size_t{256} << 20;
constexpr int kSmallMeasurements = 3;
constexpr double kSmallSeconds = 0.04;
// Read between two looks at the clock: some 10 µs.
constexpr std::size_t kChunkWords = (std::size_t{256} << 10) / sizeof(std::uint64_t);
constexpr int kSums = 8;  // so that no addition waits for the one before it

using Sum = std::uint64_t (*)(const std::uint64_t* chunk);

std::uint64_t sum_plain(const std::uint64_t* chunk) {
  std::uint64_t sums[kSums] = {};
  for (std::size_t i = 0; i < kChunkWords; i += kSums)
    for (int j = 0; j < kSums; ++j) sums[j] += chunk[i + j];
  std::uint64_t sum = 0;
  for (const std::uint64_t s : sums) sum += s;
  return sum;
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) std::uint64_t sum_512(const std::uint64_t* chunk) {
  __m512i sums[kSums];
  for (__m512i& s : sums) s = _mm512_setzero_si512();
  for (std::size_t i = 0; i < kChunkWords; i += 8 * kSums)
    for (int j = 0; j < kSums; ++j)
      sums[j] = _mm512_add_epi64(sums[j], _mm512_loadu_si512(chunk + i + 8 * j));
  std::uint64_t lanes[8], sum = 0;
  for (int j = 1; j < kSums; ++j) sums[0] = _mm512_add_epi64(sums[0], sums[j]);
  _mm512_storeu_si512(lanes, sums[0]);
  for (const std::uint64_t lane : lanes) sum += lane;
  return sum;
}
#endif

Sum widest_sum() {
#if defined(__x86_64__)
  const std::vector<Isa> isas = usable_isas();
  if (std::find(isas.begin(), isas.end(), Isa::kAvx512) != isas.end()) return sum_512;
#endif
  return sum_plain;
}

// Calls body(thread) on all threads at once, the caller's among them. Not on a pool: its workers
// would go on spinning into what is measured next.
template <class Body>
void on_threads(int threads, const Body& body) {
  std::latch start(threads);
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) {
    others.emplace_back([&, t] {
      start.arrive_and_wait();
      body(t);
    });
  }
  start.arrive_and_wait();
  body(0);
  for (std::thread& other : others) other.join();
}

// A whole number of chunks for each thread; 0 when there is too little memory.
std::size_t buffer_words(std::size_t bytes, int threads) {
  bytes = std::min<std::size_t>(bytes, available_memory_bytes() / 4);
  if (bytes < kLeastBytes) return 0;
  const std::size_t slice = kChunkWords * threads;
  return bytes / sizeof(std::uint64_t) / slice * slice;
}

}  // namespace

BandwidthProbe::BandwidthProbe(int threads, std::size_t bytes) : threads_(std::max(1, threads)) {
  const std::size_t words = buffer_words(bytes, threads_);
  if (words == 0) return;
  void* memory = mmap(nullptr, words * sizeof(std::uint64_t), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  madvise(memory, words * sizeof(std::uint64_t), MADV_HUGEPAGE);
  words_ = {static_cast<std::uint64_t*>(memory), words};
  const std::size_t slice = words / threads_;
  // Each thread touches what it will read, which places the pages near it. Not zeros: the system
  // could fold such pages into one.
  on_threads(threads_, [&](int thread) {
    std::uint64_t word = slice * thread;
    for (std::uint64_t& w : words_.subspan(slice * thread, slice)) w = ++word;
  });
}

BandwidthProbe::~BandwidthProbe() {
  if (!words_.empty()) munmap(words_.data(), words_.size_bytes());
}

double BandwidthProbe::measure(double seconds) {
  if (words_.empty()) return 0;
  using Clock = std::chrono::steady_clock;
  const Sum sum = widest_sum();
  const std::size_t slice = words_.size() / threads_;
  std::vector<double> gb_s(threads_);
  on_threads(threads_, [&](int thread) {
    const std::span<const std::uint64_t> own = words_.subspan(slice * thread, slice);
    const Clock::time_point start = Clock::now();
    std::chrono::duration<double> taken{};
    std::size_t at = 0, chunks = 0;
    std::uint64_t total = 0;
    do {
      total += sum(own.data() + at);
      at = at + kChunkWords < own.size() ? at + kChunkWords : 0;
      ++chunks;
      taken = Clock::now() - start;
    } while (taken.count() < seconds);
    sink_ += total;
    const double read = static_cast<double>(chunks * kChunkWords * sizeof(std::uint64_t));
    gb_s[thread] = read / taken.count() / 1e9;
  });
  double all = 0;
  for (const double one : gb_s) all += one;
  return all;
}

double measure_read_bandwidth(int threads) {
  BandwidthProbe probe(threads, kSmallBytes);
  double best = 0;
  for (int i = 0; i < kSmallMeasurements; ++i) best = std::max(best, probe.measure(kSmallSeconds));
  return best;
}

}  // namespace lacuna
