// SPDX-License-Identifier: Apache-2.0
// Attention over a bf16 cache on vdpbf16ps: two dimensions of a key, or two keys of a value, a dot,
// the high half first, which is the order of attention.h.
#include <immintrin.h>

#include "ops/activations/exp_constants.h"
#include "ops/attention/attention.h"
#include "ops/simd/pairs_avx512bf16.h"
#include "ops/simd/simd_avx512.h"

namespace lacuna::cpu::avx512bf16 {
namespace {

using namespace avx512;  // the 16 lanes
#include "ops/simd/bf16.inc"
#include "ops/simd/functions.inc"

constexpr int kMaxDim = 256;  // of a head; larger ones go the AVX-512 way

#include "ops/attention/attention_weights.inc"

__m512bh broadcast(std::uint32_t pair) { return bf(_mm512_set1_epi32(static_cast<int>(pair))); }

// Two bf16 values, held as float32, the first in the high half.
void pack_pairs(const float* x, int n, std::uint32_t* pairs) {
  for (int i = 0; i < n; i += 16) {
    const __m512i v = _mm512_loadu_si512(x + i);
    const __m512i pair = _mm512_or_si512(_mm512_and_si512(v, _mm512_set1_epi64(0xffff0000)),
                                         _mm512_srli_epi64(v, 48));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(pairs + i / 2), _mm512_cvtepi64_epi32(pair));
  }
}

template <int Rows>
void score_block(const std::uint8_t* keys, const std::uint32_t (*q)[kMaxDim / 2], int dim,
                 float scale, float (*p)[kBandKeys], int at) {
  __m512 acc[Rows];
  for (auto& v : acc) v = _mm512_setzero_ps();
  for (int d = 0; d < dim / 2; ++d) {
    const __m512bh pair = bf(_mm512_loadu_si512(keys + d * 64));
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) acc[r] = _mm512_dpbf16_ps(acc[r], pair, broadcast(q[r][d]));
  }
  for (int r = 0; r < Rows; ++r)
    _mm512_storeu_ps(p[r] + at, _mm512_mul_ps(acc[r], _mm512_set1_ps(scale)));
}

// o[r][16·v …] of Rows queries and Vectors vectors over `keys` keys.
template <int Rows, int Vectors>
void weigh_values(const std::uint8_t* values, int dim, const std::uint32_t (*p)[kBandKeys / 2],
                  int keys, float* o) {
  __m512 acc[Rows][Vectors];
  for (auto& row : acc) {
    for (auto& v : row) v = _mm512_setzero_ps();
  }
  for (int j = 0; j < keys; j += 2, values += dim * 4) {
    // The key after an odd last one may be anything: it must not meet even a 0.
    const __m512i there = _mm512_set1_epi32(j + 1 == keys ? static_cast<int>(0xffff0000u) : -1);
    __m512bh pair[Vectors];
    for (int i = 0; i < Vectors; ++i)
      pair[i] = bf(_mm512_and_si512(_mm512_loadu_si512(values + 64 * i), there));
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const __m512bh w = broadcast(p[r][j / 2]);
#pragma GCC unroll 4
      for (int i = 0; i < Vectors; ++i) acc[r][i] = _mm512_dpbf16_ps(acc[r][i], pair[i], w);
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int i = 0; i < Vectors; ++i) _mm512_storeu_ps(o + r * dim + 16 * i, acc[r][i]);
  }
}

template <int Rows>
void attend_rows(const KvBand& kv, const float* const* q, const int* valid, float scale, float* m,
                 float* l, float* o) {
  const int dim = kv.head_dim;
  alignas(64) std::uint32_t q_pairs[Rows][kMaxDim / 2];
  alignas(64) float p[Rows][kBandKeys];
  alignas(64) std::uint32_t p_pairs[Rows][kBandKeys / 2];
  int keys = 0;
  for (int r = 0; r < Rows; ++r) {
    keys = keys > valid[r] ? keys : valid[r];
    pack_pairs(q[r], dim, q_pairs[r]);
  }
  const auto* key = static_cast<const std::uint8_t*>(kv.keys);
  for (int at = 0; at < keys; at += kKeyBlock, key += dim * kKeyBlock * 2)
    score_block<Rows>(key, q_pairs, dim, scale, p, at);
  const int end = (keys + kKeyBlock - 1) / kKeyBlock * kKeyBlock;
  for (int r = 0; r < Rows; ++r) {
    weights_of_row<true>(p[r], valid[r], end, m[r], l[r]);
    pack_pairs(p[r], end, p_pairs[r]);
  }
  const auto* value = static_cast<const std::uint8_t*>(kv.values);
  int d = 0;
  for (; d + 32 <= dim; d += 32) weigh_values<Rows, 2>(value + d * 4, dim, p_pairs, keys, o + d);
  for (; d < dim; d += 16) weigh_values<Rows, 1>(value + d * 4, dim, p_pairs, keys, o + d);
}

template <int Rows>
void attend_n(int rows, const KvBand& kv, const float* const* q, const int* valid, float scale,
              float* m, float* l, float* o) {
  if constexpr (Rows > 0) {
    if (rows < Rows) return attend_n<Rows - 1>(rows, kv, q, valid, scale, m, l, o);
    attend_rows<Rows>(kv, q, valid, scale, m, l, o);
  }
}

}  // namespace

void attend_band(const KvBand& kv, const float* const* q, const int* valid, int rows, float scale,
                 float* m, float* l, float* o) noexcept {
  if (!kv.bf16 || kv.head_dim > kMaxDim)
    return avx512::attend_band(kv, q, valid, rows, scale, m, l, o);
  attend_n<kAttendRows>(rows, kv, q, valid, scale, m, l, o);
}

}  // namespace lacuna::cpu::avx512bf16
