// SPDX-License-Identifier: Apache-2.0
#include "model/glm_dsa_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/json.h"

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// GLM-5 and 5.1.
constexpr const char* kGlm5 = R"({
  "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "vocab_size": 154880,
  "hidden_size": 6144, "num_hidden_layers": 78, "num_attention_heads": 64, "num_key_value_heads": 64,
  "q_lora_rank": 2048, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64,
  "qk_head_dim": 256, "v_head_dim": 256, "head_dim": 64, "intermediate_size": 12288,
  "moe_intermediate_size": 2048, "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1,
  "first_k_dense_replace": 3, "moe_layer_freq": 1, "n_group": 1, "topk_group": 1,
  "scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": true, "routed_scaling_factor": 2.5,
  "index_n_heads": 32, "index_head_dim": 128, "index_topk": 2048, "indexer_rope_interleave": true,
  "rope_interleave": true, "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"},
  "max_position_embeddings": 202752, "rms_norm_eps": 1e-5, "hidden_act": "silu", "attention_bias": false,
  "tie_word_embeddings": false, "num_nextn_predict_layers": 1, "eos_token_id": [154820, 154827, 154829],
  "pad_token_id": 154820, "dtype": "bfloat16", "ep_size": 1, "pretraining_tp": 1, "initializer_range": 0.02})";

// What GLM-5.2 and 5.3 have otherwise; the lists of layers are added below.
constexpr const char* kGlm52 = R"({
  "head_dim": 192, "moe_router_dtype": "float32", "index_topk_freq": 4, "index_skip_topk_offset": 3,
  "index_topk_pattern": null, "index_share_for_mtp_iteration": true,
  "rope_parameters": {"rope_theta": 8000000, "rope_type": "default"}, "max_position_embeddings": 1048576})";

constexpr const char* kDeepseek = R"({
  "architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "vocab_size": 129280,
  "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
  "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
  "v_head_dim": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
  "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 3, "moe_layer_freq": 1,
  "n_group": 8, "topk_group": 4, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
  "norm_topk_prob": true, "routed_scaling_factor": 2.5, "index_n_heads": 64, "index_head_dim": 128,
  "index_topk": 2048, "rope_theta": 10000, "rope_scaling": {"type": "yarn", "factor": 40,
  "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
  "mscale_all_dim": 1.0}, "max_position_embeddings": 163840, "rms_norm_eps": 1e-6, "hidden_act": "silu",
  "attention_bias": false, "tie_word_embeddings": false, "num_nextn_predict_layers": 1, "eos_token_id": 1,
  "bos_token_id": 0, "torch_dtype": "bfloat16"})";

Json patched(const std::string& patch, Json base) {
  const auto fields = parse_json(patch, "patch");
  EXPECT_TRUE(fields.ok()) << patch;
  for (const auto& [key, value] : fields->items()) base[key] = value;
  return base;
}

bool is_full_in_glm52(int layer) { return layer < 3 || layer % 4 == 2; }

Json glm5() { return Json::parse(kGlm5); }
Json glm52() {
  Json out = patched(kGlm52, glm5());
  for (int i = 0; i < 78; ++i) {
    out["indexer_types"].push_back(is_full_in_glm52(i) ? "full" : "shared");
    out["mlp_layer_types"].push_back(i < 3 ? "dense" : "sparse");
  }
  return out;
}
Json deepseek() { return Json::parse(kDeepseek); }

GlmDsaConfig parsed(const Json& json) {
  auto config = parse_glm_dsa_config(json);
  EXPECT_TRUE(config.ok()) << config.error().what;
  return config ? *config : GlmDsaConfig();
}

std::string error_of(const Json& json, ErrorCode code = ErrorCode::kCorrupt) {
  auto config = parse_glm_dsa_config(json);
  EXPECT_FALSE(config.ok()) << json.dump();
  if (config) return "no error";
  EXPECT_EQ(config.error().code, code) << config.error().what;
  EXPECT_EQ(config.error().what.find('\n'), std::string::npos);
  return config.error().what;
}
std::string patched_error(const std::string& patch, ErrorCode code = ErrorCode::kCorrupt) {
  return error_of(patched(patch, glm52()), code);
}
std::string yarn_error(const std::string& patch, ErrorCode code = ErrorCode::kCorrupt) {
  Json json = deepseek();
  json["rope_scaling"] = patched(patch, json["rope_scaling"]);
  return error_of(json, code);
}

std::vector<int> full_layers(const GlmDsaConfig& config) {
  std::vector<int> out;
  for (std::size_t i = 0; i < config.layers.size(); ++i)
    if (config.layers[i].has_indexer) out.push_back(static_cast<int>(i));
  return out;
}

TEST(GlmDsaConfig, Glm52) {
  const GlmDsaConfig c = parsed(glm52());
  EXPECT_EQ(c.family, GlmDsaFamily::kGlmMoeDsa);
  EXPECT_THAT((std::array{c.vocabulary, c.width, c.max_context}),
              ElementsAre(154880, 6144, 1048576));
  EXPECT_THAT((std::array{c.heads, c.q_rank, c.latent, c.nope, c.rope, c.value}),
              ElementsAre(64, 2048, 512, 192, 64, 256));
  EXPECT_THAT((std::array{c.q_rows(), c.kv_a_rows(), c.kv_b_rows(), c.o_inputs(), c.index_rows()}),
              ElementsAre(16384, 576, 28672, 16384, 4096));
  EXPECT_THAT((std::array{c.index_heads, c.index_dim, c.index_topk}), ElementsAre(32, 128, 2048));
  EXPECT_THAT((std::array{c.mlp_neurons, c.experts, c.experts_per_token, c.expert_neurons,
                          c.shared_experts, c.shared_neurons}),
              ElementsAre(12288, 256, 8, 2048, 1, 2048));
  EXPECT_THAT((std::array{c.router_groups, c.router_topk_groups}), ElementsAre(1, 1));
  EXPECT_TRUE(c.normalize_weights);
  EXPECT_TRUE(c.indexer_interleaved);
  EXPECT_FALSE(c.tied_embeddings);
  EXPECT_EQ(c.routed_scaling, 2.5f);
  EXPECT_EQ(c.norm_eps, 1e-5f);
  EXPECT_EQ(c.latent_norm_eps, 1e-5f);
  EXPECT_EQ(c.index_norm_eps, 1e-6f);
  EXPECT_EQ(c.softmax_scale, 0.0625f);
  EXPECT_TRUE(c.sparse_prefill);
  EXPECT_EQ(c.sparse_prefill_min_context, 16384);
  EXPECT_EQ(c.mtp_layers, 1);
  EXPECT_THAT(c.stop_tokens, ElementsAre(154820, 154827, 154829));
  EXPECT_THAT(full_layers(c), ElementsAre(0, 1, 2, 6, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50,
                                          54, 58, 62, 66, 70, 74));
  ASSERT_EQ(c.layers.size(), 78u);
  for (std::size_t i = 0; i < 78; ++i) EXPECT_EQ(c.layers[i].is_moe, i >= 3) << i;
  // An integer theta must not read as a default.
  ASSERT_EQ(c.rope_frequencies.size(), 32u);
  EXPECT_EQ(c.rope_frequencies[0], 1.0f);
  EXPECT_NEAR(c.rope_frequencies[1], std::pow(8e6, -1.0 / 32), 1e-7);
  EXPECT_NEAR(c.rope_frequencies[31] * std::pow(8e6, 31.0 / 32), 1.0, 1e-6);
}

TEST(GlmDsaConfig, Glm5HasAnIndexerOnEveryLayer) {
  const GlmDsaConfig c = parsed(glm5());
  EXPECT_EQ(indexer_pattern(c), std::string(78, 'F'));
  EXPECT_EQ(c.max_context, 202752);
  EXPECT_NEAR(c.rope_frequencies[16], 1e-3, 1e-9);
  EXPECT_EQ(c.softmax_scale, 0.0625f);
}

TEST(GlmDsaConfig, DeepseekV32) {
  const GlmDsaConfig c = parsed(deepseek());
  EXPECT_EQ(c.family, GlmDsaFamily::kDeepseekV32);
  EXPECT_THAT((std::array{c.q_rows(), c.kv_a_rows(), c.kv_b_rows(), c.o_inputs(), c.index_rows()}),
              ElementsAre(24576, 576, 32768, 16384, 8192));
  EXPECT_THAT((std::array{c.router_groups, c.router_topk_groups}), ElementsAre(8, 4));
  EXPECT_EQ(indexer_pattern(c), std::string(61, 'F'));
  EXPECT_FALSE(c.indexer_interleaved);  // absent in its files, and not GLM's
  EXPECT_EQ(c.norm_eps, 1e-6f);
  EXPECT_EQ(c.latent_norm_eps, 1e-6f);
  EXPECT_THAT(c.stop_tokens, ElementsAre(1));
}

// The bounds are pairs 10 and 23: kept up to one, divided by 40 from the other on.
TEST(GlmDsaConfig, Yarn) {
  const GlmDsaConfig c = parsed(deepseek());
  EXPECT_NEAR(c.softmax_scale, 0.1352338, 5e-8);
  ASSERT_EQ(c.rope_frequencies.size(), 32u);
  for (int i = 0; i < 32; ++i) {
    const double plain = std::pow(10000.0, -i / 32.0);
    const double ramp = std::clamp((i - 10) / 13.0, 0.0, 1.0);
    const double wanted = plain * (1 - ramp) + plain / 40 * ramp;
    EXPECT_NEAR(c.rope_frequencies[static_cast<std::size_t>(i)] / wanted, 1.0, 3e-7) << i;
  }
  EXPECT_LT(c.rope_frequencies[11], static_cast<float>(std::pow(10000.0, -11 / 32.0) * 0.99));
  EXPECT_GT(c.rope_frequencies[22], static_cast<float>(std::pow(10000.0, -22 / 32.0) / 39));
}

TEST(GlmDsaConfig, YarnUnderItsNewerName) {
  Json json = deepseek();
  json["rope_parameters"] = json["rope_scaling"];
  json["rope_parameters"]["rope_theta"] = 10000.0;
  json["rope_parameters"]["rope_type"] = "yarn";
  for (const char* old : {"rope_scaling", "rope_theta"}) json.erase(old);
  const GlmDsaConfig c = parsed(json), older = parsed(deepseek());
  EXPECT_EQ(c.rope_frequencies, older.rope_frequencies);
  EXPECT_EQ(c.softmax_scale, older.softmax_scale);
}

// Any bounds give frequencies between the divided and the plain ones.
TEST(GlmDsaConfig, YarnWithOtherBounds) {
  for (const char* patch :
       {R"({"beta_fast": 100000, "beta_slow": 90000})", R"({"beta_fast": 1e-5, "beta_slow": 1e-6})",
        R"({"beta_fast": 3e-5, "beta_slow": 1e-30})", R"({"factor": 1})",
        R"({"original_max_position_embeddings": 1})",
        R"({"original_max_position_embeddings": 1073741824})",
        R"({"beta_fast": 1.0001, "beta_slow": 1})"}) {
    Json json = deepseek();
    json["rope_scaling"] = patched(patch, json["rope_scaling"]);
    const GlmDsaConfig c = parsed(json);
    const double factor = json["rope_scaling"]["factor"].get<double>();
    for (std::size_t i = 0; i < c.rope_frequencies.size(); ++i) {
      const double plain = std::pow(10000.0, -static_cast<double>(i) / 32.0);
      EXPECT_LE(c.rope_frequencies[i], plain * 1.000001) << patch << i;
      EXPECT_GE(c.rope_frequencies[i], plain / factor * 0.999999) << patch << i;
    }
  }
}

// The sums published for the BF16 releases. They leave the routers' biases out, which are F32, and
// the indexer's leaves its norm out.
TEST(GlmDsaConfig, CountsParameters) {
  const GlmDsaConfig c = parsed(glm52());
  const std::uint64_t biases = 76 * 256, index_norm = 2 * 128, indexer = 9'371'648 + index_norm;
  EXPECT_EQ(main_parameters(c) + mtp_parameters(c) - biases, 753'329'921'024u);
  EXPECT_EQ(layer_parameters(c, {.is_moe = true, .has_indexer = true}) -
                layer_parameters(c, {.is_moe = true, .has_indexer = false}),
            indexer);
  const GlmDsaConfig five = parsed(glm5());
  EXPECT_EQ(main_parameters(five) - main_parameters(c), 57 * indexer);
  EXPECT_NEAR(static_cast<double>(main_parameters(parsed(deepseek()))), 671.9e9, 0.1e9);
  EXPECT_EQ(mtp_parameters(parsed(patched(R"({"num_nextn_predict_layers": 0})", glm52()))), 0u);
}

TEST(GlmDsaConfig, TheBundledModel) {
  const auto checkpoint = Checkpoint::open("models/tiny-glm-dsa/mlx-4bit");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().what;
  const GlmDsaConfig c = parsed(checkpoint->config());
  EXPECT_EQ(indexer_pattern(c), "FFSSFS");
  EXPECT_EQ(main_parameters(c), 25'852'880u);
  EXPECT_EQ(c.mtp_layers, 0);
  EXPECT_NEAR(c.softmax_scale, 1 / std::sqrt(128.0), 1e-8);
  // The same schedule by the rule.
  Json by_rule = checkpoint->config();
  by_rule.erase("indexer_types");
  EXPECT_EQ(indexer_pattern(parsed(by_rule)), "FFSSFS");
}

TEST(GlmDsaConfig, IndexerScheduleComesFromThreePlaces) {
  const std::string published = indexer_pattern(parsed(glm52()));
  Json json = glm52();
  json.erase("indexer_types");
  EXPECT_EQ(indexer_pattern(parsed(json)), published);  // index_topk_freq 4, offset 3
  json["index_topk_pattern"] = std::string(78, 'F');
  EXPECT_EQ(indexer_pattern(parsed(json)), std::string(78, 'F'));
  json["index_topk_pattern"] = Json::array();
  for (const char c : published) json["index_topk_pattern"].push_back(std::string(1, c));
  EXPECT_EQ(indexer_pattern(parsed(json)), published);
  json["indexer_types"] = Json::array();  // is the authority
  for (int i = 0; i < 78; ++i) json["indexer_types"].push_back(i == 0 ? "full" : "shared");
  EXPECT_EQ(indexer_pattern(parsed(json)), "F" + std::string(77, 'S'));
  // The rule's defaults: frequency 1, and offset 2.
  EXPECT_EQ(indexer_pattern(parsed(patched(R"({"index_topk_freq": 0})", glm5()))),
            std::string(78, 'F'));
  EXPECT_EQ(indexer_pattern(parsed(patched(R"({"index_topk_freq": 3})", glm5()))).substr(0, 9),
            "FFSSFSSFS");
}

TEST(GlmDsaConfig, RefusesScheduleWithoutFirstPicks) {
  Json json = glm52();
  json["indexer_types"][0] = "shared";
  EXPECT_EQ(error_of(json),
            "config.json: indexer_types: layer 0 shares picks, though no layer before it has any");
  EXPECT_THAT(patched_error(R"({"indexer_types": null, "index_skip_topk_offset": 0})"),
              HasSubstr("index_topk_freq: layer 0 shares"));
  json["indexer_types"][0] = "full";
  json["indexer_types"][5] = "sliding";
  EXPECT_THAT(error_of(json, ErrorCode::kUnsupported),
              HasSubstr("indexer_types: layer 5 is \"sliding\", wanted full or shared"));
  json["indexer_types"].erase(5);
  EXPECT_THAT(error_of(json), HasSubstr("indexer_types: 77 layers, wanted the 78"));
  EXPECT_THAT(patched_error(R"({"indexer_types": 3})"),
              HasSubstr("indexer_types: 3, wanted a list"));
  EXPECT_THAT(patched_error(R"({"indexer_types": []})"), HasSubstr("indexer_types: 0 layers"));
  EXPECT_THAT(patched_error(R"({"indexer_types": null, "index_topk_pattern": "FS"})"),
              HasSubstr("index_topk_pattern: 2 layers"));
}

TEST(GlmDsaConfig, LayerKinds) {
  const auto kinds = [](const Json& json) {
    std::string out;
    for (const GlmDsaLayer& layer : parsed(json).layers) out.push_back(layer.is_moe ? 'E' : '-');
    return out;
  };
  EXPECT_EQ(kinds(deepseek()), "---" + std::string(58, 'E'));
  EXPECT_EQ(kinds(patched(R"({"moe_layer_freq": 2})", glm5())).substr(0, 8), "----E-E-");
  Json json = glm52();
  json.erase("first_k_dense_replace");
  EXPECT_EQ(kinds(json), "---" + std::string(75, 'E'));  // by the list
  json.erase("mlp_layer_types");
  EXPECT_EQ(error_of(json), "config.json: first_k_dense_replace: missing");
  json = glm52();
  json["mlp_layer_types"][3] = "dense";
  EXPECT_THAT(error_of(json), HasSubstr("mlp_layer_types: layer 3 is dense, wanted sparse"));
  json = glm5();
  json["n_routed_experts"] = nullptr;
  const GlmDsaConfig dense = parsed(json);
  EXPECT_EQ(kinds(json), std::string(78, '-'));
  EXPECT_EQ(dense.experts, 0);
  EXPECT_EQ(main_parameters(dense) % 6144, 78u * (2048 + 512 + 256) % 6144);
  json = glm5();
  json["first_k_dense_replace"] = 0;
  json.erase("intermediate_size");
  EXPECT_EQ(parsed(json).mlp_neurons, 0);
}

TEST(GlmDsaConfig, RopeThatDisagreesOrIsUnknown) {
  EXPECT_EQ(patched_error(R"({"rope_theta": 1000000})"),
            "config.json: rope_theta: 1000000 in config.json, though 8000000 elsewhere");
  EXPECT_EQ(parsed(patched(R"({"rope_theta": 8000000.0})", glm52())).softmax_scale, 0.0625f);
  EXPECT_THAT(patched_error(R"({"rope_scaling": {"rope_type": "yarn", "factor": 4}})"),
              HasSubstr("rope_type: \"yarn\" in rope_scaling, though \"default\" elsewhere"));
  EXPECT_THAT(patched_error(R"({"rope_scaling": {"type": "yarn", "factor": 4}})"),
              HasSubstr("type: \"yarn\", wanted \"default\", as rope_type says"));
  EXPECT_EQ(patched_error(R"({"rope_parameters": null})"), "config.json: rope_theta: missing");
  EXPECT_EQ(patched_error(R"({"rope_parameters": {"rope_type": "default"}})"),
            "config.json: rope_parameters: rope_theta: missing");
  EXPECT_THAT(patched_error(R"({"rope_parameters": {"rope_theta": 10, "factor": 4}})"),
              HasSubstr("rope_type: missing, though factor is there"));
  EXPECT_THAT(
      patched_error(R"({"rope_parameters": {"rope_theta": 10, "rope_type": "llama3"}})",
                    ErrorCode::kUnsupported),
      HasSubstr("rope_parameters: rope_type: \"llama3\" is not supported, only default and"));
  EXPECT_THAT(patched_error(R"({"partial_rotary_factor": 0.5})", ErrorCode::kUnsupported),
              HasSubstr("partial_rotary_factor: 0.5"));
  EXPECT_THAT(patched_error(R"({"rope_parameters": "default"})"), HasSubstr("wanted an object"));
  for (const char* theta : {"1", "0", "-5", "NaN", "Infinity", "\"8000000\"", "[8]"}) {
    EXPECT_THAT(patched_error(std::string(R"({"rope_parameters": {"rope_theta": )") + theta + "}}"),
                HasSubstr("rope_theta: "))
        << theta;
  }
}

TEST(GlmDsaConfig, YarnFieldsAreChecked) {
  for (const char* patch :
       {R"({"factor": 0.5})", R"({"factor": "40"})", R"({"factor": NaN})", R"({"factor": null})",
        R"({"original_max_position_embeddings": 0})",
        R"({"original_max_position_embeddings": 1.5})", R"({"beta_fast": 1})",
        R"({"beta_slow": 0})", R"({"mscale": null})", R"({"mscale_all_dim": 0})"}) {
    const std::string field = parse_json(patch, "patch")->begin().key();
    EXPECT_THAT(yarn_error(patch), HasSubstr("config.json: rope_scaling: " + field + ": "))
        << patch;
  }
  EXPECT_THAT(yarn_error(R"({"mscale": 0.707})", ErrorCode::kUnsupported),
              HasSubstr("only the 1 of mscale_all_dim is"));
  EXPECT_THAT(yarn_error(R"({"attention_factor": 1.2})", ErrorCode::kUnsupported),
              HasSubstr("attention_factor: 1.2"));
  EXPECT_THAT(yarn_error(R"({"truncate": false})", ErrorCode::kUnsupported), HasSubstr("truncate"));
}

TEST(GlmDsaConfig, NamesOtherArchitectures) {
  EXPECT_EQ(error_of(Json{{"model_type", "glm5_next"}}, ErrorCode::kUnsupported),
            "config.json: architecture \"glm5_next\" is not supported here, wanted glm_moe_dsa or "
            "deepseek_v32");
  EXPECT_THAT(error_of(Json::object()), HasSubstr("model_type: missing"));
  error_of(Json::array());
  EXPECT_TRUE(is_glm_dsa(glm5()));
  EXPECT_TRUE(is_glm_dsa(deepseek()));
  for (const char* other :
       {"[]", "{}", "5", R"({"model_type": ["glm_moe_dsa"]})", R"({"model_type": "nemotron_h"})"})
    EXPECT_FALSE(is_glm_dsa(Json::parse(other))) << other;
}

TEST(GlmDsaConfig, RefusesVariantsOfTheForwardPass) {
  for (const char* patch :
       {R"({"hidden_act": "gelu"})", R"({"attention_bias": true})", R"({"mlp_bias": true})",
        R"({"rope_interleave": false})", R"({"sliding_window": 4096})", R"({"swiglu_limit": 10})",
        R"({"scoring_func": "softmax"})", R"({"topk_method": "greedy"})",
        R"({"moe_router_dtype": "bfloat16"})", R"({"kv_lora_rank": 500})",
        R"({"index_head_dim": 120})"}) {
    const std::string field = Json::parse(patch).begin().key();
    EXPECT_THAT(patched_error(patch, ErrorCode::kUnsupported),
                AllOf(HasSubstr("config.json: " + field + ": "), HasSubstr("only")));
  }
}

// Every size: out of range, of another kind, missing.
TEST(GlmDsaConfig, EverySizeIsBounded) {
  for (const char* field : {"vocab_size",
                            "hidden_size",
                            "num_hidden_layers",
                            "num_attention_heads",
                            "num_key_value_heads",
                            "q_lora_rank",
                            "kv_lora_rank",
                            "qk_nope_head_dim",
                            "qk_rope_head_dim",
                            "qk_head_dim",
                            "v_head_dim",
                            "intermediate_size",
                            "moe_intermediate_size",
                            "n_routed_experts",
                            "num_experts_per_tok",
                            "n_group",
                            "topk_group",
                            "index_n_heads",
                            "index_head_dim",
                            "index_topk",
                            "moe_layer_freq",
                            "max_position_embeddings"}) {
    for (const char* value : {"0", "-1", "2147483648", "18446744073709551615",
                              "-9223372036854775808", "1.5", "\"8\"", "[8]", "{}", "Infinity"}) {
      const std::string patch = std::string("{\"") + field + "\": " + value + "}";
      EXPECT_THAT(patched_error(patch), HasSubstr(std::string("config.json: ") + field + ": "))
          << patch;
    }
  }
  for (const char* field :
       {"n_shared_experts", "first_k_dense_replace", "index_topk_freq", "index_skip_topk_offset",
        "sparse_prefill_min_context", "num_nextn_predict_layers"}) {
    for (const char* value : {"-1", "2147483648", "1.5", "\"8\"", "true"}) {
      const std::string patch = std::string("{\"") + field + "\": " + value + "}";
      EXPECT_THAT(patched_error(patch), HasSubstr(std::string("config.json: ") + field + ": "))
          << patch;
    }
  }
  for (const char* field :
       {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "q_lora_rank",
        "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "intermediate_size",
        "moe_intermediate_size", "num_experts_per_tok", "index_n_heads", "index_head_dim",
        "index_topk", "max_position_embeddings", "rms_norm_eps", "routed_scaling_factor"}) {
    Json json = glm52();
    json.erase(field);
    EXPECT_EQ(error_of(json), std::string("config.json: ") + field + ": missing");
  }
}

TEST(GlmDsaConfig, NumbersAndFlags) {
  for (const char* patch :
       {R"({"rms_norm_eps": 0})", R"({"rms_norm_eps": 2})", R"({"rms_norm_eps": "1e-5"})",
        R"({"routed_scaling_factor": -1})", R"({"routed_scaling_factor": NaN})",
        R"({"routed_scaling_factor": Infinity})", R"({"norm_topk_prob": 1})",
        R"({"tie_word_embeddings": "no"})", R"({"indexer_rope_interleave": 1})",
        R"({"sparse_prefill": "off"})"}) {
    const auto field = parse_json(patch, "patch")->begin().key();
    EXPECT_THAT(patched_error(patch), HasSubstr(field)) << patch;
  }
  const GlmDsaConfig c = parsed(patched(
      R"({"sparse_prefill": false, "sparse_prefill_min_context": 0, "indexer_rope_interleave": false,
      "norm_topk_prob": false, "tie_word_embeddings": true})",
      glm52()));
  EXPECT_FALSE(c.sparse_prefill);
  EXPECT_EQ(c.sparse_prefill_min_context, 0);
  EXPECT_FALSE(c.indexer_interleaved);
  EXPECT_FALSE(c.normalize_weights);
  EXPECT_TRUE(c.tied_embeddings);
  Json json = glm52();
  json.erase("indexer_rope_interleave");  // re-quantised copies drop fields
  EXPECT_TRUE(parsed(json).indexer_interleaved);
}

TEST(GlmDsaConfig, SizesMustFitEachOther) {
  EXPECT_THAT(patched_error(R"({"num_key_value_heads": 8})"),
              HasSubstr("num_key_value_heads: 8, wanted the 64 of num_attention_heads"));
  EXPECT_THAT(patched_error(R"({"qk_head_dim": 192})"), HasSubstr("wanted the sum 256"));
  EXPECT_THAT(patched_error(R"({"index_head_dim": 32})"), HasSubstr("at least the 64"));
  EXPECT_THAT(patched_error(R"({"num_experts": 128})"),
              HasSubstr("num_experts: 128, wanted 256, as n_routed_experts says"));
  EXPECT_EQ(parsed(patched(R"({"num_experts": 256})", glm52())).experts, 256);
  EXPECT_THAT(patched_error(R"({"num_experts_per_tok": 257})"), HasSubstr("more than the 256"));
  EXPECT_THAT(patched_error(R"({"n_group": 3})"), HasSubstr("no multiple of the 3"));
  EXPECT_THAT(patched_error(R"({"topk_group": 2})"), HasSubstr("more than the 1 of n_group"));
  EXPECT_THAT(patched_error(R"({"n_group": 64, "topk_group": 1})"),
              HasSubstr("more than the 4 experts"));
  EXPECT_THAT(patched_error(R"({"n_group": 256, "topk_group": 8})"), HasSubstr("groups of one"));
  EXPECT_THAT(patched_error(R"({"n_routed_experts": 4096})"),
              HasSubstr("4096 in each of 75 layers, more than"));
  EXPECT_THAT(patched_error(R"({"num_attention_heads": 4096, "num_key_value_heads": 4096})"),
              HasSubstr("4096 in each of 78 layers, more than"));
  const GlmDsaConfig two = parsed(patched(R"({"n_shared_experts": 2})", glm52()));
  EXPECT_EQ(two.shared_neurons, 4096);
  EXPECT_EQ(parsed(patched(R"({"n_shared_experts": null})", glm52())).shared_neurons, 0);
}

TEST(GlmDsaConfig, StopTokens) {
  EXPECT_THAT(parsed(patched(R"({"eos_token_id": null})", glm52())).stop_tokens, IsEmpty());
  for (const char* patch : {R"({"eos_token_id": 154880})", R"({"eos_token_id": [2, -1]})",
                            R"({"eos_token_id": "2"})", R"({"eos_token_id": {"a": 2}})"}) {
    EXPECT_THAT(patched_error(patch), HasSubstr("eos_token_id")) << patch;
  }
}

// Any field of any release with any odd value is read or refused by name; what is read is whole.
TEST(GlmDsaConfig, OddValuesNeverPassHalfRead) {
  const std::array<Json, 14> odd = {Json(),
                                    true,
                                    0,
                                    -1,
                                    1,
                                    17,
                                    1e300,
                                    "",
                                    "F",
                                    "yarn",
                                    Json::array(),
                                    Json::object(),
                                    Json::array({1, "x"}),
                                    Json{{"rope_theta", 10}, {"type", 5}}};
  for (const Json& release : {glm5(), glm52(), deepseek()}) {
    for (const auto& [field, original] : release.items()) {
      for (const Json& value : odd) {
        Json json = release;
        json[field] = value;
        const auto config = parse_glm_dsa_config(json);
        if (!config.ok()) {
          EXPECT_EQ(config.error().what.find('\n'), std::string::npos);
          EXPECT_THAT(config.error().what, AnyOf(HasSubstr("config.json: "), HasSubstr(field)));
          continue;
        }
        EXPECT_EQ(config->rope_frequencies.size(), static_cast<std::size_t>(config->rope) / 2);
        for (const float f : config->rope_frequencies) EXPECT_TRUE(f > 0 && f <= 1) << json.dump();
        EXPECT_TRUE(std::isfinite(config->softmax_scale) && config->softmax_scale > 0);
        EXPECT_TRUE(config->layers.at(0).has_indexer);
        EXPECT_GT(main_parameters(*config), 0u);
      }
    }
  }
}

}  // namespace
}  // namespace lacuna
