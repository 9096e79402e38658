// SPDX-License-Identifier: Apache-2.0
#include "ops/simd/simd_avx2.h"
#include "ops/sparse_down/fetch.h"
#include "ops/sparse_down/sparse_down.h"

namespace lacuna::cpu::avx2 {
namespace {
#include "ops/simd/decode.inc"
}  // namespace
#include "ops/sparse_down/sparse_down_simd.inc"
}  // namespace lacuna::cpu::avx2
