// SPDX-License-Identifier: Apache-2.0
// How the next token is chosen from the logits.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace lacuna {

// Every filter is off at its default. temperature 0 is greedy: the largest logit, ties to the lower
// id.
struct SamplingParams {
  float temperature = 1.0f;  // >= 0
  int top_k = 0;             // keep the k most likely; 0: all
  float top_p = 1.0f;        // keep the smallest set with at least this mass; (0, 1]
  float min_p = 0.0f;        // drop what is less likely than min_p times the best; [0, 1)
  float repeat_penalty =
      1.0f;  // > 0; divides positive logits of seen tokens, multiplies negative ones
  float presence_penalty = 0.0f;   // subtracted once from every generated token's logit
  float frequency_penalty = 0.0f;  // subtracted once per occurrence
  std::uint64_t seed = 0;          // 0: drawn from the system; the one used is reported
  std::vector<std::pair<int, float>> logit_bias;  // token id, added to its logit
};

}  // namespace lacuna
