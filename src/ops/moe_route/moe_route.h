// SPDX-License-Identifier: Apache-2.0
// Choice of experts from the router's logits, one token at a time.
//
//     score = sigmoid(logit);  chosen = the K largest of score + correction bias, ties to the lower
//     id weight = scaling · score / (Σ chosen scores + 1e−20), from the scores without the bias
//
// With router groups: a group's value is the sum of its two best biased scores, and only the best
// `topk_groups` groups take part. Chosen experts come out by rising id, and Σ runs in that order.
// Source: docs/kernels.md.
#pragma once

#include <span>

namespace lacuna {

struct RouteRules {
  int experts = 0, chosen = 0;
  int groups = 1, topk_groups = 1;
  bool normalize = true;
  float scaling = 1.0f;
};

// logits and bias [experts]; ids and weights [chosen].
void moe_route(const RouteRules& rules, std::span<const float> logits, std::span<const float> bias,
               std::span<int> ids, std::span<float> weights);

}  // namespace lacuna
