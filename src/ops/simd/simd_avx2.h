// SPDX-License-Identifier: Apache-2.0
// Sixteen lanes on AVX2 with FMA: two registers. Included by *_avx2.cc files only.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace lacuna::cpu::avx2 {
namespace {

struct f32x16 {
  __m256 lo, hi;
};
struct u32x16 {
  __m256i lo, hi;
};

inline f32x16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline f32x16 set1(float a) { return {_mm256_set1_ps(a), _mm256_set1_ps(a)}; }
inline f32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, f32x16 v) {
  _mm256_storeu_ps(p, v.lo);
  _mm256_storeu_ps(p + 8, v.hi);
}
inline __m256i first(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline f32x16 load_n(const float* p, int n) {
  if (n >= 16) return load(p);
  return {_mm256_maskload_ps(p, first(n)),
          n > 8 ? _mm256_maskload_ps(p + 8, first(n - 8)) : _mm256_setzero_ps()};
}
inline void store_n(float* p, f32x16 v, int n) {
  if (n >= 16) return store(p, v);
  _mm256_maskstore_ps(p, first(n), v.lo);
  if (n > 8) _mm256_maskstore_ps(p + 8, first(n - 8), v.hi);
}
inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline f32x16 add(f32x16 a, f32x16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
inline f32x16 sub(f32x16 a, f32x16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
inline f32x16 mul(f32x16 a, f32x16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline f32x16 div(f32x16 a, f32x16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
inline f32x16 max(f32x16 a, f32x16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
inline f32x16 min(f32x16 a, f32x16 b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}

inline u32x16 load_u32(const void* p) {
  const auto* q = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
inline void store_u32(void* p, u32x16 v) {
  auto* q = static_cast<__m256i*>(p);
  _mm256_storeu_si256(q, v.lo);
  _mm256_storeu_si256(q + 1, v.hi);
}
inline u32x16 set1_u32(std::uint32_t a) {
  const __m256i v = _mm256_set1_epi32(static_cast<int>(a));
  return {v, v};
}
template <int N>
inline u32x16 shl(u32x16 v) {
  return {_mm256_slli_epi32(v.lo, N), _mm256_slli_epi32(v.hi, N)};
}
template <int N>
inline u32x16 shr(u32x16 v) {
  return {_mm256_srli_epi32(v.lo, N), _mm256_srli_epi32(v.hi, N)};
}
inline u32x16 shr_n(u32x16 v, int n) {
  const __m128i count = _mm_cvtsi32_si128(n);
  return {_mm256_srl_epi32(v.lo, count), _mm256_srl_epi32(v.hi, count)};
}
inline __m256 lookup16_half(const float* table, __m256i index) {
  const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), index);
  const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), index);
  return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
}
// table[index % 16].
inline f32x16 lookup16(const float* table, u32x16 index) {
  return {lookup16_half(table, index.lo), lookup16_half(table, index.hi)};
}
inline u32x16 and_u32(u32x16 a, u32x16 b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
inline u32x16 or_u32(u32x16 a, u32x16 b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
inline u32x16 add_u32(u32x16 a, u32x16 b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
inline u32x16 and_or(u32x16 v, u32x16 mask, u32x16 bits) { return or_u32(and_u32(v, mask), bits); }
inline f32x16 as_f32(u32x16 v) { return {_mm256_castsi256_ps(v.lo), _mm256_castsi256_ps(v.hi)}; }
inline u32x16 as_u32(f32x16 v) { return {_mm256_castps_si256(v.lo), _mm256_castps_si256(v.hi)}; }
inline f32x16 to_f32(u32x16 v) { return {_mm256_cvtepi32_ps(v.lo), _mm256_cvtepi32_ps(v.hi)}; }
inline u32x16 widen_u16(const std::uint16_t* p) {
  const auto* q = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtepu16_epi32(_mm_loadu_si128(q)), _mm256_cvtepu16_epi32(_mm_loadu_si128(q + 1))};
}
inline void narrow_u16(std::uint16_t* p, u32x16 v) {
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(v.lo, v.hi), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), packed);
}
inline float reduce(f32x16 v) {
  const __m256 a = _mm256_add_ps(v.lo, v.hi);
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
inline std::uint32_t positive_mask(f32x16 v) {
  const __m256 zero = _mm256_setzero_ps();
  const int lo = _mm256_movemask_ps(_mm256_cmp_ps(v.lo, zero, _CMP_GT_OQ));
  const int hi = _mm256_movemask_ps(_mm256_cmp_ps(v.hi, zero, _CMP_GT_OQ));
  return static_cast<std::uint32_t>(lo | hi << 8);
}
inline float reduce_max(f32x16 v) {
  const __m256 a = _mm256_max_ps(v.lo, v.hi);
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

}  // namespace
}  // namespace lacuna::cpu::avx2
