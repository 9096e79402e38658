// SPDX-License-Identifier: Apache-2.0
#include "profile_report.h"

#include <gtest/gtest.h>

#include "profile_example.h"

namespace lacuna {
namespace {

using test::example_report;
using test::sample;

TEST(ProfileReport, Median) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 100}), 3);
}

TEST(ProfileReport, SecondsAreMediansOfEachSetting) {
  const PhaseReport d = example_report().decode;
  EXPECT_EQ(d.samples, 3);
  EXPECT_NEAR(d.layers[1].cost.sparse_seconds, 52e-6 * 1.1, 1e-12);
  EXPECT_NEAR(d.layers[1].cost.dense_seconds, 52e-6 * 2.2, 1e-12);
  EXPECT_NEAR(d.whole.cost.sparse_seconds, 164e-6 * 1.1, 1e-12);
  EXPECT_NEAR(d.sparse_tokens_per_second(), 1 / (164e-6 * 1.1), 1e-3);
  EXPECT_NEAR(d.dense_tokens_per_second(), 1 / (164e-6 * 2.2), 1e-3);
}

// Two parts may take turns in being slow: a layer's median is not the sum of its parts' medians.
TEST(ProfileReport, ALayersMedianIsOfWholeLayers) {
  std::vector<ProfileSample> samples(3);
  const double a[] = {1, 1, 7}, b[] = {7, 1, 1};
  for (int i = 0; i < 3; ++i)
    samples[i].steps = {{0, 0, "a", 0, a[i], {}}, {0, 0, "b", 0, b[i], {}}};
  const PhaseReport phase = make_phase(samples, {}, 1, {"moe"});
  EXPECT_EQ(phase.layers[0].cost.sparse_seconds, 8);
  EXPECT_EQ(phase.layers[0].parts[0].cost.sparse_seconds, 1);
  EXPECT_EQ(phase.layers[0].cost.dense_seconds, 0);
}

TEST(ProfileReport, BytesAreMeansOfTheSparseSamples) {
  const PhaseReport d = example_report().decode;
  EXPECT_EQ(d.layers[0].cost.weight_bytes, 2e6);
  EXPECT_EQ(d.layers[1].cost.weight_bytes, 4e6);
  EXPECT_EQ(d.layers[1].cost.weight_bytes_dense, 7e6);
  EXPECT_EQ(d.layers[1].cost.skipped_bytes(), 3e6);
  EXPECT_EQ(d.outside.cost.weight_bytes, 5'000'100);
  EXPECT_EQ(d.whole.cost.weight_bytes, 2e6 + 4e6 + 1.5e6 + 5'000'100);
}

TEST(ProfileReport, LiveSharesBySortOfExpert) {
  const PhaseReport d = example_report().decode;
  EXPECT_FALSE(d.layers[0].routed.has_value());
  EXPECT_FALSE(d.layers[0].shared.has_value());
  ASSERT_TRUE(d.layers[1].routed.has_value());
  EXPECT_DOUBLE_EQ(d.layers[1].routed->mean, 0.15);
  EXPECT_DOUBLE_EQ(d.layers[1].routed->low, 0.05);
  EXPECT_DOUBLE_EQ(d.layers[1].routed->high, 0.30);
  EXPECT_DOUBLE_EQ(d.layers[1].shared->mean, 0.10);
  EXPECT_FALSE(d.layers[2].routed.has_value());
  EXPECT_DOUBLE_EQ(d.layers[2].shared->mean, 0.20);
  EXPECT_DOUBLE_EQ(d.whole.shared->mean, 0.15);
}

TEST(ProfileReport, RowsNeededInThePrompt) {
  const ProfileReport report = example_report();
  EXPECT_FALSE(report.decode.layers[1].rows_needed.has_value());
  EXPECT_DOUBLE_EQ(report.prompt.layers[1].rows_needed.value(), 0.62);
  EXPECT_DOUBLE_EQ(report.prompt.whole.rows_needed.value(), 0.62);
  EXPECT_FALSE(report.prompt.layers[0].rows_needed.has_value());
}

TEST(ProfileReport, PartsInTheOrderTheyRan) {
  const PhaseReport d = example_report().decode;
  std::string names;
  for (const PartCost& part : d.whole.parts) names += part.part + " ";
  EXPECT_EQ(names, "embed norm in_proj add up down head ");
  ASSERT_EQ(d.timeline.size(), 12u);
  EXPECT_EQ(d.timeline.front().layer, -1);
  EXPECT_EQ(d.timeline[6].part, "down");
  EXPECT_EQ(d.timeline[6].layer, 1);
  EXPECT_NEAR(d.timeline[6].seconds, 22e-6, 1e-12);
}

// A latent MoE runs up and down twice; a prompt is several passes.
TEST(ProfileReport, APartThatComesBackIsSummed) {
  ProfileSample s = sample(1);
  const std::vector<TraceStep> once = s.steps;
  s.steps.insert(s.steps.end(), once.begin(), once.end());
  const std::vector<ProfileSample> samples = {s};
  const PhaseReport phase = make_phase(samples, {}, 1, {"mamba", "moe", "mlp"});
  EXPECT_EQ(phase.timeline.size(), once.size());
  EXPECT_NEAR(phase.layers[0].cost.sparse_seconds, 84e-6, 1e-12);
  EXPECT_EQ(phase.layers[0].cost.weight_bytes, 4e6);
}

TEST(ProfileReport, APartMissingFromASampleCountsAsNothing) {
  std::vector<ProfileSample> samples(3);
  samples[1].steps = {{0, 0, "rare", 0, 5, {}}};
  const PhaseReport phase = make_phase(samples, samples, 1, {"moe"});
  EXPECT_EQ(phase.layers[0].parts[0].cost.sparse_seconds, 0);
}

TEST(ProfileReport, OddTracesHarmNothing) {
  const PhaseReport empty = make_phase({}, {}, 0, {});
  EXPECT_EQ(empty.sparse_tokens_per_second(), 0);
  EXPECT_TRUE(empty.timeline.empty());
  std::vector<ProfileSample> samples(1);
  samples[0].steps = {{0, 99, "lost", 0, 1, {}}, {0, -7, "lost", 0, 1, {}}};
  const PhaseReport phase = make_phase(samples, {}, 1, {"moe"});
  EXPECT_EQ(phase.outside.cost.sparse_seconds, 2);
  EXPECT_EQ(phase.layers[0].cost.sparse_seconds, 0);
  EXPECT_EQ(phase.timeline[0].layer, -1);
}

TEST(ProfileReport, ByKind) {
  ProfileReport report = example_report();
  report.decode.layers[2].kind = "mamba";
  const std::vector<KindCost> kinds = by_kind(report.decode);
  ASSERT_EQ(kinds.size(), 2u);
  EXPECT_EQ(kinds[0].kind, "mamba");
  EXPECT_EQ(kinds[0].layers, 2);
  EXPECT_EQ(kinds[0].cost.weight_bytes, 3.5e6);
  EXPECT_EQ(kinds[0].parts.size(), 5u);  // norm, in_proj, add, up, down
  EXPECT_EQ(kinds[1].layers, 1);
}

TEST(ProfileReport, SkippingParts) {
  const SkippingParts skipping = skipping_parts(example_report().decode);
  ASSERT_EQ(skipping.names, std::vector<std::string>{"down"});
  EXPECT_EQ(skipping.cost.weight_bytes, 1.5e6);
  EXPECT_EQ(skipping.cost.weight_bytes_dense, 8e6);
  EXPECT_TRUE(skipping_parts(make_phase({}, {}, 1, {})).names.empty());
}

}  // namespace
}  // namespace lacuna
