// SPDX-License-Identifier: Apache-2.0
#include "ops/activations/activations.h"
#include "ops/swiglu/swiglu.h"

namespace lacuna::cpu::scalar {

void swiglu(const float* gate, const float* up, int n, float* y) noexcept {
  for (int i = 0; i < n; ++i) y[i] = silu_f32(gate[i]) * up[i];
}

}  // namespace lacuna::cpu::scalar
