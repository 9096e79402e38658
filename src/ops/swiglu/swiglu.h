// SPDX-License-Identifier: Apache-2.0
// The gate of a SwiGLU MLP: y[i] = silu(gate[i]) · up[i], silu as in ops/activations/activations.h.
//
// y may be gate or up.
#pragma once

namespace lacuna {

using SwiGlu = void(const float* gate, const float* up, int n, float* y) noexcept;

namespace cpu::scalar {
SwiGlu swiglu;
}
namespace cpu::avx2 {
SwiGlu swiglu;
}
namespace cpu::avx512 {
SwiGlu swiglu;
}
namespace cpu::neon {
SwiGlu swiglu;
}

}  // namespace lacuna
