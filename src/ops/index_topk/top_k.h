// SPDX-License-Identifier: Apache-2.0
// The K best of a stream of scores, block by block: exact, and the same whatever the blocks.
//
// Order   The higher score first; of equal ones the lower number. −0 and numbers below the normal
//         range count as 0, NaN as −inf. A key pushed is visible: with fewer than K of them all are
//         picked, whatever their scores.
// How     Of the keys kept so far the K-th best score is a limit; only what lies above it can still
//         get in, since numbers rise. One vector compare drops the rest (KeepAbove). The list stays
//         in the order of numbers, so nothing is sorted: when it is full, the K-th best is found
//         and what is below it leaves.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/index_topk/index_topk.h"

namespace lacuna {

class TopK {
 public:
  // Room for k picks, 1 or more. `filter` is the kernels' keep_above.
  TopK(int k, KeepAbove* filter);

  // Scores of keys first, first + 1, …; numbers rise from push to push.
  void push(const float* scores, int count, int first);
  // The picks' numbers, rising, min(k, keys pushed) of them; returns how many. Then starts anew.
  int finish(std::int32_t* picks);

 private:
  void add(float score, std::int32_t number);
  void keep_best();

  int k_;
  KeepAbove* filter_;
  int size_ = 0;
  float limit_ = 0;  // the K-th best score, once K are known
  bool limited_ = false;
  std::vector<std::uint64_t> list_;   // rank (top_k.cc), by rising number; k_ + kSlack at most
  std::vector<std::uint64_t> order_;  // a copy to select in, and room for it
  std::vector<float> kept_;
  std::vector<std::int32_t> number_;
};

}  // namespace lacuna
