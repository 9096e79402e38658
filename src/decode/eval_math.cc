// SPDX-License-Identifier: Apache-2.0
#include "decode/eval_math.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "decode/sampler.h"

namespace lacuna {
namespace {

constexpr int kShortestWindow = 63;  // targets; fewer say more about the cut than about the model

double log_sum_exp(std::span<const float> logits) {
  const double best = static_cast<double>(logits[argmax(logits)]);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - best);
  return best + std::log(sum);
}

}  // namespace

std::vector<EvalWindow> eval_windows(std::span<const int> tokens, int length, int max_targets) {
  std::vector<EvalWindow> windows;
  if (tokens.empty()) return windows;
  std::size_t targets = tokens.size() - 1;
  if (max_targets > 0) targets = std::min<std::size_t>(targets, max_targets);
  for (std::size_t at = 0; at < targets; at += length) {
    const std::size_t n = std::min<std::size_t>(length, targets - at);
    if (n < kShortestWindow && n < static_cast<std::size_t>(length)) break;
    windows.push_back({tokens.subspan(at, n), tokens.subspan(at + 1, n)});
  }
  return windows;
}

double negative_log_likelihood(std::span<const float> logits, int target) {
  return log_sum_exp(logits) - static_cast<double>(logits[target]);
}

double Perplexity::loss() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

double Perplexity::value() const { return std::exp(loss()); }

double Perplexity::error() const {
  if (count_ < 2) return 0;
  const double n = static_cast<double>(count_);
  const double variance = std::max(0.0, squares_ / n - loss() * loss());
  return value() * std::sqrt(variance / (n - 1));
}

double kl_divergence(std::span<const float> reference, std::span<const float> tested) {
  const double reference_norm = log_sum_exp(reference);
  const double tested_norm = log_sum_exp(tested);
  double sum = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double log_p = static_cast<double>(reference[i]) - reference_norm;
    const double p = std::exp(log_p);
    if (p == 0) continue;  // the limit of p·log p, also where both logits are −∞
    sum += p * (log_p - (static_cast<double>(tested[i]) - tested_norm));
  }
  // Rounding can leave a tiny negative sum; NaN stays NaN.
  return sum < 0 ? 0 : sum;
}

void Divergence::add(std::span<const float> reference, std::span<const float> tested) {
  const double kl = kl_divergence(reference, tested);
  if (!(kl <= max_kl_) && !std::isnan(max_kl_)) max_kl_ = kl, max_row_ = count_;
  sum_ += kl;
  if (argmax(reference) == argmax(tested)) ++agreed_;
  bits_equal_ = bits_equal_ && reference.size() == tested.size() &&
                std::memcmp(reference.data(), tested.data(), reference.size_bytes()) == 0;
  ++count_;
}

double Divergence::mean_kl() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

double Divergence::top1_agreement() const {
  return count_ == 0 ? 0 : static_cast<double>(agreed_) / static_cast<double>(count_);
}

}  // namespace lacuna
