// SPDX-License-Identifier: Apache-2.0
// A GLM checkpoint of three small layers, for tests of loading: dense with an indexer, experts with
// one, experts that share picks.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/safetensors_writer.h"
#include "tests/support/tiny_nemotron.h"

namespace lacuna::test {

// D 64, V 32; 2 heads of 64 + 16, values of 32, latents of 64; 2 index heads of 32; MLP of 64; 3
// experts and a shared one, of 64 neurons.
inline nlohmann::ordered_json tiny_glm_config() {
  return nlohmann::ordered_json::parse(R"({
    "model_type": "glm_moe_dsa", "vocab_size": 32, "hidden_size": 64, "num_hidden_layers": 3,
    "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 64, "kv_lora_rank": 64,
    "qk_nope_head_dim": 64, "qk_rope_head_dim": 16, "v_head_dim": 32,
    "index_n_heads": 2, "index_head_dim": 32, "index_topk": 4, "indexer_types": ["full", "full", "shared"],
    "first_k_dense_replace": 1, "intermediate_size": 64, "n_routed_experts": 3, "num_experts_per_tok": 2,
    "moe_intermediate_size": 64, "n_shared_experts": 1, "routed_scaling_factor": 2.5, "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_theta": 8000000, "rope_type": "default"}, "max_position_embeddings": 128,
    "eos_token_id": [2, 3]})");
}

// One decoder layer: `mlp` 'D' dense or 'E' experts.
inline void add_tiny_glm_layer(TestTensors& t, const std::string& path, char mlp, bool indexer,
                               bool mlx) {
  const int bits = mlx ? 4 : 0;
  const auto small = [&t](const std::string& name, std::int64_t size, Dtype dtype = Dtype::kBf16) {
    t[name] = filled(dtype, {size}, 1.0f);
  };
  const auto swiglu = [&](const std::string& at, std::vector<std::int64_t> shape) {
    for (const char* name : {"gate_proj", "up_proj", "down_proj"})
      add_module(t, at + name, shape, bits);
  };
  small(path + "input_layernorm.weight", 64);
  small(path + "post_attention_layernorm.weight", 64);
  const std::string attention = path + "self_attn.";
  add_module(t, attention + "q_a_proj", {64, 64}, bits);
  small(attention + "q_a_layernorm.weight", 64);
  add_module(t, attention + "q_b_proj", {160, 64}, bits);
  add_module(t, attention + "kv_a_proj_with_mqa", {80, 64}, bits);
  small(attention + "kv_a_layernorm.weight", 64);
  if (mlx) {
    add_module(t, attention + "embed_q", {2, 64, 64}, bits);
    add_module(t, attention + "unembed_out", {2, 32, 64}, bits);
  } else {
    add_module(t, attention + "kv_b_proj", {192, 64}, 0);
  }
  add_module(t, attention + "o_proj", {64, 64}, bits);
  if (indexer) {
    add_module(t, attention + "indexer.wq_b", {64, 64}, bits);
    add_module(t, attention + "indexer.wk", {32, 64}, bits);
    small(attention + "indexer.k_norm.weight", 32);
    small(attention + "indexer.k_norm.bias", 32);
    add_module(t, attention + "indexer.weights_proj", {2, 64}, bits);
  }
  if (mlp == 'D') return swiglu(path + "mlp.", {64, 64});
  add_module(t, path + "mlp.gate", {3, 64}, 0);
  small(path + "mlp.gate.e_score_correction_bias", 3, Dtype::kF32);
  swiglu(path + "mlp.shared_experts.", {64, 64});
  if (mlx) return swiglu(path + "mlp.switch_mlp.", {3, 64, 64});
  for (int e = 0; e < 3; ++e) swiglu(path + "mlp.experts." + std::to_string(e) + ".", {64, 64});
}

// The original release's names and layouts (kv_b_proj, separate experts, plain), or an MLX
// conversion's (by head and stacked, 4 bits in groups of 64).
inline TestTensors tiny_glm_tensors(bool mlx) {
  TestTensors t;
  add_module(t, "model.embed_tokens", {32, 64}, mlx ? 4 : 0);
  add_module(t, "lm_head", {32, 64}, mlx ? 4 : 0);
  t["model.norm.weight"] = filled(Dtype::kBf16, {64}, 1.0f);
  add_tiny_glm_layer(t, "model.layers.0.", 'D', true, mlx);
  add_tiny_glm_layer(t, "model.layers.1.", 'E', true, mlx);
  add_tiny_glm_layer(t, "model.layers.2.", 'E', false, mlx);
  return t;
}

// The drafting layer of that model, behind the others.
inline void add_tiny_glm_mtp(TestTensors& t) {
  const std::string path = "model.layers.3.";
  add_tiny_glm_layer(t, path, 'E', true, false);
  for (const char* name : {"enorm.weight", "hnorm.weight", "shared_head.norm.weight"})
    t[path + name] = filled(Dtype::kBf16, {64}, 1.0f);
  add_module(t, path + "eh_proj", {64, 128}, 0);
}

}  // namespace lacuna::test
