// SPDX-License-Identifier: Apache-2.0
#include "ops/rope/rope.h"

#include <cmath>

namespace lacuna::cpu::scalar {

void rope(const RopeTable& table, float* x, int vectors, std::ptrdiff_t stride) noexcept {
  for (int v = 0; v < vectors; ++v, x += stride) {
    for (int i = 0; i < table.pairs; ++i) {
      float& a = x[table.interleaved ? 2 * i : i];
      float& b = x[table.interleaved ? 2 * i + 1 : i + table.pairs];
      const float cos = table.cos[i], sin = table.sin[i];
      const float turned = std::fma(a, cos, -(b * sin));
      b = std::fma(b, cos, a * sin);
      a = turned;
    }
  }
}

}  // namespace lacuna::cpu::scalar
