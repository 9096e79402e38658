// SPDX-License-Identifier: Apache-2.0
// exp, SiLU and the logistic function as fixed sequences of float32 operations, so that every
// instruction set gives the same bits. The vector forms are in ops/simd/functions.inc.
//
//     exp(x) = 2^n · p(r),  n = round(x / ln 2),  r = x − n·ln 2,  p = Taylor to r^7 (|r| ≤ 0.35)
//
// x is held to [−87, 88], where the result is a normal number. Error below 2 units in the last
// place.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "ops/activations/exp_constants.h"

namespace lacuna {

inline float exp_f32(float x) {
  x = x > kExpMin ? x : kExpMin;
  x = x < kExpMax ? x : kExpMax;
  const float t = std::fma(x, kLog2E, kRoundMagic);
  const float n = t - kRoundMagic;
  float r = std::fma(n, -kLn2High, x);
  r = std::fma(n, -kLn2Low, r);
  float p = kExpTaylor[0];
  for (int i = 1; i < 8; ++i) p = std::fma(p, r, kExpTaylor[i]);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) +
                              (std::bit_cast<std::uint32_t>(t) << 23));
}

inline float sigmoid_f32(float x) { return 1.0f / (1.0f + exp_f32(-x)); }
inline float silu_f32(float x) { return x / (1.0f + exp_f32(-x)); }

}  // namespace lacuna
