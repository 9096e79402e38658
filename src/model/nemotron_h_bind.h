// SPDX-License-Identifier: Apache-2.0
// The tensors of a Nemotron-H checkpoint by meaning: names become fields here and nowhere else.
//
// Both naming schemes are accepted (the original release and MLX conversions; stacked or separate
// experts; conv taps as [C, 1, 4] or [C, 4, 1]). Every tensor's shape and dtype is checked against
// the config; a missing tensor and a surplus one are errors that name it (mtp.* is the head's).
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/linear_source.h"
#include "model/binder.h"
#include "model/nemotron_h_config.h"

namespace lacuna {

struct ExpertSources {
  std::vector<LinearSource> up,
      down;  // [E] of [N, D], [D, N] (D is the latent width when there is one)
};

// Small tensors are widened to float32; matrices stay views. Fields of other layer kinds are empty.
struct NemotronHLayerTensors {
  LayerKind kind = LayerKind::kMamba;
  std::vector<float> norm;  // [D]
  // Mamba-2
  LinearSource in_proj, out_proj;
  std::vector<float> conv_weight;        // [channels, 4], tap 3 is the current token
  std::vector<float> conv_bias;          // [channels]
  std::vector<float> a_log, d, dt_bias;  // [heads]; -exp(a_log) is finite and below 0
  std::vector<float> gate_norm;          // [inner]
  // Attention
  LinearSource q_proj, k_proj, v_proj, o_proj;
  // MoE
  LinearSource router;                 // [E, D]
  std::vector<float> correction_bias;  // [E]
  ExpertSources experts;
  LinearSource shared_up, shared_down;  // out == 0 when there is no shared expert
  LinearSource latent_in, latent_out;   // fc1_latent_proj, fc2_latent_proj; out == 0 when absent
  // Dense ReLU² MLP
  LinearSource mlp_up, mlp_down;
};

struct NemotronHTensors {
  LinearSource embeddings, lm_head;  // [V, D]; lm_head is the embeddings again when tied
  std::vector<float> final_norm;     // [D]
  std::vector<NemotronHLayerTensors> layers;
  bool has_mtp = false;  // tensors named mtp.* are there; their shapes are not looked at here
  std::uint64_t parameters = 0;  // without mtp.*; codes count as weights, scales and biases do not
  std::uint64_t bytes = 0;       // of all those tensors as stored
};

// The drafting head, mtp.*: in the checkpoint or in a side file. `layers` are those that the config
// names for it, an attention layer first.
struct NemotronHHeadTensors {
  std::vector<float> token_norm, hidden_norm, final_norm;  // enorm, hnorm, final_layernorm: [D]
  LinearSource joined;                                     // eh_proj [D, 2D]: embedding first
  std::vector<NemotronHLayerTensors> layers;
  std::uint64_t parameters = 0;
};

// Errors: kCorrupt with the first tensor in the model's order that is missing (and how many are),
// has another shape, or holds a NaN or an infinity, then the first surplus one (and how many there
// are); kUnsupported for a dtype or quantisation that is not read. The small tensors' values are
// always looked at.
Result<NemotronHTensors> bind_nemotron_h(const Checkpoint& checkpoint,
                                         const NemotronHConfig& config,
                                         ScaleCheck scale_check = ScaleCheck::kAll);

// Likewise for the head, in the layers that the config gives it, else an attention and an expert
// layer. kUnsupported also for layers other than attention, then experts or MLPs.
Result<NemotronHHeadTensors> bind_nemotron_h_head(const Checkpoint& checkpoint,
                                                  const NemotronHConfig& config,
                                                  ScaleCheck scale_check = ScaleCheck::kAll);

}  // namespace lacuna
