// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>

#include "ops/activations/exp_constants.h"
#include "ops/latent_attention/latent_attention.h"
#include "ops/simd/simd_neon.h"

namespace lacuna::cpu::neon {
namespace {
#include "ops/simd/bf16.inc"
#include "ops/simd/functions.inc"

// The dwords at `at` bytes of 16 rows, column i to out + i · stride; four by four.
inline void transpose16(const std::uint8_t* const* rows, std::ptrdiff_t at, float* out,
                        int stride) {
  for (int c = 0; c < 16; c += 4) {
    for (int r = 0; r < 16; r += 4) {
      const auto row = [&](int i) {
        return vreinterpretq_f32_u8(vld1q_u8(rows[r + i] + at + c * 4));
      };
      const float32x4x2_t a = vtrnq_f32(row(0), row(1)), b = vtrnq_f32(row(2), row(3));
      float* to = out + c * stride + r;
      vst1q_f32(to, vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0])));
      vst1q_f32(to + stride, vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1])));
      vst1q_f32(to + 2 * stride, vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0])));
      vst1q_f32(to + 3 * stride, vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1])));
    }
  }
}

}  // namespace
#include "ops/latent_attention/latent_blocks.inc"
}  // namespace lacuna::cpu::neon
