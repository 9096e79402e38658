// SPDX-License-Identifier: Apache-2.0
// The numbers of exp (activations.h). Not `inline`: files compiled for an instruction set may only
// have symbols of their own.
#pragma once

namespace lacuna {

constexpr float kExpMin = -87.0f;
constexpr float kExpMax = 88.0f;
constexpr float kLog2E = 1.44269504f;
constexpr float kRoundMagic = 12582912.0f;  // 1.5 · 2^23: adding it rounds to an integer
constexpr float kLn2High = 0.693359375f;    // exact in 10 bits, so n · kLn2High is exact
constexpr float kLn2Low = -2.12194440e-4f;
constexpr float kExpTaylor[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24,
                                1.0f / 6,    0.5f,       1.0f,       1.0f};

}  // namespace lacuna
