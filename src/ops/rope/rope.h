// SPDX-License-Identifier: Apache-2.0
// Rotary positions: pairs (a, b) of a vector turn by an angle of their own, in place.
//
//     a' = fma(a, cos, −(b · sin))        the product in the bracket rounded
//     b' = fma(b, cos,   a · sin)
//
// Shapes  `vectors` vectors (heads of one token) at x + i · stride, 2 · pairs values of each;
//         cos, sin [pairs], shared by the vectors.
// Layout  interleaved: pair i is values 2i and 2i + 1 (attention of GLM and DeepSeek, GLM's
//         indexer); otherwise i and i + pairs (DeepSeek's indexer).
// Source  The caller makes the tables: angles, scaling of frequencies and which end of a vector
//         turns are the model's affair.
#pragma once

#include <cstddef>

namespace lacuna {

inline constexpr int kMostRopePairs = 128;  // of a vector

struct RopeTable {
  const float* cos = nullptr;  // [pairs], of one position
  const float* sin = nullptr;
  int pairs = 0;  // ≤ kMostRopePairs
  bool interleaved = true;
};

using Rope = void(const RopeTable& table, float* x, int vectors, std::ptrdiff_t stride) noexcept;

namespace cpu::scalar {
Rope rope;
}
namespace cpu::avx2 {
Rope rope;
}
namespace cpu::avx512 {
Rope rope;
}
namespace cpu::neon {
Rope rope;
}

}  // namespace lacuna
