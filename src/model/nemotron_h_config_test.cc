// SPDX-License-Identifier: Apache-2.0
#include "model/nemotron_h_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <string>

#include "checkpoint/json.h"

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kPattern52 = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME";

// What all releases share, in the spelling of the first one.
constexpr const char* kCommon = R"({
  "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "vocab_size": 131072,
  "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "attention_bias": false,
  "attention_dropout": 0.0, "sliding_window": null, "rope_theta": 10000, "partial_rotary_factor": 1.0,
  "mamba_num_heads": 64, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4,
  "chunk_size": 128, "expand": 2, "use_conv_bias": true, "use_bias": false, "mamba_proj_bias": false,
  "mlp_bias": false, "mamba_hidden_act": "silu", "mlp_hidden_act": "relu2", "mamba_ssm_cache_dtype": "float32",
  "time_step_min": 0.001, "time_step_max": 0.1, "time_step_floor": 0.0001,
  "n_routed_experts": 128, "num_experts_per_tok": 6, "moe_intermediate_size": 1856, "n_shared_experts": 1,
  "moe_shared_expert_intermediate_size": 3712, "intermediate_size": 1856, "n_group": 1, "topk_group": 1,
  "norm_topk_prob": true, "routed_scaling_factor": 2.5, "layer_norm_epsilon": 1e-5, "norm_eps": 1e-5,
  "residual_in_fp32": false, "rescale_prenorm_residual": true, "tie_word_embeddings": false,
  "max_position_embeddings": 262144, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0})";

// Mamba and MoE by turns, attention at the places given.
std::string alternating(int layers, std::initializer_list<int> attention) {
  std::string out;
  bool mamba = true;
  for (int i = 0; i < layers; ++i) {
    const bool is_attention = std::find(attention.begin(), attention.end(), i) != attention.end();
    out.push_back(is_attention ? '*' : mamba ? 'M' : 'E');
    mamba = is_attention ? mamba : !mamba;
  }
  return out;
}

Json words(const std::string& pattern, const char* mamba, const char* attention) {
  Json out = Json::array();
  for (const char c : pattern)
    out.push_back(c == 'M' ? mamba : c == '*' ? attention : c == 'E' ? "moe" : "mlp");
  return out;
}

Json patched(const std::string& patch, const Json& base = Json::parse(kCommon)) {
  Json out = base;
  const auto fields = parse_json(patch, "patch");
  EXPECT_TRUE(fields.ok()) << patch;
  for (const auto& [key, value] : fields->items()) out[key] = value;
  return out;
}

Json nano() {
  Json out =
      patched(R"({"hidden_size": 2688, "num_hidden_layers": 52, "torch_dtype": "bfloat16"})");
  out["hybrid_override_pattern"] = kPattern52;
  return out;
}

Json lightning() {
  Json out = patched(
      R"({"hidden_size": 2688, "num_hidden_layers": 52, "dtype": "bfloat16", "moe_latent_size": null,
      "max_position_embeddings": 1048576, "moe_shared_expert_overlap": true, "num_nextn_predict_layers": 1,
      "mtp_layers_block_type": ["attention", "moe"], "mamba_n_groups": 8, "mamba_d_conv": 4})");
  out["layers_block_type"] = words(kPattern52, "mamba", "attention");
  return out;
}

Json super() {
  Json out = patched(
      R"({"hidden_size": 4096, "num_hidden_layers": 88, "mamba_num_heads": 128, "n_routed_experts": 512,
      "num_experts_per_tok": 22, "moe_intermediate_size": 2688, "moe_shared_expert_intermediate_size": 5376,
      "moe_latent_size": 1024, "routed_scaling_factor": 5.0, "time_step_limit": [0.0, Infinity],
      "num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "*E"})");
  out["hybrid_override_pattern"] = alternating(88, {7, 16, 25, 36, 47, 58, 69, 78});
  return out;
}

Json ultra() {
  Json out = patched(
      R"({"hidden_size": 8192, "num_attention_heads": 64, "mamba_num_heads": 256, "n_routed_experts": 512,
      "num_experts_per_tok": 22, "moe_intermediate_size": 5120, "moe_shared_expert_intermediate_size": 10240,
      "moe_latent_size": 2048, "routed_scaling_factor": 5.0, "time_step_limit": [0.0, 1e308],
      "num_nextn_predict_layers": 1, "mtp_layers_block_type": ["full_attention", "moe"]})");
  out["layers_block_type"] =
      words(alternating(108, {7, 14, 23, 32, 39, 48, 57, 64, 73, 82, 89, 98}), "linear_attention",
            "full_attention");
  return out;
}

NemotronHConfig parsed(const Json& json) {
  auto config = parse_nemotron_h_config(json);
  EXPECT_TRUE(config.ok()) << config.error().what;
  return config ? *config : NemotronHConfig();
}

std::string error_of(const Json& json, ErrorCode code = ErrorCode::kCorrupt) {
  auto config = parse_nemotron_h_config(json);
  EXPECT_FALSE(config.ok());
  if (config) return "no error";
  EXPECT_EQ(config.error().code, code) << config.error().what;
  EXPECT_EQ(config.error().what.find('\n'), std::string::npos);
  return config.error().what;
}
std::string patched_error(const std::string& patch, ErrorCode code = ErrorCode::kCorrupt) {
  return error_of(patched(patch, nano()), code);
}

TEST(NemotronHConfig, Nano) {
  const NemotronHConfig c = parsed(nano());
  EXPECT_EQ(pattern_text(c.layers), kPattern52);
  EXPECT_EQ(c.layers[5], LayerKind::kAttention);
  EXPECT_EQ(c.layers[51], LayerKind::kMoe);
  EXPECT_EQ(c.vocabulary, 131072);
  EXPECT_EQ(c.width, 2688);
  EXPECT_EQ(c.max_context, 262144);
  EXPECT_EQ(c.norm_eps, 1e-5f);
  EXPECT_FALSE(c.tied_embeddings);
  EXPECT_THAT((std::array{c.heads, c.kv_heads, c.head_dim}), ElementsAre(32, 2, 128));
  EXPECT_THAT((std::array{c.ssm_heads, c.ssm_head_dim, c.ssm_state, c.ssm_groups, c.conv_kernel}),
              ElementsAre(64, 64, 128, 8, 4));
  EXPECT_THAT((std::array{c.ssm_inner(), c.conv_channels(), c.in_proj_rows()}),
              ElementsAre(4096, 6144, 10304));
  EXPECT_THAT((std::array{c.experts, c.experts_per_token, c.expert_neurons, c.shared_experts,
                          c.shared_neurons}),
              ElementsAre(128, 6, 1856, 1, 3712));
  EXPECT_THAT((std::array{c.router_groups, c.router_topk_groups, c.latent, c.mlp_neurons}),
              ElementsAre(1, 1, 0, 0));
  EXPECT_TRUE(c.normalize_weights);
  EXPECT_EQ(c.routed_scaling, 2.5f);
  EXPECT_EQ(c.dt_min, 0.0f);  // time_step_min is for initialisation only
  EXPECT_EQ(c.dt_max, std::numeric_limits<float>::infinity());
  EXPECT_THAT(c.mtp_layers, IsEmpty());
  EXPECT_THAT(c.stop_tokens, ElementsAre(2));
}

TEST(NemotronHConfig, LightningHasTheSameNetworkAndAHead) {
  const NemotronHConfig c = parsed(lightning());
  EXPECT_EQ(pattern_text(c.layers), kPattern52);
  EXPECT_EQ(pattern_text(c.mtp_layers), "*E");
  EXPECT_EQ(c.max_context, 1048576);
  EXPECT_EQ(c.latent, 0);
}

TEST(NemotronHConfig, SuperAndUltra) {
  const NemotronHConfig s = parsed(super());
  EXPECT_EQ(s.latent, 1024);
  EXPECT_EQ(s.ssm_inner(), 8192);
  EXPECT_EQ(s.dt_max, std::numeric_limits<float>::infinity());
  EXPECT_EQ(pattern_text(s.mtp_layers), "*E");
  const NemotronHConfig u = parsed(ultra());
  EXPECT_EQ(u.layers.size(), 108u);
  EXPECT_EQ(std::count(u.layers.begin(), u.layers.end(), LayerKind::kAttention), 12);
  EXPECT_EQ(u.dt_max, std::numeric_limits<float>::infinity());  // 1e308 is past the largest float
  EXPECT_EQ(pattern_text(u.mtp_layers), "*E");
}

// The sums published for the BF16 releases, exact.
TEST(NemotronHConfig, CountsParameters) {
  const NemotronHConfig c = parsed(lightning());
  EXPECT_EQ(layer_parameters(c, LayerKind::kMamba), 38'744'896u);
  EXPECT_EQ(layer_parameters(c, LayerKind::kAttention), 23'399'040u);
  EXPECT_EQ(layer_parameters(c, LayerKind::kMoe), 1'297'468'160u);
  EXPECT_EQ(main_parameters(c), 31'577'940'288u);
  EXPECT_EQ(mtp_parameters(c), 1'335'325'952u);
  EXPECT_EQ(main_parameters(c) + mtp_parameters(c), 32'913'266'240u);
  EXPECT_EQ(main_parameters(parsed(nano())), 31'577'940'288u);
  EXPECT_EQ(mtp_parameters(parsed(nano())), 0u);
  EXPECT_NEAR(static_cast<double>(main_parameters(parsed(super()))), 120e9, 2e9);
  EXPECT_NEAR(static_cast<double>(main_parameters(parsed(ultra()))), 550e9, 6e9);
}

TEST(NemotronHConfig, ThePatternWinsOverTheList) {
  Json json = nano();
  json["layers_block_type"] = Json::array({"moe"});
  EXPECT_EQ(pattern_text(parsed(json).layers), kPattern52);
}

TEST(NemotronHConfig, LayerCountMayBeAbsentButNotWrong) {
  Json json = nano();
  json.erase("num_hidden_layers");
  EXPECT_EQ(parsed(json).layers.size(), 52u);
  EXPECT_THAT(patched_error(R"({"num_hidden_layers": 51})"),
              HasSubstr("num_hidden_layers: 51, though the layer list has 52"));
}

TEST(NemotronHConfig, RefusesOtherLayers) {
  EXPECT_THAT(patched_error(R"({"hybrid_override_pattern": "MEX"})", ErrorCode::kUnsupported),
              HasSubstr("hybrid_override_pattern: layer 2 is 'X', wanted M, E, * or -"));
  EXPECT_THAT(
      patched_error(R"({"hybrid_override_pattern": null, "layers_block_type": ["mamba", "rwkv"]})",
                    ErrorCode::kUnsupported),
      HasSubstr("layers_block_type: layer 1 is \"rwkv\""));
  EXPECT_THAT(patched_error(R"({"hybrid_override_pattern": ""})"), HasSubstr("missing or empty"));
  EXPECT_THAT(patched_error(R"({"hybrid_override_pattern": null})"), HasSubstr("missing or empty"));
  EXPECT_THAT(patched_error(R"({"hybrid_override_pattern": 5})"),
              HasSubstr("hybrid_override_pattern: 5"));
  Json json = nano();
  json["hybrid_override_pattern"] = std::string(2000, 'M');
  EXPECT_THAT(error_of(json, ErrorCode::kUnsupported), HasSubstr("more than 1024 layers"));
}

TEST(NemotronHConfig, OnlyTheFieldsOfLayersThatAreThereAreAskedFor) {
  const Json mamba_only =
      Json::parse(R"({"model_type": "nemotron_h", "vocab_size": 10, "hidden_size": 8,
      "hybrid_override_pattern": "MM", "mamba_num_heads": 8, "max_position_embeddings": 9})");
  const NemotronHConfig m = parsed(mamba_only);
  EXPECT_EQ(m.heads, 0);
  EXPECT_EQ(m.experts, 0);
  EXPECT_EQ(m.ssm_groups, 8);  // defaults of the family
  EXPECT_EQ(m.conv_kernel, 4);
  const Json attention_only =
      Json::parse(R"({"model_type": "nemotron_h", "vocab_size": 10, "hidden_size": 8,
      "hybrid_override_pattern": "*-", "num_attention_heads": 4, "intermediate_size": 16, "max_position_embeddings": 9})");
  const NemotronHConfig a = parsed(attention_only);
  EXPECT_EQ(a.kv_heads, 4);
  EXPECT_EQ(a.mlp_neurons, 16);
  EXPECT_EQ(a.ssm_heads, 0);
}

TEST(NemotronHConfig, TimeStepLimit) {
  const auto with = [](const char* limit) {
    return patched(std::string("{\"time_step_limit\": ") + limit + "}", nano());
  };
  EXPECT_EQ(parsed(with("[0.01, 0.5]")).dt_min, 0.01f);
  EXPECT_EQ(parsed(with("[0.01, 0.5]")).dt_max, 0.5f);
  EXPECT_EQ(parsed(with("null")).dt_max, std::numeric_limits<float>::infinity());
  const NemotronHConfig encoded = parsed(with(R"([0.0, {"__float__": "Infinity"}])"));
  EXPECT_EQ(encoded.dt_min, 0.0f);
  EXPECT_EQ(encoded.dt_max, std::numeric_limits<float>::infinity());
  for (const char* bad :
       {"[0.0]", "5", "[1.0, 0.5]", "[NaN, 1.0]", "[0.0, NaN]", "[Infinity, 1.0]"}) {
    EXPECT_THAT(error_of(with(bad)), HasSubstr("time_step_limit")) << bad;
  }
}

TEST(NemotronHConfig, NamesOtherArchitectures) {
  EXPECT_EQ(error_of(Json{{"model_type", "llama"}}, ErrorCode::kUnsupported),
            "config.json: architecture \"llama\" is not supported; lacuna runs nemotron_h");
  EXPECT_THAT(error_of(Json::object()), HasSubstr("model_type: missing"));
  error_of(Json::array());
}

TEST(NemotronHConfig, RefusesVariantsOfTheForwardPass) {
  for (const char* patch :
       {R"({"mlp_hidden_act": "silu"})", R"({"mamba_hidden_act": "gelu"})",
        R"({"attention_bias": true})", R"({"mlp_bias": true})", R"({"use_bias": true})",
        R"({"mamba_proj_bias": true})", R"({"use_conv_bias": false})", R"({"conv_kernel": 3})",
        R"({"sliding_window": 4096})", R"({"n_shared_experts": 2})", R"({"head_dim": 40})"}) {
    const std::string field = Json::parse(patch).begin().key();
    EXPECT_THAT(patched_error(patch, ErrorCode::kUnsupported),
                AllOf(HasSubstr("config.json: " + field + ": "), HasSubstr("only")));
  }
}

// L9, and every other size: out of range, of another kind, missing.
TEST(NemotronHConfig, EverySizeIsBounded) {
  for (const char* field :
       {"vocab_size", "hidden_size", "num_attention_heads", "head_dim", "mamba_num_heads",
        "mamba_head_dim", "n_groups", "ssm_state_size", "n_routed_experts", "num_experts_per_tok",
        "moe_intermediate_size", "moe_shared_expert_intermediate_size", "max_position_embeddings",
        "num_key_value_heads"}) {
    for (const char* value : {"0", "-1", "2147483648", "18446744073709551615",
                              "-9223372036854775808", "1.5", "\"8\"", "[8]", "Infinity"}) {
      const std::string patch = std::string("{\"") + field + "\": " + value + "}";
      EXPECT_THAT(patched_error(patch), HasSubstr(std::string("config.json: ") + field + ": "))
          << patch;
    }
  }
  for (const char* field :
       {"vocab_size", "hidden_size", "num_attention_heads", "mamba_num_heads", "n_routed_experts",
        "num_experts_per_tok", "moe_intermediate_size", "routed_scaling_factor"}) {
    Json json = nano();
    json.erase(field);
    EXPECT_EQ(error_of(json), std::string("config.json: ") + field + ": missing");
  }
}

TEST(NemotronHConfig, ExpertCounts) {
  const auto experts = [](int n, int k) {
    return patched("{\"n_routed_experts\": " + std::to_string(n) +
                       ", \"num_experts_per_tok\": " + std::to_string(k) + "}",
                   nano());
  };
  EXPECT_EQ(parsed(experts(1, 1)).experts, 1);
  EXPECT_EQ(parsed(experts(8, 8)).experts_per_token, 8);
  EXPECT_THAT(error_of(experts(8, 9)),
              HasSubstr("num_experts_per_tok: 9, more than the 8 experts"));
  EXPECT_THAT(error_of(experts(0, 1)),
              HasSubstr("n_routed_experts: 0, wanted a whole number from 1"));
  EXPECT_EQ(parsed(patched(R"({"n_shared_experts": 0})", nano())).shared_neurons, 0);
  EXPECT_THAT(patched_error(R"({"n_group": 3})"), HasSubstr("no multiple of the 3 of n_group"));
  EXPECT_THAT(patched_error(R"({"topk_group": 2})"), HasSubstr("topk_group: 2"));
  EXPECT_THAT(patched_error(R"({"n_group": 64, "topk_group": 2})"),
              HasSubstr("more than the 4 experts"));
  EXPECT_EQ(parsed(patched(R"({"n_group": 8, "topk_group": 4})", nano())).router_topk_groups, 4);
  Json many = patched(R"({"n_routed_experts": 4096})", nano());
  many["hybrid_override_pattern"] = std::string(100, 'E');
  many.erase("num_hidden_layers");
  EXPECT_THAT(error_of(many), HasSubstr("4096 in each of 100 layers"));
}

TEST(NemotronHConfig, HeadsMustDivide) {
  EXPECT_THAT(patched_error(R"({"num_key_value_heads": 5})"),
              HasSubstr("num_attention_heads: 32, no multiple of the 5"));
  EXPECT_THAT(patched_error(R"({"n_groups": 7})"),
              HasSubstr("mamba_num_heads: 64, no multiple of the 7"));
}

TEST(NemotronHConfig, SpellingsThatDisagreeAreRefused) {
  EXPECT_THAT(patched_error(R"({"mamba_n_groups": 4})"),
              HasSubstr("mamba_n_groups: 4, wanted 8, as n_groups says"));
  EXPECT_THAT(patched_error(R"({"norm_eps": 1e-6})"), HasSubstr("norm_eps"));
  Json json = nano();
  json.erase("n_groups");
  json["mamba_n_groups"] = 4;
  EXPECT_EQ(parsed(json).ssm_groups, 4);
}

TEST(NemotronHConfig, NumbersAndFlags) {
  for (const char* patch :
       {R"({"layer_norm_epsilon": 0, "norm_eps": null})", R"({"routed_scaling_factor": -1})",
        R"({"routed_scaling_factor": NaN})", R"({"routed_scaling_factor": Infinity})",
        R"({"routed_scaling_factor": "2.5"})", R"({"norm_topk_prob": 1})",
        R"({"tie_word_embeddings": "no"})"}) {
    const auto field = parse_json(patch, "patch")->begin().key();
    EXPECT_THAT(patched_error(patch), HasSubstr(field)) << patch;
  }
  EXPECT_FALSE(parsed(patched(R"({"norm_topk_prob": false})", nano())).normalize_weights);
}

TEST(NemotronHConfig, DraftingHead) {
  const auto head = [](const char* patch) {
    return pattern_text(parsed(patched(patch, nano())).mtp_layers);
  };
  EXPECT_EQ(head(R"({"num_nextn_predict_layers": 0, "mtp_hybrid_override_pattern": "*E"})"), "");
  EXPECT_EQ(head(R"({"num_nextn_predict_layers": 1})"), "*E");
  EXPECT_EQ(head(R"({"mtp_layers_block_type": ["attention", "moe"]})"), "*E");
  EXPECT_EQ(head(R"({"mtp_hybrid_override_pattern": "*-"})"), "*-");
  EXPECT_THAT(patched_error(R"({"num_nextn_predict_layers": -1})"),
              HasSubstr("num_nextn_predict_layers: -1"));
}

TEST(NemotronHConfig, StopTokens) {
  EXPECT_THAT(parsed(patched(R"({"eos_token_id": [2, 11]})", nano())).stop_tokens,
              ElementsAre(2, 11));
  EXPECT_THAT(parsed(patched(R"({"eos_token_id": null})", nano())).stop_tokens, IsEmpty());
  for (const char* patch : {R"({"eos_token_id": 131072})", R"({"eos_token_id": [2, -1]})",
                            R"({"eos_token_id": "2"})"}) {
    EXPECT_THAT(patched_error(patch), HasSubstr("eos_token_id")) << patch;
  }
}

}  // namespace
}  // namespace lacuna
