// SPDX-License-Identifier: Apache-2.0
// Causal attention over a cache, in bands of 256 keys that start at multiples of 256.
//
//   band   s[j] = scale · Σ over d, rising, of q[d] · K[j,d]        one fma a term
//          m = max s,  p[j] = exp(s[j] − m),  l = Σ p (16 lanes of rising j, then the tree)
//          o[d] = Σ over j, rising, of p[j] · V[j,d]                one fma a term
//   merge  M = max(m, m'),  l = l·e^(m−M) + l'·e^(m'−M),  o likewise; bands rising
//   end    o / l
//
// Shapes  keys of one kv head in blocks of 16: [blocks][head_dim][16]; values [keys][head_dim].
//         Stored as float32, or as bfloat16 in bf16 mode (q is then rounded too, p is not).
// Rows    A query's bits depend on its position and the keys before it, not on its chunk, the
//         other queries, or the number of threads: bands are fixed.
// Bytes   2 · keys · head_dim · element size, once for the query heads that share the kv head.
// Source  docs/kernels.md. No positions enter: Nemotron-H's attention has none.
#pragma once

#include <cstdint>

namespace lacuna {

inline constexpr int kBandKeys = 256;
inline constexpr int kKeyBlock = 16;
inline constexpr int kAttendRows = 8;  // most rows of one call

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
namespace cpu::neon {
AttendBand attend_band;
MergeBand merge_band;
}  // namespace cpu::neon

}  // namespace lacuna
