// SPDX-License-Identifier: Apache-2.0
#include "ops/rope/rope.h"

#include "ops/simd/simd_avx512.h"

namespace lacuna::cpu::avx512 {
namespace {
inline f32x16 swap_neighbours(f32x16 v) { return _mm512_permute_ps(v, 0xb1); }
}  // namespace
#include "ops/rope/rope_simd.inc"
}  // namespace lacuna::cpu::avx512
