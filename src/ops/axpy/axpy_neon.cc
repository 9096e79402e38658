// SPDX-License-Identifier: Apache-2.0
#include "ops/axpy/axpy.h"

#include "ops/simd/simd_neon.h"

namespace lacuna::cpu::neon {
#include "ops/axpy/axpy_simd.inc"
}  // namespace lacuna::cpu::neon
