// SPDX-License-Identifier: Apache-2.0
#include "ops/axpy/axpy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/kernels.h"
#include "tests/support/random_weights.h"

namespace lacuna {
namespace {

TEST(Axpy, EveryLevelGivesTheSameBitsAndTouchesNothingElse) {
  for_each_kernel([](const Kernels& k) {
    for (const int n : {0, 1, 15, 16, 17, 33, 128, 200}) {
      for (const float a : {1.0f, 0.0f, -0.37f, 2.5f}) {
        Random random(n + 1);
        const std::vector<float> x = random.vector(n);
        std::vector<float> want = random.vector(n + 16);
        std::vector<float> got = want;
        cpu::scalar::axpy(a, x.data(), n, want.data());
        k.axpy(a, x.data(), n, got.data());
        ASSERT_TRUE(same_bits(want, got)) << n << " values times " << a;
      }
    }
  });
}

TEST(AxpyBound, IsOneFma) {
  const float x = 1.0f + 0x1p-12f;
  float y = -1.0f;
  cpu::scalar::axpy(x, &x, 1, &y);
  EXPECT_EQ(y, 0x1p-11f + 0x1p-24f) << "the product is not rounded before the sum";
}

}  // namespace
}  // namespace lacuna
