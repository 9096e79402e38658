// SPDX-License-Identifier: Apache-2.0
#include "decode/eval_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace lacuna {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<int> counting(int n) {
  std::vector<int> tokens(n);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

TEST(EvalWindows, StepByTheirLength) {
  const std::vector<int> tokens = counting(201);
  const auto windows = eval_windows(tokens, 100, 0);
  ASSERT_EQ(windows.size(), 2u);
  EXPECT_EQ(windows[0].inputs.front(), 0);
  EXPECT_EQ(windows[0].inputs.back(), 99);
  EXPECT_EQ(windows[0].targets.back(), 100);
  EXPECT_EQ(windows[1].inputs.front(), 100);
  EXPECT_EQ(windows[1].targets.back(), 200);
}

TEST(EvalWindows, AShortLastOneIsDropped) {
  // A window and its first token: 64 tokens, 63 targets, are the least.
  EXPECT_EQ(eval_windows(counting(164), 100, 0).size(), 2u);
  EXPECT_EQ(eval_windows(counting(163), 100, 0).size(), 1u);
  EXPECT_EQ(eval_windows(counting(64), 100, 0).size(), 1u);
  EXPECT_EQ(eval_windows(counting(63), 100, 0).size(), 0u);
  EXPECT_EQ(eval_windows(counting(21), 10, 0).size(), 2u);  // short, but whole
}

TEST(EvalWindows, Limit) {
  const std::vector<int> tokens = counting(1000);
  const auto windows = eval_windows(tokens, 100, 180);
  ASSERT_EQ(windows.size(), 2u);
  EXPECT_EQ(windows[1].targets.size(), 80u);
  EXPECT_EQ(eval_windows(tokens, 100, 130).size(), 1u);
}

TEST(EvalWindows, Nothing) {
  EXPECT_TRUE(eval_windows({}, 10, 0).empty());
  EXPECT_TRUE(eval_windows(counting(1), 10, 0).empty());
}

TEST(NegativeLogLikelihood, IsLogOfSoftmax) {
  const std::vector<float> logits = {std::log(1.0f), std::log(3.0f), -kInf};
  EXPECT_NEAR(negative_log_likelihood(logits, 1), std::log(4.0 / 3), 1e-7);
  EXPECT_EQ(negative_log_likelihood(logits, 2), std::numeric_limits<double>::infinity());
  EXPECT_NEAR(negative_log_likelihood(std::vector<float>{1e6f, 1e6f}, 0), std::log(2.0), 1e-7);
  EXPECT_TRUE(std::isnan(negative_log_likelihood(std::vector<float>{0, kNan}, 0)));
}

TEST(Perplexity, UniformGuessIsTheVocabulary) {
  Perplexity perplexity;
  for (int i = 0; i < 10; ++i)
    perplexity.add(negative_log_likelihood(std::vector<float>(50, 7.0f), i));
  EXPECT_NEAR(perplexity.value(), 50, 1e-9);
  EXPECT_NEAR(perplexity.error(), 0, 1e-5);
  EXPECT_EQ(perplexity.count(), 10u);
}

TEST(Perplexity, ErrorIsOfTheMean) {
  Perplexity perplexity;
  for (const double nll : {1.0, 2.0, 3.0}) perplexity.add(nll);
  EXPECT_DOUBLE_EQ(perplexity.loss(), 2);
  EXPECT_NEAR(perplexity.error(), std::exp(2.0) * std::sqrt(1.0 / 3), 1e-9);  // s/√n with s = 1
}

TEST(Perplexity, TooFewForAnError) {
  Perplexity perplexity;
  EXPECT_EQ(perplexity.loss(), 0);
  perplexity.add(4);
  EXPECT_EQ(perplexity.error(), 0);
}

TEST(KlDivergence, KnownValues) {
  const std::vector<float> half = {0, 0};
  const std::vector<float> skewed = {std::log(0.9f), std::log(0.1f)};
  EXPECT_EQ(kl_divergence(half, half), 0);
  EXPECT_NEAR(kl_divergence(half, skewed), 0.5 * std::log(0.5 / 0.9) + 0.5 * std::log(0.5 / 0.1),
              1e-7);
  EXPECT_NEAR(kl_divergence(skewed, half), 0.9 * std::log(1.8) + 0.1 * std::log(0.2), 1e-7);
  // Logits have no zero point.
  EXPECT_NEAR(kl_divergence(half, std::vector<float>{5, 5}), 0, 1e-12);
  // What the reference never says costs nothing; what the tested never says costs everything.
  EXPECT_NEAR(kl_divergence(std::vector<float>{0, -kInf}, half), std::log(2.0), 1e-12);
  EXPECT_EQ(kl_divergence(half, std::vector<float>{0, -kInf}),
            std::numeric_limits<double>::infinity());
}

TEST(Divergence, CollectsWorstAndAgreement) {
  Divergence d;
  d.add(std::vector<float>{1, 0}, std::vector<float>{1, 0});
  EXPECT_TRUE(d.bits_equal());
  d.add(std::vector<float>{1, 0}, std::vector<float>{0, 1});
  d.add(std::vector<float>{1, 0}, std::vector<float>{0.5f, 0});
  EXPECT_FALSE(d.bits_equal());
  EXPECT_EQ(d.max_kl_row(), 1u);
  EXPECT_NEAR(d.top1_agreement(), 2.0 / 3, 1e-12);
  EXPECT_GT(d.mean_kl(), 0);
  EXPECT_LT(d.mean_kl(), d.max_kl());
  EXPECT_EQ(d.count(), 3u);
}

TEST(Divergence, BitsAreBits) {
  Divergence d;
  d.add(std::vector<float>{0.0f, -1}, std::vector<float>{-0.0f, -1});
  EXPECT_FALSE(d.bits_equal());
  EXPECT_EQ(d.max_kl(), 0);
}

TEST(Divergence, NanIsTheWorst) {
  Divergence d;
  d.add(std::vector<float>{1, 0}, std::vector<float>{0, 1});
  d.add(std::vector<float>{1, 0}, std::vector<float>{kNan, 1});
  d.add(std::vector<float>{1, 0}, std::vector<float>{0, 1});
  EXPECT_TRUE(std::isnan(d.max_kl()));
  EXPECT_EQ(d.max_kl_row(), 1u);
  EXPECT_TRUE(std::isnan(d.mean_kl()));
}

}  // namespace
}  // namespace lacuna
