// SPDX-License-Identifier: Apache-2.0
#include "ops/axpy/axpy.h"

#include "ops/simd/simd_avx2.h"

namespace lacuna::cpu::avx2 {
#include "ops/axpy/axpy_simd.inc"
}  // namespace lacuna::cpu::avx2
