// SPDX-License-Identifier: Apache-2.0
// The config.json of a GLM-5.x (glm_moe_dsa) or DeepSeek-V3.2 (deepseek_v32) model, read and
// checked once; later code trusts every field.
//
// Every size is bounded so that any sum of a few of them, and each size named below as a product
// (q_rows, kv_b_rows, index_rows), fits an int. Products of two sizes may not: take them in 64
// bits.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lacuna/result.h"

namespace lacuna {

enum class GlmDsaFamily { kGlmMoeDsa, kDeepseekV32 };

struct GlmDsaLayer {
  bool is_moe = false;      // else a dense MLP
  bool has_indexer = true;  // else it uses the picks of the nearest layer before it that has one
};

// Letters as in ARCHITECTURE.md, and those of attention over latents: R latent, n and r the parts
// of a query without and with positions, v value. Fields of a layer kind that no layer has are 0.
struct GlmDsaConfig {
  GlmDsaFamily family = GlmDsaFamily::kGlmMoeDsa;
  int vocabulary = 0;  // V
  int width = 0;       // D
  std::vector<GlmDsaLayer> layers;
  float norm_eps = 1e-5f;
  // Of the norms of the query's and the keys' latent. Always norm_eps here; some other programs
  // hold it at 1e-6, so whoever compares with them sets it.
  float latent_norm_eps = 1e-5f;
  bool tied_embeddings = false;
  int max_context = 0;

  // Attention: one latent row and one rope key for all heads, no biases.
  int heads = 0;               // H
  int q_rank = 0;              // of the query's latent
  int latent = 0;              // R
  int nope = 0, rope = 0;      // n, r: a head's query is n values without positions, then r with
  int value = 0;               // v
  float softmax_scale = 0.0f;  // 1/√(n+r), with YaRN times its factor
  int q_rows() const { return heads * (nope + rope); }
  int kv_a_rows() const { return latent + rope; }
  int kv_b_rows() const { return heads * (nope + value); }
  int o_inputs() const { return heads * value; }

  // Radians a position for each pair of the r rotated values, [r/2], YaRN done. Attention turns
  // the last r of a query head and the rope key, in pairs (0,1), (2,3), …; the indexer turns the
  // first r of its values: the same pairs, or (i, i + r/2) when not interleaved.
  std::vector<float> rope_frequencies;
  bool indexer_interleaved = true;

  // Indexer, on layers that have one.
  int index_heads = 0, index_dim = 0;
  int index_topk = 0;            // keys a query attends to at most
  float index_norm_eps = 1e-6f;  // of its keys' LayerNorm
  int index_rows() const { return index_heads * index_dim; }
  // Prompts use the picks to skip keys (else to mask them) from this many cached tokens on.
  bool sparse_prefill = true;
  int sparse_prefill_min_context = 16384;

  int mlp_neurons = 0;  // of dense layers
  // MoE
  int experts = 0, experts_per_token = 0, expert_neurons = 0;
  int shared_experts = 0, shared_neurons = 0;  // shared_neurons: of all shared experts together
  int router_groups = 1, router_topk_groups = 1;
  bool normalize_weights = true;
  float routed_scaling = 1.0f;

  int mtp_layers = 0;            // drafting layers that the config declares, behind the others
  std::vector<int> stop_tokens;  // config.json's eos_token_id
};

// True for the model types that parse_glm_dsa_config reads.
bool is_glm_dsa(const nlohmann::ordered_json& config);

// Errors (kUnsupported, kCorrupt) name the field, what it holds and what was wanted. Accepts the
// spellings of the original releases, of newer transformers and of MLX conversions.
Result<GlmDsaConfig> parse_glm_dsa_config(const nlohmann::ordered_json& config);

// "FFSF", a letter a layer: F has an indexer, S shares picks. As index_topk_pattern spells it.
std::string indexer_pattern(const GlmDsaConfig& config);

// Weights of a layer with its norms, of the whole model without its drafting layers, and of those.
std::uint64_t layer_parameters(const GlmDsaConfig& config, const GlmDsaLayer& layer);
std::uint64_t main_parameters(const GlmDsaConfig& config);
std::uint64_t mtp_parameters(const GlmDsaConfig& config);

}  // namespace lacuna
