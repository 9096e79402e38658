// SPDX-License-Identifier: Apache-2.0
// The definition of the sparse down projection. Every other file of this folder gives the same
// bits.
#include <algorithm>
#include <cmath>

#include "ops/sparse_down/sparse_down.h"
#include "tensor/packed_access.h"

namespace lacuna::cpu::scalar {

int relu2_live(float* up, int n, int group, bool round, bool keep_zeros, int* index, float* h,
               int* group_begin, float* sums) noexcept {
  int count = 0;
  int live = 0;
  for (int g = 0; g * group < n; ++g) {
    group_begin[g] = count;
    float lane[16] = {};
    for (int i = g * group; i < std::min(n, (g + 1) * group); ++i) {
      float v = up[i] > 0.0f ? up[i] * up[i] : 0.0f;
      if (round) v = bf16_to_f32(f32_to_bf16(v));
      lane[i % group % 16] += v;
      up[i] = v;
      live += v > 0.0f;
      if (v > 0.0f || keep_zeros) {
        index[count] = i;
        h[count++] = v;
      }
    }
    for (int step = 8; step > 0; step /= 2) {
      for (int i = 0; i < step; ++i) lane[i] += lane[i + step];
    }
    sums[g] = lane[0];
  }
  group_begin[(n + group - 1) / group] = count;
  return live;
}

void sparse_down(const NeuronMajor& w, const LiveRows& live, int begin, int end,
                 float* y) noexcept {
  const float offset = code_offset(w.kind);
  for (int d = begin; d < end; ++d) {
    float total = 0.0f;
    for (int g = 0; g < w.groups; ++g) {
      if (live.group_begin[g] == live.group_begin[g + 1]) continue;
      float sum = 0.0f;
      for (int i = live.group_begin[g]; i < live.group_begin[g + 1]; ++i) {
        sum = std::fma(live.h[i], neuron_weight(w, live.index[i], d) + offset, sum);
      }
      if (is_quantized(w.kind)) {
        const ScaleBias s = neuron_scale(w, g, d);
        total = std::fma(s.scale, sum, total);
        total = std::fma(std::fma(-offset, s.scale, s.bias), live.sums[g], total);
      } else {
        total += sum;
      }
    }
    y[d] = total;
  }
}

void dense_down(const NeuronMajor& w, const Activations& a, const int* rows, int count, int column,
                float* y) noexcept {
  const float offset = code_offset(w.kind);
  for (int t = 0; t < count; ++t) {
    const float* h = a.x + static_cast<std::ptrdiff_t>(rows[t]) * a.padded;
    const float* sums = a.sums + static_cast<std::ptrdiff_t>(rows[t]) * a.groups;
    for (int d = 0; d < kColumnBlock; ++d) {
      float total = 0.0f;
      for (int g = 0; g < w.groups; ++g) {
        float sum = 0.0f;
        for (int i = g * w.group; i < std::min(w.in, (g + 1) * w.group); ++i) {
          sum = std::fma(h[i], neuron_weight(w, i, column + d) + offset, sum);
        }
        if (is_quantized(w.kind)) {
          const ScaleBias s = neuron_scale(w, g, column + d);
          total = std::fma(s.scale, sum, total);
          total = std::fma(std::fma(-offset, s.scale, s.bias), sums[g], total);
        } else {
          total += sum;
        }
      }
      y[t * kColumnBlock + d] = total;
    }
  }
}

}  // namespace lacuna::cpu::scalar
