// SPDX-License-Identifier: Apache-2.0
#include "ops/rope/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/kernels.h"
#include "tests/support/random_weights.h"

namespace lacuna {
namespace {

struct Angles {
  explicit Angles(int pairs) {
    for (int i = 0; i < pairs; ++i) {
      const double angle = 0.3 + 0.71 * i;
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  RopeTable table(bool interleaved) const {
    return {cos.data(), sin.data(), static_cast<int>(cos.size()), interleaved};
  }
  std::vector<float> cos, sin;
};

TEST(Rope, EveryInstructionSetGivesTheDefinitionsBitsAndTurnsNothingElse) {
  for_each_kernel([](const Kernels& k) {
    for (const int pairs : {0, 1, 2, 7, 8, 9, 16, 17, 32, kMostRopePairs}) {
      const Angles angles(pairs);
      for (const bool interleaved : {false, true}) {
        SCOPED_TRACE(std::to_string(pairs) + (interleaved ? " interleaved" : " halves"));
        Random random(pairs + 3);
        const std::ptrdiff_t stride = 2 * pairs + 5;  // the rest of a head passes through
        std::vector<float> want = random.vector(static_cast<std::size_t>(3 * stride));
        if (pairs > 1) want[0] = want[1] = 0.0f, want[2] = -0.0f;
        std::vector<float> got = want;
        const std::vector<float> before = want;
        cpu::scalar::rope(angles.table(interleaved), want.data(), 3, stride);
        k.rope(angles.table(interleaved), got.data(), 3, stride);
        ASSERT_TRUE(same_bits(want, got));
        for (int v = 0; v < 3; ++v) {
          for (std::ptrdiff_t i = 2 * pairs; i < stride; ++i)
            ASSERT_EQ(before[v * stride + i], got[v * stride + i]);
        }
      }
    }
  });
}

TEST(Rope, PairsLieAsTheTableSays) {
  const float cos[] = {0.0f, 1.0f}, sin[] = {1.0f, 0.0f};  // a quarter turn, and none
  float x[] = {1, 2, 3, 4};
  cpu::scalar::rope({cos, sin, 2, true}, x, 1, 4);
  EXPECT_EQ(std::vector<float>(x, x + 4), (std::vector<float>{-2, 1, 3, 4}));
  float y[] = {1, 2, 3, 4};
  cpu::scalar::rope({cos, sin, 2, false}, y, 1, 4);
  EXPECT_EQ(std::vector<float>(y, y + 4), (std::vector<float>{-3, 2, 1, 4}));
}

// Each result is a rounded product and one fma.
TEST(RopeBound, DefinitionIsCloseToFloat64) {
  const Angles angles(32);
  Random random(11);
  const std::vector<float> x = random.vector(64);
  std::vector<float> y = x;
  cpu::scalar::rope(angles.table(true), y.data(), 1, 64);
  for (int i = 0; i < 32; ++i) {
    const double a = x[2 * i], b = x[2 * i + 1], c = angles.cos[i], s = angles.sin[i];
    const double size = (std::fabs(a) + std::fabs(b)) * 2 * 0x1p-24;
    ASSERT_NEAR(y[2 * i], a * c - b * s, size);
    ASSERT_NEAR(y[2 * i + 1], b * c + a * s, size);
  }
}

}  // namespace
}  // namespace lacuna
