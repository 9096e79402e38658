// SPDX-License-Identifier: Apache-2.0
// Chooses the next token from a row of logits.
//
//     logit_bias → penalties → temperature → top_k → top_p → min_p → draw
//
// Bias and penalties come first because they change what the model says; temperature next, so that
// the masses top_p and min_p measure are those of the distribution that is drawn from. Cutting from
// coarse to fine makes each filter act on what the one before it kept.
//
// Greedy   temperature 0: the largest logit after bias and penalties, ties to the lower id. The
//          filters cannot remove the largest, so they are not looked at.
// Draws    Draw n of a seed depends on (seed, n) only, and on no library's distributions.
// NaN      A NaN logit counts as −∞. When every logit is −∞ the lowest id is chosen.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "lacuna/result.h"
#include "lacuna/sampling.h"

namespace lacuna {

// kInvalidArgument names the first field outside the range sampling.h gives, or a biased id outside
// the vocabulary.
Result<void> check_sampling(const SamplingParams& params, int vocabulary);

// Draw `index` of `seed`: uniform in [0, 1), the same on every machine.
double uniform_draw(std::uint64_t seed, std::uint64_t index);

// The largest logit, ties to the lower id; NaN counts as −∞. `logits` is not empty.
int argmax(std::span<const float> logits);

class Sampler {
 public:
  // `params` have passed check_sampling. Tokens of the prompt count for repeat_penalty only:
  // presence and frequency are about what was generated.
  Sampler(const SamplingParams& params, std::span<const int> prompt);

  // Chooses a token and counts it as generated. `logits` [V] is not empty.
  int pick(std::span<const float> logits);

  // What the pick `ahead` places after the next one (0: the next) would choose if these were its
  // logits; counts nothing. A draft chosen so, with the pick's own draw, is likely to be what is
  // picked from the model's logits when the head's are like them. Picks do not look at drafts: they
  // are drawn from the model's distribution whatever was guessed.
  int guess(std::span<const float> logits, int ahead);

  std::uint64_t seed() const { return params_.seed; }  // the one in use, never 0

 private:
  struct Candidate {
    float logit;
    int id;
    float weight;  // exp((logit − best) / temperature): 1 for the best
  };

  int choose(std::span<const float> logits, std::uint64_t draw);
  std::span<const float> adjusted(std::span<const float> logits);
  void weigh_candidates(std::span<const float> logits);
  void keep_top_p();
  int draw(std::uint64_t index);

  SamplingParams params_;
  std::unordered_map<int, int> seen_;  // id → times generated; 0 for one only in the prompt
  std::uint64_t draws_ = 0;
  std::vector<float> logits_;  // scratch: the row after bias and penalties
  std::vector<Candidate> candidates_;
};

}  // namespace lacuna
