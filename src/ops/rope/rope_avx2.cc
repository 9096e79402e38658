// SPDX-License-Identifier: Apache-2.0
#include "ops/rope/rope.h"

#include "ops/simd/simd_avx2.h"

namespace lacuna::cpu::avx2 {
namespace {
inline f32x16 swap_neighbours(f32x16 v) {
  return {_mm256_permute_ps(v.lo, 0xb1), _mm256_permute_ps(v.hi, 0xb1)};
}
}  // namespace
#include "ops/rope/rope_simd.inc"
}  // namespace lacuna::cpu::avx2
