// SPDX-License-Identifier: Apache-2.0
#include "facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bandwidth.h"
#include "console.h"

namespace lacuna {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// 100 prompt tokens, 40 of them reused, then 11 tokens of which 10 took a decode step.
GenerateResult example() {
  GenerateResult result;
  result.tokens.assign(11, 5);
  result.prompt_tokens = 100;
  result.sync = {40, 60, "the template changed the past"};
  result.seed = 7;
  result.prefill = {60, 0.5, {60, 1, 4'000'000, 5'000'000, 1000, 6000, 600}};
  result.decode = {10, 0.25, {10, 10, 20'000'000, 50'000'000, 5'000'000, 1000, 125}};
  return result;
}

TEST(Facts, OneLine) {
  EXPECT_EQ(facts_line(ModelInfo(), {}, example(), 32.04),
            "prompt 100 tokens (40 reused), 120.0 tokens/s | answer 11 tokens, 40.0 tokens/s | "
            "drafts off: the model has no drafting head | 12.5 % of neurons live | 2 of 5 MB/token "
            "| 0.1 GB/s of 32.0 measured");
}

// Whoever finds nothing drafted is told why; whoever drafted, what came of it.
TEST(Facts, Drafts) {
  ModelInfo model;
  GenerateResult result = example();
  EXPECT_FALSE(can_draft(model, {}));
  model.head_parameters = 5;
  EXPECT_TRUE(can_draft(model, {}));
  DraftPolicy off;
  off.fixed = 0;
  EXPECT_FALSE(can_draft(model, off));
  EXPECT_THAT(facts_line(model, off, result, 0), HasSubstr("drafts off: switched off"));
  EXPECT_THAT(facts_line(model, {}, result, 0), HasSubstr("drafts off: the answer was too short"));
  result.drafts.steps = 40;
  result.drafts.parked = true;
  EXPECT_THAT(facts_line(model, {}, result, 0), HasSubstr("drafts off: they do not pay here"));
  result.drafts.offered = 30;
  result.drafts.accepted = 18;
  result.drafts.offered_at = {20, 10};
  result.drafts.accepted_at = {12, 6};
  result.drafts.steps_of_depth = {20, 10, 10};
  EXPECT_THAT(facts_line(model, {}, result, 0), HasSubstr("| 18 of 30 drafts accepted |"));
  result.drafts.gain = 1.314;
  EXPECT_THAT(facts_line(model, {}, result, 0),
              HasSubstr("| 18 of 30 drafts accepted, 1.31 times as fast |"));
  const auto drafts = stats_json(model, true, {}, result, 0)["drafts"];
  EXPECT_EQ(drafts["offered"], 30);
  EXPECT_EQ(drafts["accepted"], 18);
  EXPECT_EQ(drafts["by_position"].size(), 2u);
  EXPECT_EQ(drafts["by_position"][1]["accepted"], 6);
  EXPECT_EQ(drafts["steps_by_depth"]["2"], 10);
  EXPECT_EQ(drafts["why"], "");
  EXPECT_DOUBLE_EQ(drafts["gain"], 1.314);

  testing::internal::CaptureStderr();
  warn_of_drafts(result.drafts);
  result.drafts.none_accepted = true;
  result.drafts.rejected_in_a_row = 64;
  warn_of_drafts(result.drafts);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::StartsWith("warning: none of the last 64 drafts was accepted"));
}

TEST(Facts, NothingIsInvented) {
  GenerateResult result;
  result.prompt_tokens = 3;
  const std::string line = facts_line(ModelInfo(), {}, result, 0);
  EXPECT_THAT(line, HasSubstr("prompt 3 tokens, 0.0 tokens/s"));
  EXPECT_THAT(line, Not(HasSubstr("live")));
  EXPECT_THAT(line, Not(HasSubstr("GB/s")));
  EXPECT_THAT(line, Not(HasSubstr("nan")));
}

TEST(Facts, StatsObject) {
  ModelInfo model;
  model.name = "m";
  model.precision = "bf16";
  model.notes = {"a note"};
  const auto stats = stats_json(model, true, {}, example(), 0);
  EXPECT_EQ(stats["cache"]["reused_tokens"], 40);
  EXPECT_EQ(stats["cache"]["computed_tokens"], 60);
  EXPECT_EQ(stats["cache"]["why"], "the template changed the past");
  EXPECT_EQ(stats["drafts"]["offered"], 0);
  EXPECT_EQ(stats["drafts"]["why"], "the model has no drafting head");
  EXPECT_EQ(stats["experts"], "sparse");
  EXPECT_EQ(stats["decode"]["tokens_per_second"], 40);
  EXPECT_EQ(stats["decode"]["neurons_skipped"], 875);
  EXPECT_EQ(stats["decode"]["weight_bytes"], 20'000'000);
  EXPECT_EQ(stats["decode"]["weight_bytes_dense"], 50'000'000);
  EXPECT_DOUBLE_EQ(stats["decode"]["gb_per_second"], 0.1);
  EXPECT_EQ(stats["prefill"]["neurons_skipped"], 5400);
  EXPECT_TRUE(stats["peak_gb_per_second"].is_null());
  EXPECT_EQ(stats["notes"][0], "a note");
  EXPECT_EQ(stats["seed"], 7);
  const auto dense = stats_json(model, false, {}, example(), 20);
  EXPECT_EQ(dense["experts"], "dense");
  EXPECT_EQ(dense["peak_gb_per_second"], 20);
}

TEST(Bandwidth, IsPlausible) {
  const double gb_s = measure_read_bandwidth(2);
  EXPECT_GT(gb_s, 0.1);
  EXPECT_LT(gb_s, 10'000);
}

TEST(Console, AnErrorIsOneLine) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(fail("run", {ErrorCode::kNotFound, "model a\nb\x1b[31m: no such folder"}), 3);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "lacuna run: model a b [31m: no such folder\n");
}

}  // namespace
}  // namespace lacuna
