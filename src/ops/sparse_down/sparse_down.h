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
// Rows    A token's bits do not depend on the other tokens, nor on how many there are.
// Bytes   live · row_bytes + (groups with a live neuron) · scale_row_bytes, per token at decode;
//         once per tile of kDownTile tokens in prefill, for the union of the tile's live neurons.
// Source  docs/sparse-down.md.
#pragma once

#include <cstdint>

#include "tensor/packed.h"

namespace lacuna {

// The live neurons of one token in one expert.
struct LiveRows {
  const int* index = nullptr;        // [count] rising neuron numbers
  const float* h = nullptr;          // [count] ReLU² values
  const int* group_begin = nullptr;  // [groups + 1]: group g's neurons are [begin[g], begin[g + 1])
  const float* sums = nullptr;       // [groups] Σ h
};

// From an up projection's output up [n]: h = max(up, 0)², rounded to bf16 when `round`, and the
// list of neurons with h > 0 (every neuron when `keep_zeros`: the dense mode, same bits). index and
// h hold n, group_begin groups + 1, sums groups = ceil(n / group). Returns the neurons with h > 0.
using Relu2Live = int(const float* up, int n, int group, bool round, bool keep_zeros, int* index,
                      float* h, int* group_begin, float* sums) noexcept;

// One token: y[d] for d in [begin, end), both multiples of 128. y is overwritten, y[0] is output 0.
using SparseDown = void(const NeuronMajor& w, const LiveRows& live, int begin, int end,
                        float* y) noexcept;

// Prefill: `count` tokens, the outputs of column block `column` / 128 into y [count, 128]. A row is
// decoded once per tile of kDownTile tokens, if any of them needs it; each token then adds its own
// rows. Groups where most are live are multiplied whole: same order, same bits. Returns the rows
// decoded.
using SparseDownTokens = int(const NeuronMajor& w, const LiveRows* tokens, int count, int column,
                             float* y) noexcept;

inline constexpr int kDownTile = 64;  // tokens that share a decoded row in prefill
// Share of live (token, neuron) pairs of a group from which it is multiplied whole.
inline constexpr float kDenseShare = 0.5f;

namespace cpu::scalar {
Relu2Live relu2_live;
SparseDown sparse_down;
SparseDownTokens sparse_down_tokens;
}  // namespace cpu::scalar
namespace cpu::avx2 {
Relu2Live relu2_live;
SparseDown sparse_down;
SparseDownTokens sparse_down_tokens;
}  // namespace cpu::avx2
namespace cpu::avx512 {
Relu2Live relu2_live;
SparseDown sparse_down;
SparseDownTokens sparse_down_tokens;
}  // namespace cpu::avx512
namespace cpu::avx512bf16 {
SparseDown sparse_down;  // h must be bf16 values
}  // namespace cpu::avx512bf16
namespace cpu::neon {
Relu2Live relu2_live;
SparseDown sparse_down;
SparseDownTokens sparse_down_tokens;
}  // namespace cpu::neon

}  // namespace lacuna
