// SPDX-License-Identifier: Apache-2.0
#include "ops/rms_norm/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/kernels.h"
#include "tests/support/random_weights.h"

namespace lacuna {
namespace {

const int kWidths[] = {1, 2, 8, 15, 16, 17, 384, 512, 2688};

TEST(RmsNorm, EveryInstructionSetGivesTheDefinitionsBits) {
  for_each_kernel([](const Kernels& k) {
    Random random(3);
    for (const int n : kWidths) {
      SCOPED_TRACE(n);
      const std::vector<float> x = random.vector(n), z = random.vector(n), w = random.vector(n);
      std::vector<float> a(n), b(n);
      cpu::scalar::rms_norm(x.data(), w.data(), n, 1e-5f, a.data());
      k.rms_norm(x.data(), w.data(), n, 1e-5f, b.data());
      ASSERT_TRUE(same_bits(a, b));
      cpu::scalar::gated_norm(x.data(), z.data(), w.data(), n, 1e-5f, a.data());
      b = x;
      k.gated_norm(b.data(), z.data(), w.data(), n, 1e-5f,
                   b.data());  // in place, as the mixer runs it
      ASSERT_TRUE(same_bits(a, b));
    }
  });
}

// n terms in the sum of squares, then a handful of roundings, and SiLU's exp of 2 units.
TEST(RmsNormBound, DefinitionIsCloseToFloat64) {
  Random random(5);
  for (const int n : kWidths) {
    const std::vector<float> x = random.vector(n), z = random.vector(n), w = random.vector(n);
    std::vector<float> y(n);
    cpu::scalar::gated_norm(x.data(), z.data(), w.data(), n, 1e-5f, y.data());
    std::vector<double> g(n);
    double squares = 0;
    for (int i = 0; i < n; ++i) {
      g[i] = x[i] * (z[i] / (1.0 + std::exp(-static_cast<double>(z[i]))));
      squares += g[i] * g[i];
    }
    for (int i = 0; i < n; ++i) {
      const double want = g[i] / std::sqrt(squares / n + 1e-5) * w[i];
      ASSERT_NEAR(y[i], want, std::fabs(want) * (n + 16) * 0x1p-23);
    }
  }
}

}  // namespace
}  // namespace lacuna
