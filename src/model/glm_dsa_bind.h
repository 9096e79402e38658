// SPDX-License-Identifier: Apache-2.0
// The tensors of a GLM-5.x or DeepSeek-V3.2 checkpoint by meaning: names become fields here and
// nowhere else.
//
// Both naming schemes are accepted: the original release (kv_b_proj, separate experts) and MLX
// conversions (embed_q and unembed_out by head, stacked experts). Every tensor's shape and dtype is
// checked against the config; a missing tensor and a surplus one are errors that name it. Not
// looked at: drafting layers behind the model's own, and indexers of layers that share picks (some
// writers store them; the schedule counts).
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/linear_source.h"
#include "lacuna/result.h"
#include "model/binder.h"
#include "model/glm_dsa_config.h"

namespace lacuna {

// Small tensors are widened to float32; matrices stay views. Letters as in glm_dsa_config.h.

struct GlmDsaAttentionTensors {
  LinearSource q_a;              // [q_rank, D]
  std::vector<float> q_a_norm;   // [q_rank]
  LinearSource q_b;              // [H·(n+r), q_rank], by head: n rows, then r
  LinearSource kv_a;             // [R+r, D]: R rows of the latent, then r of the rope key
  std::vector<float> kv_a_norm;  // [R]
  // Between a head and the latent. From a query without positions to the latent it is embed_q in
  // MLX conversions; releases have its transpose, the first n rows a head of kv_b_proj, and only in
  // plain floats. One of the two is there.
  std::vector<LinearSource> embed_q;      // [H] of [R, n]; empty when the checkpoint has kv_b_proj
  std::vector<LinearSource> key_b;        // [H] of [n, R]; empty when the checkpoint has embed_q
  std::vector<LinearSource> unembed_out;  // [H] of [v, R], the values' rows of kv_b_proj
  bool is_absorbed() const { return !embed_q.empty(); }
  LinearSource o;  // [D, H·v]
};

// Empty on layers that share picks.
struct GlmDsaIndexerTensors {
  LinearSource wq_b;                       // [index heads · index dim, q_rank]
  LinearSource wk;                         // [index dim, D]
  std::vector<float> k_norm, k_norm_bias;  // [index dim]
  LinearSource weights_proj;               // [index heads, D]
};

struct GlmDsaMlpSources {
  LinearSource gate, up, down;  // [N, D], [N, D], [D, N]; out == 0 when there is no such MLP
};

struct GlmDsaExpertSources {
  std::vector<LinearSource> gate, up, down;  // [E] of [N, D], [N, D], [D, N]
};

struct GlmDsaLayerTensors {
  GlmDsaLayer kind;
  std::vector<float> input_norm, post_attention_norm;  // [D]
  GlmDsaAttentionTensors attention;
  GlmDsaIndexerTensors indexer;
  GlmDsaMlpSources mlp;  // of a dense layer
  // Of a layer with experts
  LinearSource router;                 // [E, D]
  std::vector<float> correction_bias;  // [E]
  GlmDsaExpertSources experts;
  GlmDsaMlpSources shared;
};

struct GlmDsaTensors {
  LinearSource embeddings, lm_head;  // [V, D]; lm_head is the embeddings again when tied
  std::vector<float> final_norm;     // [D]
  std::vector<GlmDsaLayerTensors> layers;
  bool has_mtp = false;          // drafting tensors are there; their shapes are not looked at
  std::uint64_t parameters = 0;  // of what is bound; codes count as weights, their scales do not
  std::uint64_t bytes = 0;       // of all those tensors as stored
  std::vector<std::string>
      notes;  // a line for each kind of tensor that is left out, drafting aside
};

// True for a tensor of the drafting layers: of a layer behind the config's that joins a token and a
// state (eh_proj), or mtp.*, as side files name them.
bool is_glm_dsa_mtp(const Checkpoint& checkpoint, const GlmDsaConfig& config,
                    const std::string& name);

// Errors: kUnsupported for FP8 weights, and for a dtype or quantisation that is not read; kCorrupt
// with the first tensor in the model's order that is missing (and how many are), has another shape,
// or holds a NaN or an infinity, then the first surplus one (and how many there are). The small
// tensors' values are always looked at.
Result<GlmDsaTensors> bind_glm_dsa(const Checkpoint& checkpoint, const GlmDsaConfig& config,
                                   ScaleCheck scale_check = ScaleCheck::kAll);

}  // namespace lacuna
