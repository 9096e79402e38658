// SPDX-License-Identifier: Apache-2.0
// Pairs of bf16 for vdpbf16ps. Included by *_avx512bf16.cc files only.
#pragma once

#include <immintrin.h>

namespace lacuna::cpu::avx512bf16 {
namespace {

inline __m512bh bf(__m512i v) { return reinterpret_cast<__m512bh>(v); }

// Four bits, at 4·P, of both halves of each dword to the top of a bf16 mantissa: 16.0 + code.
template <int P>
inline __m512i code4_pair(__m512i v) {
  const __m512i field = _mm512_set1_epi16(0x78);
  const __m512i sixteen = _mm512_set1_epi16(0x4180);
  if constexpr (P == 0) {
    return _mm512_ternarylogic_epi32(_mm512_slli_epi16(v, 3), field, sixteen, 0xea);
  } else {
    return _mm512_ternarylogic_epi32(_mm512_srli_epi16(v, 4 * P - 3), field, sixteen, 0xea);
  }
}

}  // namespace
}  // namespace lacuna::cpu::avx512bf16
