// SPDX-License-Identifier: Apache-2.0
// Lists, ranges, pairs and settings of `lacuna bench`.
#include "bench_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace lacuna {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int> counts(const std::string& text) {
  const auto parsed = parse_counts("-p", text);
  EXPECT_TRUE(parsed.ok()) << parsed.error().what;
  return parsed.ok() ? *parsed : std::vector<int>();
}

template <class T>
void expect_refused(const Result<T>& result, const std::string& part) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(result.error().what, HasSubstr(part));
}

TEST(ParseCounts, ListsAndRanges) {
  EXPECT_THAT(counts("512"), ElementsAre(512));
  EXPECT_THAT(counts("0"), ElementsAre(0));
  EXPECT_THAT(counts("16,8,16"), ElementsAre(16, 8, 16));
  EXPECT_THAT(counts("3-5"), ElementsAre(3, 4, 5));
  EXPECT_THAT(counts("128-512+128"), ElementsAre(128, 256, 384, 512));
  EXPECT_THAT(counts("100-250+100"), ElementsAre(100, 200));
  EXPECT_THAT(counts("1-8*2"), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(counts("7,1-9*3,0"), ElementsAre(7, 1, 3, 9, 0));
  EXPECT_THAT(counts("16777216-16777216+16777216"), ElementsAre(16777216));
}

TEST(ParseCounts, Refused) {
  for (const char* part : {"", "x", "-1", "1-", "-", "5-3", "1-9+0", "1-9+-1", "1-9*1", "0-9*2",
                           "1-9+", "1-2-3", "1 ", "+1", "1.5", "16777217", "99999999999"}) {
    expect_refused(parse_counts("-d", part), "-d: \"" + std::string(part) + "\", want");
    expect_refused(parse_counts("-d", "1," + std::string(part)), "\"" + std::string(part) + "\"");
  }
  expect_refused(parse_counts("-p", "0-1000"), "at most 1000");
  EXPECT_EQ(counts("1-1000").size(), 1000u);
}

TEST(BenchPlan, EveryShapeAtEveryDepth) {
  BenchPlan plan{"16,32", "4", "0,64", {"16,4"}};
  const auto tests = plan.tests();
  ASSERT_TRUE(tests.ok()) << tests.error().what;
  EXPECT_THAT(*tests, ElementsAre(BenchTest{16, 0, 0}, BenchTest{32, 0, 0}, BenchTest{0, 4, 0},
                                  BenchTest{16, 4, 0}, BenchTest{16, 0, 64}, BenchTest{32, 0, 64},
                                  BenchTest{0, 4, 64}, BenchTest{16, 4, 64}));
}

TEST(BenchPlan, DefaultsAndZeros) {
  EXPECT_THAT(*BenchPlan().tests(), ElementsAre(BenchTest{512, 0, 0}, BenchTest{0, 128, 0}));
  EXPECT_THAT(*(BenchPlan{"0", "8", "0", {}}.tests()), ElementsAre(BenchTest{0, 8, 0}));
  EXPECT_THAT(*(BenchPlan{"0", "0", "0", {"5,6"}}.tests()), ElementsAre(BenchTest{5, 6, 0}));
}

TEST(BenchPlan, Refused) {
  expect_refused(BenchPlan{"0", "0", "0", {}}.tests(), "no test is left");
  expect_refused(BenchPlan{"a", "1", "0", {}}.tests(), "-p: \"a\"");
  expect_refused(BenchPlan{"1", "b", "0", {}}.tests(), "-n: \"b\"");
  expect_refused(BenchPlan{"1", "1", "c", {}}.tests(), "-d: \"c\"");
  for (const char* pair : {"", "5", "5,", ",5", "0,5", "5,0", "5,6,7", "5-6,7"})
    expect_refused(BenchPlan{"1", "1", "0", {pair}}.tests(), "want PROMPT,GEN");
  expect_refused(BenchPlan{"1-100", "0", "1-100", {}}.tests(), "100 tests at 100 depths");
}

TEST(BenchTest, Labels) {
  EXPECT_EQ((BenchTest{512, 0, 0}.label()), "pp512");
  EXPECT_EQ((BenchTest{0, 128, 4096}.label()), "tg128 @ d4096");
  EXPECT_EQ((BenchTest{512, 128, 1}.label()), "pp512+tg128 @ d1");
}

TEST(BenchTest, TokensOnTheTimeline) {
  EXPECT_EQ((BenchTest{512, 0, 0}.prefix()), 0);
  EXPECT_EQ((BenchTest{0, 128, 0}.prefix()), 1);  // something to decode after
  EXPECT_EQ((BenchTest{0, 128, 0}.timeline()), 129);
  EXPECT_EQ((BenchTest{512, 128, 64}.prefix()), 64);
  EXPECT_EQ((BenchTest{512, 128, 64}.tokens()), 640);
  EXPECT_EQ((BenchTest{512, 128, 64}.timeline()), 704);
}

TEST(ParseExperts, OneOrBoth) {
  EXPECT_THAT(*parse_experts("sparse,dense"), ElementsAre(true, false));
  EXPECT_THAT(*parse_experts("dense,sparse"), ElementsAre(false, true));
  EXPECT_THAT(*parse_experts("dense"), ElementsAre(false));
  EXPECT_THAT(*parse_experts("on"), ElementsAre(true));
  for (const char* text : {"", "fast", "sparse,", "sparse dense"})
    expect_refused(parse_experts(text), "--experts");
  expect_refused(parse_experts("sparse,on"), "each setting once");
}

TEST(ParseDrafts, OneOrSeveralInTheirOrder) {
  EXPECT_THAT(*parse_drafts("off"), ElementsAre("off"));
  EXPECT_THAT(*parse_drafts("auto,8,off,1"), ElementsAre("auto", "8", "off", "1"));
  EXPECT_THAT(*parse_drafts("02,0"), ElementsAre("2", "off"));
}

TEST(ParseDrafts, Refused) {
  for (const char* part : {"", "on", "9", "-1", "2.5", "2-4", " 2", "Auto", "99999999999"}) {
    expect_refused(parse_drafts(part), "--draft: \"" + std::string(part) + "\", want");
    expect_refused(parse_drafts("off," + std::string(part)), "\"" + std::string(part) + "\"");
  }
  for (const char* text : {"off,off", "0,off", "2,auto,02", "auto,auto"})
    expect_refused(parse_drafts(text), "\"" + std::string(text) + "\", want each setting once");
}

TEST(DraftsOf, APromptDraftsNothing) {
  const BenchTest prompt{16, 0, 64}, decode{0, 4, 0}, both{16, 4, 0};
  const std::vector<std::string> with_off = {"2", "off", "auto"}, without = {"auto", "2"};
  EXPECT_EQ(drafts_of(decode, with_off), with_off);
  EXPECT_EQ(drafts_of(both, with_off), with_off);
  EXPECT_EQ(drafts_of(both, without), without);
  EXPECT_THAT(drafts_of(prompt, with_off), ElementsAre("off"));
  EXPECT_THAT(drafts_of(prompt, without), ElementsAre("auto"));
}

// Accepted drafts of a step, two in each, along the text: behind a rejected one the next step.
double accepted_of_two(const std::vector<bool>& right) {
  double steps = 0, accepted = 0;
  for (std::size_t at = 0; at + 2 < right.size(); ++steps) {
    const int kept = right[at + 1] ? 1 + right[at + 2] : 0;
    accepted += kept;
    at += 1 + kept;
  }
  return accepted / steps;
}

TEST(ReplayedDrafts, TwoDraftsAreRightAsOftenAsAskedFor) {
  for (const double accept : {0.1, 0.7, 1.0, 1.3, 1.9})
    EXPECT_NEAR(accepted_of_two(replayed_drafts(accept, 100'000)), accept, 0.02) << accept;
  EXPECT_THAT(replayed_drafts(0, 1000), Each(false));
  EXPECT_THAT(replayed_drafts(2, 1000), Each(true));
  EXPECT_TRUE(replayed_drafts(1.3, 0).empty());
}

TEST(ReplayedDrafts, TheSameTextWhateverItsLength) {
  const std::vector<bool> some = replayed_drafts(1.3, 40), more = replayed_drafts(1.3, 80);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), more.begin()));
  EXPECT_THAT(some, Contains(true));
  EXPECT_THAT(some, Contains(false));
}

// What an easier text adds is added: nothing else changes.
TEST(ReplayedDrafts, MoreAcceptedKeepsWhatWasRight) {
  const std::vector<bool> hard = replayed_drafts(0.6, 500), easy = replayed_drafts(1.4, 500);
  for (std::size_t i = 0; i < hard.size(); ++i) EXPECT_LE(hard[i], easy[i]) << i;
}

}  // namespace
}  // namespace lacuna
