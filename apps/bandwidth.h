// SPDX-License-Identifier: Apache-2.0
// How fast this machine reads memory right now: the limit a decode step is measured against.
//
// Other programs and other guests of the same host change it within seconds, so a speed is only
// worth what the probe beside it says.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace lacuna {

class BandwidthProbe {
 public:
  // More than the caches of any machine hold.
  static constexpr std::size_t kBytes = std::size_t{1} << 30;

  // Takes `bytes` of memory, in huge pages where the system has them, or a quarter of what is
  // available if that is less; touches all of it and keeps it.
  explicit BandwidthProbe(int threads, std::size_t bytes = kBytes);
  ~BandwidthProbe();
  BandwidthProbe(const BandwidthProbe&) = delete;

  // Gigabytes (10⁹) per second, read for `seconds` by all threads at once, each along a stream of
  // its own. 0 when there was no memory beyond what caches hold.
  double measure(double seconds = 0.06);

  // Resident as long as the probe lives; 0 when there was no memory.
  std::size_t bytes() const { return words_.size_bytes(); }

 private:
  int threads_;
  std::span<std::uint64_t> words_;
  std::atomic<std::uint64_t> sink_{0};  // what was read counts for something, so it is read
};

// The best of a few short measurements with a small probe: about 0.2 s and 256 MiB.
double measure_read_bandwidth(int threads);

}  // namespace lacuna
