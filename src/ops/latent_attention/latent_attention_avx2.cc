// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>

#include "ops/activations/exp_constants.h"
#include "ops/latent_attention/latent_attention.h"
#include "ops/simd/simd_avx2.h"

namespace lacuna::cpu::avx2 {
namespace {
#include "ops/simd/bf16.inc"
#include "ops/simd/functions.inc"

// Eight rows of eight dwords to columns.
inline void transpose8(const std::uint8_t* const* rows, std::ptrdiff_t at, float* out, int stride) {
  __m256 v[8], t[8];
  for (int i = 0; i < 8; ++i) v[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(rows[i] + at));
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    v[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    v[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    v[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    v[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(out + i * stride, _mm256_permute2f128_ps(v[i], v[i + 4], 0x20));
    _mm256_storeu_ps(out + (i + 4) * stride, _mm256_permute2f128_ps(v[i], v[i + 4], 0x31));
  }
}

// The dwords at `at` bytes of 16 rows, column i to out + i · stride.
inline void transpose16(const std::uint8_t* const* rows, std::ptrdiff_t at, float* out,
                        int stride) {
  for (int half = 0; half < 2; ++half) {
    transpose8(rows + 8 * half, at, out + 8 * half, stride);
    transpose8(rows + 8 * half, at + 32, out + 8 * stride + 8 * half, stride);
  }
}

}  // namespace
#include "ops/latent_attention/latent_blocks.inc"
}  // namespace lacuna::cpu::avx2
