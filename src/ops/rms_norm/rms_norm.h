// SPDX-License-Identifier: Apache-2.0
// Root-mean-square norm, and Mamba-2's gated form.
//
//     y[i] = (x[i] · r) · w[i],   r = 1 / sqrt(Σ x² / n + eps)
//     gated: x[i] = y[i] · silu(z[i]) first (gate, then norm), over one group of channels
//
// Order  Σ x²: 16 lanes of rising i, one fma a term, then lanes i and i+8, +4, +2, +1.
// Source docs/kernels.md; nemotron_h: every norm has the config's layer_norm_epsilon.
#pragma once

namespace lacuna {

using RmsNorm = void(const float* x, const float* w, int n, float eps, float* y) noexcept;
// y, z, w and out are one group's n values.
using GatedNorm = void(const float* y, const float* z, const float* w, int n, float eps,
                       float* out) noexcept;

namespace cpu::scalar {
RmsNorm rms_norm;
GatedNorm gated_norm;
}  // namespace cpu::scalar
namespace cpu::avx2 {
RmsNorm rms_norm;
GatedNorm gated_norm;
}  // namespace cpu::avx2
namespace cpu::avx512 {
RmsNorm rms_norm;
GatedNorm gated_norm;
}  // namespace cpu::avx512
namespace cpu::neon {
RmsNorm rms_norm;
GatedNorm gated_norm;
}  // namespace cpu::neon

}  // namespace lacuna
