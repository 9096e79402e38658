// SPDX-License-Identifier: Apache-2.0
#include "ops/linear/linear.h"
#include "ops/simd/simd_neon.h"

namespace lacuna::cpu::neon {
namespace {
#include "ops/simd/decode.inc"
}  // namespace
#include "ops/linear/linear_simd.inc"
}  // namespace lacuna::cpu::neon
