// SPDX-License-Identifier: Apache-2.0
// The definition of attention over one band, and of the merge.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/activations/activations.h"
#include "ops/attention/attention.h"
#include "tensor/dtype.h"

namespace lacuna::cpu::scalar {
namespace {

float element(const void* p, std::ptrdiff_t i, bool bf16) {
  return bf16 ? bf16_to_f32(static_cast<const std::uint16_t*>(p)[i])
              : static_cast<const float*>(p)[i];
}

}  // namespace

void attend_band(const KvBand& kv, const float* const* q, const int* valid, int rows, float scale,
                 float* m, float* l, float* o) noexcept {
  const int dim = kv.head_dim;
  for (int r = 0; r < rows; ++r) {
    float p[kBandKeys];
    m[r] = -std::numeric_limits<float>::infinity();
    for (int j = 0; j < valid[r]; ++j) {
      float s = 0.0f;
      for (int d = 0; d < dim; ++d) {
        s = std::fma(q[r][d], element(kv.keys, key_index(kv.bf16, dim, j, d), kv.bf16), s);
      }
      p[j] = s * scale;
      m[r] = std::max(m[r], p[j]);
    }
    float lane[16] = {};
    for (int j = 0; j < valid[r]; ++j) {
      p[j] = exp_f32(p[j] - m[r]);
      if (kv.bf16) p[j] = bf16_to_f32(f32_to_bf16(p[j]));
      lane[j % 16] += p[j];
    }
    for (int step = 8; step > 0; step /= 2) {
      for (int i = 0; i < step; ++i) lane[i] += lane[i + step];
    }
    l[r] = lane[0];
    for (int d = 0; d < dim; ++d) {
      float sum = 0.0f;
      for (int j = 0; j < valid[r]; ++j) {
        sum = std::fma(p[j], element(kv.values, value_index(kv.bf16, dim, j, d), kv.bf16), sum);
      }
      o[r * dim + d] = sum;
    }
  }
}

void merge_band(float band_m, float band_l, const float* band_o, int head_dim, float* m, float* l,
                float* o) noexcept {
  const float top = std::max(*m, band_m);
  const float old_part = *l == 0.0f ? 0.0f : exp_f32(*m - top);
  const float new_part = exp_f32(band_m - top);
  *l = std::fma(band_l, new_part, *l * old_part);
  for (int d = 0; d < head_dim; ++d) o[d] = std::fma(band_o[d], new_part, o[d] * old_part);
  *m = top;
}

}  // namespace lacuna::cpu::scalar
