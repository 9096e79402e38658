// SPDX-License-Identifier: Apache-2.0
// A Nemotron-H checkpoint of one layer of each kind, a few kilobytes, for tests of loading.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/safetensors_writer.h"

namespace lacuna::test {

// D 64, V 32, pattern "M*E-"; Mamba: 4 heads of 16, 2 groups, state 8, so 96 channels and 164 rows
// of in_proj; attention: 2 heads of 32, 1 key head; 3 experts of 64 neurons, a shared one of 128;
// MLP of 64.
inline nlohmann::ordered_json tiny_config() {
  return nlohmann::ordered_json::parse(R"({
    "model_type": "nemotron_h", "vocab_size": 32, "hidden_size": 64, "hybrid_override_pattern": "M*E-",
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
    "mamba_num_heads": 4, "mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 8, "conv_kernel": 4,
    "n_routed_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
    "moe_shared_expert_intermediate_size": 128, "routed_scaling_factor": 2.5, "intermediate_size": 64,
    "mlp_hidden_act": "relu2", "max_position_embeddings": 128, "eos_token_id": 2})");
}

// Adds `module` as [shape…, in]: plain BF16 with bits 0, else MLX affine codes.
inline void add_module(TestTensors& tensors, const std::string& module,
                       std::vector<std::int64_t> shape, int bits, int group = 64) {
  if (bits == 0) {
    tensors[module + ".weight"] = filled(Dtype::kBf16, shape, 1.0f);
    return;
  }
  const std::int64_t in = shape.back();
  shape.back() = in * bits / 32;
  tensors[module + ".weight"] = filled(Dtype::kU32, shape, 0.0f);
  shape.back() = in / group;
  tensors[module + ".scales"] = filled(Dtype::kBf16, shape, 1.0f);
  tensors[module + ".biases"] = filled(Dtype::kBf16, shape, -1.0f);
}

// The original release's names and layouts (separate experts, plain), or an MLX conversion's
// (stacked, 4 bits in groups of 64).
inline TestTensors tiny_tensors(bool mlx) {
  TestTensors t;
  const int bits = mlx ? 4 : 0;
  const auto layer = [](int i) { return "backbone.layers." + std::to_string(i) + "."; };
  const auto small = [&t](const std::string& name, std::vector<std::int64_t> shape,
                          Dtype dtype = Dtype::kBf16) {
    t[name] = filled(dtype, std::move(shape), 1.0f);
  };
  add_module(t, "backbone.embeddings", {32, 64}, bits);
  add_module(t, "lm_head", {32, 64}, bits);
  small("backbone.norm_f.weight", {64});
  for (int i = 0; i < 4; ++i) small(layer(i) + "norm.weight", {64});

  const std::string mamba = layer(0) + "mixer.";
  add_module(t, mamba + "in_proj", {164, 64}, bits);
  add_module(t, mamba + "out_proj", {64, 64}, bits);
  small(mamba + "conv1d.weight",
        mlx ? std::vector<std::int64_t>{96, 4, 1} : std::vector<std::int64_t>{96, 1, 4});
  small(mamba + "conv1d.bias", {96});
  for (const char* name : {"A_log", "D", "dt_bias"}) small(mamba + name, {4});
  small(mamba + "norm.weight", {64});

  const std::string attention = layer(1) + "mixer.";
  add_module(t, attention + "q_proj", {64, 64}, bits);
  add_module(t, attention + "k_proj", {32, 64}, bits);
  add_module(t, attention + "v_proj", {32, 64}, bits);
  add_module(t, attention + "o_proj", {64, 64}, bits);

  const std::string moe = layer(2) + "mixer.";
  small(moe + "gate.weight", {3, 64});
  small(moe + "gate.e_score_correction_bias", {3}, Dtype::kF32);
  add_module(t, moe + "shared_experts.up_proj", {128, 64}, bits);
  add_module(t, moe + "shared_experts.down_proj", {64, 128}, bits);
  if (mlx) {
    add_module(t, moe + "switch_mlp.fc1", {3, 64, 64}, bits);
    add_module(t, moe + "switch_mlp.fc2", {3, 64, 64}, bits);
  }
  for (int e = 0; !mlx && e < 3; ++e) {
    const std::string expert = moe + "experts." + std::to_string(e) + ".";
    add_module(t, expert + "up_proj", {64, 64}, bits);
    add_module(t, expert + "down_proj", {64, 64}, bits);
  }

  add_module(t, layer(3) + "mixer.up_proj", {64, 64}, bits);
  add_module(t, layer(3) + "mixer.down_proj", {64, 64}, bits);
  return t;
}

// The drafting head of that model, plain: an attention and an expert layer as the model's own.
inline void add_tiny_head(TestTensors& t) {
  const std::string first = "mtp.layers.0.", second = "mtp.layers.1.";
  for (const char* name : {"enorm", "hnorm", "norm"})
    t[first + name + ".weight"] = filled(Dtype::kBf16, {64}, 1);
  for (const char* name : {"norm", "final_layernorm"})
    t[second + name + ".weight"] = filled(Dtype::kBf16, {64}, 1);
  add_module(t, first + "eh_proj", {64, 128}, 0);
  for (const auto& [name, tensor] : tiny_tensors(false)) {
    const std::string attention = "backbone.layers.1.mixer.", moe = "backbone.layers.2.mixer.";
    if (name.starts_with(attention)) t[first + "mixer." + name.substr(attention.size())] = tensor;
    if (name.starts_with(moe)) t[second + "mixer." + name.substr(moe.size())] = tensor;
  }
}

inline nlohmann::ordered_json with_quantization(nlohmann::ordered_json config, int bits = 4,
                                                int group = 64) {
  config["quantization"] = {{"group_size", group}, {"bits", bits}, {"mode", "affine"}};
  return config;
}

inline void write_checkpoint(const TempFolder& folder, const nlohmann::ordered_json& config,
                             const TestTensors& tensors) {
  folder.write("config.json", config.dump());
  folder.write("model.safetensors", tensors);
}

}  // namespace lacuna::test
