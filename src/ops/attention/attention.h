// SPDX-License-Identifier: Apache-2.0
// Causal attention over a cache, in bands of 256 keys that start at multiples of 256.
//
//   band   s[j] = scale · Σ over d, rising, of q[d] · K[j,d]        one fma a term
//          m = max s,  p[j] = exp(s[j] − m), rounded to bf16 when the cache is;
//          l = Σ p (16 lanes of rising j, then the tree)
//          o[d] = Σ over j, rising, of p[j] · V[j,d]                one fma a term
//   merge  M = max(m, m'),  l = l·e^(m−M) + l'·e^(m'−M),  o likewise; bands rising
//   end    o / l
//
// Shapes  keys of one kv head in blocks of 16: [blocks][head_dim][16]; values [keys][head_dim];
//         float32. Or bfloat16 (q is rounded too then) in pairs that a bf16 dot product takes:
//         dwords [blocks][head_dim / 2][16] with the even dimension in the high half, and
//         [keys / 2][head_dim] with the even key there. head_dim is a multiple of 16.
// Rows    A query's bits depend on its position and the keys before it, not on its chunk, the
//         other queries, or the number of threads: bands are fixed.
// Bytes   2 · keys · head_dim · element size, once for the query heads that share the kv head.
// Source  docs/kernels.md. No positions enter: Nemotron-H's attention has none.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lacuna {

inline constexpr int kBandKeys = 256;
inline constexpr int kKeyBlock = 16;
inline constexpr int kAttendRows = 8;  // most rows of one call

// Position of dimension d of key or value j, in elements, from a kv head's first one on. Static, as
// files of several instruction sets use it.
static inline std::ptrdiff_t key_index(bool bf16, int head_dim, int j, int d) {
  const std::ptrdiff_t block = static_cast<std::ptrdiff_t>(j / kKeyBlock) * head_dim;
  if (!bf16) return (block + d) * kKeyBlock + j % kKeyBlock;
  return ((block / 2 + d / 2) * kKeyBlock + j % kKeyBlock) * 2 + 1 - d % 2;
}
static inline std::ptrdiff_t value_index(bool bf16, int head_dim, int j, int d) {
  if (!bf16) return static_cast<std::ptrdiff_t>(j) * head_dim + d;
  return (static_cast<std::ptrdiff_t>(j / 2) * head_dim + d) * 2 + 1 - j % 2;
}

struct KvBand {
  const void* keys = nullptr;    // of the band's first key
  const void* values = nullptr;  // likewise
  bool bf16 = false;
  int head_dim = 0;
};

// Up to kAttendRows queries q[r] [head_dim] against keys [0, valid[r]) of the band, 1 ≤ valid ≤
// 256. Writes m[r], l[r] and o[r·head_dim …].
using AttendBand = void(const KvBand& kv, const float* const* q, const int* valid, int rows,
                        float scale, float* m, float* l, float* o) noexcept;
// Folds a later band into the running result of one row; an empty result has m = −∞, l = 0, o = 0.
using MergeBand = void(float band_m, float band_l, const float* band_o, int head_dim, float* m,
                       float* l, float* o) noexcept;

namespace cpu::scalar {
AttendBand attend_band;
MergeBand merge_band;
}  // namespace cpu::scalar
namespace cpu::avx2 {
AttendBand attend_band;
MergeBand merge_band;
}  // namespace cpu::avx2
namespace cpu::avx512 {
AttendBand attend_band;
MergeBand merge_band;
}  // namespace cpu::avx512
namespace cpu::avx512bf16 {
AttendBand attend_band;
}  // namespace cpu::avx512bf16
namespace cpu::neon {
AttendBand attend_band;
MergeBand merge_band;
}  // namespace cpu::neon

}  // namespace lacuna
