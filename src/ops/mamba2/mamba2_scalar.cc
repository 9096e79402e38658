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
  for (int p = 0; p < a.p; ++p) {
    for (int n = 0; n < a.n; ++n) {
      float s = a.state[n * a.p + p];
      for (int t = 0; t < a.tokens; ++t) {
        const float dx = a.dt[t * a.heads] * a.x[t * a.stride + p];
        s = std::fma(dx, a.b[t * a.stride + n], a.decay[t * a.heads] * s);
        if (t < a.first_y) continue;
        // y is the sum so far: over n, rising.
        float& y = a.y[(t - a.first_y) * a.y_stride + p];
        y = std::fma(s, a.c[t * a.stride + n], n == 0 ? 0.0f : y);
      }
      if (a.out != nullptr) a.out[n * a.p + p] = s;
    }
    for (int t = a.first_y; t < a.tokens; ++t) {
      float& y = a.y[(t - a.first_y) * a.y_stride + p];
      y = std::fma(a.d, a.x[t * a.stride + p], y);
    }
  }
}

}  // namespace lacuna::cpu::scalar
