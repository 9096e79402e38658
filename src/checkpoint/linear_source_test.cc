// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/linear_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
using ::testing::HasSubstr;

QuantizationRules rules_of(const std::string& quantization) {
  auto rules = QuantizationRules::parse(Json{{"quantization", Json::parse(quantization)}});
  EXPECT_TRUE(rules.ok()) << rules.error().what;
  return *rules;
}

std::string rules_error(const std::string& quantization, ErrorCode code) {
  auto rules = QuantizationRules::parse(Json{{"quantization", Json::parse(quantization)}});
  EXPECT_FALSE(rules.ok()) << quantization;
  if (rules) return "no error";
  EXPECT_EQ(rules.error().code, code) << rules.error().what;
  return rules.error().what;
}

Checkpoint open(const TempFolder& folder, const TestTensors& tensors) {
  test::write_checkpoint(folder, Json::object(), tensors);
  auto opened = Checkpoint::open(folder.path());
  EXPECT_TRUE(opened.ok()) << opened.error().what;
  return *std::move(opened);
}

TEST(QuantizationRules, NoneWhenTheConfigSaysNothing) {
  for (const char* config :
       {"{}", R"({"quantization": null})", R"({"quantization_config": null})"}) {
    auto rules = QuantizationRules::parse(Json::parse(config));
    ASSERT_TRUE(rules.ok());
    EXPECT_FALSE(rules->any());
  }
}

TEST(QuantizationRules, ReadsDefaultsAndBothKeys) {
  EXPECT_EQ(rules_of("{}").default_rule().bits, 4);
  EXPECT_EQ(rules_of("{}").default_rule().group, 64);  // MLX's own defaults
  const auto rules = QuantizationRules::parse(
      Json::parse(R"({"quantization_config": {"bits": 6, "group_size": 32}})"));
  ASSERT_TRUE(rules.ok());
  EXPECT_TRUE(rules->any());
  EXPECT_EQ(rules->rule("anything").bits, 6);
  EXPECT_EQ(rules->rule("anything").group, 32);
}

TEST(QuantizationRules, RefusesWhatIsNotAffine) {
  EXPECT_THAT(
      rules_error(R"({"group_size": 16, "bits": 4, "mode": "nvfp4"})", ErrorCode::kUnsupported),
      HasSubstr("config.json: quantization: mode \"nvfp4\" is not supported"));
  EXPECT_THAT(rules_error(R"({"lm_head": {"bits": 8, "mode": "mxfp8"}})", ErrorCode::kUnsupported),
              HasSubstr("lm_head: mode \"mxfp8\""));
  EXPECT_THAT(rules_error(R"({"bits": 7})", ErrorCode::kUnsupported),
              HasSubstr("bits: 7, wanted one of 2, 3, 4, 5, 6, 8"));
  EXPECT_THAT(rules_error(R"({"group_size": 48})", ErrorCode::kUnsupported),
              HasSubstr("group_size: 48"));
  auto modelopt = QuantizationRules::parse(
      Json::parse(R"({"quantization_config": {"quant_method": "modelopt"}})"));
  ASSERT_FALSE(modelopt.ok());
  EXPECT_EQ(modelopt.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(modelopt.error().what, HasSubstr("quantization_config: quant_method \"modelopt\""));
}

TEST(QuantizationRules, RefusesBrokenFields) {
  for (const char* text : {"[]", "4", R"({"bits": "4"})", R"({"bits": 4.5})", R"({"lm_head": 4})",
                           R"({"lm_head": null})", R"({"lm_head": {"bit": 4}})",
                           R"({"a.b": true, "backbone.a.b": false})"}) {
    rules_error(text, ErrorCode::kCorrupt);
  }
}

// L5: every known prefix, experts stacked or apart.
TEST(QuantizationRules, OverridesMatchUnderEachNaming) {
  const auto rules = rules_of(R"({"bits": 4, "group_size": 64,
      "backbone.layers.0.mixer.in_proj": {"bits": 8, "group_size": 32}, "model.layers.1.mixer.q_proj": {"bits": 6},
      "layers.2.mixer.switch_mlp.fc1": {"bits": 2}, "backbone.layers.2.mixer.experts.1.down_proj": {"bits": 3},
      "lm_head": false})");
  EXPECT_EQ(rules.rule("backbone.layers.0.mixer.in_proj").bits, 8);
  EXPECT_EQ(rules.rule("backbone.layers.0.mixer.in_proj").group, 32);
  EXPECT_EQ(rules.rule("backbone.layers.1.mixer.q_proj").bits, 6);
  EXPECT_EQ(rules.rule("backbone.layers.1.mixer.q_proj").group, 64);
  EXPECT_EQ(rules.rule("backbone.layers.2.mixer.switch_mlp.fc1").bits, 2);
  EXPECT_EQ(rules.rule("backbone.layers.2.mixer.experts.17.up_proj").bits, 2);
  EXPECT_EQ(rules.rule("backbone.layers.2.mixer.experts.1.down_proj").bits, 3);
  EXPECT_EQ(rules.rule("backbone.layers.2.mixer.experts.2.down_proj").bits, 4);
  EXPECT_EQ(rules.rule("backbone.layers.12.mixer.switch_mlp.fc1").bits, 4);
  EXPECT_FALSE(rules.rule("lm_head").quantized);
  EXPECT_EQ(rules.overrides().size(), 5u);
}

TEST(QuantizationRules, AnOverrideMustMatchAModule) {
  TempFolder folder;
  TestTensors tensors;
  add_module(tensors, "backbone.layers.0.mixer.in_proj", {8, 64}, 4);
  add_module(tensors, "backbone.layers.1.mixer.experts.0.up_proj", {8, 64}, 4);
  tensors["backbone.layers.1.mixer.gate.weight"] = filled(Dtype::kF32, {2, 64}, 1);
  const Checkpoint checkpoint = open(folder, tensors);
  for (const char* good : {"layers.0.mixer.in_proj", "model.layers.0.mixer.in_proj",
                           "backbone.layers.1.mixer.gate", "backbone.layers.1.mixer.switch_mlp.fc1",
                           "backbone.layers.1.mixer.experts.0.up_proj", "mtp.layers.0.eh_proj"}) {
    auto checked = rules_of(std::string("{\"") + good + "\": false}").check_all_used(checkpoint);
    EXPECT_TRUE(checked.ok()) << checked.error().what;
  }
  for (const char* typo : {"backbone.layers.0.mixer.inproj", "layers.0.mixer.in_proj.weight",
                           "backbone.layers.1.mixer", "backbone.layers.1.mixer.experts.1.up_proj",
                           "backbone.layers.1.mixer.switch_mlp.fc2"}) {
    auto checked =
        rules_of(std::string("{\"") + typo + "\": {\"bits\": 8}}").check_all_used(checkpoint);
    ASSERT_FALSE(checked.ok()) << typo;
    EXPECT_EQ(checked.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(checked.error().what, HasSubstr(std::string(typo) + ": no such module"));
  }
}

struct Found {
  TempFolder folder;
  std::optional<Checkpoint> checkpoint;
  std::optional<LinearSource> linear;
  std::string error;
  ErrorCode code = ErrorCode::kIo;

  Found(const TestTensors& tensors, const std::string& quantization, int out, int in,
        int expert = -1, int experts = 0) {
    checkpoint = open(folder, tensors);
    const auto rules = quantization.empty() ? QuantizationRules() : rules_of(quantization);
    auto result = find_linear(*checkpoint, rules, "m", out, in, expert, experts);
    if (result) {
      linear = *result;
    } else {
      error = result.error().what;
      code = result.error().code;
    }
  }
};

TEST(FindLinear, PlainWeights) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBf16}) {
    Found found({{"m.weight", filled(dtype, {3, 5}, 1)}}, "", 3, 5);
    ASSERT_TRUE(found.linear) << found.error;
    EXPECT_FALSE(found.linear->quantized);
    EXPECT_EQ(found.linear->dtype, dtype);
    EXPECT_EQ(found.linear->row_bytes(), 5 * dtype_bytes(dtype));
    EXPECT_EQ(found.linear->bytes(), 15 * dtype_bytes(dtype));
    EXPECT_EQ(found.linear->weight, found.checkpoint->find("m.weight")->data);
  }
}

// Also L4: every pair of bits and group, read by its own rule.
TEST(FindLinear, EveryBitsAndGroup) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      TestTensors tensors;
      add_module(tensors, "m", {3, 384}, bits, group);
      Found found(tensors, Json{{"bits", bits}, {"group_size", group}}.dump(), 3, 384);
      ASSERT_TRUE(found.linear) << found.error;
      EXPECT_TRUE(found.linear->quantized);
      EXPECT_EQ(found.linear->row_bytes(), static_cast<std::size_t>(384 * bits / 8));
      EXPECT_EQ(found.linear->scale_bytes(), static_cast<std::size_t>(3 * 384 / group * 2));
      std::uint64_t bytes = 0;
      for (const auto& [name, tensor] : tensors) bytes += tensor.bytes.size();
      EXPECT_EQ(found.linear->bytes(), bytes);
    }
  }
}

TEST(FindLinear, SlicesAStack) {
  TestTensors tensors;
  add_module(tensors, "m", {3, 8, 64}, 4);
  tensors["m.weight"].bytes[2 * 8 * 32] = 5;
  Found found(tensors, "{}", 8, 64, 2, 3);
  ASSERT_TRUE(found.linear) << found.error;
  EXPECT_EQ(found.linear->weight[0], 5);
  EXPECT_EQ(found.linear->scales, found.checkpoint->find("m.scales")->data + 2 * 8 * 2);
  EXPECT_EQ(found.linear->biases, found.checkpoint->find("m.biases")->data + 2 * 8 * 2);
  EXPECT_EQ(found.linear->bytes(), 8u * 32 + 2 * 8 * 2);
  EXPECT_THAT(Found(tensors, "{}", 8, 64, 0, 4).error,
              HasSubstr("m.weight: shape [3, 8, 8], wanted [4, 8, 8]"));
}

TEST(FindLinear, NamesTheTensorAndBothShapes) {
  EXPECT_THAT(Found({{"m.weight", filled(Dtype::kF32, {5, 3}, 1)}}, "", 3, 5).error,
              HasSubstr("m.weight: shape [5, 3], wanted [3, 5]"));
  EXPECT_EQ(Found({}, "", 3, 5).error, "m.weight: missing");
  TestTensors tensors;
  add_module(tensors, "m", {3, 128}, 4);
  EXPECT_THAT(Found(tensors, R"({"bits": 8})", 3, 128).error,
              HasSubstr("m.weight: shape [3, 16], wanted [3, 32] at 8 bits, group size 64"));
  EXPECT_THAT(Found(tensors, R"({"group_size": 32})", 3, 128).error,
              HasSubstr("m.scales: shape [3, 2], wanted [3, 4] at 4 bits, group size 32"));
}

TEST(FindLinear, RefusesPartsThatDoNotGoTogether) {
  TestTensors whole;
  add_module(whole, "m", {3, 128}, 4);
  const auto without = [&whole](const char* name) {
    TestTensors tensors = whole;
    tensors.erase(name);
    return Found(tensors, "{}", 3, 128);
  };
  EXPECT_THAT(without("m.scales").error,
              HasSubstr("m.scales: missing, though m.weight holds codes"));
  EXPECT_THAT(without("m.biases").error, HasSubstr("m.biases: missing"));
  EXPECT_THAT(without("m.weight").error, HasSubstr("m.weight: missing"));
  EXPECT_THAT(Found(whole, "", 3, 128).error,
              HasSubstr("m.scales: there, though config.json has no"));
  EXPECT_THAT(Found(whole, R"({"m": false})", 3, 128).error,
              HasSubstr("m.scales: there, though config.json's"));
  TestTensors mixed = whole;
  mixed["m.biases"] = filled(Dtype::kF32, {3, 2}, 1);
  EXPECT_THAT(Found(mixed, "{}", 3, 128).error, HasSubstr("m.biases: dtype F32"));
  TestTensors plain = whole;
  plain["m.weight"] = filled(Dtype::kBf16, {3, 128}, 1);
  EXPECT_THAT(Found(plain, "{}", 3, 128).error, HasSubstr("m.weight: dtype BF16"));
  EXPECT_THAT(Found(whole, "{}", 3, 100).error,
              HasSubstr("m: 100 inputs are no multiple of the group size 64"));
}

TEST(FindLinear, NamesFormatsThatAreNotRead) {
  for (const Dtype dtype : {Dtype::kF8E4M3, Dtype::kF8E5M2, Dtype::kU8}) {
    Found found({{"m.weight", filled(dtype, {3, 64}, 1)}}, "", 3, 64);
    EXPECT_EQ(found.code, ErrorCode::kUnsupported);
    EXPECT_THAT(found.error, HasSubstr(std::string("m.weight: dtype ") + dtype_name(dtype)));
  }
  TestTensors tensors;
  add_module(tensors, "m", {3, 64}, 4);
  tensors["m.scales"] = filled(Dtype::kU8, {3, 1}, 1);
  EXPECT_EQ(Found(tensors, "{}", 3, 64).code, ErrorCode::kUnsupported);
  EXPECT_EQ(Found({{"m.weight", filled(Dtype::kI32, {3, 64}, 1)}}, "", 3, 64).code,
            ErrorCode::kCorrupt);
}

TEST(CheckFiniteScales, NamesTheTensor) {
  TestTensors tensors;
  add_module(tensors, "m", {3, 128}, 4);
  EXPECT_TRUE(check_finite_scales(*Found(tensors, "{}", 3, 128).linear).ok());
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    for (const char* part : {"scales", "biases"}) {
      for (const Dtype dtype : {Dtype::kBf16, Dtype::kF32}) {
        TestTensors spoiled = tensors;
        for (const char* p : {"scales", "biases"})
          spoiled[std::string("m.") + p] = filled(dtype, {3, 2}, -2.0f);
        const std::size_t last = 5 * dtype_bytes(dtype);
        const std::string value = filled(dtype, {1}, bad).bytes;
        spoiled[std::string("m.") + part].bytes.replace(last, value.size(), value);
        Found found(spoiled, "{}", 3, 128);
        auto checked = check_finite_scales(*found.linear);
        ASSERT_FALSE(checked.ok());
        EXPECT_EQ(checked.error().code, ErrorCode::kCorrupt);
        EXPECT_EQ(checked.error().what, std::string("m.") + part + ": holds a NaN or an infinity");
      }
    }
  }
  TestTensors half = tensors;
  half["m.scales"] = half["m.biases"] = filled(Dtype::kF16, {3, 2}, 1);
  EXPECT_TRUE(check_finite_scales(*Found(half, "{}", 3, 128).linear).ok());
  half["m.biases"].bytes[3] = 0x7C;
  EXPECT_FALSE(check_finite_scales(*Found(half, "{}", 3, 128).linear).ok());
}

}  // namespace
}  // namespace lacuna
