// SPDX-License-Identifier: Apache-2.0
#include "ops/axpy/axpy.h"

#include "ops/simd/simd_avx512.h"

namespace lacuna::cpu::avx512 {
#include "ops/axpy/axpy_simd.inc"
}  // namespace lacuna::cpu::avx512
