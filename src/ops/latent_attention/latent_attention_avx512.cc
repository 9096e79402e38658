// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>

#include "ops/activations/exp_constants.h"
#include "ops/latent_attention/latent_attention.h"
#include "ops/latent_attention/latent_transpose_avx512.h"
#include "ops/simd/simd_avx512.h"

namespace lacuna::cpu::avx512 {
namespace {
#include "ops/simd/bf16.inc"
#include "ops/simd/functions.inc"

}  // namespace
#include "ops/latent_attention/latent_blocks.inc"
}  // namespace lacuna::cpu::avx512
