// SPDX-License-Identifier: Apache-2.0
// The walk over live groups that all vector bodies share, and what asks for the next one's memory.
#pragma once

#include "ops/sparse_down/sparse_down.h"

namespace lacuna {
namespace {  // the files of an instruction set share nothing that the linker could merge

inline int next_live_group(const LiveRows& live, int g, int groups) {
  while (g < groups && live.group_begin[g] == live.group_begin[g + 1]) ++g;
  return g;
}

// Asks for what outputs [begin, end) of a group read, in the second-level cache: the first level's
// miss queue is too short for scattered rows. In steps, one for each column block of the group
// before, because a burst of requests would hold up the arithmetic behind it: whole rows one after
// the other, and each step's share of the scales.
class GroupFetch {
 public:
  GroupFetch(const NeuronMajor& w, const LiveRows& live, int g, int begin, int end)
      : columns_((end - begin) / kColumnBlock),
        index_(live.index + live.group_begin[g]),
        count_(live.group_begin[g + 1] - live.group_begin[g]),
        row_bytes_(w.row_bytes()),
        row_(w.rows + row_bytes_ / blocks(w) * (begin / kColumnBlock)),
        part_(row_bytes_ / blocks(w) * columns_),
        scale_step_(w.scale_row_bytes() / blocks(w)),
        scale_(w.scales + static_cast<std::size_t>(g) * w.scale_row_bytes() +
               scale_step_ * (begin / kColumnBlock)) {}

  // Inlined by force: GCC takes a function that only prefetches for one without effects and drops
  // the call.
  [[gnu::always_inline]] inline void step() {
    ++step_;
    for (; next_ * columns_ < count_ * step_; ++next_) {
      const std::uint8_t* row = row_ + static_cast<std::size_t>(index_[next_]) * row_bytes_;
      for (std::size_t at = 0; at < part_; at += 64) __builtin_prefetch(row + at, 0, 2);
    }
    for (std::size_t at = 0; at < scale_step_; at += 64) __builtin_prefetch(scale_ + at, 0, 2);
    scale_ += scale_step_;
  }
  [[gnu::always_inline]] inline void all() {
    for (int i = 0; i < columns_; ++i) step();
  }

 private:
  static std::size_t blocks(const NeuronMajor& w) { return w.width() / kColumnBlock; }

  int columns_;
  const int* index_;
  int count_;
  std::size_t row_bytes_;
  const std::uint8_t* row_;
  std::size_t part_;
  std::size_t scale_step_;
  const std::uint8_t* scale_;
  int step_ = 0, next_ = 0;
};

}  // namespace
}  // namespace lacuna
