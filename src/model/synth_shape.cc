// SPDX-License-Identifier: Apache-2.0
#include "model/synth_shape.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mmap.h"
#include "checkpoint/json.h"

namespace lacuna {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// What differs between the releases.
struct Release {
  std::string name;
  int width = 0, layers = 0;
  std::vector<int>
      attention;  // numbers of the attention layers; the others are Mamba and MoE in turn
  int heads = 0;  // of attention
  int ssm_heads = 0;
  int experts = 0, chosen = 0;
  int expert_neurons = 0, shared_neurons = 0;
  int latent = 0;  // 0: experts work on the full width
  float scaling = 0;
  int context = 0;
  bool head = false;  // has a drafting head
};

const Release kLightning{.name = "lightning",
                         .width = 2688,
                         .layers = 52,
                         .attention = {5, 12, 19, 26, 33, 42},
                         .heads = 32,
                         .ssm_heads = 64,
                         .experts = 128,
                         .chosen = 6,
                         .expert_neurons = 1856,
                         .shared_neurons = 3712,
                         .scaling = 2.5f,
                         .context = 1048576,
                         .head = true};

Release nano() {
  Release r = kLightning;
  r.name = "nano";
  r.context = 262144;
  r.head = false;
  return r;
}

const std::array kReleases = {kLightning, nano(),
                              Release{.name = "super",
                                      .width = 4096,
                                      .layers = 88,
                                      .attention = {7, 16, 25, 36, 47, 58, 69, 78},
                                      .heads = 32,
                                      .ssm_heads = 128,
                                      .experts = 512,
                                      .chosen = 22,
                                      .expert_neurons = 2688,
                                      .shared_neurons = 5376,
                                      .latent = 1024,
                                      .scaling = 5.0f,
                                      .context = 262144,
                                      .head = true},
                              Release{.name = "ultra",
                                      .width = 8192,
                                      .layers = 108,
                                      .attention = {7, 14, 23, 32, 39, 48, 57, 64, 73, 82, 89, 98},
                                      .heads = 64,
                                      .ssm_heads = 256,
                                      .experts = 512,
                                      .chosen = 22,
                                      .expert_neurons = 5120,
                                      .shared_neurons = 10240,
                                      .latent = 2048,
                                      .scaling = 5.0f,
                                      .context = 262144,
                                      .head = true}};

Error wrong(const std::string& what) { return {ErrorCode::kInvalidArgument, what}; }

NemotronHConfig release_config(const Release& r) {
  NemotronHConfig c;
  c.vocabulary = 131072;
  c.width = r.width;
  LayerKind other = LayerKind::kMamba;
  for (int i = 0; i < r.layers; ++i) {
    if (std::find(r.attention.begin(), r.attention.end(), i) != r.attention.end()) {
      c.layers.push_back(LayerKind::kAttention);
    } else {
      c.layers.push_back(other);
      other = other == LayerKind::kMamba ? LayerKind::kMoe : LayerKind::kMamba;
    }
  }
  c.max_context = r.context;
  c.heads = r.heads;
  c.kv_heads = 2;
  c.head_dim = 128;
  c.ssm_heads = r.ssm_heads;
  c.ssm_head_dim = 64;
  c.ssm_state = 128;
  c.ssm_groups = 8;
  c.conv_kernel = 4;
  c.experts = r.experts;
  c.experts_per_token = r.chosen;
  c.expert_neurons = r.expert_neurons;
  c.shared_experts = 1;
  c.shared_neurons = r.shared_neurons;
  c.routed_scaling = r.scaling;
  c.latent = r.latent;
  if (r.head) c.mtp_layers = {LayerKind::kAttention, LayerKind::kMoe};
  return c;
}

Result<NemotronHConfig> base_shape(const std::string& shape) {
  std::string names;
  for (const Release& release : kReleases) {
    if (shape == release.name) return release_config(release);
    names += fmt::format("{}, ", release.name);
  }
  std::error_code ignored;
  if (!fs::is_regular_file(shape, ignored)) {
    return wrong(fmt::format("--shape: {}, wanted {}or a config.json that is there",
                             printable(shape), names));
  }
  LAC_TRY(const std::string text, read_text_file(shape));
  LAC_TRY(const Json json, parse_json(text, printable(shape)));
  auto config = parse_nemotron_h_config(json);
  if (!config) return std::move(config).error().in(shape);
  return config;
}

Result<std::vector<LayerKind>> parse_pattern(const std::string& pattern) {
  std::vector<LayerKind> layers;
  for (const char letter : pattern) {
    constexpr std::string_view kLetters = "M*E-";  // in LayerKind's order
    const std::size_t at = kLetters.find(letter);
    if (at == std::string_view::npos) {
      return wrong(fmt::format("--pattern: layer {} is '{}', wanted M, E, * or -", layers.size(),
                               printable(std::string_view(&letter, 1))));
    }
    layers.push_back(static_cast<LayerKind>(at));
  }
  return layers;
}

Result<void> cut_to_size(const ShapeOptions& options, NemotronHConfig& c) {
  if (!options.pattern.empty()) {
    LAC_TRY(c.layers, parse_pattern(options.pattern));
  }
  const int layers = static_cast<int>(c.layers.size());
  if (options.layers < 0 || options.layers > layers)
    return wrong(fmt::format("--layers: {}, wanted 1 to the shape's {}", options.layers, layers));
  if (options.layers > 0) c.layers.resize(static_cast<std::size_t>(options.layers));
  if (options.experts != 0) {
    if (c.experts == 0) return wrong("--experts: the shape has none");
    if (options.experts < c.experts_per_token || options.experts > c.experts) {
      return wrong(fmt::format("--experts: {}, wanted {} (a token's) to the shape's {}",
                               options.experts, c.experts_per_token, c.experts));
    }
    c.experts = options.experts;
  }
  if (!options.mtp) {
    c.mtp_layers.clear();
  } else if (c.mtp_layers != std::vector{LayerKind::kAttention, LayerKind::kMoe}) {
    return wrong("--mtp: the shape has no drafting head of attention and MoE");
  }
  return {};
}

// Quantised rows are whole groups.
Result<void> check_groups(const NemotronHConfig& c) {
  const auto has = [&c](LayerKind kind) {
    return std::find(c.layers.begin(), c.layers.end(), kind) != c.layers.end() ||
           std::find(c.mtp_layers.begin(), c.mtp_layers.end(), kind) != c.mtp_layers.end();
  };
  std::vector<std::pair<const char*, int>> sizes = {{"hidden_size", c.width}};
  if (has(LayerKind::kMamba)) sizes.push_back({"mamba_num_heads * mamba_head_dim", c.ssm_inner()});
  if (has(LayerKind::kAttention))
    sizes.push_back({"num_attention_heads * head_dim", c.heads * c.head_dim});
  if (has(LayerKind::kMoe)) {
    sizes.push_back({"moe_intermediate_size", c.expert_neurons});
    sizes.push_back({"moe_shared_expert_intermediate_size", c.shared_neurons});
    sizes.push_back({"moe_latent_size", c.latent});
  }
  if (has(LayerKind::kMlp)) sizes.push_back({"intermediate_size", c.mlp_neurons});
  for (const auto& [name, size] : sizes) {
    if (size % 64 != 0)
      return wrong(fmt::format("--shape: {}: {}, wanted a multiple of 64", name, size));
  }
  return {};
}

// The double that is written as short as the float.
double shortest(float value) { return std::stod(fmt::format("{}", value)); }

}  // namespace

Json shape_json(const NemotronHConfig& c, const Json& tokens) {
  Json out = {{"architectures", {"NemotronHForCausalLM"}},
              {"model_type", "nemotron_h"},
              {"vocab_size", c.vocabulary},
              {"hidden_size", c.width},
              {"num_hidden_layers", c.layers.size()},
              {"hybrid_override_pattern", pattern_text(c.layers)},
              {"layer_norm_epsilon", shortest(c.norm_eps)},
              {"tie_word_embeddings", c.tied_embeddings},
              {"max_position_embeddings", c.max_context},
              {"mlp_hidden_act", "relu2"},
              {"torch_dtype", "bfloat16"}};
  const auto add = [&out](const Json& fields) { out.update(fields); };
  if (c.heads > 0) {
    add({{"num_attention_heads", c.heads},
         {"num_key_value_heads", c.kv_heads},
         {"head_dim", c.head_dim}});
  }
  if (c.ssm_heads > 0) {
    add({{"mamba_num_heads", c.ssm_heads},
         {"mamba_head_dim", c.ssm_head_dim},
         {"ssm_state_size", c.ssm_state},
         {"n_groups", c.ssm_groups},
         {"conv_kernel", c.conv_kernel}});
    if (c.dt_min > 0 || std::isfinite(c.dt_max)) {
      // A bound that is no number means that there is none.
      out["time_step_limit"] = {c.dt_min, std::isfinite(c.dt_max) ? Json(c.dt_max) : Json("none")};
    }
  }
  if (c.experts > 0) {
    add({{"n_routed_experts", c.experts},
         {"num_experts_per_tok", c.experts_per_token},
         {"moe_intermediate_size", c.expert_neurons},
         {"n_shared_experts", c.shared_experts},
         {"moe_shared_expert_intermediate_size", c.shared_neurons},
         {"n_group", c.router_groups},
         {"topk_group", c.router_topk_groups},
         {"norm_topk_prob", c.normalize_weights},
         {"routed_scaling_factor", shortest(c.routed_scaling)},
         {"moe_latent_size", c.latent > 0 ? Json(c.latent) : Json()}});
  }
  if (c.mlp_neurons > 0) out["intermediate_size"] = c.mlp_neurons;
  if (!c.mtp_layers.empty()) {
    add({{"num_nextn_predict_layers", 1},
         {"mtp_hybrid_override_pattern", pattern_text(c.mtp_layers)}});
  }
  for (const char* name : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (const auto it = tokens.find(name); it != tokens.end()) out[name] = *it;
  const Json quantization = {{"group_size", 64}, {"bits", 4}, {"mode", "affine"}};
  add({{"quantization", quantization}, {"quantization_config", quantization}});
  return out;
}

Result<NemotronHConfig> choose_shape(const ShapeOptions& options) {
  LAC_TRY(NemotronHConfig config, base_shape(options.shape));
  LAC_TRY_VOID(cut_to_size(options, config));
  LAC_TRY_VOID(check_groups(config));
  // Another pattern may name layers whose sizes the shape does not have.
  auto checked = parse_nemotron_h_config(shape_json(config, Json::object()));
  if (!checked) return wrong("--shape: " + checked.error().what);
  return config;
}

}  // namespace lacuna
