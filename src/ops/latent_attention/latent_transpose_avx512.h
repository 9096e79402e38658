// SPDX-License-Identifier: Apache-2.0
// Sixteen rows of sixteen dwords to columns. Included by latent_attention_avx512*.cc only.
#pragma once

#include <immintrin.h>

namespace lacuna::cpu::avx512 {
namespace {

// Pairs of rows, then pairs of pairs, inside 128-bit parts; then the parts themselves change
// places.
[[gnu::always_inline]] inline void transpose(__m512i (&v)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // v[4a + c], part p: column 4p + c of rows 4a …
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i low = _mm512_shuffle_i32x4(v[c], v[4 + c], 0x44);
    const __m512i low2 = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0x44);
    const __m512i high = _mm512_shuffle_i32x4(v[c], v[4 + c], 0xee);
    const __m512i high2 = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0xee);
    t[c] = _mm512_shuffle_i32x4(low, low2, 0x88);
    t[4 + c] = _mm512_shuffle_i32x4(low, low2, 0xdd);
    t[8 + c] = _mm512_shuffle_i32x4(high, high2, 0x88);
    t[12 + c] = _mm512_shuffle_i32x4(high, high2, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) v[i] = t[i];
}

// The dwords at `at` bytes of 16 rows, column i to out + i · stride.
inline void transpose16(const std::uint8_t* const* rows, std::ptrdiff_t at, float* out,
                        int stride) {
  __m512i v[16];
  for (int i = 0; i < 16; ++i) v[i] = _mm512_loadu_si512(rows[i] + at);
  transpose(v);
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(out + i * stride, v[i]);
}

}  // namespace
}  // namespace lacuna::cpu::avx512
