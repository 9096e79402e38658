// SPDX-License-Identifier: Apache-2.0
#include "ops/swiglu/swiglu.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/kernels.h"
#include "tests/support/random_weights.h"

namespace lacuna {
namespace {

TEST(SwiGlu, EveryInstructionSetGivesTheDefinitionsBitsInPlaceToo) {
  for_each_kernel([](const Kernels& k) {
    for (const int n : {0, 1, 15, 16, 17, 100, 2048}) {
      Random random(n + 5);
      std::vector<float> gate = random.vector(n), up = random.vector(n), want(n), got(n + 1, 7.0f);
      for (float& v : gate) v *= 20;
      cpu::scalar::swiglu(gate.data(), up.data(), n, want.data());
      k.swiglu(gate.data(), up.data(), n, got.data());
      ASSERT_TRUE(same_bits(want, std::span(got).first(n)));
      ASSERT_EQ(got[n], 7.0f) << "written behind the end";
      k.swiglu(gate.data(), up.data(), n, up.data());
      ASSERT_TRUE(same_bits(want, up));
    }
  });
}

// SiLU's exp of 2 units, then a sum, a quotient and a product.
TEST(SwiGluBound, DefinitionIsCloseToFloat64) {
  Random random(9);
  for (int i = 0; i < 2000; ++i) {
    const float gate = 30 * random.uniform(), up = random.uniform();
    float y = 0;
    cpu::scalar::swiglu(&gate, &up, 1, &y);
    const double want = gate / (1.0 + std::exp(-static_cast<double>(gate))) * up;
    ASSERT_NEAR(y, want, std::fabs(want) * 8 * 0x1p-24) << gate << " " << up;
  }
}

}  // namespace
}  // namespace lacuna
