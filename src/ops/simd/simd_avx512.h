// SPDX-License-Identifier: Apache-2.0
// Sixteen lanes on AVX-512. Included by *_avx512.cc files only; see simd.md for the rules.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace lacuna::cpu::avx512 {
namespace {

using f32x16 = __m512;
using u32x16 = __m512i;

inline f32x16 zero() { return _mm512_setzero_ps(); }
inline f32x16 set1(float a) { return _mm512_set1_ps(a); }
inline f32x16 load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, f32x16 v) { _mm512_storeu_ps(p, v); }
inline __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1); }
inline f32x16 load_n(const float* p, int n) {
  return n >= 16 ? load(p) : _mm512_maskz_loadu_ps(first(n), p);
}
inline void store_n(float* p, f32x16 v, int n) {
  if (n >= 16) return store(p, v);
  _mm512_mask_storeu_ps(p, first(n), v);
}
inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) { return _mm512_fmadd_ps(a, b, c); }
inline f32x16 add(f32x16 a, f32x16 b) { return _mm512_add_ps(a, b); }
inline f32x16 sub(f32x16 a, f32x16 b) { return _mm512_sub_ps(a, b); }
inline f32x16 mul(f32x16 a, f32x16 b) { return _mm512_mul_ps(a, b); }
inline f32x16 div(f32x16 a, f32x16 b) { return _mm512_div_ps(a, b); }
inline f32x16 max(f32x16 a, f32x16 b) { return _mm512_max_ps(a, b); }
inline f32x16 min(f32x16 a, f32x16 b) { return _mm512_min_ps(a, b); }

inline u32x16 load_u32(const void* p) { return _mm512_loadu_si512(p); }
inline void store_u32(void* p, u32x16 v) { _mm512_storeu_si512(p, v); }
inline u32x16 set1_u32(std::uint32_t a) { return _mm512_set1_epi32(static_cast<int>(a)); }
template <int N>
inline u32x16 shl(u32x16 v) {
  return _mm512_slli_epi32(v, N);
}
template <int N>
inline u32x16 shr(u32x16 v) {
  return _mm512_srli_epi32(v, N);
}
inline u32x16 shr_n(u32x16 v, int n) { return _mm512_srl_epi32(v, _mm_cvtsi32_si128(n)); }
// table[index % 16].
inline f32x16 lookup16(const float* table, u32x16 index) {
  return _mm512_permutexvar_ps(index, _mm512_loadu_ps(table));
}
inline u32x16 and_u32(u32x16 a, u32x16 b) { return _mm512_and_si512(a, b); }
inline u32x16 or_u32(u32x16 a, u32x16 b) { return _mm512_or_si512(a, b); }
inline u32x16 add_u32(u32x16 a, u32x16 b) { return _mm512_add_epi32(a, b); }
// (v & mask) | bits in one operation.
inline u32x16 and_or(u32x16 v, u32x16 mask, u32x16 bits) {
  return _mm512_ternarylogic_epi32(v, mask, bits, 0xea);
}
inline f32x16 as_f32(u32x16 v) { return _mm512_castsi512_ps(v); }
inline u32x16 as_u32(f32x16 v) { return _mm512_castps_si512(v); }
inline f32x16 to_f32(u32x16 v) { return _mm512_cvtepi32_ps(v); }  // values below 2^31
inline u32x16 widen_u16(const std::uint16_t* p) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline void narrow_u16(std::uint16_t* p, u32x16 v) {  // lanes below 2^16
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(v));
}
// Lanes i and i + 8, then + 4, + 2, + 1: the one tree that every reduction uses.
inline float reduce(f32x16 v) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
// Bit i is set when lane i is above 0.
inline std::uint32_t positive_mask(f32x16 v) {
  return _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_GT_OQ);
}
inline float reduce_max(f32x16 v) { return _mm512_reduce_max_ps(v); }

}  // namespace
}  // namespace lacuna::cpu::avx512
