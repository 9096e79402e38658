// SPDX-License-Identifier: Apache-2.0
#include "model/nemotron_h_bind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include "tests/support/tiny_nemotron.h"

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;
using test::add_module;
using test::filled;
using test::TempFolder;
using test::TestTensors;
using test::tiny_config;
using test::tiny_tensors;
using test::with_quantization;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string kMoe = "backbone.layers.2.mixer.";

// Opened and bound; keeps the folder so that the views hold.
struct Bound {
  TempFolder folder;
  std::optional<Checkpoint> checkpoint;
  std::optional<NemotronHConfig> config;
  std::optional<NemotronHTensors> tensors;
  std::string error;
  ErrorCode code = ErrorCode::kIo;

  Bound(const Json& json, const TestTensors& files, ScaleCheck scale_check = ScaleCheck::kAll) {
    test::write_checkpoint(folder, json, files);
    auto opened = Checkpoint::open(folder.path());
    EXPECT_TRUE(opened.ok()) << opened.error().what;
    checkpoint = *std::move(opened);
    auto parsed = parse_nemotron_h_config(checkpoint->config());
    EXPECT_TRUE(parsed.ok()) << parsed.error().what;
    config = *std::move(parsed);
    auto result = bind_nemotron_h(*checkpoint, *config, scale_check);
    if (result) {
      tensors = *std::move(result);
      return;
    }
    error = result.error().what;
    code = result.error().code;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
};

Bound plain(const TestTensors& tensors) { return Bound(tiny_config(), tensors); }

TEST(BindNemotronH, OriginalRelease) {
  const TestTensors files = tiny_tensors(false);
  const Bound bound = plain(files);
  ASSERT_TRUE(bound.tensors) << bound.error;
  const NemotronHTensors& t = *bound.tensors;
  EXPECT_EQ(t.parameters, main_parameters(*bound.config));
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : files) bytes += tensor.bytes.size();
  EXPECT_EQ(t.bytes, bytes);
  EXPECT_FALSE(t.has_mtp);
  ASSERT_EQ(t.layers.size(), 4u);
  EXPECT_EQ(t.layers[0].kind, LayerKind::kMamba);
  EXPECT_EQ(t.layers[0].in_proj.out, 164);
  EXPECT_EQ(t.layers[0].conv_weight, std::vector<float>(96 * 4, 1.0f));
  EXPECT_EQ(t.layers[0].gate_norm.size(), 64u);
  EXPECT_EQ(t.layers[1].k_proj.out, 32);
  EXPECT_EQ(t.layers[2].experts.up.size(), 3u);
  EXPECT_EQ(t.layers[2].experts.down[1].weight,
            bound.checkpoint->find(kMoe + "experts.1.down_proj.weight")->data);
  EXPECT_EQ(t.layers[2].correction_bias.size(), 3u);
  EXPECT_EQ(t.layers[2].latent_in.out, 0);
  EXPECT_EQ(t.layers[3].mlp_down.in, 64);
  EXPECT_EQ(t.final_norm.size(), 64u);
}

TEST(BindNemotronH, MlxConversion) {
  const Bound bound(with_quantization(tiny_config()), tiny_tensors(true));
  ASSERT_TRUE(bound.tensors) << bound.error;
  EXPECT_EQ(bound.tensors->parameters, main_parameters(*bound.config));
  EXPECT_TRUE(bound.tensors->layers[2].experts.up[2].quantized);
  EXPECT_EQ(bound.tensors->layers[2].experts.up[2].weight,
            bound.checkpoint->find(kMoe + "switch_mlp.fc1.weight")->data + 2 * 64 * 32);
  EXPECT_FALSE(bound.tensors->layers[2].router.quantized);
}

TEST(BindNemotronH, SmallFloatsOfEachDtypeAreWidened) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBf16}) {
    TestTensors files = tiny_tensors(false);
    for (const char* name : {"A_log", "D", "dt_bias", "norm.weight", "conv1d.bias"}) {
      auto& tensor = files[std::string("backbone.layers.0.mixer.") + name];
      tensor = filled(dtype, tensor.shape, 1.0f);
    }
    const Bound bound = plain(files);
    ASSERT_TRUE(bound.tensors) << bound.error;
    EXPECT_EQ(bound.tensors->layers[0].a_log, std::vector<float>(4, 1.0f));
    EXPECT_EQ(bound.tensors->layers[0].conv_bias, std::vector<float>(96, 1.0f));
  }
}

// L6 and the head's place: mtp.* is looked over here and changes nothing else.
TEST(BindNemotronH, SeesTheHeadAndLeavesItAlone) {
  TestTensors files = tiny_tensors(false);
  files["mtp.layers.0.enorm.weight"] = filled(Dtype::kBf16, {64}, 1.0f);
  const Bound with = plain(files), without = plain(tiny_tensors(false));
  ASSERT_TRUE(with.tensors && without.tensors);
  EXPECT_TRUE(with.tensors->has_mtp);
  EXPECT_EQ(with.tensors->parameters, without.tensors->parameters);
  EXPECT_EQ(with.tensors->bytes, without.tensors->bytes);
  EXPECT_EQ(with.tensors->layers[0].norm, without.tensors->layers[0].norm);
}

std::string head_error(const Json& json, const TestTensors& files, ErrorCode code) {
  const Bound bound(json, files);
  const auto head = bind_nemotron_h_head(*bound.checkpoint, *bound.config);
  if (head.ok()) return "bound";
  EXPECT_EQ(head.error().code, code) << head.error().what;
  return head.error().what;
}

TEST(BindNemotronHHead, EveryTensorHasItsField) {
  TestTensors files = tiny_tensors(false);
  test::add_tiny_head(files);
  for (const bool declared : {false, true}) {
    Json config = tiny_config();
    if (declared) config["num_nextn_predict_layers"] = 1;
    const Bound bound(config, files);
    ASSERT_TRUE(bound.tensors) << bound.error;
    const auto head = bind_nemotron_h_head(*bound.checkpoint, *bound.config);
    ASSERT_TRUE(head.ok()) << head.error().what;
    EXPECT_EQ(head->token_norm.size(), 64u);
    EXPECT_EQ(head->hidden_norm.size(), 64u);
    EXPECT_EQ(head->final_norm.size(), 64u);
    EXPECT_EQ(head->joined.name, "mtp.layers.0.eh_proj");
    EXPECT_EQ(head->joined.in, 128);
    ASSERT_EQ(head->layers.size(), 2u);
    EXPECT_EQ(head->layers[0].k_proj.name, "mtp.layers.0.mixer.k_proj");
    EXPECT_EQ(head->layers[1].experts.down[2].name, "mtp.layers.1.mixer.experts.2.down_proj");
    if (declared) {
      EXPECT_EQ(head->parameters, mtp_parameters(*bound.config));
    }
  }
}

TEST(BindNemotronHHead, NamesWhatDoesNotFit) {
  TestTensors files = tiny_tensors(false);
  test::add_tiny_head(files);
  EXPECT_EQ(head_error(tiny_config(), files, ErrorCode::kCorrupt), "bound");
  TestTensors spoiled = files;
  spoiled.erase("mtp.layers.0.hnorm.weight");
  EXPECT_THAT(head_error(tiny_config(), spoiled, ErrorCode::kCorrupt),
              StartsWith("mtp.layers.0.hnorm.weight: missing"));
  spoiled = files;
  add_module(spoiled, "mtp.layers.0.eh_proj", {64, 64}, 0);
  EXPECT_THAT(head_error(tiny_config(), spoiled, ErrorCode::kCorrupt),
              AllOf(StartsWith("mtp.layers.0.eh_proj"), HasSubstr("[64, 64], wanted [64, 128]")));
  spoiled = files;
  spoiled["mtp.layers.1.enorm.weight"] = filled(Dtype::kBf16, {64}, 1.0f);
  EXPECT_THAT(head_error(tiny_config(), spoiled, ErrorCode::kCorrupt),
              StartsWith("mtp.layers.1.enorm.weight: has no place"));
  Json config = tiny_config();
  config["num_nextn_predict_layers"] = 1;
  config["mtp_hybrid_override_pattern"] = "E*";
  EXPECT_THAT(head_error(config, files, ErrorCode::kUnsupported), StartsWith("layers E* of"));
  // What is wrong with the head is no fault of the model.
  EXPECT_TRUE(Bound(tiny_config(), spoiled).tensors);
}

TEST(BindNemotronH, TiedEmbeddings) {
  Json config = tiny_config();
  config["tie_word_embeddings"] = true;
  TestTensors files = tiny_tensors(false);
  EXPECT_THAT(Bound(config, files).error, StartsWith("lm_head.weight: has no place"));
  files.erase("lm_head.weight");
  const Bound bound(config, files);
  ASSERT_TRUE(bound.tensors) << bound.error;
  EXPECT_EQ(bound.tensors->lm_head.weight, bound.tensors->embeddings.weight);
  EXPECT_EQ(bound.tensors->parameters, main_parameters(*bound.config));
}

TEST(BindNemotronH, NoSharedExpert) {
  Json config = tiny_config();
  config["n_shared_experts"] = 0;
  TestTensors files = tiny_tensors(false);
  EXPECT_THAT(Bound(config, files).error,
              HasSubstr("shared_experts.down_proj.weight: this and 1 other"));
  files.erase(kMoe + "shared_experts.up_proj.weight");
  files.erase(kMoe + "shared_experts.down_proj.weight");
  const Bound bound(config, files);
  ASSERT_TRUE(bound.tensors) << bound.error;
  EXPECT_EQ(bound.tensors->layers[2].shared_up.out, 0);
}

// L8: with latent projections the experts work on the latent width, router and shared expert do
// not.
TEST(BindNemotronH, LatentProjections) {
  Json config = tiny_config();
  TestTensors files = tiny_tensors(false);
  add_module(files, kMoe + "fc1_latent_proj", {32, 64}, 0);
  add_module(files, kMoe + "fc2_latent_proj", {64, 32}, 0);
  EXPECT_THAT(Bound(config, files).error, HasSubstr("fc1_latent_proj.weight: this and 1 other"));
  config["moe_latent_size"] = 32;
  EXPECT_THAT(Bound(config, files).error,
              HasSubstr("experts.0.up_proj.weight: shape [64, 64], wanted [64, 32]"));
  for (int e = 0; e < 3; ++e) {
    add_module(files, kMoe + "experts." + std::to_string(e) + ".up_proj", {64, 32}, 0);
    add_module(files, kMoe + "experts." + std::to_string(e) + ".down_proj", {32, 64}, 0);
  }
  const Bound bound(config, files);
  ASSERT_TRUE(bound.tensors) << bound.error;
  EXPECT_EQ(bound.tensors->layers[2].latent_in.out, 32);
  EXPECT_EQ(bound.tensors->layers[2].latent_out.in, 32);
  EXPECT_EQ(bound.tensors->layers[2].router.in, 64);
  EXPECT_EQ(bound.tensors->parameters, main_parameters(*bound.config));
}

TEST(BindNemotronH, OverridesOfBitsAndGroups) {
  Json config = with_quantization(tiny_config());
  config["quantization"]["backbone.layers.0.mixer.in_proj"] = {{"bits", 6}, {"group_size", 32}};
  config["quantization"]["lm_head"] = false;
  TestTensors files = tiny_tensors(true);
  add_module(files, "backbone.layers.0.mixer.in_proj", {164, 64}, 6, 32);
  files.erase("lm_head.scales");
  files.erase("lm_head.biases");
  add_module(files, "lm_head", {32, 64}, 0);
  const Bound bound(config, files);
  ASSERT_TRUE(bound.tensors) << bound.error;
  EXPECT_EQ(bound.tensors->layers[0].in_proj.bits, 6);
  EXPECT_FALSE(bound.tensors->lm_head.quantized);
  EXPECT_EQ(bound.tensors->parameters, main_parameters(*bound.config));
  config["quantization"]["backbone.layers.0.mixer.inproj"] = false;
  EXPECT_THAT(Bound(config, files).error,
              HasSubstr("backbone.layers.0.mixer.inproj: no such module"));
}

// Every tensor of both layouts in turn: gone, renamed, of another shape, of another dtype.
class EveryTensor : public ::testing::TestWithParam<bool> {
 protected:
  Json config() const { return GetParam() ? with_quantization(tiny_config()) : tiny_config(); }
};

TEST_P(EveryTensor, MissingIsNamed) {
  const TestTensors files = tiny_tensors(GetParam());
  for (const auto& [name, tensor] : files) {
    TestTensors spoiled = files;
    spoiled.erase(name);
    const Bound bound(config(), spoiled);
    EXPECT_FALSE(bound.tensors) << name;
    EXPECT_EQ(bound.code, ErrorCode::kCorrupt);
    EXPECT_THAT(bound.error, HasSubstr(name));
    EXPECT_THAT(bound.error, HasSubstr("missing"));
  }
}

TEST_P(EveryTensor, RenamedIsNamedWithTheOddOne) {
  const TestTensors files = tiny_tensors(GetParam());
  for (const auto& [name, tensor] : files) {
    TestTensors spoiled = files;
    spoiled.erase(name);
    spoiled["backbone.odd"] = tensor;
    const Bound bound(config(), spoiled);
    EXPECT_FALSE(bound.tensors) << name;
    EXPECT_THAT(bound.error, HasSubstr(name));
    if (name.ends_with(".weight") &&
        files.count(name.substr(0, name.size() - 7) + ".scales") == 0) {
      EXPECT_THAT(bound.error, HasSubstr("backbone.odd"));
    }
  }
}

TEST_P(EveryTensor, AnotherShapeIsNamedWithBoth) {
  const TestTensors files = tiny_tensors(GetParam());
  for (const auto& [name, tensor] : files) {
    TestTensors spoiled = files;
    std::vector<std::int64_t> shape = tensor.shape;
    shape.front() += 1;
    spoiled[name] = filled(tensor.dtype, shape, 1.0f);
    const Bound bound(config(), spoiled);
    EXPECT_FALSE(bound.tensors) << name;
    EXPECT_EQ(bound.code, ErrorCode::kCorrupt);
    EXPECT_THAT(bound.error, AllOf(HasSubstr(name + ": shape " + shape_text(shape)),
                                   HasSubstr("wanted " + shape_text(tensor.shape).substr(0, 3))));
  }
}

TEST_P(EveryTensor, AnotherDtypeIsNamed) {
  const TestTensors files = tiny_tensors(GetParam());
  for (const auto& [name, tensor] : files) {
    TestTensors spoiled = files;
    spoiled[name] = filled(Dtype::kI16, tensor.shape, 1.0f);
    const Bound bound(config(), spoiled);
    EXPECT_FALSE(bound.tensors) << name;
    EXPECT_THAT(bound.error, HasSubstr(name + ": dtype I16"));
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, EveryTensor, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "Mlx" : "Original"; });

TEST(BindNemotronH, CountsWhatIsMissingOrSurplus) {
  TestTensors files = tiny_tensors(true);
  files.erase(kMoe + "switch_mlp.fc2.weight");
  EXPECT_THAT(Bound(with_quantization(tiny_config()), files).error,
              StartsWith(kMoe + "switch_mlp.fc2.weight: missing;"));
  files = tiny_tensors(false);
  for (int e = 0; e < 3; ++e)
    files.erase(kMoe + "experts." + std::to_string(e) + ".up_proj.weight");
  EXPECT_EQ(plain(files).error, kMoe + "experts.0.up_proj.weight: missing, and 2 more are");
  files = tiny_tensors(false);
  files["backbone.layers.1.mixer.q_proj.bias"] = filled(Dtype::kBf16, {64}, 1.0f);
  EXPECT_THAT(plain(files).error, StartsWith("backbone.layers.1.mixer.q_proj.bias: has no place"));
  files["backbone.layers.4.norm.weight"] = filled(Dtype::kBf16, {64}, 1.0f);
  EXPECT_THAT(plain(files).error,
              StartsWith("backbone.layers.1.mixer.q_proj.bias: this and 1 other tensors"));
}

TEST(BindNemotronH, ReportsTheFirstComplaintInTheModelsOrder) {
  TestTensors files = tiny_tensors(false);
  files["backbone.layers.3.norm.weight"] = filled(Dtype::kBf16, {63}, 1.0f);
  files["backbone.layers.1.mixer.q_proj.weight"] = filled(Dtype::kBf16, {64, 63}, 1.0f);
  EXPECT_THAT(plain(files).error,
              StartsWith("backbone.layers.1.mixer.q_proj.weight: shape [64, 63], wanted [64, 64]"));
}

TEST(BindNemotronH, ConvTapsInAnyOtherPlaceAreRefused) {
  TestTensors files = tiny_tensors(false);
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{96, 4}, {4, 1, 96}, {96, 2, 2}}) {
    files["backbone.layers.0.mixer.conv1d.weight"] = filled(Dtype::kBf16, shape, 1.0f);
    EXPECT_THAT(plain(files).error, HasSubstr("wanted [96, 1, 4] or [96, 4, 1]"));
  }
}

TEST(BindNemotronH, ValuesMustBeFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* name :
       {"backbone.norm_f.weight", "backbone.layers.0.mixer.dt_bias",
        "backbone.layers.0.mixer.A_log", "backbone.layers.2.mixer.gate.e_score_correction_bias"}) {
    for (const float bad : {inf, -inf, nan}) {
      TestTensors files = tiny_tensors(false);
      const std::string value = filled(files[name].dtype, {1}, bad).bytes;
      files[name].bytes.replace(value.size(), value.size(), value);
      EXPECT_THAT(plain(files).error, StartsWith(std::string(name) + ": value 1 is "));
    }
  }
  for (const float bad : {100.0f, -200.0f}) {  // finite, but -exp of it is not, or is 0
    TestTensors files = tiny_tensors(false);
    files["backbone.layers.0.mixer.A_log"] = filled(Dtype::kF32, {4}, bad);
    EXPECT_THAT(plain(files).error, HasSubstr("backbone.layers.0.mixer.A_log: value 0 is "));
  }
}

TEST(BindNemotronH, ScalesAreCheckedWhenAsked) {
  TestTensors files = tiny_tensors(true);
  const std::string bad = filled(Dtype::kBf16, {1}, std::numeric_limits<float>::quiet_NaN()).bytes;
  auto& scales = files[kMoe + "switch_mlp.fc2.scales"].bytes;
  scales.replace(scales.size() - 2, 2, bad);  // the last value of the last expert
  EXPECT_EQ(Bound(with_quantization(tiny_config()), files).error,
            kMoe + "switch_mlp.fc2.scales: holds a NaN or an infinity");
  EXPECT_TRUE(Bound(with_quantization(tiny_config()), files, ScaleCheck::kNone).tensors);
}

TEST(BindNemotronH, NamesQuantisationThatIsNotRead) {
  Json config = with_quantization(tiny_config());
  config["quantization"]["mode"] = "mxfp4";
  const Bound bound(config, tiny_tensors(true));
  EXPECT_EQ(bound.code, ErrorCode::kUnsupported);
  EXPECT_THAT(bound.error, HasSubstr("mxfp4"));
  TestTensors files = tiny_tensors(false);
  files["backbone.layers.0.mixer.in_proj.weight"] = filled(Dtype::kF8E4M3, {164, 64}, 1);
  EXPECT_EQ(plain(files).code, ErrorCode::kUnsupported);
  EXPECT_THAT(plain(files).error, HasSubstr("in_proj.weight: dtype F8_E4M3"));
}

TEST(BindNemotronH, TheBundledModel) {
  auto opened = Checkpoint::open("models/tiny-nemotron-h/mlx-4bit");
  ASSERT_TRUE(opened.ok()) << opened.error().what;
  const auto config = parse_nemotron_h_config(opened->config());
  ASSERT_TRUE(config.ok()) << config.error().what;
  const auto tensors = bind_nemotron_h(*opened, *config);
  ASSERT_TRUE(tensors.ok()) << tensors.error().what;
  EXPECT_EQ(tensors->parameters, 24'360'520u);
  EXPECT_EQ(tensors->parameters, main_parameters(*config));
  EXPECT_EQ(tensors->parameters + mtp_parameters(*config), 27'710'936u);
  EXPECT_EQ(tensors->bytes, 13'795'056u);
  EXPECT_TRUE(tensors->has_mtp);
  EXPECT_EQ(tensors->layers.size(), 12u);
}

}  // namespace
}  // namespace lacuna
