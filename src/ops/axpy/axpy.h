// SPDX-License-Identifier: Apache-2.0
// Sum of a scaled row: y[i] ← fma(a, x[i], y[i]), one fma a term.
//
// The residual sum (a = 1) and the weighted sum of experts. x and y do not overlap.
#pragma once

namespace lacuna {

using Axpy = void(float a, const float* x, int n, float* y) noexcept;

namespace cpu::scalar {
Axpy axpy;
}
namespace cpu::avx2 {
Axpy axpy;
}
namespace cpu::avx512 {
Axpy axpy;
}
namespace cpu::neon {
Axpy axpy;
}

}  // namespace lacuna
