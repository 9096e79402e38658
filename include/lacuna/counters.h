// SPDX-License-Identifier: Apache-2.0
// The account of what a forward pass read and what it left out.
#pragma once

#include <cstdint>

namespace lacuna {

// What was read and skipped, summed since the session began; subtract two readings for an interval.
struct Counters {
  std::uint64_t tokens = 0;              // rows computed
  std::uint64_t passes = 0;              // forward passes
  std::uint64_t weight_bytes = 0;        // weight bytes read
  std::uint64_t weight_bytes_dense = 0;  // what the same passes read when no row is skipped
  std::uint64_t state_bytes = 0;         // caches and recurrent state, read and written
  std::uint64_t neurons = 0;             // ReLU² neurons evaluated
  std::uint64_t live_neurons = 0;        // those that were not exactly 0

  friend Counters operator+(const Counters& a, const Counters& b) {
    return {a.tokens + b.tokens,
            a.passes + b.passes,
            a.weight_bytes + b.weight_bytes,
            a.weight_bytes_dense + b.weight_bytes_dense,
            a.state_bytes + b.state_bytes,
            a.neurons + b.neurons,
            a.live_neurons + b.live_neurons};
  }
  friend Counters operator-(const Counters& a, const Counters& b) {
    return {a.tokens - b.tokens,
            a.passes - b.passes,
            a.weight_bytes - b.weight_bytes,
            a.weight_bytes_dense - b.weight_bytes_dense,
            a.state_bytes - b.state_bytes,
            a.neurons - b.neurons,
            a.live_neurons - b.live_neurons};
  }
};

}  // namespace lacuna
