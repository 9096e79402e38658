// SPDX-License-Identifier: Apache-2.0
// The definition of the convolution and the scan.
#include <cmath>

#include "ops/activations/activations.h"
#include "ops/mamba2/mamba2.h"

namespace lacuna::cpu::scalar {

void conv_silu(const ConvArgs& a, int begin, int end) noexcept {
  for (int t = 0; t < a.tokens; ++t) {
    for (int ch = begin; ch < end; ++ch) {
      float sum = a.bias[ch];
      for (int k = 0; k < a.taps; ++k) {
        const int row = t - (a.taps - 1) + k;
        const float x = row >= 0 ? a.x[row * a.x_stride + ch]
                                 : a.history[(row + a.taps - 1) * a.history_stride + ch];
        sum = std::fma(a.weight[k * a.channels + ch], x, sum);
      }
      a.y[t * a.y_stride + ch] = silu_f32(sum);
    }
  }
}

void ssm_scan(const ScanArgs& a) noexcept {
  for (int t = 0; t < a.tokens; ++t) {
    const float* x = a.x + t * a.stride;
    const float* b = a.b + t * a.stride;
    const float* c = a.c + t * a.stride;
    const float dt = a.dt[t * a.heads];
    const float decay = a.decay[t * a.heads];
    for (int p = 0; p < a.p; ++p) {
      const float dx = dt * x[p];
      float y = 0.0f;
      for (int n = 0; n < a.n; ++n) {
        float& s = a.state[n * a.p + p];
        s = std::fma(dx, b[n], decay * s);
        y = std::fma(s, c[n], y);
      }
      a.y[t * a.y_stride + p] = std::fma(a.d, x[p], y);
    }
  }
}

}  // namespace lacuna::cpu::scalar
