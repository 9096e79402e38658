// SPDX-License-Identifier: Apache-2.0
#include "ops/activations/activations.h"

#include <gtest/gtest.h>

#include <limits>

namespace lacuna {
namespace {

TEST(ActivationsBound, ExpIsWithinTwoUnits) {
  for (float x = -86.9f; x < 87.9f; x += 0.00371f) {
    const double want = std::exp(static_cast<double>(x));
    ASSERT_NEAR(exp_f32(x) / want, 1.0, 2 * 0x1p-23) << x;
  }
}

TEST(Activations, ExtremesAreFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp_f32(-inf), exp_f32(-1000.0f));
  EXPECT_EQ(exp_f32(inf), exp_f32(1000.0f));
  EXPECT_TRUE(std::isfinite(exp_f32(inf)));
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(sigmoid_f32(0.0f), 0.5f);
  EXPECT_EQ(silu_f32(0.0f), 0.0f);
  EXPECT_NEAR(silu_f32(-100.0f), 0.0f, 1e-30f);
}

}  // namespace
}  // namespace lacuna
