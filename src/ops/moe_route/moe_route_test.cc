// SPDX-License-Identifier: Apache-2.0
#include "ops/moe_route/moe_route.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace lacuna {
namespace {

using ::testing::ElementsAre;

struct Choice {
  std::vector<int> ids;
  std::vector<float> weights;
};

Choice route(const RouteRules& rules, const std::vector<float>& logits,
             const std::vector<float>& bias) {
  Choice c{std::vector<int>(rules.chosen), std::vector<float>(rules.chosen)};
  moe_route(rules, logits, bias, c.ids, c.weights);
  return c;
}

std::vector<float> logits_of(const std::vector<double>& scores) {
  std::vector<float> v;
  for (const double s : scores) v.push_back(static_cast<float>(std::log(s / (1 - s))));
  return v;
}

// The router example of the model's specification: the bias changes the choice, not the weights.
TEST(MoeRoute, BiasSelectsAndScoresWeigh) {
  const std::vector<double> scores{0.430784, 0.144800, 0.119954, 0.330181,
                                   0.691237, 0.779467, 0.663736, 0.508306};
  std::vector<float> bias(8);
  for (int e = 0; e < 8; ++e) bias[e] = static_cast<float>(0.3 * std::cos(2.0 * e));
  const Choice c = route({8, 3, 1, 1, true, 2.5f}, logits_of(scores), bias);
  EXPECT_THAT(c.ids, ElementsAre(0, 4, 6));
  EXPECT_NEAR(c.weights[0], 0.603084, 2e-6);
  EXPECT_NEAR(c.weights[1], 0.967708, 2e-6);
  EXPECT_NEAR(c.weights[2], 0.929208, 2e-6);
  EXPECT_THAT(route({8, 3, 1, 1, true, 2.5f}, logits_of(scores), std::vector<float>(8)).ids,
              ElementsAre(4, 5, 6));
}

TEST(MoeRoute, TiesGoToTheLowerExpert) {
  const std::vector<float> equal(6, 0.25f);
  EXPECT_THAT(route({6, 3}, equal, std::vector<float>(6)).ids, ElementsAre(0, 1, 2));
  EXPECT_THAT(route({6, 2}, {0.f, 1.f, 0.f, 1.f, 1.f, 0.f}, std::vector<float>(6)).ids,
              ElementsAre(1, 3));
}

TEST(MoeRoute, EveryExpertCanBeChosen) {
  const Choice c = route({3, 3, 1, 1, true, 1.0f}, {0.f, 0.f, 0.f}, {0.f, 0.f, 0.f});
  EXPECT_THAT(c.ids, ElementsAre(0, 1, 2));
  EXPECT_FLOAT_EQ(c.weights[0] + c.weights[1] + c.weights[2], 1.0f);
}

TEST(MoeRoute, WithoutNormalisingWeightsAreScaledScores) {
  const Choice c = route({2, 1, 1, 1, false, 3.0f}, {0.f, -9.f}, {0.f, 0.f});
  EXPECT_FLOAT_EQ(c.weights[0], 1.5f);
}

TEST(MoeRoute, OnlyTheBestGroupsTakePart) {
  // Group 1 has the best single expert, group 0 the best pair; with one group kept, 0 wins.
  const std::vector<float> logits = logits_of({0.7, 0.6, 0.1, 0.9, 0.1, 0.1});
  EXPECT_THAT(route({6, 2, 2, 1}, logits, std::vector<float>(6)).ids, ElementsAre(0, 1));
  EXPECT_THAT(route({6, 2, 2, 2}, logits, std::vector<float>(6)).ids, ElementsAre(0, 3));
}

}  // namespace
}  // namespace lacuna
