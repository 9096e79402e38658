// SPDX-License-Identifier: Apache-2.0
#include "ops/axpy/axpy.h"

#include <cmath>

namespace lacuna::cpu::scalar {

void axpy(float a, const float* x, int n, float* y) noexcept {
  for (int i = 0; i < n; ++i) y[i] = std::fma(a, x[i], y[i]);
}

}  // namespace lacuna::cpu::scalar
