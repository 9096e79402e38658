// SPDX-License-Identifier: Apache-2.0
#include "decode/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

namespace lacuna {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

SamplingParams seeded(std::uint64_t seed) {
  SamplingParams params;
  params.seed = seed;
  return params;
}

// How often each token is drawn in `draws` draws of the same row, with penalties off.
std::map<int, int> histogram(const SamplingParams& params, const std::vector<float>& logits,
                             int draws) {
  Sampler sampler(params, {});
  std::map<int, int> counts;
  for (int i = 0; i < draws; ++i) ++counts[sampler.pick(logits)];
  return counts;
}

std::set<int> support(const SamplingParams& params, const std::vector<float>& logits) {
  std::set<int> ids;
  for (const auto& [id, count] : histogram(params, logits, 2000)) ids.insert(id);
  return ids;
}

TEST(Argmax, TiesGoToTheLowerId) {
  EXPECT_EQ(argmax(std::vector<float>{1, 3, 3, 2}), 1);
  EXPECT_EQ(argmax(std::vector<float>{5}), 0);
  EXPECT_EQ(argmax(std::vector<float>{0.0f, -0.0f}), 0);
}

TEST(Argmax, NanIsTheSmallest) {
  EXPECT_EQ(argmax(std::vector<float>{kNan, -5, kNan}), 1);
  EXPECT_EQ(argmax(std::vector<float>{kNan, kNan}), 0);
  EXPECT_EQ(argmax(std::vector<float>{kNan, -kInf}), 0);
  EXPECT_EQ(argmax(std::vector<float>{1, kInf, kNan}), 1);
}

TEST(UniformDraw, IsFixedAndInRange) {
  // Other values would change every seeded text of every user.
  EXPECT_EQ(uniform_draw(1, 0), 0x17fdf0061bb85ap-53);
  EXPECT_EQ(uniform_draw(42, 7), 0x4e4809414724cp-53);
  double sum = 0, squares = 0;
  std::set<double> distinct;
  for (int i = 0; i < 10000; ++i) {
    const double u = uniform_draw(7, i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u, squares += u * u;
    distinct.insert(u);
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.01);
  EXPECT_NEAR(squares / 10000, 1.0 / 3, 0.01);
  EXPECT_EQ(distinct.size(), 10000u);
}

TEST(UniformDraw, NeighbouringSeedsAreUnrelated) {
  for (int shift = 0; shift < 4; ++shift)
    for (int i = 0; i < 16; ++i) EXPECT_NE(uniform_draw(1, i + shift), uniform_draw(2, i));
}

TEST(Sampler, GreedyTakesTheLargest) {
  Sampler sampler(greedy(), {});
  EXPECT_EQ(sampler.pick(std::vector<float>{0, 2, 2, 1}), 1);
  EXPECT_EQ(sampler.pick(std::vector<float>{kNan, -1, 0, kNan}), 2);
}

TEST(Sampler, SameSeedSameTokens) {
  const std::vector<float> logits = {0, 1, 2, 1.5f, 0.5f};
  Sampler a(seeded(42), {}), b(seeded(42), {}), c(seeded(43), {});
  int differences = 0;
  for (int i = 0; i < 100; ++i) {
    const int token = a.pick(logits);
    EXPECT_EQ(token, b.pick(logits));
    differences += token != c.pick(logits);
  }
  EXPECT_GT(differences, 20);
}

TEST(Sampler, SeedZeroIsDrawnAndReported) {
  const Sampler sampler(seeded(0), {});
  EXPECT_NE(sampler.seed(), 0u);
  EXPECT_EQ(Sampler(seeded(9), {}).seed(), 9u);
}

TEST(Sampler, FrequenciesAreTheSoftmax) {
  const std::vector<float> logits = {std::log(1.0f), std::log(2.0f), std::log(5.0f)};
  auto counts = histogram(seeded(3), logits, 40000);
  EXPECT_NEAR(counts[0], 5000, 300);
  EXPECT_NEAR(counts[1], 10000, 400);
  EXPECT_NEAR(counts[2], 25000, 400);
}

TEST(Sampler, TemperatureFlattens) {
  SamplingParams params = seeded(3);
  params.temperature = 2;
  auto counts = histogram(params, {0, std::log(9.0f)}, 40000);  // √9 : 1
  EXPECT_NEAR(counts[1], 30000, 500);
}

TEST(Sampler, TinyTemperatureIsGreedy) {
  SamplingParams params = seeded(3);
  params.temperature = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(support(params, {0, 1e-3f, -1}), std::set<int>{1});
}

TEST(Sampler, TopKKeepsKWithTiesToTheLowerId) {
  SamplingParams params = seeded(5);
  params.top_k = 2;
  EXPECT_EQ(support(params, {1, 0, 1, 1, 0.5f}), (std::set<int>{0, 2}));
  params.top_k = 1;
  EXPECT_EQ(support(params, {1, 1, 1}), std::set<int>{0});
  params.top_k = 99;
  EXPECT_EQ(support(params, {1, 1, 1}), (std::set<int>{0, 1, 2}));
}

TEST(Sampler, TopPKeepsTheSmallestSetWithTheMass) {
  const std::vector<float> logits = {std::log(0.15f), std::log(0.5f), std::log(0.3f),
                                     std::log(0.05f)};
  SamplingParams params = seeded(5);
  params.top_p = 0.75f;
  EXPECT_EQ(support(params, logits), (std::set<int>{1, 2}));
  params.top_p = 0.9f;
  EXPECT_EQ(support(params, logits), (std::set<int>{0, 1, 2}));
  params.top_p = 1e-6f;
  EXPECT_EQ(support(params, logits), std::set<int>{1});
}

// Larger than the first block that is sorted, flat, so that the cut lies deep in the list.
TEST(Sampler, TopPReachesFarIntoAFlatVocabulary) {
  SamplingParams params = seeded(5);
  params.top_p = 0.5f;
  const std::vector<float> logits(5000, 1.0f);
  Sampler sampler(params, {});
  int largest = 0;
  for (int i = 0; i < 500; ++i) largest = std::max(largest, sampler.pick(logits));
  EXPECT_LT(largest, 2500);
  EXPECT_GT(largest, 2300);
}

TEST(Sampler, MinPIsRelativeToTheBest) {
  SamplingParams params = seeded(5);
  params.min_p = 0.2f;
  EXPECT_EQ(support(params, {std::log(0.6f), std::log(0.3f), std::log(0.1f)}),
            (std::set<int>{0, 1}));
}

// With temperature first, a hot distribution keeps more under the same top_p.
TEST(Sampler, TopPMeasuresTheHeatedDistribution) {
  SamplingParams params = seeded(5);
  params.top_p = 0.6f;
  const std::vector<float> logits = {std::log(0.7f), std::log(0.2f), std::log(0.1f)};
  EXPECT_EQ(support(params, logits), std::set<int>{0});
  params.temperature = 4;
  EXPECT_EQ(support(params, logits), (std::set<int>{0, 1}));
}

TEST(Sampler, LogitBiasBansAndForces) {
  SamplingParams params = greedy();
  params.logit_bias = {{1, -kInf}, {3, 2.0f}};
  Sampler sampler(params, {});
  EXPECT_EQ(sampler.pick(std::vector<float>{0, 9, 1, 0}), 3);
}

TEST(Sampler, RepeatPenaltyCoversPromptAndAnswer) {
  SamplingParams params = greedy();
  params.repeat_penalty = 2;
  Sampler sampler(params, std::vector<int>{0});
  const std::vector<float> logits = {3, 2, 1.6f};
  EXPECT_EQ(sampler.pick(logits), 1);  // 0 was in the prompt: 1.5
  EXPECT_EQ(sampler.pick(logits), 2);  // 1 is now 1.0
  EXPECT_EQ(sampler.pick(logits), 0);  // 1.5, 1.0, 0.8: it does not add up
  Sampler negative(params, std::vector<int>{0});
  EXPECT_EQ(negative.pick(std::vector<float>{-1, -1.5f}), 1);  // −2 : −1.5
}

TEST(Sampler, PresenceCountsOnceAndOnlyGenerated) {
  SamplingParams params = greedy();
  params.presence_penalty = 1;
  Sampler sampler(params, std::vector<int>{0, 0, 0});
  const std::vector<float> logits = {2, 1.5f, 0.75f};
  EXPECT_EQ(sampler.pick(logits), 0);  // the prompt does not count
  EXPECT_EQ(sampler.pick(logits), 1);  // 1, 1.5, .75
  EXPECT_EQ(sampler.pick(logits), 0);  // 1, .5, .75
  EXPECT_EQ(sampler.pick(logits), 0);  // still 1: once
}

TEST(Sampler, FrequencyCountsEachTime) {
  SamplingParams params = greedy();
  params.frequency_penalty = 1;
  Sampler sampler(params, {});
  const std::vector<float> logits = {2.5f, 1};
  EXPECT_EQ(sampler.pick(logits), 0);
  EXPECT_EQ(sampler.pick(logits), 0);  // 1.5
  EXPECT_EQ(sampler.pick(logits), 1);  // 0.5
}

TEST(Sampler, BadLogitsNeverCrash) {
  for (const float temperature : {0.0f, 1.0f}) {
    SamplingParams params = seeded(1);
    params.temperature = temperature;
    params.top_k = 3, params.top_p = 0.9f, params.min_p = 0.1f, params.repeat_penalty = 1.5f;
    Sampler sampler(params, std::vector<int>{-4, 0, 1 << 30});
    EXPECT_EQ(sampler.pick(std::vector<float>(8, kNan)), 0);
    EXPECT_EQ(sampler.pick(std::vector<float>(8, -kInf)), 0);
    EXPECT_EQ(sampler.pick(std::vector<float>{kNan, -kInf, kInf, 0}), 2);
    EXPECT_EQ(sampler.pick(std::vector<float>{kNan}), 0);
  }
}

// P8: a draft is what the pick's own draw gives from the head's logits, so it is often right, and
// the pick does not look at it: 20,000 picks keep the model's distribution. With four degrees of
// freedom chi-square exceeds 18.47 once in a thousand seeds; this seed is fixed.
TEST(Sampler, DraftsAreOftenRightAndLeaveTheDistributionAlone) {
  constexpr int kDraws = 20'000;
  const std::vector<float> model = {1.0f, 0.2f, -0.5f, 0.7f, -2.0f};
  const std::vector<float> head = {0.6f, 0.5f, -0.9f, 0.8f, -1.0f};
  SamplingParams params;
  params.temperature = 0.7f;
  params.seed = 17;
  Sampler sampler(params, {}), alone(params, {});
  std::vector<double> counts(model.size());
  int right = 0;
  for (int i = 0; i < kDraws; ++i) {
    const int draft = sampler.guess(head, 0);
    sampler.guess(head, 1);
    const int picked = sampler.pick(model);
    ASSERT_EQ(picked, alone.pick(model)) << "draw " << i;
    right += draft == picked;
    ++counts[static_cast<std::size_t>(picked)];
  }
  double sum = 0, head_sum = 0;
  for (std::size_t i = 0; i < model.size(); ++i) {
    sum += std::exp(model[i] / 0.7);
    head_sum += std::exp(head[i] / 0.7);
  }
  double chi = 0, independent = 0;
  for (std::size_t i = 0; i < model.size(); ++i) {
    const double p = std::exp(model[i] / 0.7) / sum;
    chi += (counts[i] - kDraws * p) * (counts[i] - kDraws * p) / (kDraws * p);
    independent += p * std::exp(head[i] / 0.7) / head_sum;
  }
  EXPECT_LT(chi, 18.47);
  EXPECT_GT(right, 1.5 * independent * kDraws) << "drawn apart they would agree by chance alone";
}

TEST(CheckSampling, NamesTheFieldAndTheRange) {
  const auto what = [](auto change) {
    SamplingParams params;
    change(params);
    const auto result = check_sampling(params, 100);
    return result.ok() ? std::string("ok") : result.error().what;
  };
  EXPECT_EQ(what([](auto&) {}), "ok");
  EXPECT_EQ(what([](auto& p) { p.temperature = -1; }), "temperature: -1, want 0 or more");
  EXPECT_NE(what([](auto& p) { p.temperature = kNan; }), "ok");
  EXPECT_NE(what([](auto& p) { p.temperature = kInf; }), "ok");
  EXPECT_EQ(what([](auto& p) { p.top_k = -1; }), "top_k: -1, want 0 (off) or more");
  EXPECT_EQ(what([](auto& p) { p.top_p = 0; }), "top_p: 0, want above 0, at most 1");
  EXPECT_NE(what([](auto& p) { p.top_p = 1.5f; }), "ok");
  EXPECT_NE(what([](auto& p) { p.top_p = kNan; }), "ok");
  EXPECT_EQ(what([](auto& p) { p.min_p = 1; }), "min_p: 1, want 0 or more, below 1");
  EXPECT_NE(what([](auto& p) { p.min_p = kNan; }), "ok");
  EXPECT_EQ(what([](auto& p) { p.repeat_penalty = 0; }), "repeat_penalty: 0, want above 0");
  EXPECT_NE(what([](auto& p) { p.presence_penalty = kInf; }), "ok");
  EXPECT_NE(what([](auto& p) { p.frequency_penalty = kNan; }), "ok");
  EXPECT_EQ(what([](auto& p) { p.logit_bias = {{100, 1}}; }),
            "logit_bias: token 100, want 0 to 99");
  EXPECT_NE(what([](auto& p) { p.logit_bias = {{-1, 1}}; }), "ok");
  EXPECT_NE(what([](auto& p) { p.logit_bias = {{1, kNan}}; }), "ok");
  EXPECT_EQ(what([](auto& p) { p.logit_bias = {{1, -kInf}}; }), "ok");
}

}  // namespace
}  // namespace lacuna
