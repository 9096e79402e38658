// SPDX-License-Identifier: Apache-2.0
// Index scores over a bf16 cache on vdpbf16ps: two dimensions a dot, the high half first, which is
// the order of index_topk.h.
#include <immintrin.h>

#include "ops/index_topk/index_topk.h"
#include "ops/simd/pairs_avx512bf16.h"

namespace lacuna::cpu::avx512bf16 {
namespace {

constexpr int kHeads = 8;              // whose sums stay in registers at once
constexpr int kMostValues = 64 * 128;  // of a query; larger ones go the AVX-512 way

// One query's values in pairs, the even dimension high, in the order add_heads reads them: heads in
// groups of kHeads (the last may be smaller), in a group dimensions, in a dimension heads.
void pack_query(const float* q, int heads, int dim, std::uint32_t* pairs) {
  const auto* bits = reinterpret_cast<const std::uint8_t*>(q);
  for (int group = 0; group < heads; group += kHeads) {
    const int n = heads - group < kHeads ? heads - group : kHeads;
    for (int d = 0; d < dim; d += 2) {
      for (int h = 0; h < n; ++h) {
        std::uint32_t even, odd;
        const std::uint8_t* at = bits + (static_cast<std::ptrdiff_t>(group + h) * dim + d) * 4;
        __builtin_memcpy(&even, at, 4);
        __builtin_memcpy(&odd, at + 4, 4);
        *pairs++ = (even & 0xffff0000u) | odd >> 16;
      }
    }
  }
}

// Adds Heads heads of one query to the scores of Blocks blocks of 16 keys.
template <int Heads, int Blocks>
[[gnu::always_inline]] inline void add_heads(const std::uint8_t* block, int dim,
                                             const std::uint32_t* q, const float* w,
                                             __m512 (&score)[Blocks]) {
  const std::ptrdiff_t block_bytes = static_cast<std::ptrdiff_t>(dim) * kKeyBlock * 2;
  __m512 dot[Heads][Blocks];
  for (auto& row : dot) {
    for (auto& v : row) v = _mm512_setzero_ps();
  }
  for (int d = 0; d < dim; d += 2, block += 64, q += Heads) {
    __m512bh key[Blocks];
#pragma GCC unroll 2
    for (int b = 0; b < Blocks; ++b) key[b] = bf(_mm512_loadu_si512(block + b * block_bytes));
#pragma GCC unroll 8
    for (int h = 0; h < Heads; ++h) {
      const __m512bh value = bf(_mm512_set1_epi32(static_cast<int>(q[h])));
#pragma GCC unroll 2
      for (int b = 0; b < Blocks; ++b) dot[h][b] = _mm512_dpbf16_ps(dot[h][b], key[b], value);
    }
  }
  for (int h = 0; h < Heads; ++h) {
    for (int b = 0; b < Blocks; ++b) {
      const __m512 fired = _mm512_max_ps(_mm512_setzero_ps(), dot[h][b]);
      score[b] = _mm512_fmadd_ps(_mm512_set1_ps(w[h]), fired, score[b]);
    }
  }
}

template <int Heads, int Blocks>
void add_last_heads(int heads, const std::uint8_t* block, int dim, const std::uint32_t* q,
                    const float* w, __m512 (&score)[Blocks]) {
  if constexpr (Heads > 0) {
    if (heads == Heads) return add_heads<Heads, Blocks>(block, dim, q, w, score);
    add_last_heads<Heads - 1, Blocks>(heads, block, dim, q, w, score);
  }
}

// Asks for the keys of the next blocks, a share for each group of heads: the hardware's own
// prefetch stops at each 4 KiB, which is one block. Inlined by force: GCC drops calls of a function
// that only prefetches.
[[gnu::always_inline]] inline void fetch_share(const std::uint8_t* next, int bytes, int h,
                                               int heads) {
  const int groups = heads / kHeads, group = h / kHeads;
  for (int at = bytes / groups * group; at < bytes / groups * (group + 1); at += 64)
    __builtin_prefetch(next + at, 0, 2);
}

template <int Blocks>
void score_blocks(const std::uint8_t* block, int keys, int dim, const std::uint32_t* q,
                  const float* w, int heads, float scale, float* scores) {
  const int bytes = Blocks * kKeyBlock * dim * 2;
  __m512 score[Blocks];
  for (auto& v : score) v = _mm512_setzero_ps();
  int h = 0;
  for (; h + kHeads <= heads; h += kHeads) {
    if (keys > 2 * kKeyBlock) fetch_share(block + bytes, bytes, h, heads);
    add_heads<kHeads, Blocks>(block, dim, q + static_cast<std::ptrdiff_t>(h) * dim / 2, w + h,
                              score);
  }
  add_last_heads<kHeads - 1, Blocks>(heads - h, block, dim,
                                     q + static_cast<std::ptrdiff_t>(h) * dim / 2, w + h, score);
  for (int b = 0; b < Blocks; ++b) {
    const int n = keys - b * kKeyBlock;
    const auto lanes = static_cast<__mmask16>(n >= kKeyBlock ? 0xffffu : (1u << n) - 1);
    _mm512_mask_storeu_ps(scores + b * kKeyBlock, lanes,
                          _mm512_mul_ps(score[b], _mm512_set1_ps(scale)));
  }
}

}  // namespace

void index_scores(const IndexKeys& keys, int count, const IndexQueries& queries, float* scores,
                  std::ptrdiff_t stride) noexcept {
  const int dim = keys.dim, heads = queries.heads;
  if (!keys.bf16 || heads * dim > kMostValues)
    return avx512::index_scores(keys, count, queries, scores, stride);
  alignas(64) std::uint32_t q[kMostValues / 2];
  for (int t = 0; t < queries.count; ++t, scores += stride) {
    pack_query(queries.q + static_cast<std::ptrdiff_t>(t) * heads * dim, heads, dim, q);
    const float* w = queries.w + static_cast<std::ptrdiff_t>(t) * heads;
    for (int j = 0; j < count; j += 2 * kKeyBlock) {
      const auto* block =
          static_cast<const std::uint8_t*>(keys.keys) + static_cast<std::ptrdiff_t>(j) * dim * 2;
      if (count - j > kKeyBlock) {
        score_blocks<2>(block, count - j, dim, q, w, heads, queries.scale, scores + j);
      } else {
        score_blocks<1>(block, count - j, dim, q, w, heads, queries.scale, scores + j);
      }
    }
  }
}

}  // namespace lacuna::cpu::avx512bf16
