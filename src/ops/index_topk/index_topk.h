// SPDX-License-Identifier: Apache-2.0
// The indexer of sparse attention: scores of a block of keys, and which of them can still be among
// the best. ops/index_topk/top_k.h keeps the best.
//
//     score[t,j] = scale · Σ over heads h, rising, of w[t,h] · max(0, Σ over d of q[t,h,d] ·
//     k[j,d])
//
// Shapes  q [T, H, dim], w [T, H]; keys in blocks of 16 as the keys of a kv head in
//         ops/attention/attention.h: key_index(bf16, dim, j, d). dim is a multiple of 16 (of 2 for
//         the definition).
// Order   Inside d rises, one fma a term, from 0. Outside h rises, one fma a term, from 0. A score
//         depends on its query and its key alone, so blocks may be cut anywhere.
// Modes   A bf16 cache wants q rounded to bf16 and is the same sum then; w stays float32, since
//         rounding it moves picks.
// Edges   No head fires: the score is +0. A NaN stays one.
// Bytes   dim · element size a key, once for the queries of a call while the block is in a cache.
// Source  docs/kernels.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/attention/attention.h"

namespace lacuna {

struct IndexKeys {
  const void* keys = nullptr;  // of a key whose number is a multiple of 16
  bool bf16 = false;
  int dim = 0;
};

struct IndexQueries {
  const float* q = nullptr;  // [count, heads, dim]
  const float* w = nullptr;  // [count, heads]
  int count = 0, heads = 0;
  float scale = 1.0f;
};

// Scores of keys [0, count): scores[t · stride + j]. Nothing else is written; what lies behind the
// last key of its block of 16 is read and not used.
using IndexScores = void(const IndexKeys& keys, int count, const IndexQueries& queries,
                         float* scores, std::ptrdiff_t stride) noexcept;

// Keeps, in order, the scores above `threshold` and their numbers first + j; returns how many. A
// NaN is above nothing. `kept` and `number` have room for count + 16, the rest of which may be
// overwritten.
using KeepAbove = int(const float* scores, int count, int first, float threshold, float* kept,
                      std::int32_t* number) noexcept;

namespace cpu::scalar {
IndexScores index_scores;
KeepAbove keep_above;
}  // namespace cpu::scalar
namespace cpu::avx2 {
IndexScores index_scores;
KeepAbove keep_above;
}  // namespace cpu::avx2
namespace cpu::avx512 {
IndexScores index_scores;
KeepAbove keep_above;
}  // namespace cpu::avx512
namespace cpu::avx512bf16 {
IndexScores index_scores;
}  // namespace cpu::avx512bf16
namespace cpu::neon {
IndexScores index_scores;
KeepAbove keep_above;
}  // namespace cpu::neon

}  // namespace lacuna
