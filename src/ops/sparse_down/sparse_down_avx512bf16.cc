// SPDX-License-Identifier: Apache-2.0
// The sparse down projection on vdpbf16ps: two rows a dot, the first in the high half, which the
// instruction adds first. Taken for 4-bit codes; the others go the AVX-512 way.
#include <immintrin.h>

#include "ops/simd/pairs_avx512bf16.h"
#include "ops/sparse_down/fetch.h"
#include "ops/sparse_down/sparse_down.h"

namespace lacuna::cpu::avx512bf16 {
namespace {

// A group's live rows in pairs; an odd last one is paired with a 0 of its own row.
struct Pairs {
  std::uint32_t offset[128 + 16];  // of the rows, from w.rows
  std::uint32_t h[64 + 8];         // two bf16, the first row's in the high half
  int count = 0;

  void gather(const NeuronMajor& w, const LiveRows& live, int g) {
    const int first = live.group_begin[g];
    const int rows = live.group_begin[g + 1] - first;
    count = (rows + 1) / 2;
    const __m512i row_bytes = _mm512_set1_epi32(static_cast<int>(w.row_bytes()));
    for (int i = 0; i < rows; i += 16) {
      const auto there = static_cast<__mmask16>(rows - i >= 16 ? 0xffffu : (1u << (rows - i)) - 1);
      const __m512i index = _mm512_maskz_loadu_epi32(there, live.index + first + i);
      _mm512_storeu_si512(offset + i, _mm512_mullo_epi32(index, row_bytes));
      // In 64 bits: the low dword's upper half stays, the high dword's comes below it.
      const __m512i v = _mm512_maskz_loadu_epi32(there, live.h + first + i);
      const __m512i pair = _mm512_or_si512(_mm512_and_si512(v, _mm512_set1_epi64(0xffff0000)),
                                           _mm512_srli_epi64(v, 48));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(h + i / 2), _mm512_cvtepi64_epi32(pair));
    }
    if (rows % 2 != 0) offset[rows] = offset[rows - 1];
  }
};

// Items 0…3 (low) or 4…7 (high) of two rows' dwords, the first row's above the second's.
__m512i low_halves(__m512i first, __m512i second) {
  return _mm512_mask_blend_epi16(0xaaaaaaaau, second, _mm512_slli_epi32(first, 16));
}
__m512i high_halves(__m512i first, __m512i second) {
  return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(second, 16), first);
}

struct Sums {  // of a column block
  __m512 v[8];
};

// The sums of the pairs' rows over one line of each; `line` is that of row 0.
Sums add_pairs(const Pairs& pairs, const std::uint8_t* line) {
  __m512 acc[8];
  for (auto& v : acc) v = _mm512_setzero_ps();
  for (int p = 0; p < pairs.count; ++p) {
    const __m512i first = _mm512_loadu_si512(line + pairs.offset[2 * p]);
    const __m512i second = _mm512_loadu_si512(line + pairs.offset[2 * p + 1]);
    const __m512bh h = bf(_mm512_set1_epi32(static_cast<int>(pairs.h[p])));
    const __m512i low = low_halves(first, second);
    const __m512i high = high_halves(first, second);
    acc[0] = _mm512_dpbf16_ps(acc[0], bf(code4_pair<0>(low)), h);
    acc[1] = _mm512_dpbf16_ps(acc[1], bf(code4_pair<1>(low)), h);
    acc[2] = _mm512_dpbf16_ps(acc[2], bf(code4_pair<2>(low)), h);
    acc[3] = _mm512_dpbf16_ps(acc[3], bf(code4_pair<3>(low)), h);
    acc[4] = _mm512_dpbf16_ps(acc[4], bf(code4_pair<0>(high)), h);
    acc[5] = _mm512_dpbf16_ps(acc[5], bf(code4_pair<1>(high)), h);
    acc[6] = _mm512_dpbf16_ps(acc[6], bf(code4_pair<2>(high)), h);
    acc[7] = _mm512_dpbf16_ps(acc[7], bf(code4_pair<3>(high)), h);
  }
  return {{acc[0], acc[1], acc[2], acc[3], acc[4], acc[5], acc[6], acc[7]}};
}

struct Scales {
  __m512 scale, shift;
};

// Of outputs [d, d + 16) of group g.
Scales load_scales(const NeuronMajor& w, int g, int d) {
  const __m512i v = _mm512_loadu_si512(
      w.scales + static_cast<std::size_t>(g) * w.scale_row_bytes() + static_cast<std::size_t>(d) * 4);
  const __m512 scale = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
  const __m512 bias =
      _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  return {scale, _mm512_fmadd_ps(_mm512_set1_ps(-16.0f), scale, bias)};
}

__m512 finish(const Scales& s, __m512 sum, __m512 h_sum, __m512 total) {
  return _mm512_fmadd_ps(s.shift, h_sum, _mm512_fmadd_ps(s.scale, sum, total));
}

bool fits(const NeuronMajor& w) { return w.kind == PackKind::kQ4 && !w.wide; }

// Every row, for the half of a column block that `High` names and a few tokens.
template <bool High, int Tokens>
void dense_half(const NeuronMajor& w, int column, const std::uint32_t* const* h,
                const float* const* sums, float* y) {
  __m512 total[Tokens][4];
  for (auto& token : total) {
    for (auto& v : token) v = _mm512_setzero_ps();
  }
  const std::size_t row_bytes = w.row_bytes();
  const std::uint8_t* row = w.rows + static_cast<std::size_t>(column) / 2;
  for (int g = 0; g < w.groups; ++g) {
    __m512 acc[Tokens][4];
    for (auto& token : acc) {
      for (auto& v : token) v = _mm512_setzero_ps();
    }
    for (int p = g * w.group / 2; p < (g + 1) * w.group / 2; ++p, row += 2 * row_bytes) {
      const __m512i first = _mm512_loadu_si512(row);
      const __m512i second = _mm512_loadu_si512(row + row_bytes);
      const __m512i v = High ? high_halves(first, second) : low_halves(first, second);
      const __m512bh code[4] = {bf(code4_pair<0>(v)), bf(code4_pair<1>(v)), bf(code4_pair<2>(v)),
                                bf(code4_pair<3>(v))};
#pragma GCC unroll 4
      for (int t = 0; t < Tokens; ++t) {
        const __m512bh hv = bf(_mm512_set1_epi32(static_cast<int>(h[t][p])));
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) acc[t][k] = _mm512_dpbf16_ps(acc[t][k], code[k], hv);
      }
    }
    for (int k = 0; k < 4; ++k) {
      const Scales s = load_scales(w, g, column + (High ? 64 : 0) + k * 16);
      for (int t = 0; t < Tokens; ++t)
        total[t][k] = finish(s, acc[t][k], _mm512_set1_ps(sums[t][g]), total[t][k]);
    }
  }
  for (int t = 0; t < Tokens; ++t) {
    for (int k = 0; k < 4; ++k)
      _mm512_storeu_ps(y + t * kColumnBlock + (High ? 64 : 0) + k * 16, total[t][k]);
  }
}

constexpr int kTokenTile = 4;

template <int Tokens>
void dense_tile(int count, const NeuronMajor& w, int column, const std::uint32_t* const* h,
                const float* const* sums, float* y) {
  if constexpr (Tokens > 0) {
    if (count < Tokens) return dense_tile<Tokens - 1>(count, w, column, h, sums, y);
    dense_half<false, Tokens>(w, column, h, sums, y);
    dense_half<true, Tokens>(w, column, h, sums, y);
  }
}

}  // namespace

void sparse_down(const NeuronMajor& w, const LiveRows& live, int begin, int end,
                 float* y) noexcept {
  if (!fits(w)) return avx512::sparse_down(w, live, begin, end, y);
  for (int d = begin; d < end; d += 16) _mm512_storeu_ps(y + d, _mm512_setzero_ps());
  int g = next_live_group(live, 0, w.groups);
  if (g < w.groups) GroupFetch(w, live, g, begin, end).all();
  Pairs pairs;
  while (g < w.groups) {
    pairs.gather(w, live, g);
    const __m512 h_sum = _mm512_set1_ps(live.sums[g]);
    const int next = next_live_group(live, g + 1, w.groups);
    GroupFetch fetch(w, live, next < w.groups ? next : g, begin, end);
    for (int column = begin; column < end; column += kColumnBlock) {
      fetch.step();
      const Sums sums = add_pairs(pairs, w.rows + static_cast<std::size_t>(column) / 2);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        const int d = column + i * 16;
        _mm512_storeu_ps(
            y + d, finish(load_scales(w, g, d), sums.v[i], h_sum, _mm512_loadu_ps(y + d)));
      }
    }
    g = next;
  }
}

void dense_down(const NeuronMajor& w, const Activations& a, const int* rows, int count,
                       int column, float* y) noexcept {
  if (!fits(w) || a.pairs == nullptr)
    return avx512::dense_down(w, a, rows, count, column, y);
  for (int t = 0; t < count; t += kTokenTile) {
    const int n = count - t < kTokenTile ? count - t : kTokenTile;
    const std::uint32_t* h[kTokenTile];
    const float* sums[kTokenTile];
    for (int i = 0; i < n; ++i) {
      h[i] = a.pairs + static_cast<std::ptrdiff_t>(rows[t + i]) * (a.padded / 2);
      sums[i] = a.sums + static_cast<std::ptrdiff_t>(rows[t + i]) * a.groups;
    }
    dense_tile<kTokenTile>(n, w, column, h, sums, y + t * kColumnBlock);
  }
}

}  // namespace lacuna::cpu::avx512bf16
