// SPDX-License-Identifier: Apache-2.0
#include "ops/moe_route/moe_route.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "ops/activations/activations.h"

namespace lacuna {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Marks every expert outside the best groups as not to be chosen.
void limit_to_groups(const RouteRules& rules, std::vector<float>& biased) {
  const int size = rules.experts / rules.groups;
  std::vector<float> value(rules.groups);
  for (int g = 0; g < rules.groups; ++g) {
    float best = kLowest;
    float second = kLowest;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      if (biased[e] > best) {
        second = best;
        best = biased[e];
      } else if (biased[e] > second) {
        second = biased[e];
      }
    }
    value[g] = size > 1 ? best + second : best;
  }
  std::vector<bool> kept(rules.groups, false);
  for (int i = 0; i < rules.topk_groups; ++i) {
    int best = -1;
    for (int g = 0; g < rules.groups; ++g) {
      if (!kept[g] && (best < 0 || value[g] > value[best])) best = g;
    }
    kept[best] = true;
  }
  for (int e = 0; e < rules.experts; ++e) {
    if (!kept[e / size]) biased[e] = kLowest;
  }
}

}  // namespace

void moe_route(const RouteRules& rules, std::span<const float> logits, std::span<const float> bias,
               std::span<int> ids, std::span<float> weights) {
  std::vector<float> score(rules.experts);
  std::vector<float> biased(rules.experts);
  for (int e = 0; e < rules.experts; ++e) {
    score[e] = sigmoid_f32(logits[e]);
    biased[e] = score[e] + bias[e];
  }
  if (rules.groups > 1) limit_to_groups(rules, biased);
  std::vector<bool> taken(rules.experts, false);
  for (int k = 0; k < rules.chosen; ++k) {
    int best = -1;
    for (int e = 0; e < rules.experts; ++e) {
      if (!taken[e] && (best < 0 || biased[e] > biased[best])) best = e;
    }
    taken[best] = true;
    ids[k] = best;
  }
  std::sort(ids.begin(), ids.begin() + rules.chosen);
  float sum = 0.0f;
  for (int k = 0; k < rules.chosen; ++k) sum += score[ids[k]];
  for (int k = 0; k < rules.chosen; ++k) {
    const float weight = rules.normalize ? score[ids[k]] / (sum + 1e-20f) : score[ids[k]];
    weights[k] = weight * rules.scaling;
  }
}

}  // namespace lacuna
