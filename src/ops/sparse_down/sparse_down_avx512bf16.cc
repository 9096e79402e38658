// SPDX-License-Identifier: Apache-2.0
// The sparse down projection on vdpbf16ps: two live rows a dot, the first in the high half, which
// the instruction adds first. Taken for 4-bit codes; the others go the AVX-512 way.
#include <immintrin.h>

#include "ops/simd/pairs_avx512bf16.h"
#include "ops/sparse_down/sparse_down.h"

namespace lacuna::cpu::avx512bf16 {
namespace {

// Adds two rows' line, 8 vectors of 16 outputs. `low` and `high` hold the first row's half dwords
// above the second's, so that items 0…3 of each are pairs.
void add_pair(__m512i first, __m512i second, __m512i h, __m512 (&acc)[8]) {
  const __m512i low = _mm512_mask_blend_epi16(0xaaaaaaaau, second, _mm512_slli_epi32(first, 16));
  const __m512i high = _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(second, 16), first);
  acc[0] = _mm512_dpbf16_ps(acc[0], bf(code4_pair<0>(low)), bf(h));
  acc[1] = _mm512_dpbf16_ps(acc[1], bf(code4_pair<1>(low)), bf(h));
  acc[2] = _mm512_dpbf16_ps(acc[2], bf(code4_pair<2>(low)), bf(h));
  acc[3] = _mm512_dpbf16_ps(acc[3], bf(code4_pair<3>(low)), bf(h));
  acc[4] = _mm512_dpbf16_ps(acc[4], bf(code4_pair<0>(high)), bf(h));
  acc[5] = _mm512_dpbf16_ps(acc[5], bf(code4_pair<1>(high)), bf(h));
  acc[6] = _mm512_dpbf16_ps(acc[6], bf(code4_pair<2>(high)), bf(h));
  acc[7] = _mm512_dpbf16_ps(acc[7], bf(code4_pair<3>(high)), bf(h));
}

std::uint32_t bits(float f) {
  std::uint32_t u;
  __builtin_memcpy(&u, &f, 4);
  return u;
}

void add_group(const NeuronMajor& w, const LiveRows& live, int g, int begin, int end, float* y) {
  // The group's live rows in pairs; an odd last one is paired with a 0 of its own row.
  const std::uint8_t* first[64];
  const std::uint8_t* second[64];
  std::uint32_t h[64];
  int pairs = 0;
  for (int i = live.group_begin[g]; i < live.group_begin[g + 1]; i += 2, ++pairs) {
    const bool both = i + 1 < live.group_begin[g + 1];
    first[pairs] = w.rows + static_cast<std::size_t>(live.index[i]) * w.row_bytes();
    second[pairs] =
        both ? w.rows + static_cast<std::size_t>(live.index[i + 1]) * w.row_bytes() : first[pairs];
    h[pairs] = (bits(live.h[i]) & 0xffff0000u) | (both ? bits(live.h[i + 1]) >> 16 : 0u);
  }
  const std::uint8_t* scales = w.scales + static_cast<std::size_t>(g) * w.scale_row_bytes();
  const __m512 h_sum = _mm512_set1_ps(live.sums[g]);
  for (int column = begin; column < end; column += kColumnBlock) {
    __m512 acc[8];
    for (auto& v : acc) v = _mm512_setzero_ps();
    for (int p = 0; p < pairs; ++p) {
      add_pair(_mm512_loadu_si512(first[p] + column / 2),
               _mm512_loadu_si512(second[p] + column / 2),
               _mm512_set1_epi32(static_cast<int>(h[p])), acc);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const int d = column + i * 16;
      const __m512i v = _mm512_loadu_si512(scales + d * 4);
      const __m512 scale = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
      const __m512 bias = _mm512_castsi512_ps(
          _mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
      const __m512 shift = _mm512_fmadd_ps(_mm512_set1_ps(-16.0f), scale, bias);
      __m512 total = _mm512_fmadd_ps(scale, acc[i], _mm512_loadu_ps(y + d));
      total = _mm512_fmadd_ps(shift, h_sum, total);
      _mm512_storeu_ps(y + d, total);
    }
  }
}

void prefetch_group(const NeuronMajor& w, const LiveRows& live, int g, int begin, int end) {
  for (int i = live.group_begin[g]; i < live.group_begin[g + 1]; ++i) {
    const std::uint8_t* row = w.rows + static_cast<std::size_t>(live.index[i]) * w.row_bytes();
    for (int d = begin; d < end; d += kColumnBlock) {
      _mm_prefetch(reinterpret_cast<const char*>(row + d / 2), _MM_HINT_T1);
    }
  }
  const std::uint8_t* scales = w.scales + static_cast<std::size_t>(g) * w.scale_row_bytes();
  for (int d = begin; d < end; d += 16) {
    _mm_prefetch(reinterpret_cast<const char*>(scales + d * 4), _MM_HINT_T1);
  }
}

int next_live_group(const LiveRows& live, int g, int groups) {
  while (g < groups && live.group_begin[g] == live.group_begin[g + 1]) ++g;
  return g;
}

}  // namespace

void sparse_down(const NeuronMajor& w, const LiveRows& live, int begin, int end,
                 float* y) noexcept {
  if (w.kind != PackKind::kQ4 || w.wide) return avx512::sparse_down(w, live, begin, end, y);
  for (int d = begin; d < end; d += 16) _mm512_storeu_ps(y + d, _mm512_setzero_ps());
  int g = next_live_group(live, 0, w.groups);
  if (g < w.groups) prefetch_group(w, live, g, begin, end);
  while (g < w.groups) {
    const int next = next_live_group(live, g + 1, w.groups);
    if (next < w.groups) prefetch_group(w, live, next, begin, end);
    add_group(w, live, g, begin, end, y);
    g = next;
  }
}

}  // namespace lacuna::cpu::avx512bf16
