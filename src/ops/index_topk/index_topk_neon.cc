// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>

#include "ops/index_topk/index_topk.h"
#include "ops/simd/simd_neon.h"

namespace lacuna::cpu::neon {
namespace {

inline std::uint32_t above_mask(f32x16 a, f32x16 b) {
  const uint32x4_t bits = {1, 2, 4, 8};
  std::uint32_t mask = 0;
  for (int i = 0; i < 4; ++i)
    mask |= vaddvq_u32(vandq_u32(vcgtq_f32(a.v[i], b.v[i]), bits)) << (4 * i);
  return mask;
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
}  // namespace lacuna::cpu::neon
