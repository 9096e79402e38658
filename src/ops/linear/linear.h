// SPDX-License-Identifier: Apache-2.0
// Projection by a packed weight matrix: y = W · x for a few or many rows of x.
//
//     y[o] = Σ over groups g of  scale[o,g] · A  +  (bias[o,g] − offset · scale[o,g]) · X[g]
//     A    = Σ over inputs k of g, rising, of  x[k] · (code[o,k] + offset)      one fma per term
//     X[g] = Σ x[k] over the group: 16 lanes of rising k, then lanes i and i+8, +4, +2, +1
//
// Plain weights have no scale: y[o] = Σ over groups of A, with offset 0 and groups of 64 inputs.
//
// Shapes  x [rows, in], y [rows, out]; weights in blocks of 64 outputs (tensor/packed.h).
// Order   Groups rising; in a group inputs rising. Fixed by the weight's shape and group alone.
// Rows    A row's bits do not depend on the other rows: one row, a verify and a prompt agree.
// Modes   precision f32 keeps x; bf16 rounds x to bfloat16 first and is otherwise the same sum. A
//         product of a bf16 and a code is exact in float32, and `vdpbf16ps` is two such fma's, high
//         half first: that is why pairs hold the even input high.
// Bytes   RowBlocks::bytes(), once per pass however many rows.
// Source  docs/kernels.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/packed.h"

namespace lacuna {

// Inputs of projections that share a group size, prepared once. `padded` = groups · group; what
// lies beyond `in` is zero.
struct Activations {
  int rows = 0, padded = 0, group = 0, groups = 0;
  const float* x = nullptr;              // [rows, padded], rounded to bf16 in bf16 mode
  const std::uint32_t* pairs = nullptr;  // [rows, padded / 2] two bf16, the even input in the high
                                         // half; null in f32 mode
  const float* sums = nullptr;           // [rows, groups]
};

// One row: copies (and rounds) x [in] into out [padded], fills pairs [padded/2] when not null, and
// sums [padded/group].
using PrepareActivations = void(const float* x, int in, int padded, int group, bool round,
                                float* out, std::uint32_t* pairs, float* sums) noexcept;

// Outputs of one block for `count` rows: row i is a.x's row rows[i] (or i when rows is null) and
// goes to y[i · y_stride + o]. Pointers do not alias. Cannot fail: the loader has checked the
// shapes.
using LinearBlock = void(const RowBlocks& w, int block, const Activations& a, const int* rows,
                         int count, float* y, std::ptrdiff_t y_stride) noexcept;

namespace cpu::scalar {
PrepareActivations prepare_activations;
LinearBlock linear_block;
}  // namespace cpu::scalar
namespace cpu::avx2 {
PrepareActivations prepare_activations;
LinearBlock linear_block;
}  // namespace cpu::avx2
namespace cpu::avx512 {
PrepareActivations prepare_activations;
LinearBlock linear_block;
}  // namespace cpu::avx512
namespace cpu::avx512bf16 {
LinearBlock linear_block;  // uses pairs when there are any
}  // namespace cpu::avx512bf16
namespace cpu::neon {
PrepareActivations prepare_activations;
LinearBlock linear_block;
}  // namespace cpu::neon

}  // namespace lacuna
