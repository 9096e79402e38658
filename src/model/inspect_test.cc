// SPDX-License-Identifier: Apache-2.0
#include "model/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "tests/support/tiny_glm_dsa.h"
#include "tests/support/tiny_nemotron.h"

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;
using test::TempFolder;
using test::TestTensors;
using test::tiny_config;
using test::tiny_tensors;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

InspectReport report_of(const std::filesystem::path& folder) {
  auto report = inspect_checkpoint(folder);
  EXPECT_TRUE(report.ok()) << report.error().what;
  return report ? *report : InspectReport();
}

InspectReport report_of(const Json& config, const TestTensors& tensors,
                        const TestTensors& head = {}) {
  TempFolder folder;
  test::write_checkpoint(folder, config, tensors);
  if (!head.empty()) folder.write("mtp.safetensors", head);
  return report_of(folder.path());
}

const InspectReport::Component& component(const InspectReport& report, const std::string& name) {
  static const InspectReport::Component none;
  for (const auto& c : report.components) {
    if (c.name == name) return c;
  }
  ADD_FAILURE() << "no component " << name;
  return none;
}

TEST(Inspect, TheBundledHybrid) {
  const InspectReport report = report_of("models/tiny-nemotron-h/mlx-4bit");
  EXPECT_EQ(report.name, "mlx-4bit");
  EXPECT_EQ(report.architecture, "nemotron_h");
  EXPECT_EQ(report.problem, "");
  EXPECT_EQ(report.pattern, "MEMEM*EMEM*E");
  EXPECT_EQ(report.parameters, 24'360'520u);
  EXPECT_EQ(report.bytes, 13'795'056u);
  EXPECT_EQ(report.context, 8192);
  EXPECT_THAT(report.stop_tokens, ElementsAre(0, 2));
  EXPECT_EQ(report.head, InspectReport::Head::kPresent);
  EXPECT_EQ(report.head_file, "mtp.safetensors");
  EXPECT_EQ(report.head_parameters, 3'350'416u);
  EXPECT_EQ(report.tensors.size(), 207u);
  EXPECT_EQ(component(report, "routed experts").parameters, 5u * 16 * 2 * 192 * 384);
  EXPECT_EQ(component(report, "router").parameters, 5u * (16 * 384 + 16));
  EXPECT_EQ(report.formats.front().name, "4 bits, group 64");
}

TEST(Inspect, SyntheticWeightsAreSaidToBe) {
  Json config = tiny_config();
  EXPECT_EQ(report_of(config, tiny_tensors(false)).synthetic, "");
  config["lacuna_synthetic"] = "random\nweights";
  const InspectReport report = report_of(config, tiny_tensors(false));
  EXPECT_EQ(report.synthetic, "random\\x0aweights");
  EXPECT_THAT(inspect_text(report, false), HasSubstr("synthetic     random\\x0aweights\n"));
  EXPECT_EQ(inspect_json(report, false)["synthetic"], report.synthetic);
}

TEST(Inspect, SumsAgree) {
  const InspectReport report = report_of("models/tiny-nemotron-h/mlx-4bit");
  std::uint64_t parameters = 0, bytes = 0, tensors = 0, format_bytes = 0;
  for (const auto& c : report.components) {
    parameters += c.parameters;
    bytes += c.bytes;
    tensors += c.tensors;
  }
  for (const auto& f : report.formats) format_bytes += f.bytes;
  EXPECT_EQ(parameters, report.parameters + report.head_parameters);
  EXPECT_EQ(bytes, report.bytes + report.head_bytes);
  EXPECT_EQ(format_bytes, bytes);
  EXPECT_EQ(tensors, report.tensors.size());
}

TEST(Inspect, TheBundledSparseAttention) {
  const InspectReport report = report_of("models/tiny-glm-dsa/mlx-4bit");
  EXPECT_EQ(report.architecture, "glm_moe_dsa");
  EXPECT_EQ(report.problem, "");
  EXPECT_EQ(report.layers, 6);
  EXPECT_EQ(report.pattern, "FFSSFS");
  EXPECT_EQ(report.parameters, 25'852'880u);
  EXPECT_EQ(report.head, InspectReport::Head::kNone);
  EXPECT_THAT(report.notes, IsEmpty());
  EXPECT_EQ(component(report, "embeddings").tensors, 3u);
  const std::uint64_t indexer = 1024 * 256 + 128 * 384 + 2 * 128 + 8 * 384;
  EXPECT_EQ(component(report, "indexer").parameters, 3 * indexer);
  EXPECT_EQ(component(report, "routed experts").parameters, 5u * 16 * 3 * 128 * 384);
  EXPECT_EQ(component(report, "router").parameters, 5u * (16 * 384 + 16));
  EXPECT_EQ(component(report, "dense mlp").parameters, 3u * 1024 * 384);
  EXPECT_THAT(inspect_text(report, false), HasSubstr("runs here     yes"));
}

TEST(Inspect, AnArchitectureThatNobodyReadsIsListedAllTheSame) {
  const InspectReport report =
      report_of({{"model_type", "llama"}, {"num_hidden_layers", 6}}, tiny_tensors(false));
  EXPECT_THAT(report.problem, HasSubstr("architecture \"llama\" is not supported"));
  EXPECT_EQ(report.layers, 6);
  EXPECT_GT(report.parameters, 0u);
  EXPECT_THAT(report.tensors, Not(IsEmpty()));
}

TEST(Inspect, WhatIsNotUsedOfSparseAttentionIsSaid) {
  Json config = test::tiny_glm_config();
  config["num_nextn_predict_layers"] = 1;
  TestTensors tensors = test::tiny_glm_tensors(false);
  EXPECT_EQ(report_of(config, tensors).head, InspectReport::Head::kMissing);
  test::add_tiny_glm_mtp(tensors);
  test::add_tiny_glm_layer(tensors, "model.layers.2.", 'E', true, false);
  const InspectReport report = report_of(config, tensors);
  EXPECT_EQ(report.head, InspectReport::Head::kPresent);
  EXPECT_EQ(report.head_file, "model.safetensors");
  EXPECT_EQ(component(report, "drafting head").parameters, report.head_parameters);
  EXPECT_THAT(report.head_problem, HasSubstr("left out: drafting layers"));
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_THAT(inspect_text(report, false), HasSubstr("note          model.layers.2.self_attn."));
  EXPECT_EQ(inspect_json(report, false)["notes"], Json(report.notes));
  tensors.erase("model.layers.1.self_attn.o_proj.weight");
  EXPECT_EQ(report_of(config, tensors).problem, "model.layers.1.self_attn.o_proj.weight: missing");
  config["index_topk"] = 0;
  EXPECT_THAT(report_of(config, tensors).problem, HasSubstr("config.json: index_topk: 0"));
}

// L7: present in a side file, declared and absent, not declared.
TEST(Inspect, StatesWhatIsWithTheHead) {
  Json config = tiny_config();
  EXPECT_EQ(report_of(config, tiny_tensors(false)).head, InspectReport::Head::kNone);
  config["num_nextn_predict_layers"] = 1;
  const InspectReport missing = report_of(config, tiny_tensors(false));
  EXPECT_EQ(missing.head, InspectReport::Head::kMissing);
  EXPECT_EQ(missing.problem, "");
  EXPECT_THAT(inspect_text(missing, false), HasSubstr("missing: config.json declares one"));
  const TestTensors head = {{"mtp.layers.0.enorm.weight", test::filled(Dtype::kBf16, {64}, 1.0f)}};
  const InspectReport present = report_of(config, tiny_tensors(false), head);
  EXPECT_EQ(present.head, InspectReport::Head::kPresent);
  EXPECT_EQ(present.head_file, "mtp.safetensors");
  EXPECT_EQ(present.head_parameters, 64u);
  EXPECT_THAT(present.head_problem, HasSubstr("left out: mtp.layers.0.hnorm.weight: missing"));
  EXPECT_THAT(inspect_text(present, false), HasSubstr(present.head_problem));
}

TEST(Inspect, AMissingTensorIsTheProblem) {
  TestTensors tensors = tiny_tensors(false);
  tensors.erase("backbone.layers.1.norm.weight");
  EXPECT_EQ(report_of(tiny_config(), tensors).problem, "backbone.layers.1.norm.weight: missing");
}

TEST(Inspect, QuantisationThatCannotBeReadLeavesSizesOut) {
  Json config = test::with_quantization(tiny_config());
  config["quantization"]["mode"] = "nvfp4";
  const InspectReport report = report_of(config, tiny_tensors(true));
  EXPECT_THAT(report.problem, HasSubstr("nvfp4"));
  EXPECT_EQ(report.parameters, 0u);
  EXPECT_GT(report.bytes, 0u);
  EXPECT_THAT(inspect_text(report, false), HasSubstr("parameters    unknown"));
}

TEST(Inspect, ListsOverrides) {
  Json config = test::with_quantization(tiny_config());
  config["quantization"]["lm_head"] = {{"bits", 8}};
  TestTensors tensors = tiny_tensors(true);
  test::add_module(tensors, "lm_head", {32, 64}, 8);
  const InspectReport report = report_of(config, tensors);
  EXPECT_EQ(report.problem, "");
  EXPECT_THAT(report.overrides, ElementsAre("lm_head: 8 bits, group 64"));
  EXPECT_EQ(component(report, "output head").parameters, 32u * 64);
}

TEST(Inspect, JsonHasTheSameFacts) {
  const InspectReport report = report_of("models/tiny-nemotron-h/mlx-4bit");
  const Json json = inspect_json(report, true);
  EXPECT_EQ(json["parameters"], 24'360'520u);
  EXPECT_EQ(json["head"], "present");
  EXPECT_EQ(json["tensors"].size(), report.tensors.size());
  EXPECT_EQ(json["tensors"][0]["name"], "backbone.embeddings.biases");
  EXPECT_EQ(json["tensors"][0]["shape"], Json::array({8192, 6}));
  EXPECT_FALSE(inspect_json(report, false).contains("tensors"));
  EXPECT_EQ(json["components"].size(), report.components.size());
}

TEST(Inspect, FoldersThatDoNotOpenAreErrors) {
  const auto report = inspect_checkpoint("models");
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace lacuna
