// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>

#include "ops/activations/exp_constants.h"
#include "ops/simd/simd_avx2.h"
#include "ops/swiglu/swiglu.h"

namespace lacuna::cpu::avx2 {
namespace {
#include "ops/simd/functions.inc"
}  // namespace
#include "ops/swiglu/swiglu_simd.inc"
}  // namespace lacuna::cpu::avx2
