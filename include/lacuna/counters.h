// SPDX-License-Identifier: Apache-2.0
// The account of what a forward pass read and what it left out.
#pragma once

#include <cstdint>

namespace lacuna {

// What was read and skipped, summed since the session began; subtract two readings for an interval.
struct Counters {
  std::uint64_t tokens = 0;               // rows computed, of drafts too
  std::uint64_t passes = 0;               // forward passes of the model, not of its drafting head
  std::uint64_t weight_bytes = 0;         // weight bytes read
  std::uint64_t weight_bytes_dense = 0;   // what the same passes read when no row is skipped
  std::uint64_t state_bytes = 0;          // caches and recurrent state, read and written
  std::uint64_t neurons = 0;              // ReLU² neurons evaluated
  std::uint64_t live_neurons = 0;         // those that were not exactly 0
  std::uint64_t shared_neurons = 0;       // of the neurons, those of shared experts
  std::uint64_t shared_live_neurons = 0;  // of the live ones
  std::uint64_t expert_rows = 0;          // down rows of the experts that a pass went through
  std::uint64_t expert_rows_read = 0;     // those that some token of the pass needed
  std::uint64_t gathered_queries = 0;  // of sparse attention, by layer: only picked keys were read
  std::uint64_t masked_queries = 0;    // all keys were read, those not picked masked

  friend Counters operator+(Counters a, const Counters& b) {
    a.each(b, [](std::uint64_t& x, std::uint64_t y) { x += y; });
    return a;
  }
  friend Counters operator-(Counters a, const Counters& b) {
    a.each(b, [](std::uint64_t& x, std::uint64_t y) { x -= y; });
    return a;
  }

 private:
  template <class F>
  void each(const Counters& b, const F& f) {
    for (const auto field :
         {&Counters::tokens, &Counters::passes, &Counters::weight_bytes,
          &Counters::weight_bytes_dense, &Counters::state_bytes, &Counters::neurons,
          &Counters::live_neurons, &Counters::shared_neurons, &Counters::shared_live_neurons,
          &Counters::expert_rows, &Counters::expert_rows_read, &Counters::gathered_queries,
          &Counters::masked_queries}) {
      f(this->*field, b.*field);
    }
  }
};

}  // namespace lacuna
