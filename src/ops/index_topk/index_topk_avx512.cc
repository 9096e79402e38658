// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>

#include "ops/index_topk/index_topk.h"
#include "ops/simd/simd_avx512.h"

namespace lacuna::cpu::avx512 {
namespace {

inline std::uint32_t above_mask(f32x16 a, f32x16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
// Packed in a register first: storing straight through a mask is slow on Zen 4.
inline int keep_lanes(f32x16 v, std::uint32_t mask, int first, float* kept, std::int32_t* number) {
  const auto lanes = static_cast<__mmask16>(mask);
  const __m512i numbers =
      _mm512_add_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                       _mm512_set1_epi32(first));
  _mm512_storeu_ps(kept, _mm512_maskz_compress_ps(lanes, v));
  _mm512_storeu_si512(number, _mm512_maskz_compress_epi32(lanes, numbers));
  return __builtin_popcount(mask);
}

}  // namespace
#include "ops/index_topk/index_topk_simd.inc"
}  // namespace lacuna::cpu::avx512
