// SPDX-License-Identifier: Apache-2.0
// Latent attention over bf16 rows on vdpbf16ps: two dimensions of a key, or two keys of a column, a
// dot, the high half first, which is the order of latent_attention.h.
#include <immintrin.h>

#include "ops/activations/exp_constants.h"
#include "ops/latent_attention/latent_attention.h"
#include "ops/latent_attention/latent_transpose_avx512.h"
#include "ops/simd/pairs_avx512bf16.h"
#include "ops/simd/simd_avx512.h"

namespace lacuna::cpu::avx512bf16 {
namespace {

using namespace avx512;  // the 16 lanes
#include "ops/simd/bf16.inc"
#include "ops/simd/functions.inc"

constexpr int kCells = 8;  // dwords that hold 16 values in pairs, the even one high
constexpr int kHeads = 8;  // whose sums stay in registers at once

inline void put16(f32x16 x, float* to) {
  const __m512i v = as_u32(x);
  const __m512i pair =
      _mm512_or_si512(_mm512_and_si512(v, _mm512_set1_epi64(0xffff0000)), _mm512_srli_epi64(v, 48));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi64_epi32(pair));
}

// Keys of 32 rows: panel [dims / 2][32] of pairs.
template <bool Bf16>
inline void fill_keys(const std::uint8_t* const* rows, int dims, float* panel) {
  static_assert(Bf16);
  for (int half = 0; half < 2; ++half) {
    float* to = panel + 16 * half;
    for (int d = 0; d < dims; d += 32) {
      __m512i v[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i)
        v[i] = _mm512_rol_epi32(_mm512_loadu_si512(rows[16 * half + i] + d * 2), 16);
      transpose(v);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + (d / 2 + i) * 32, v[i]);
    }
  }
}

// 32 columns of `keys` rows: panel [keys / 2][32] of pairs, the even key high. After an odd last
// key comes a row again, with weight 0.
template <bool Bf16>
inline void fill_values(const std::uint8_t* const* rows, int keys, int column, float* panel) {
  static_assert(Bf16);
  alignas(64) std::uint16_t order[2][32];
  for (int i = 0; i < 32; ++i) {
    order[0][i] = static_cast<std::uint16_t>(i / 2 + 32 * (1 - i % 2));
    order[1][i] = static_cast<std::uint16_t>(order[0][i] + 16);
  }
  const __m512i first = _mm512_load_si512(order[0]), second = _mm512_load_si512(order[1]);
  for (int k = 0; k < keys; k += 2, panel += 32) {
    const __m512i even = _mm512_loadu_si512(rows[k] + column * 2);
    const __m512i odd = _mm512_loadu_si512(rows[k + 1] + column * 2);
    _mm512_storeu_si512(panel, _mm512_permutex2var_epi16(even, first, odd));
    _mm512_storeu_si512(panel + 16, _mm512_permutex2var_epi16(even, second, odd));
  }
}

inline __m512bh broadcast(const float* pair) {
  return bf(_mm512_castps_si512(_mm512_set1_ps(*pair)));
}

// acc[h] += Σ over values, rising, of a[value, h] · b[value].
template <int Heads>
[[gnu::always_inline]] inline void multiply(const float* a, std::ptrdiff_t tile, const float* b,
                                            int values, f32x16 (&acc)[Heads][2]) {
  const int pairs = (values + 1) / 2;
  for (int at = 0; at < pairs; at += kCells, a += tile) {
    const int n = pairs - at < kCells ? pairs - at : kCells;
    for (int i = 0; i < n; ++i, b += 32) {
      const __m512bh b0 = bf(_mm512_loadu_si512(b)), b1 = bf(_mm512_loadu_si512(b + 16));
#pragma GCC unroll 8
      for (int h = 0; h < Heads; ++h) {
        const __m512bh v = broadcast(a + h * kCells + i);
        acc[h][0] = _mm512_dpbf16_ps(acc[h][0], v, b0);
        acc[h][1] = _mm512_dpbf16_ps(acc[h][1], v, b1);
      }
    }
  }
}

}  // namespace

#include "ops/latent_attention/latent_attention_simd.inc"

void latent_picked(const LatentRows& kv, const std::int32_t* picks, int count,
                   const LatentQuery& query, float* scratch, float* z) noexcept {
  if (!kv.bf16) return avx512::latent_picked(kv, picks, count, query, scratch, z);
  picked<true>(kv, picks, count, query, scratch, z);
}

void latent_masked(const LatentRows& kv, const std::uint64_t* mask, int count,
                   const LatentQuery& query, float* scratch, float* z) noexcept {
  if (!kv.bf16) return avx512::latent_masked(kv, mask, count, query, scratch, z);
  masked<true>(kv, mask, count, query, scratch, z);
}

}  // namespace lacuna::cpu::avx512bf16
