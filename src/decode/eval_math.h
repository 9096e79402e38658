// SPDX-License-Identifier: Apache-2.0
// How good a row of logits is, and how far two rows are apart. All sums are in float64.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lacuna {

// A run of text that is scored without what came before it.
struct EvalWindow {
  std::span<const int> inputs;   // at most `length` tokens
  std::span<const int> targets;  // the same, one later: what each input's logits should predict
};

// Windows of `length` inputs, one after another; the first token of the text is never a target. A
// last window of fewer than 63 targets is dropped, and so is what lies beyond `max_targets` (0: no
// limit). The spans point into `tokens`.
std::vector<EvalWindow> eval_windows(std::span<const int> tokens, int length, int max_targets);

// −log of the probability of `target`. −∞ logits are allowed, NaN gives NaN.
double negative_log_likelihood(std::span<const float> logits, int target);

// Mean loss over predicted tokens, and perplexity with its standard error: exp(mean) times the
// standard error of the mean (tokens taken as independent).
class Perplexity {
 public:
  void add(double nll) { ++count_, sum_ += nll, squares_ += nll * nll; }

  std::uint64_t count() const { return count_; }
  double loss() const;
  double value() const;
  double error() const;  // 0 for fewer than two tokens

 private:
  std::uint64_t count_ = 0;
  double sum_ = 0, squares_ = 0;
};

// KL(reference ‖ tested) of the next-token distributions, in nats.
double kl_divergence(std::span<const float> reference, std::span<const float> tested);

// Compares rows of the same positions, reference first.
class Divergence {
 public:
  void add(std::span<const float> reference, std::span<const float> tested);

  std::uint64_t count() const { return count_; }
  double mean_kl() const;
  double max_kl() const { return max_kl_; }
  std::uint64_t max_kl_row() const { return max_row_; }  // counted from 0
  double top1_agreement() const;                         // share of rows with the same best token
  bool bits_equal() const { return bits_equal_; }        // every logit of every row

 private:
  std::uint64_t count_ = 0, agreed_ = 0, max_row_ = 0;
  double sum_ = 0, max_kl_ = 0;
  bool bits_equal_ = true;
};

}  // namespace lacuna
