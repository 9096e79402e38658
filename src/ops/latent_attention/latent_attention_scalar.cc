// SPDX-License-Identifier: Apache-2.0
// The definition of attention over shared latent rows, head by head.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/activations/activations.h"
#include "ops/latent_attention/latent_attention.h"
#include "tensor/dtype.h"

namespace lacuna::cpu::scalar {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

float row_value(const LatentRows& kv, int row, int d) {
  const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(row) * (kv.latent + kv.rope) + d;
  return kv.bf16 ? bf16_to_f32(static_cast<const std::uint16_t*>(kv.rows)[at])
                 : static_cast<const float*>(kv.rows)[at];
}

float score(const LatentRows& kv, int row, const float* q, float scale) {
  float s = 0.0f;
  for (int d = 0; d < kv.latent + kv.rope; ++d) s = std::fma(q[d], row_value(kv, row, d), s);
  return s * scale;
}

float weight(const LatentRows& kv, float score, float top) {
  const float p = exp_f32(score - top);
  return kv.bf16 ? bf16_to_f32(f32_to_bf16(p)) : p;
}

bool is_set(const std::uint64_t* mask, int j) {
  return mask == nullptr || (mask[j / 64] >> (j % 64) & 1) != 0;
}

// Rows [begin, end) of one head, on top of what m, l and z hold. p is room for a band.
void masked_band(const LatentRows& kv, const std::uint64_t* mask, int begin, int end,
                 const float* q, float scale, float* p, float& m, float& l, float* z) {
  float top = m;
  for (int j = begin; j < end; ++j) {
    p[j - begin] = is_set(mask, j) ? score(kv, j, q, scale) : kNone;
    top = std::max(top, p[j - begin]);
  }
  if (top == kNone) return;
  const float old_part = m == kNone ? 0.0f : exp_f32(m - top);
  m = top;
  l *= old_part;
  for (int d = 0; d < kv.latent; ++d) z[d] *= old_part;
  for (int j = begin; j < end; ++j) {
    if (!is_set(mask, j)) continue;
    const float w = weight(kv, p[j - begin], m);
    l += w;
    for (int d = 0; d < kv.latent; ++d) z[d] = std::fma(w, row_value(kv, j, d), z[d]);
  }
}

}  // namespace

void latent_picked(const LatentRows& kv, const std::int32_t* picks, int count,
                   const LatentQuery& query, float* scratch, float* z) noexcept {
  const auto row = [&](int i) { return picks != nullptr ? picks[i] : i; };
  for (int h = 0; h < query.heads; ++h, z += kv.latent) {
    const float* q = query.q + static_cast<std::ptrdiff_t>(h) * (kv.latent + kv.rope);
    float m = kNone, l = 0.0f;
    for (int i = 0; i < count; ++i) {
      scratch[i] = score(kv, row(i), q, query.scale);
      m = std::max(m, scratch[i]);
    }
    std::fill_n(z, kv.latent, 0.0f);
    for (int i = 0; i < count; ++i) {
      const float p = weight(kv, scratch[i], m);
      l += p;
      for (int d = 0; d < kv.latent; ++d) z[d] = std::fma(p, row_value(kv, row(i), d), z[d]);
    }
    for (int d = 0; count > 0 && d < kv.latent; ++d) z[d] /= l;
  }
}

void latent_masked(const LatentRows& kv, const std::uint64_t* mask, int count,
                   const LatentQuery& query, float* scratch, float* z) noexcept {
  for (int h = 0; h < query.heads; ++h, z += kv.latent) {
    const float* q = query.q + static_cast<std::ptrdiff_t>(h) * (kv.latent + kv.rope);
    float m = kNone, l = 0.0f;
    std::fill_n(z, kv.latent, 0.0f);
    for (int begin = 0; begin < count; begin += kLatentPanel) {
      const int end = std::min(count, begin + kLatentPanel);
      masked_band(kv, mask, begin, end, q, query.scale, scratch, m, l, z);
    }
    for (int d = 0; l != 0.0f && d < kv.latent; ++d) z[d] /= l;
  }
}

}  // namespace lacuna::cpu::scalar
