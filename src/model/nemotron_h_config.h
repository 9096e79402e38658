// SPDX-License-Identifier: Apache-2.0
// The config.json of a Nemotron-H model, read and checked once; later code trusts every field.
//
// Every size is bounded so that any sum of a few of them, and each size named below as a product
// (ssm_inner, conv_channels, in_proj_rows, query rows), fits an int. Products of two sizes may not:
// take them in 64 bits.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lacuna/result.h"

namespace lacuna {

enum class LayerKind { kMamba, kAttention, kMoe, kMlp };  // M, *, E, -

// Letters as in ARCHITECTURE.md: D width, V vocabulary, H heads, N neurons, E experts, K chosen, S
// state. Fields of a layer kind that no layer has are 0.
struct NemotronHConfig {
  int vocabulary = 0;  // V
  int width = 0;       // D
  std::vector<LayerKind> layers;
  float norm_eps = 1e-5f;
  bool tied_embeddings = false;
  int max_context = 0;

  // Attention: no positions, no biases.
  int heads = 0, kv_heads = 0, head_dim = 0;

  // Mamba-2.
  int ssm_heads = 0, ssm_head_dim = 0, ssm_state = 0, ssm_groups = 0, conv_kernel = 0;
  float dt_min = 0.0f, dt_max = std::numeric_limits<float>::infinity();  // time_step_limit
  int ssm_inner() const { return ssm_heads * ssm_head_dim; }
  int conv_channels() const { return ssm_inner() + 2 * ssm_groups * ssm_state; }
  int in_proj_rows() const { return ssm_inner() + conv_channels() + ssm_heads; }

  // MoE. latent 0: experts work on the full width.
  int experts = 0, experts_per_token = 0, expert_neurons = 0;
  int shared_experts = 0, shared_neurons = 0;  // shared_neurons: of all shared experts together
  int router_groups = 1, router_topk_groups = 1;
  bool normalize_weights = true;
  float routed_scaling = 1.0f;
  int latent = 0;

  int mlp_neurons = 0;  // of `-` layers

  std::vector<LayerKind> mtp_layers;  // of one drafting step; empty: no head declared
  std::vector<int> stop_tokens;       // config.json's eos_token_id
};

// Errors (kUnsupported, kCorrupt) name the field, what it holds and what was wanted. Accepts the
// spellings of the original releases, of newer transformers and of MLX conversions.
Result<NemotronHConfig> parse_nemotron_h_config(const nlohmann::ordered_json& config);

// "MEMEM*E", one letter a layer.
std::string pattern_text(const std::vector<LayerKind>& layers);

// Weights of one layer with its norm, of the whole model without the drafting head, and of the
// head.
std::uint64_t layer_parameters(const NemotronHConfig& config, LayerKind kind);
std::uint64_t main_parameters(const NemotronHConfig& config);
std::uint64_t mtp_parameters(const NemotronHConfig& config);

}  // namespace lacuna
