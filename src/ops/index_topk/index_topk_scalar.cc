// SPDX-License-Identifier: Apache-2.0
// The definition of index scores, and of the filter.
#include <cmath>

#include "ops/index_topk/index_topk.h"
#include "tensor/dtype.h"

namespace lacuna::cpu::scalar {
namespace {

float key_value(const IndexKeys& keys, int j, int d) {
  const std::ptrdiff_t at = key_index(keys.bf16, keys.dim, j, d);
  return keys.bf16 ? bf16_to_f32(static_cast<const std::uint16_t*>(keys.keys)[at])
                   : static_cast<const float*>(keys.keys)[at];
}

}  // namespace

void index_scores(const IndexKeys& keys, int count, const IndexQueries& queries, float* scores,
                  std::ptrdiff_t stride) noexcept {
  for (int t = 0; t < queries.count; ++t) {
    for (int j = 0; j < count; ++j) {
      float sum = 0.0f;
      for (int h = 0; h < queries.heads; ++h) {
        const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(t) * queries.heads + h;
        const float* q = queries.q + row * keys.dim;
        float dot = 0.0f;
        for (int d = 0; d < keys.dim; ++d) dot = std::fma(q[d], key_value(keys, j, d), dot);
        sum = std::fma(queries.w[row], 0.0f > dot ? 0.0f : dot, sum);
      }
      scores[t * stride + j] = sum * queries.scale;
    }
  }
}

int keep_above(const float* scores, int count, int first, float threshold, float* kept,
               std::int32_t* number) noexcept {
  int n = 0;
  for (int j = 0; j < count; ++j) {
    if (!(scores[j] > threshold)) continue;
    kept[n] = scores[j];
    number[n++] = first + j;
  }
  return n;
}

}  // namespace lacuna::cpu::scalar
