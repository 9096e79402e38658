// SPDX-License-Identifier: Apache-2.0
#include "decode/sampler.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <limits>
#include <random>

namespace lacuna {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kNever = -std::numeric_limits<float>::infinity();

// NaN is less than everything, and +∞ becomes finite so that differences of logits stay numbers.
float comparable(float logit) { return std::isnan(logit) ? kNever : std::min(logit, kLargest); }

// Small enough to be typed again by hand.
std::uint64_t system_seed() {
  try {
    std::random_device device;
    if (const std::uint32_t seed = device(); seed != 0) return seed;
  } catch (const std::exception&) {
    // No entropy source: the clock below.
  }
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return (static_cast<std::uint64_t>(now) & 0xffffffffu) | 1u;
}

// A total order, so that which of two equal logits is kept never depends on the sort.
constexpr auto better = [](const auto& a, const auto& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
};

Error out_of_range(const char* field, float found, const char* wanted) {
  return {ErrorCode::kInvalidArgument, fmt::format("{}: {}, want {}", field, found, wanted)};
}

}  // namespace

Result<void> check_sampling(const SamplingParams& p, int vocabulary) {
  if (!std::isfinite(p.temperature) || p.temperature < 0)
    return out_of_range("temperature", p.temperature, "0 or more");
  if (p.top_k < 0) return out_of_range("top_k", static_cast<float>(p.top_k), "0 (off) or more");
  if (!(p.top_p > 0 && p.top_p <= 1)) return out_of_range("top_p", p.top_p, "above 0, at most 1");
  if (!(p.min_p >= 0 && p.min_p < 1)) return out_of_range("min_p", p.min_p, "0 or more, below 1");
  if (!std::isfinite(p.repeat_penalty) || p.repeat_penalty <= 0)
    return out_of_range("repeat_penalty", p.repeat_penalty, "above 0");
  if (!std::isfinite(p.presence_penalty))
    return out_of_range("presence_penalty", p.presence_penalty, "a finite number");
  if (!std::isfinite(p.frequency_penalty))
    return out_of_range("frequency_penalty", p.frequency_penalty, "a finite number");
  for (const auto& [id, bias] : p.logit_bias) {
    if (id < 0 || id >= vocabulary) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("logit_bias: token {}, want 0 to {}", id, vocabulary - 1)};
    }
    if (std::isnan(bias) || bias > kLargest)
      return out_of_range("logit_bias", bias, "a finite number or -inf");
  }
  return {};
}

// SplitMix64's finaliser over a Weyl sequence, which gives any draw without the ones before it. The
// seed is mixed first: otherwise neighbouring seeds would give shifted copies of one sequence.
double uniform_draw(std::uint64_t seed, std::uint64_t index) {
  const auto mix = [](std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  };
  const std::uint64_t bits = mix(mix(seed) + (index + 1) * 0x9e3779b97f4a7c15u);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

int argmax(std::span<const float> logits) {
  int best = 0;
  float best_logit = comparable(logits[0]);
  for (int i = 1; i < static_cast<int>(logits.size()); ++i) {
    // False for NaN on the right, and best_logit is never NaN.
    if (logits[i] > best_logit) best = i, best_logit = logits[i];
  }
  return best;
}

Sampler::Sampler(const SamplingParams& params, std::span<const int> prompt) : params_(params) {
  if (params_.seed == 0) params_.seed = system_seed();
  for (const int id : prompt) seen_.try_emplace(id, 0);
}

int Sampler::pick(std::span<const float> logits) {
  const int id = choose(adjusted(logits), draws_++);
  ++seen_[id];
  return id;
}

int Sampler::guess(std::span<const float> logits, int ahead) {
  return choose(adjusted(logits), draws_ + static_cast<std::uint64_t>(ahead));
}

std::span<const float> Sampler::adjusted(std::span<const float> logits) {
  const bool penalties = params_.repeat_penalty != 1.0f || params_.presence_penalty != 0.0f ||
                         params_.frequency_penalty != 0.0f;
  if (!penalties && params_.logit_bias.empty()) return logits;
  logits_.assign(logits.begin(), logits.end());
  const int vocabulary = static_cast<int>(logits_.size());
  for (const auto& [id, bias] : params_.logit_bias)
    if (id < vocabulary) logits_[id] += bias;
  if (!penalties) return logits_;
  for (const auto& [id, times] : seen_) {
    if (id < 0 || id >= vocabulary) continue;
    float& logit = logits_[id];
    logit = logit > 0 ? logit / params_.repeat_penalty : logit * params_.repeat_penalty;
    if (times == 0) continue;
    logit -= params_.presence_penalty + params_.frequency_penalty * static_cast<float>(times);
  }
  return logits_;
}

int Sampler::choose(std::span<const float> logits, std::uint64_t index) {
  const int best = argmax(logits);
  if (params_.temperature == 0 || comparable(logits[best]) == kNever) return best;
  weigh_candidates(logits);
  if (params_.top_p < 1) keep_top_p();
  std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < params_.min_p; });
  return draw(index);
}

// Best first, ties to the lower id, when top_k cuts; in order of id otherwise.
void Sampler::weigh_candidates(std::span<const float> logits) {
  candidates_.clear();
  float best = kNever;
  for (int i = 0; i < static_cast<int>(logits.size()); ++i) {
    const float logit = comparable(logits[i]);
    if (logit == kNever) continue;
    best = std::max(best, logit);
    candidates_.push_back({logit, i, 0});
  }
  if (params_.top_k > 0 && params_.top_k < static_cast<int>(candidates_.size())) {
    std::partial_sort(candidates_.begin(), candidates_.begin() + params_.top_k, candidates_.end(),
                      better);
    candidates_.resize(params_.top_k);
  }
  for (Candidate& c : candidates_) c.weight = std::exp((c.logit - best) / params_.temperature);
}

// Sorts only as far as the kept set reaches: it is small, the vocabulary is not.
void Sampler::keep_top_p() {
  double total = 0;
  for (const Candidate& c : candidates_) total += static_cast<double>(c.weight);
  const double wanted = static_cast<double>(params_.top_p) * total;
  double mass = 0;
  std::size_t sorted = 0;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (i == sorted) {
      const std::size_t block = std::max<std::size_t>(256, sorted * 3);
      sorted = std::min(candidates_.size(), sorted + block);
      std::partial_sort(candidates_.begin() + i, candidates_.begin() + sorted, candidates_.end(),
                        better);
    }
    mass += static_cast<double>(candidates_[i].weight);
    if (mass >= wanted) {
      candidates_.resize(i + 1);
      return;
    }
  }
}

int Sampler::draw(std::uint64_t index) {
  double total = 0;
  for (const Candidate& c : candidates_) total += static_cast<double>(c.weight);
  double left = uniform_draw(params_.seed, index) * total;
  int last = candidates_.front().id;
  for (const Candidate& c : candidates_) {
    if (c.weight == 0) continue;
    last = c.id;
    left -= static_cast<double>(c.weight);
    if (left < 0) break;
  }
  return last;  // rounding may leave a crumb past the end: then the last that had a chance
}

}  // namespace lacuna
