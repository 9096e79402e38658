// SPDX-License-Identifier: Apache-2.0
#include "model/glm_dsa_bind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include "tests/support/tiny_glm_dsa.h"

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;
using test::add_module;
using test::filled;
using test::TempFolder;
using test::TestTensors;
using test::tiny_glm_config;
using test::tiny_glm_tensors;
using test::with_quantization;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

const std::string kAttention = "model.layers.1.self_attn.";
const std::string kMlp = "model.layers.1.mlp.";

// Opened and bound; keeps the folder so that the views hold.
struct Bound {
  TempFolder folder;
  std::optional<Checkpoint> checkpoint;
  std::optional<GlmDsaConfig> config;
  std::optional<GlmDsaTensors> tensors;
  std::string error;
  ErrorCode code = ErrorCode::kIo;

  Bound(const Json& json, const TestTensors& files, ScaleCheck scale_check = ScaleCheck::kAll) {
    test::write_checkpoint(folder, json, files);
    auto opened = Checkpoint::open(folder.path());
    EXPECT_TRUE(opened.ok()) << opened.error().what;
    checkpoint = *std::move(opened);
    auto parsed = parse_glm_dsa_config(checkpoint->config());
    EXPECT_TRUE(parsed.ok()) << parsed.error().what;
    config = *std::move(parsed);
    auto result = bind_glm_dsa(*checkpoint, *config, scale_check);
    if (result) {
      tensors = *std::move(result);
      return;
    }
    error = result.error().what;
    code = result.error().code;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
  const std::uint8_t* data(const std::string& name) const { return checkpoint->find(name)->data; }
};

Json config_of(bool mlx) { return mlx ? with_quantization(tiny_glm_config()) : tiny_glm_config(); }
Bound plain(const TestTensors& files) { return Bound(tiny_glm_config(), files); }

TEST(BindGlmDsa, OriginalRelease) {
  const TestTensors files = tiny_glm_tensors(false);
  const Bound bound = plain(files);
  ASSERT_TRUE(bound.tensors) << bound.error;
  const GlmDsaTensors& t = *bound.tensors;
  EXPECT_EQ(t.parameters, main_parameters(*bound.config));
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : files) bytes += tensor.bytes.size();
  EXPECT_EQ(t.bytes, bytes);
  EXPECT_FALSE(t.has_mtp);
  EXPECT_THAT(t.notes, IsEmpty());
  EXPECT_EQ(t.embeddings.name, "model.embed_tokens");
  EXPECT_EQ(t.lm_head.name, "lm_head");
  ASSERT_EQ(t.layers.size(), 3u);
  EXPECT_FALSE(t.layers[0].kind.is_moe);
  EXPECT_EQ(t.layers[0].mlp.down.name, "model.layers.0.mlp.down_proj");
  EXPECT_EQ(t.layers[0].router.out, 0);
  const GlmDsaLayerTensors& moe = t.layers[1];
  EXPECT_EQ(moe.mlp.gate.out, 0);
  EXPECT_EQ(moe.router.out, 3);
  EXPECT_EQ(moe.correction_bias, std::vector<float>(3, 1.0f));
  ASSERT_EQ(moe.experts.up.size(), 3u);
  EXPECT_EQ(moe.experts.gate[1].weight, bound.data(kMlp + "experts.1.gate_proj.weight"));
  EXPECT_EQ(moe.experts.up[1].weight, bound.data(kMlp + "experts.1.up_proj.weight"));
  EXPECT_EQ(moe.experts.down[2].weight, bound.data(kMlp + "experts.2.down_proj.weight"));
  EXPECT_EQ(moe.shared.up.name, kMlp + "shared_experts.up_proj");
  EXPECT_EQ(moe.indexer.wq_b.name, kAttention + "indexer.wq_b");
  EXPECT_EQ(moe.indexer.weights_proj.out, 2);
  EXPECT_EQ(moe.indexer.k_norm_bias.size(), 32u);
  EXPECT_EQ(t.layers[2].indexer.wk.out, 0);
  EXPECT_EQ(moe.input_norm.size(), 64u);
  EXPECT_EQ(moe.attention.q_b.out, 160);
  EXPECT_EQ(moe.attention.kv_a.out, 80);
}

// kv_b_proj is n key rows, then v value rows, head by head.
TEST(BindGlmDsa, KvBSplitsByHead) {
  TestTensors files = tiny_glm_tensors(false);
  auto& kv_b = files[kAttention + "kv_b_proj.weight"];
  for (std::size_t row = 0; row < 192; ++row) {
    const std::uint16_t value = f32_to_bf16(static_cast<float>(row));
    for (std::size_t i = 0; i < 64; ++i)
      std::memcpy(kv_b.bytes.data() + 2 * (row * 64 + i), &value, 2);
  }
  const Bound bound = plain(files);
  ASSERT_TRUE(bound.tensors) << bound.error;
  const GlmDsaAttentionTensors& attention = bound.tensors->layers[1].attention;
  EXPECT_FALSE(attention.is_absorbed());
  EXPECT_THAT(attention.embed_q, IsEmpty());
  ASSERT_EQ(attention.key_b.size(), 2u);
  ASSERT_EQ(attention.unembed_out.size(), 2u);
  const auto first_value = [](const LinearSource& matrix) {
    std::uint16_t value;
    std::memcpy(&value, matrix.weight, 2);
    return bf16_to_f32(value);
  };
  const std::uint8_t* end = bound.data(kAttention + "kv_b_proj.weight") + 192 * 64 * 2;
  for (std::size_t h = 0; h < 2; ++h) {
    EXPECT_EQ(attention.key_b[h].out, 64);
    EXPECT_EQ(attention.key_b[h].in, 64);
    EXPECT_EQ(attention.unembed_out[h].out, 32);
    EXPECT_EQ(first_value(attention.key_b[h]), static_cast<float>(96 * h));
    EXPECT_EQ(first_value(attention.unembed_out[h]), static_cast<float>(96 * h + 64));
  }
  EXPECT_EQ(attention.unembed_out[1].weight + attention.unembed_out[1].bytes(), end);
}

TEST(BindGlmDsa, MlxConversion) {
  const Bound bound(config_of(true), tiny_glm_tensors(true));
  ASSERT_TRUE(bound.tensors) << bound.error;
  EXPECT_EQ(bound.tensors->parameters, main_parameters(*bound.config));
  const GlmDsaLayerTensors& moe = bound.tensors->layers[1];
  EXPECT_TRUE(moe.experts.up[2].quantized);
  EXPECT_EQ(moe.experts.up[2].weight, bound.data(kMlp + "switch_mlp.up_proj.weight") + 2 * 64 * 32);
  EXPECT_EQ(moe.experts.down[1].scales,
            bound.data(kMlp + "switch_mlp.down_proj.scales") + 1 * 64 * 2);
  EXPECT_FALSE(moe.router.quantized);
  const GlmDsaAttentionTensors& attention = moe.attention;
  EXPECT_TRUE(attention.is_absorbed());
  EXPECT_THAT(attention.key_b, IsEmpty());
  ASSERT_EQ(attention.embed_q.size(), 2u);
  EXPECT_EQ(attention.embed_q[1].out, 64);
  EXPECT_EQ(attention.embed_q[1].in, 64);
  EXPECT_EQ(attention.embed_q[1].weight, bound.data(kAttention + "embed_q.weight") + 64 * 32);
  EXPECT_EQ(attention.unembed_out[1].out, 32);
  EXPECT_EQ(attention.unembed_out[1].weight,
            bound.data(kAttention + "unembed_out.weight") + 32 * 32);
}

TEST(BindGlmDsa, TheOtherFamilyHasTheSameNames) {
  Json config = tiny_glm_config();
  config["model_type"] = "deepseek_v32";
  config.erase("indexer_types");
  TestTensors files = tiny_glm_tensors(false);
  EXPECT_THAT(Bound(config, files).error,
              StartsWith("model.layers.2.self_attn.indexer.wq_b.weight: missing, and 4 more are"));
  test::add_tiny_glm_layer(files, "model.layers.2.", 'E', true, false);
  const Bound bound(config, files);
  ASSERT_TRUE(bound.tensors) << bound.error;
  EXPECT_EQ(bound.tensors->parameters, main_parameters(*bound.config));
  EXPECT_EQ(bound.tensors->layers[2].indexer.wk.out, 32);
}

TEST(BindGlmDsa, IndexersOfSharedLayersAreLeftOutWithANote) {
  TestTensors files = tiny_glm_tensors(false);
  test::add_tiny_glm_layer(files, "model.layers.2.", 'E', true, false);
  const Bound with = plain(files), without = plain(tiny_glm_tensors(false));
  ASSERT_TRUE(with.tensors && without.tensors) << with.error;
  EXPECT_THAT(with.tensors->notes,
              ElementsAre("model.layers.2.self_attn.indexer.k_norm.bias: left out with 4 more "
                          "indexer tensors, on 1 layers that share picks by config.json"));
  EXPECT_EQ(with.tensors->layers[2].indexer.wk.out, 0);
  EXPECT_EQ(with.tensors->parameters, without.tensors->parameters);
  EXPECT_EQ(with.tensors->bytes, without.tensors->bytes);
}

TEST(BindGlmDsa, SeesTheDraftingLayerAndLeavesItAlone) {
  TestTensors files = tiny_glm_tensors(false);
  test::add_tiny_glm_mtp(files);
  for (const int declared : {0, 1}) {
    Json config = tiny_glm_config();
    config["num_nextn_predict_layers"] = declared;
    const Bound bound(config, files);
    ASSERT_TRUE(bound.tensors) << bound.error;
    EXPECT_TRUE(bound.tensors->has_mtp);
    EXPECT_EQ(bound.tensors->parameters, main_parameters(*bound.config));
    EXPECT_EQ(bound.tensors->layers.size(), 3u);
    EXPECT_TRUE(is_glm_dsa_mtp(*bound.checkpoint, *bound.config, "model.layers.3.enorm.weight"));
    EXPECT_FALSE(is_glm_dsa_mtp(*bound.checkpoint, *bound.config, "model.layers.2.enorm.weight"));
  }
  TestTensors side = tiny_glm_tensors(false);
  side["mtp.enorm.weight"] = filled(Dtype::kBf16, {64}, 1.0f);
  EXPECT_TRUE(plain(side).tensors->has_mtp);
  // A layer more than the config says, and no drafting layer.
  files.erase("model.layers.3.eh_proj.weight");
  EXPECT_THAT(plain(files).error, AllOf(HasSubstr("model.layers.3."), HasSubstr("have no place")));
  TestTensors odd = tiny_glm_tensors(false);
  for (const char* name :
       {"model.layers.99999999999999999999.x", "model.layers..x", "model.layers.-1.x",
        "model.layers.3", "model.layers.3x.eh_proj.weight"}) {
    odd = tiny_glm_tensors(false);
    odd[name] = filled(Dtype::kBf16, {64}, 1.0f);
    EXPECT_THAT(plain(odd).error, HasSubstr("has no place")) << name;
  }
}

TEST(BindGlmDsa, TiedEmbeddings) {
  Json config = tiny_glm_config();
  config["tie_word_embeddings"] = true;
  TestTensors files = tiny_glm_tensors(false);
  EXPECT_THAT(Bound(config, files).error, StartsWith("lm_head.weight: has no place"));
  files.erase("lm_head.weight");
  const Bound bound(config, files);
  ASSERT_TRUE(bound.tensors) << bound.error;
  EXPECT_EQ(bound.tensors->lm_head.weight, bound.tensors->embeddings.weight);
  EXPECT_EQ(bound.tensors->parameters, main_parameters(*bound.config));
}

TEST(BindGlmDsa, SharedExperts) {
  Json config = tiny_glm_config();
  config["n_shared_experts"] = 0;
  TestTensors files = tiny_glm_tensors(false);
  EXPECT_THAT(Bound(config, files).error,
              HasSubstr("shared_experts.down_proj.weight: this and 5 other"));
  config["n_shared_experts"] = 2;
  EXPECT_THAT(Bound(config, files).error,
              HasSubstr("shared_experts.gate_proj.weight: shape [64, 64], wanted [128, 64]"));
  for (const char* layer : {"model.layers.1.", "model.layers.2."})
    for (const char* name : {"gate", "up", "down"})
      files.erase(std::string(layer) + "mlp.shared_experts." + name + "_proj.weight");
  config["n_shared_experts"] = 0;
  const Bound bound(config, files);
  ASSERT_TRUE(bound.tensors) << bound.error;
  EXPECT_EQ(bound.tensors->layers[1].shared.up.out, 0);
}

// embed_q has n inputs, which larger groups do not divide: MLX leaves such a module plain.
TEST(BindGlmDsa, ModulesOfOneConversionMayDiffer) {
  Json config = config_of(true);
  config["quantization"]["model.layers.0.self_attn.q_a_proj"] = {{"bits", 8}, {"group_size", 32}};
  TestTensors files = tiny_glm_tensors(true);
  add_module(files, "model.layers.0.self_attn.q_a_proj", {64, 64}, 8, 32);
  for (const char* part : {"scales", "biases"}) files.erase(kAttention + "embed_q." + part);
  add_module(files, kAttention + "embed_q", {2, 64, 64}, 0);
  const Bound bound(config, files);
  ASSERT_TRUE(bound.tensors) << bound.error;
  EXPECT_EQ(bound.tensors->layers[0].attention.q_a.bits, 8);
  EXPECT_FALSE(bound.tensors->layers[1].attention.embed_q[1].quantized);
  EXPECT_EQ(bound.tensors->layers[1].attention.embed_q[1].weight,
            bound.data(kAttention + "embed_q.weight") + 64 * 64 * 2);
  config["quantization"]["model.layers.0.self_attn.qa_proj"] = false;
  EXPECT_THAT(Bound(config, files).error,
              HasSubstr("model.layers.0.self_attn.qa_proj: no such module"));
}

// Every tensor of both layouts in turn: gone, renamed, of another shape, of another dtype.
class EveryGlmTensor : public ::testing::TestWithParam<bool> {};

TEST_P(EveryGlmTensor, MissingIsNamed) {
  const TestTensors files = tiny_glm_tensors(GetParam());
  for (const auto& [name, tensor] : files) {
    TestTensors spoiled = files;
    spoiled.erase(name);
    const Bound bound(config_of(GetParam()), spoiled);
    EXPECT_FALSE(bound.tensors) << name;
    EXPECT_EQ(bound.code, ErrorCode::kCorrupt);
    EXPECT_THAT(bound.error, AllOf(HasSubstr(name), HasSubstr("missing")));
  }
}

TEST_P(EveryGlmTensor, RenamedIsNamedWithTheOddOne) {
  const TestTensors files = tiny_glm_tensors(GetParam());
  for (const auto& [name, tensor] : files) {
    TestTensors spoiled = files;
    spoiled.erase(name);
    spoiled["model.odd"] = tensor;
    const Bound bound(config_of(GetParam()), spoiled);
    EXPECT_FALSE(bound.tensors) << name;
    EXPECT_THAT(bound.error, HasSubstr(name));
    if (name.ends_with(".weight") &&
        files.count(name.substr(0, name.size() - 7) + ".scales") == 0) {
      EXPECT_THAT(bound.error, HasSubstr("model.odd"));
    }
  }
}

TEST_P(EveryGlmTensor, AnotherShapeIsNamedWithBoth) {
  const TestTensors files = tiny_glm_tensors(GetParam());
  for (const auto& [name, tensor] : files) {
    TestTensors spoiled = files;
    std::vector<std::int64_t> shape = tensor.shape;
    shape.front() += 1;
    spoiled[name] = filled(tensor.dtype, shape, 1.0f);
    const Bound bound(config_of(GetParam()), spoiled);
    EXPECT_FALSE(bound.tensors) << name;
    EXPECT_EQ(bound.code, ErrorCode::kCorrupt);
    EXPECT_THAT(bound.error, AllOf(HasSubstr(name + ": shape " + shape_text(shape)),
                                   HasSubstr("wanted " + shape_text(tensor.shape))));
  }
}

TEST_P(EveryGlmTensor, AnotherDtypeIsNamed) {
  const TestTensors files = tiny_glm_tensors(GetParam());
  for (const auto& [name, tensor] : files) {
    TestTensors spoiled = files;
    spoiled[name] = filled(Dtype::kI16, tensor.shape, 1.0f);
    const Bound bound(config_of(GetParam()), spoiled);
    EXPECT_FALSE(bound.tensors) << name;
    EXPECT_THAT(bound.error, HasSubstr(name + ": dtype I16"));
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, EveryGlmTensor, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "Mlx" : "Original"; });

TEST(BindGlmDsa, CountsWhatIsMissing) {
  TestTensors files = tiny_glm_tensors(true);
  files.erase(kMlp + "switch_mlp.down_proj.weight");
  EXPECT_THAT(Bound(config_of(true), files).error,
              StartsWith(kMlp + "switch_mlp.down_proj.weight: missing;"));
  files = tiny_glm_tensors(false);
  for (int e = 0; e < 3; ++e)
    files.erase(kMlp + "experts." + std::to_string(e) + ".up_proj.weight");
  EXPECT_EQ(plain(files).error, kMlp + "experts.0.up_proj.weight: missing, and 2 more are");
  // A file of another schedule: layer 2 owns what the file does not have.
  Json config = tiny_glm_config();
  config["indexer_types"] = {"full", "full", "full"};
  EXPECT_EQ(Bound(config, tiny_glm_tensors(false)).error,
            "model.layers.2.self_attn.indexer.wq_b.weight: missing, and 4 more are");
}

TEST(BindGlmDsa, BothLayoutsOfTheLatentAtOnceAreRefused) {
  TestTensors files = tiny_glm_tensors(false);
  add_module(files, kAttention + "embed_q", {2, 64, 64}, 0);
  EXPECT_THAT(plain(files).error, AllOf(StartsWith(kAttention + "unembed_out.weight: missing"),
                                        HasSubstr("kv_b_proj")));
  add_module(files, kAttention + "unembed_out", {2, 32, 64}, 0);
  EXPECT_THAT(plain(files).error, StartsWith(kAttention + "kv_b_proj.weight: has no place"));
}

TEST(BindGlmDsa, QuantisedKvBIsRefusedByName) {
  TestTensors files = tiny_glm_tensors(true);
  for (const char* module : {"embed_q", "unembed_out"})
    for (const char* part : {".weight", ".scales", ".biases"})
      files.erase(kAttention + module + part);
  add_module(files, kAttention + "kv_b_proj", {192, 64}, 4);
  const Bound bound(config_of(true), files);
  EXPECT_EQ(bound.code, ErrorCode::kUnsupported);
  EXPECT_THAT(bound.error, StartsWith(kAttention + "kv_b_proj: quantised, wanted embed_q"));
}

TEST(BindGlmDsa, Fp8IsRefusedByName) {
  TestTensors files = tiny_glm_tensors(false);
  files[kAttention + "q_a_proj.weight"] = filled(Dtype::kF8E4M3, {64, 64}, 1);
  files[kAttention + "q_a_proj.weight_scale_inv"] = filled(Dtype::kF32, {1, 1}, 1.0f);
  Json config = tiny_glm_config();
  for (const bool said : {false, true}) {
    if (said) config["quantization_config"] = {{"quant_method", "fp8"}};
    const Bound bound(config, files);
    EXPECT_EQ(bound.code, ErrorCode::kUnsupported);
    EXPECT_THAT(bound.error, AllOf(StartsWith(kAttention + "q_a_proj.weight: dtype F8_E4M3"),
                                   HasSubstr("`lacuna convert`")));
  }
  config["quantization_config"] = {{"quant_method", "awq"}};
  EXPECT_THAT(Bound(config, tiny_glm_tensors(false)).error, HasSubstr("quant_method \"awq\""));
}

TEST(BindGlmDsa, ValuesMustBeFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::string& name :
       {std::string("model.norm.weight"), kAttention + "kv_a_layernorm.weight",
        kAttention + "indexer.k_norm.bias", kMlp + "gate.e_score_correction_bias"}) {
    for (const float bad : {std::numeric_limits<float>::infinity(), nan}) {
      TestTensors files = tiny_glm_tensors(false);
      const std::string value = filled(files[name].dtype, {1}, bad).bytes;
      files[name].bytes.replace(value.size(), value.size(), value);
      EXPECT_THAT(plain(files).error, StartsWith(name + ": value 1 is "));
    }
  }
  TestTensors files = tiny_glm_tensors(true);
  auto& scales = files[kAttention + "unembed_out.scales"].bytes;
  scales.replace(scales.size() - 2, 2, filled(Dtype::kBf16, {1}, nan).bytes);  // of the last head
  EXPECT_EQ(Bound(config_of(true), files).error,
            kAttention + "unembed_out.scales: holds a NaN or an infinity");
  EXPECT_TRUE(Bound(config_of(true), files, ScaleCheck::kNone).tensors);
}

TEST(BindGlmDsa, TheBundledModel) {
  auto opened = Checkpoint::open("models/tiny-glm-dsa/mlx-4bit");
  ASSERT_TRUE(opened.ok()) << opened.error().what;
  const auto config = parse_glm_dsa_config(opened->config());
  ASSERT_TRUE(config.ok()) << config.error().what;
  const auto tensors = bind_glm_dsa(*opened, *config);
  ASSERT_TRUE(tensors.ok()) << tensors.error().what;
  EXPECT_EQ(tensors->parameters, 25'852'880u);
  EXPECT_EQ(tensors->parameters, main_parameters(*config));
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : opened->tensors()) bytes += tensor.bytes;
  EXPECT_EQ(tensors->bytes, bytes);
  EXPECT_FALSE(tensors->has_mtp);
  EXPECT_THAT(tensors->notes, IsEmpty());
  ASSERT_EQ(tensors->layers.size(), 6u);
  EXPECT_EQ(tensors->layers[0].mlp.gate.name, "model.layers.0.mlp.gate_proj");
  EXPECT_EQ(tensors->layers[4].indexer.wq_b.name, "model.layers.4.self_attn.indexer.wq_b");
  EXPECT_EQ(tensors->layers[5].indexer.wq_b.out, 0);
  EXPECT_EQ(tensors->layers[5].experts.gate.size(), 16u);
  const GlmDsaAttentionTensors& attention = tensors->layers[3].attention;
  EXPECT_TRUE(attention.is_absorbed());
  ASSERT_EQ(attention.embed_q.size(), 6u);
  EXPECT_EQ(attention.embed_q[5].in, 64);
  EXPECT_EQ(attention.unembed_out[5].out, 128);
}

}  // namespace
}  // namespace lacuna
