// SPDX-License-Identifier: Apache-2.0
// Attention of one query over rows that all its heads share: a latent that is key and value, and a
// rotated key beside it (absorbed MLA of GLM-5.x and DeepSeek).
//
//   picked   s[h,i] = scale · Σ over d, rising, of q[h,d] · row[picks[i]][d]     one fma a term
//            m[h] = max s,  p[h,i] = exp(s[h,i] − m[h]), rounded to bf16 when the rows are
//            l[h] = Σ over i, rising, of p        z[h,d] = Σ over i, rising, of p ·
//            row[picks[i]][d] z[h,d] / l[h]
//   masked   the same sums over rows 0, 1, … whose bit is set, in bands of 128 rows that start at
//            multiples of 128. A band's p are exp(s − M), M the maximum up to this band; l and z
//            are first multiplied by exp(M before − M), and the chains go on. A band without a set
//            bit is left out.
//
// Shapes  q [H, latent + rope], rows [keys, latent + rope], z [H, latent]; latent and rope are
//         multiples of 32 (any even numbers for the definition).
// Order   One chain for each head and d, in the order of the list: rows that a mask takes out add
//         +0 · row to a chain and change no bit of it, as long as rows are finite.
// Modes   float32 rows, or bfloat16 rows as they come (d rising); then q is rounded to bf16 too and
//         the sums are the same.
// Rows    A query's bits depend on its list (or mask) alone. No row at all gives z = 0.
// Bytes   keys · (latent + rope) · element size, of which the latent twice.
// Source  docs/kernels.md.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lacuna {

inline constexpr int kLatentPanel = 128;  // rows whose weights are at hand at once; the masked band

struct LatentRows {
  const void* rows = nullptr;
  bool bf16 = false;
  int latent = 0, rope = 0;
};

struct LatentQuery {
  const float* q = nullptr;
  int heads = 0;
  float scale = 1.0f;
};

// Floats of scratch for a call over `keys` picks; a masked call needs those of kLatentPanel.
// Scratch is 64-byte aligned and belongs to one call at a time. Static, as files of several
// instruction sets use it.
static inline std::size_t latent_scratch_floats(int heads, int latent, int rope, int keys) {
  const std::size_t h = static_cast<std::size_t>(heads + 15) / 16 * 16;
  const std::size_t k = static_cast<std::size_t>(keys + 31) / 32 * 32;
  const std::size_t d = static_cast<std::size_t>(latent) + static_cast<std::size_t>(rope);
  return h * (k + d + kLatentPanel + 16 + 2) + 32 * (d > kLatentPanel ? d : kLatentPanel);
}

// picks [count], rising; null for rows 0 … count − 1.
using LatentPicked = void(const LatentRows& kv, const std::int32_t* picks, int count,
                          const LatentQuery& query, float* scratch, float* z) noexcept;
// Rows 0 … count − 1 whose bit j % 64 of mask[j / 64] is set; null for all.
using LatentMasked = void(const LatentRows& kv, const std::uint64_t* mask, int count,
                          const LatentQuery& query, float* scratch, float* z) noexcept;

namespace cpu::scalar {
LatentPicked latent_picked;
LatentMasked latent_masked;
}  // namespace cpu::scalar
namespace cpu::avx2 {
LatentPicked latent_picked;
LatentMasked latent_masked;
}  // namespace cpu::avx2
namespace cpu::avx512 {
LatentPicked latent_picked;
LatentMasked latent_masked;
}  // namespace cpu::avx512
namespace cpu::avx512bf16 {
LatentPicked latent_picked;
LatentMasked latent_masked;
}  // namespace cpu::avx512bf16
namespace cpu::neon {
LatentPicked latent_picked;
LatentMasked latent_masked;
}  // namespace cpu::neon

}  // namespace lacuna
