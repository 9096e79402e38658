// SPDX-License-Identifier: Apache-2.0
#include "ops/rope/rope.h"

#include "ops/simd/simd_neon.h"

namespace lacuna::cpu::neon {
namespace {
inline f32x16 swap_neighbours(f32x16 v) {
  for (auto& part : v.v) part = vrev64q_f32(part);
  return v;
}
}  // namespace
#include "ops/rope/rope_simd.inc"
}  // namespace lacuna::cpu::neon
