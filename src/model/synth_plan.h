// SPDX-License-Identifier: Apache-2.0
// The tensors of a synthetic Nemotron-H checkpoint and the laws their weights follow, such that a
// wanted share of ReLU² neurons is live.
//
// How a share comes about. Embedding rows have unit mean square and mean kMean, and every mixer
// adds an output whose mean square is small beside 1, so the normalised hidden state of any token
// at any layer has mean
//
//     m = kMean / sqrt(1 + what the mixers before have added)
//
// A row of an up projection has weights of deviation s and mean −t·s. Over D inputs its
// pre-activation then has
//
//     mean      −t·s·D·m
//     variance  s²·D·v + (t·s)²·D·(1 − m²)     (the input's own sum differs from token to token)
//
// where v = 1 − m²·(1 − r): a row's own sum has only r ≈ 0.8 of the variance that independent
// weights would give it, since each of its groups holds both extremes. The pre-activation is above
// 0 with probability p where
//
//     t = z·sqrt(v) / sqrt(D·m² − z²·(1 − m²)),   z the normal quantile of 1 − p
//
// Each token and neuron has its own sum, so different tokens have different live neurons; about m²
// of the variance belongs to a neuron, so some are live more often than others, as in trained
// models.
//
// All other matrices have rows that sum to nearly 0 (WeightLaw), so that what all hidden states
// share moves neither router nor output head: experts are chosen evenly. Two projections in front
// of an up projection are the exception, fc1_latent_proj and eh_proj: they pass the mean on.
//
// An output's size: a mixer's down or out projection is scaled by what its input's mean square is
// known to be. For h = max(u, 0)² with u normal of mean −z and deviation 1 that is
// E[h²] = (z⁴ + 6z² + 3)·Q(z) − (z³ + 5z)·φ(z).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/safetensors_writer.h"
#include "lacuna/result.h"
#include "model/nemotron_h_config.h"
#include "model/synth_codes.h"
#include "tensor/dtype.h"

namespace lacuna {

// Shares of live neurons; between the first and the last layer they follow a parabola.
struct LiveProfile {
  double routed_edge = 0.03, routed_middle = 0.06;
  double shared_edge = 0.09, shared_middle = 0.13;

  // At `depth`, 0 for the first layer and 1 for the last. Dense MLPs follow the shared expert.
  double routed(double depth) const;
  double shared(double depth) const;
};

// "published" (the default above), "0.05" for all, or "0.05,0.12" for routed and shared.
// kInvalidArgument quotes what is wrong; a share lies between 0 and 1.
Result<LiveProfile> parse_live_profile(const std::string& text);

// What is written in one go: a quantised module, or one small tensor.
struct SynthPart {
  std::vector<OutputTensor> tensors;  // .weight, .scales and .biases, or the one
  // Of a module: rows of `in` weights, those of all stacked experts together.
  std::int64_t rows = 0;
  int in = 0;
  WeightLaw law;
  // Of a small tensor: its values.
  std::function<std::vector<float>(SynthRandom&)> values;

  bool quantized() const { return rows > 0; }
};

struct SynthPlan {
  std::vector<SynthPart> model;  // in the model's order
  std::vector<SynthPart> head;   // of the drafting head, empty without one
};

// kInvalidArgument: the model is too narrow for a share of the profile.
Result<SynthPlan> plan_synthetic(const NemotronHConfig& config, const LiveProfile& live);

}  // namespace lacuna
