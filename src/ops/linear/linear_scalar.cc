// SPDX-License-Identifier: Apache-2.0
// The definition of a projection. Every other file of this folder gives the same bits, faster.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/linear/linear.h"
#include "tensor/packed_access.h"

namespace lacuna::cpu::scalar {
namespace {

// The one order in which sums over a group of activations are made.
float group_sum(const float* x, int n) {
  float lane[16] = {};
  for (int i = 0; i < n; ++i) lane[i % 16] += x[i];
  for (int step = 8; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) lane[i] += lane[i + step];
  }
  return lane[0];
}

}  // namespace

void prepare_activations(const float* x, int in, int padded, int group, bool round, float* out,
                         std::uint32_t* pairs, float* sums) noexcept {
  for (int k = 0; k < padded; ++k) {
    const float v = k < in ? x[k] : 0.0f;
    out[k] = round ? bf16_to_f32(f32_to_bf16(v)) : v;
  }
  if (pairs != nullptr) {
    for (int p = 0; p < padded / 2; ++p) {
      pairs[p] =
          static_cast<std::uint32_t>(f32_to_bf16(out[2 * p])) << 16 | f32_to_bf16(out[2 * p + 1]);
    }
  }
  for (int g = 0; g < padded / group; ++g) sums[g] = group_sum(out + g * group, group);
}

void linear_block(const RowBlocks& w, int block, const Activations& a, const int* rows, int count,
                  float* y, std::ptrdiff_t y_stride) noexcept {
  const float offset = code_offset(w.kind);
  const int last = std::min(w.out, (block + 1) * kBlockRows);
  for (int i = 0; i < count; ++i) {
    const int row = rows != nullptr ? rows[i] : i;
    const float* x = a.x + static_cast<std::ptrdiff_t>(row) * a.padded;
    const float* sums = a.sums + static_cast<std::ptrdiff_t>(row) * a.groups;
    for (int o = block * kBlockRows; o < last; ++o) {
      float total = 0.0f;
      for (int g = 0; g < w.groups; ++g) {
        float sum = 0.0f;
        for (int k = g * w.group; k < (g + 1) * w.group; ++k) {
          sum = std::fma(x[k], row_block_weight(w, o, k) + offset, sum);
        }
        if (is_quantized(w.kind)) {
          const ScaleBias s = row_block_scale(w, o, g);
          total = std::fma(s.scale, sum, total);
          total = std::fma(std::fma(-offset, s.scale, s.bias), sums[g], total);
        } else {
          total += sum;
        }
      }
      y[i * y_stride + o] = total;
    }
  }
}

}  // namespace lacuna::cpu::scalar
