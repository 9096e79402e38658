// SPDX-License-Identifier: Apache-2.0
#include "ops/linear/linear.h"
#include "ops/simd/simd_avx512.h"

namespace lacuna::cpu::avx512 {
namespace {
#include "ops/simd/decode.inc"
}  // namespace
#include "ops/linear/linear_simd.inc"
}  // namespace lacuna::cpu::avx512
