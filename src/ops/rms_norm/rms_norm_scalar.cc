// SPDX-License-Identifier: Apache-2.0
// The definition of both norms.
#include "ops/rms_norm/rms_norm.h"

#include <cmath>

#include "ops/activations/activations.h"

namespace lacuna::cpu::scalar {
namespace {

float sum_of_squares(const float* x, int n) {
  float lane[16] = {};
  for (int i = 0; i < n; ++i) lane[i % 16] = std::fma(x[i], x[i], lane[i % 16]);
  for (int step = 8; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) lane[i] += lane[i + step];
  }
  return lane[0];
}

}  // namespace

void rms_norm(const float* x, const float* w, int n, float eps, float* y) noexcept {
  const float r = 1.0f / std::sqrt(sum_of_squares(x, n) / static_cast<float>(n) + eps);
  for (int i = 0; i < n; ++i) y[i] = x[i] * r * w[i];
}

void gated_norm(const float* y, const float* z, const float* w, int n, float eps,
                float* out) noexcept {
  for (int i = 0; i < n; ++i) out[i] = y[i] * silu_f32(z[i]);
  rms_norm(out, w, n, eps, out);
}

}  // namespace lacuna::cpu::scalar
