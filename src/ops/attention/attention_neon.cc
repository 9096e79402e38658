// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>

#include "ops/activations/exp_constants.h"
#include "ops/attention/attention.h"
#include "ops/simd/simd_neon.h"

namespace lacuna::cpu::neon {
namespace {
#include "ops/simd/bf16.inc"
#include "ops/simd/functions.inc"
}  // namespace
#include "ops/attention/attention_simd.inc"
}  // namespace lacuna::cpu::neon
