// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>

#include "ops/index_topk/index_topk.h"
#include "ops/simd/simd_avx2.h"

namespace lacuna::cpu::avx2 {
namespace {

inline std::uint32_t above_mask(f32x16 a, f32x16 b) {
  const int lo = _mm256_movemask_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_GT_OQ));
  const int hi = _mm256_movemask_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_GT_OQ));
  return static_cast<std::uint32_t>(lo | hi << 8);
}
// One by one, as few are kept.
inline int keep_lanes(f32x16 v, std::uint32_t mask, int first, float* kept, std::int32_t* number) {
  float lanes[16];
  store(lanes, v);
  int n = 0;
  for (; mask != 0; mask &= mask - 1, ++n) {
    const int lane = __builtin_ctz(mask);
    kept[n] = lanes[lane];
    number[n] = first + lane;
  }
  return n;
}

}  // namespace
#include "ops/index_topk/index_topk_simd.inc"
}  // namespace lacuna::cpu::avx2
