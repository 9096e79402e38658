// SPDX-License-Identifier: Apache-2.0
// Rule files, and what is planned for a source: every refusal with its name.
#include "model/convert_plan.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/convert_source.h"

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;
using test::filled;
using test::TestTensors;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Error rules_error(const std::string& text) {
  const auto rules = parse_convert_rules(text, "rules.txt", {});
  EXPECT_FALSE(rules.ok()) << text;
  return rules.ok() ? Error{} : rules.error();
}

TEST(ConvertRules, Lines) {
  const auto rules = parse_convert_rules(
      "# bits by module\n\nlm_head 8\r\n  *.fc2\t3 32 # small\nmtp.*.eh_proj keep\n*.q_proj 6",
      "rules.txt", {4, 128, MlxQuantizer::kGpu});
  ASSERT_TRUE(rules.ok()) << rules.error().what;
  ASSERT_EQ(rules->size(), 4u);
  EXPECT_EQ((*rules)[0].bits, 8);
  EXPECT_EQ((*rules)[0].group, 128);  // the default's
  EXPECT_EQ((*rules)[0].where, "rules.txt:3");
  EXPECT_EQ((*rules)[1].bits, 3);
  EXPECT_EQ((*rules)[1].group, 32);
  EXPECT_TRUE((*rules)[2].keep);
  EXPECT_EQ((*rules)[3].where, "rules.txt:6");  // a last line without its end
  EXPECT_TRUE(parse_convert_rules("", "rules.txt", {})->empty());
}

TEST(ConvertRules, Patterns) {
  const auto match = [](const std::string& pattern, const std::string& module) {
    return matches({pattern, false, 4, 64, ""}, module);
  };
  EXPECT_TRUE(match("lm_head", "lm_head"));
  EXPECT_FALSE(match("lm_head", "backbone.lm_head"));  // the whole path
  EXPECT_TRUE(match("*.fc1", "backbone.layers.1.mixer.switch_mlp.fc1"));
  EXPECT_TRUE(match("backbone.layers.?.*", "backbone.layers.1.mixer.in_proj"));
  EXPECT_FALSE(match("backbone.layers.?.*", "backbone.layers.11.mixer.in_proj"));
  EXPECT_TRUE(match("*.layers.[12].*", "backbone.layers.2.mixer.in_proj"));
}

TEST(ConvertRules, ErrorsNameTheLine) {
  EXPECT_EQ(rules_error("\nlm_head\n").what,
            "rules.txt:2: only the pattern lm_head, wanted bits or keep after it");
  EXPECT_EQ(rules_error("lm_head 7").what,
            "rules.txt:1: 7, wanted keep or bits: 2, 3, 4, 5, 6 or 8");
  for (const char* bits : {"-4", "4.0", "four", "4x", "99999999999999999999"})
    EXPECT_THAT(rules_error(std::string("lm_head ") + bits).what, HasSubstr("wanted keep or bits"));
  EXPECT_EQ(rules_error("a 4\nlm_head 4 48").what, "rules.txt:2: group 48, wanted 32, 64 or 128");
  EXPECT_EQ(rules_error("lm_head 4 64 x").what, "rules.txt:1: x after the group");
  EXPECT_EQ(rules_error("lm_head keep 4").what, "rules.txt:1: 4 after keep");
  EXPECT_EQ(rules_error("a\x01 b").code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(rules_error("a\x01\n").what.find('\x01'), std::string::npos);
  EXPECT_THAT(read_convert_rules("no/such/file", {}).error().what,
              StartsWith("--rules: no/such/file"));
}

class Plan : public test::ConvertSource {
 protected:
  Result<ConvertPlan> plan(const std::string& rules = "", HeadMode head = HeadMode::kAuto) {
    test::write_checkpoint(folder_, config_, tensors_);
    auto source = Checkpoint::open(folder_.path());
    EXPECT_TRUE(source.ok()) << source.error().what;
    source_ = std::make_unique<Checkpoint>(*std::move(source));
    auto parsed = parse_convert_rules(rules, "rules.txt", {});
    EXPECT_TRUE(parsed.ok()) << parsed.error().what;
    return plan_conversion(*source_, {}, *parsed, head);
  }

  void expect_error(ErrorCode code, const std::string& what, const std::string& rules = "",
                    HeadMode head = HeadMode::kAuto) {
    const auto refused = plan(rules, head);
    ASSERT_FALSE(refused.ok()) << what;
    EXPECT_EQ(refused.error().code, code);
    EXPECT_THAT(refused.error().what, HasSubstr(what));
    EXPECT_EQ(refused.error().what.find('\n'), std::string::npos);
  }

  static const ConvertPart* find(const std::vector<ConvertPart>& parts, const std::string& name) {
    const auto it = std::find_if(parts.begin(), parts.end(),
                                 [&](const ConvertPart& part) { return part.name == name; });
    return it == parts.end() ? nullptr : &*it;
  }

  std::unique_ptr<Checkpoint> source_;
};

const std::string kMoe = "backbone.layers.2.mixer.";

TEST_F(Plan, ModulesAndTheRest) {
  const auto plan = this->plan();
  ASSERT_TRUE(plan.ok()) << plan.error().what;
  const ConvertPart* fc1 = find(plan->model, kMoe + "switch_mlp.fc1");
  ASSERT_NE(fc1, nullptr);
  EXPECT_EQ(fc1->sources.size(), 3u);
  EXPECT_EQ(fc1->sources[2].tensor->name, kMoe + "experts.2.up_proj.weight");
  ASSERT_EQ(fc1->tensors.size(), 3u);
  EXPECT_EQ(fc1->tensors[0].name, kMoe + "switch_mlp.fc1.biases");
  EXPECT_EQ(fc1->tensors[2].shape, (std::vector<std::int64_t>{3, 64, 8}));
  for (const char* kept : {"gate.weight", "gate.e_score_correction_bias"}) {
    const ConvertPart* part = find(plan->model, kMoe + kept);
    ASSERT_NE(part, nullptr);
    EXPECT_FALSE(part->format.has_value());
  }
  const ConvertPart* conv = find(plan->model, "backbone.layers.0.mixer.conv1d.weight");
  ASSERT_NE(conv, nullptr);
  EXPECT_EQ(conv->tensors[0].shape, (std::vector<std::int64_t>{96, 4, 1}));
  EXPECT_EQ(plan->head.size(), 16u);
  EXPECT_TRUE(find(plan->head, "mtp.layers.0.eh_proj")->format.has_value());
  EXPECT_TRUE(std::is_sorted(plan->model.begin(), plan->model.end(), [](auto& a, auto& b) {
    return a.tensors.back().name < b.tensors.front().name;
  }));
  EXPECT_EQ(plan->quantization, Json::parse(R"({"group_size":64,"bits":4,"mode":"affine"})"));
}

TEST_F(Plan, TheFirstRuleCounts) {
  const auto plan = this->plan("lm_head 8\nlm_head 2\n*.q_proj keep\n*.fc2 3 32\n*.up_proj 4 64");
  ASSERT_TRUE(plan.ok()) << plan.error().what;
  EXPECT_EQ(find(plan->model, "lm_head")->format->bits, 8);
  EXPECT_FALSE(find(plan->model, "backbone.layers.1.mixer.q_proj")->format.has_value());
  const Json& said = plan->quantization;
  EXPECT_EQ(said["lm_head"], Json::parse(R"({"group_size":64,"bits":8,"mode":"affine"})"));
  EXPECT_EQ(said["backbone.layers.1.mixer.q_proj"], false);
  EXPECT_EQ(said[kMoe + "switch_mlp.fc2"]["group_size"], 32);
  EXPECT_FALSE(said.contains("backbone.layers.3.mixer.up_proj"));  // as the default
}

TEST_F(Plan, RulesThatDoNotFit) {
  const auto usage = ErrorCode::kInvalidArgument;
  expect_error(usage, "rules.txt:2: lm_haed matches no module", "lm_head 8\nlm_haed 8");
  expect_error(usage, "rules.txt:1: *.gate matches no module that can be quantised", "*.gate 8");
  expect_error(usage, "rules.txt:1: group 128: lm_head has 64 inputs", "lm_head 4 128");
  expect_error(usage, "mtp.x matches no module", "mtp.x 8");
  EXPECT_TRUE(plan("mtp.x 8", HeadMode::kOff).ok());  // a rule file may serve several runs
  EXPECT_TRUE(plan("lm_haed 8", HeadMode::kOnly).ok());
}

TEST_F(Plan, AWidthThatNoGroupDividesStays) {
  config_["moe_intermediate_size"] = 96;
  for (const std::string& mixer : {kMoe, std::string("mtp.layers.1.mixer.")}) {
    for (int e = 0; e < 3; ++e) {
      const std::string expert = fmt::format("{}experts.{}.", mixer, e);
      tensors_[expert + "up_proj.weight"] = filled(Dtype::kBf16, {96, 64}, 1);
      tensors_[expert + "down_proj.weight"] = filled(Dtype::kBf16, {64, 96}, 1);
    }
  }
  const auto plan = this->plan();
  ASSERT_TRUE(plan.ok()) << plan.error().what;
  EXPECT_TRUE(find(plan->model, kMoe + "switch_mlp.fc1")->format.has_value());
  const ConvertPart* fc2 = find(plan->model, kMoe + "switch_mlp.fc2");
  EXPECT_FALSE(fc2->format.has_value());
  EXPECT_EQ(fc2->tensors[0].shape, (std::vector<std::int64_t>{3, 64, 96}));
}

TEST_F(Plan, StackedExpertsAreTakenToo) {
  const auto separate = tensors_;
  for (int e = 0; e < 3; ++e) tensors_.erase(fmt::format("{}experts.{}.up_proj.weight", kMoe, e));
  tensors_[kMoe + "switch_mlp.fc1.weight"] = filled(Dtype::kBf16, {3, 64, 64}, 1);
  const auto plan = this->plan();
  ASSERT_TRUE(plan.ok()) << plan.error().what;
  const ConvertPart* fc1 = find(plan->model, kMoe + "switch_mlp.fc1");
  ASSERT_EQ(fc1->sources.size(), 3u);
  EXPECT_EQ(fc1->sources[2].data - fc1->sources[0].data, 2 * 64 * 64 * 2);
}

TEST_F(Plan, MissingAndSurplusAndMisshapen) {
  const auto whole = tensors_;
  tensors_.erase(kMoe + "experts.1.down_proj.weight");
  expect_error(ErrorCode::kCorrupt, kMoe + "experts.1.down_proj.weight: missing");
  tensors_.erase("lm_head.weight");
  expect_error(ErrorCode::kCorrupt, "missing, and 1 more are");
  tensors_ = whole;
  tensors_[kMoe + "experts.3.up_proj.weight"] = filled(Dtype::kBf16, {64, 64}, 1);
  expect_error(ErrorCode::kCorrupt, kMoe + "experts.3.up_proj.weight: has no place");
  tensors_ = whole;
  tensors_["backbone.layers.0.mixer.in_proj.weight"] = filled(Dtype::kBf16, {64, 164}, 1);
  expect_error(ErrorCode::kCorrupt, "in_proj.weight: shape [64, 164], wanted [164, 64]");
  tensors_ = whole;
  tensors_["backbone.layers.0.mixer.conv1d.weight"] = filled(Dtype::kBf16, {4, 96, 1}, 1);
  expect_error(ErrorCode::kCorrupt, "conv1d.weight: shape [4, 96, 1], wanted [96, 4, 1]");
  tensors_ = whole;
  tensors_["mtp.layers.1.extra.weight"] = filled(Dtype::kBf16, {1}, 1);
  expect_error(ErrorCode::kCorrupt, "mtp.layers.1.extra.weight: has no place");
  EXPECT_TRUE(plan("", HeadMode::kOff).ok());
}

TEST_F(Plan, FormatsThatAreNotConverted) {
  const auto whole = tensors_;
  const auto unsupported = ErrorCode::kUnsupported;
  tensors_ = test::tiny_tensors(true);
  expect_error(unsupported, "quantised by MLX already");
  tensors_ = whole;
  tensors_["lm_head.weight_scale_2"] = filled(Dtype::kF32, {1}, 1);
  expect_error(unsupported, "lm_head.weight_scale_2: NVFP4 is not converted");
  EXPECT_TRUE(plan("", HeadMode::kOnly).ok());  // the head of such a release is BF16
  tensors_ = whole;
  tensors_["lm_head.weight_scale_inv"] = filled(Dtype::kF32, {1, 1}, 1);
  expect_error(unsupported, "FP8 in blocks");
  tensors_ = whole;
  tensors_["lm_head.weight"] = filled(Dtype::kU8, {32, 64}, 1);
  expect_error(unsupported, "lm_head.weight: dtype U8 is not converted");
  tensors_["lm_head.weight"] = filled(Dtype::kF8E5M2, {32, 64}, 1);
  expect_error(unsupported, "lm_head.weight: dtype F8_E5M2");
  config_["model_type"] = "llama";
  expect_error(unsupported, "llama");
}

TEST_F(Plan, Fp8NeedsItsScale) {
  tensors_["lm_head.weight"] = filled(Dtype::kF8E4M3, {32, 64}, 0x38);
  expect_error(ErrorCode::kCorrupt, "lm_head.weight_scale: missing");
  tensors_["lm_head.weight_scale"] = filled(Dtype::kF32, {32, 1}, 1);
  expect_error(ErrorCode::kUnsupported, "lm_head.weight_scale: F32 [32, 1], wanted one");
  tensors_["lm_head.weight_scale"] =
      filled(Dtype::kF32, {}, std::numeric_limits<float>::infinity());
  expect_error(ErrorCode::kCorrupt, "lm_head.weight_scale: inf, wanted a finite number");
  tensors_["lm_head.weight_scale"] = filled(Dtype::kBf16, {1}, 2);
  tensors_["lm_head.input_scale"] = filled(Dtype::kF32, {}, 2);
  const auto plan = this->plan();
  ASSERT_TRUE(plan.ok()) << plan.error().what;
  EXPECT_EQ(find(plan->model, "lm_head")->sources[0].scale, 2.0f);
  EXPECT_EQ(find(plan->model, "lm_head")->tensors[0].dtype, Dtype::kBf16);
}

TEST_F(Plan, ExpertsShareADtype) {
  tensors_[kMoe + "experts.1.up_proj.weight"] = filled(Dtype::kF32, {64, 64}, 1);
  expect_error(ErrorCode::kCorrupt, kMoe + "experts.1.up_proj.weight: dtype F32, wanted that of " +
                                        kMoe + "experts.0.up_proj.weight, BF16");
}

TEST_F(Plan, Heads) {
  EXPECT_TRUE(plan("", HeadMode::kOff)->head.empty());
  EXPECT_TRUE(plan("", HeadMode::kOnly)->model.empty());
  config_["num_nextn_predict_layers"] = 0;
  expect_error(ErrorCode::kCorrupt, "declares no drafting head");
  config_["num_nextn_predict_layers"] = 1;
  std::erase_if(tensors_, [](const auto& item) { return item.first.starts_with("mtp."); });
  EXPECT_TRUE(plan()->head.empty());
  expect_error(ErrorCode::kInvalidArgument, "has no mtp.* tensors", "", HeadMode::kOnly);
}

}  // namespace
}  // namespace lacuna
