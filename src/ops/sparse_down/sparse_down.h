// SPDX-License-Identifier: Apache-2.0
// Down projection of a ReLU² expert, reading only the rows of live neurons.
//
//     y[d] = Σ over groups g of  scale[g,d] · A  +  (bias[g,d] − offset · scale[g,d]) · H[g]
//     A    = Σ over live neurons i of g, rising, of  h[i] · (code[i,d] + offset)   one fma per term
//     H[g] = Σ h[i] over the group, summed as X[g] in linear.h
//
// The same sum as a projection over N inputs (linear.h). A dead neuron's term is fma(0, code, A) =
// A, so leaving it out changes no bit, and a group without a live neuron adds 0 twice and is left
// out whole. Plain weights have no scale: y[d] = Σ over groups of A.
//
// Shapes  N neurons, D outputs; weights neuron-major (tensor/packed.h).
// Order   Groups rising, neurons rising: the order depends on the weight's shape and group alone.
// Rows    A token's bits do not depend on the other tokens, nor on how many there are, nor on
//         whether its dead rows were left out.
// Bytes   live · row_bytes + (groups with a live neuron) · scale_row_bytes, per token at decode;
//         in prefill once for the union of the tokens' live neurons.
// Source  docs/sparse-down.md.
#pragma once

#include <cstdint>

#include "ops/linear/linear.h"
#include "tensor/packed.h"

namespace lacuna {

// The live neurons of one token in one expert.
struct LiveRows {
  const int* index = nullptr;        // [count] rising neuron numbers
  const float* h = nullptr;          // [count] ReLU² values
  const int* group_begin = nullptr;  // [groups + 1]: group g's neurons are [begin[g], begin[g + 1])
  const float* sums = nullptr;       // [groups] Σ h
};

// From an up projection's output: up [n] becomes max(up, 0)², rounded to bf16 when `round`, and the
// neurons above 0 (every neuron when `keep_zeros`: the dense mode, same bits) are listed. index and
// h hold n, group_begin groups + 1, sums groups = ceil(n / group). Returns the neurons above 0.
using Relu2Live = int(float* up, int n, int group, bool round, bool keep_zeros, int* index,
                      float* h, int* group_begin, float* sums) noexcept;

// One token: y[d] for d in [begin, end), both multiples of 128. y is overwritten, y[0] is output 0.
// While a group is added, the next one's rows and scales are on their way.
using SparseDown = void(const NeuronMajor& w, const LiveRows& live, int begin, int end,
                        float* y) noexcept;

// Tokens of which most neurons live: every row is decoded, once for a few tokens, as linear_block
// does it. Outputs of column block `column` / 128 into y [count, 128]; token i is a's row rows[i],
// a holds the ReLU² values.
using DenseDown = void(const NeuronMajor& w, const Activations& a, const int* rows, int count,
                       int column, float* y) noexcept;

// Share of live neurons from which a prompt's token is cheaper with every row than with its own.
inline constexpr float kDenseShare = 0.5f;

namespace cpu::scalar {
Relu2Live relu2_live;
SparseDown sparse_down;
DenseDown dense_down;
}  // namespace cpu::scalar
namespace cpu::avx2 {
Relu2Live relu2_live;
SparseDown sparse_down;
DenseDown dense_down;
}  // namespace cpu::avx2
namespace cpu::avx512 {
Relu2Live relu2_live;
SparseDown sparse_down;
DenseDown dense_down;
}  // namespace cpu::avx512
namespace cpu::avx512bf16 {
// h must be bf16 values.
SparseDown sparse_down;
DenseDown dense_down;
}  // namespace cpu::avx512bf16
namespace cpu::neon {
Relu2Live relu2_live;
SparseDown sparse_down;
DenseDown dense_down;
}  // namespace cpu::neon

}  // namespace lacuna
