// SPDX-License-Identifier: Apache-2.0
// Pairs of bf16 for vdpbf16ps. Included by *_avx512bf16.cc files only.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "tensor/packed.h"

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

struct Scales {
  __m512 scale, shift;  // shift: bias − Offset · scale
};

// Of 16 outputs, as load_scales in decode.inc: `at` is where the scales of `lanes` outputs, or a
// compact block, begin.
template <int Offset>
[[gnu::always_inline]] inline Scales load_scales(const std::uint8_t* at, ScaleForm form, int vector,
                                                 int lanes) {
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  __m512 scale, bias;
  if (form == ScaleForm::kWide) {
    const float* f = reinterpret_cast<const float*>(at) + vector * 16;
    scale = _mm512_loadu_ps(f);
    bias = _mm512_loadu_ps(f + lanes);
  } else if (form == ScaleForm::kPairs) {
    const __m512i v = _mm512_loadu_si512(at + vector * 64);
    scale = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
    bias = _mm512_castsi512_ps(_mm512_and_si512(v, high));
  } else {
    const __m512i v = _mm512_loadu_si512(at + vector % 4 * 64);
    bias = _mm512_castsi512_ps(_mm512_and_si512(vector < 4 ? _mm512_slli_epi32(v, 16) : v, high));
    const __m512i q = _mm512_srl_epi32(_mm512_loadu_si512(at + 256), _mm_cvtsi32_si128(4 * vector));
    const __m512 factor = _mm512_permutexvar_ps(q, _mm512_loadu_ps(kCompactFactor));
    const __m512i product = _mm512_castps_si512(_mm512_mul_ps(bias, factor));
    scale = _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_add_epi32(product, _mm512_set1_epi32(0x8000)), high));
  }
  if constexpr (Offset == 0) return {scale, bias};
  return {scale, _mm512_fmadd_ps(_mm512_set1_ps(-Offset), scale, bias)};
}

}  // namespace
}  // namespace lacuna::cpu::avx512bf16
