// SPDX-License-Identifier: Apache-2.0
// The two recurrences of a Mamba-2 mixer: the causal convolution and the selective state scan.
//
//   conv   c[t,ch] = silu(bias[ch] + Σ over taps k, rising, of w[k,ch] · x[t − (K−1) + k, ch])
//          The last tap is the current token; rows before the chunk come from the history.
//   scan   S[n,p] ← decay[t] · S[n,p] + (dt[t] · x[t,p]) · B[t,n]      one multiply, one fma
//          y[t,p] = Σ over n, rising, of S[n,p] · C[t,n]  +  D · x[t,p]   one fma a term
//
// Shapes  channels = inner + 2·G·N; one head of the scan: P = head_dim channels, N = state size.
//         State [N, P] so that lanes run over p and a sum over n needs no reduction.
// Order   Tokens rising, one after the other: any chunking of a prompt gives the same bits.
// Source  docs/kernels.md; dt = softplus(dt_raw + dt_bias) held to time_step_limit,
//         decay = exp(−exp(A_log) · dt), both float32, computed by the caller per token and head.
#pragma once

#include <cstddef>

namespace lacuna {

// Channels [begin, end) of `tokens` rows: row t of x starts at x + t·x_stride, of y at y +
// t·y_stride. history: the taps−1 rows before x's first, oldest first. weight [taps, channels].
struct ConvArgs {
  const float* x = nullptr;
  std::ptrdiff_t x_stride = 0;
  const float* history = nullptr;
  std::ptrdiff_t history_stride = 0;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float* y = nullptr;
  std::ptrdiff_t y_stride = 0;
  int tokens = 0, channels = 0, taps = 0;
};
using ConvSilu = void(const ConvArgs& a, int begin, int end) noexcept;

// Tokens of a scan that may leave no state behind.
inline constexpr int kScanTile = 4;

// One head over `tokens` rows. x, b, c point at the head's columns of the convolution's output (row
// stride `stride`); dt and decay at the head's column of [tokens, heads]; y at the head's columns.
struct ScanArgs {
  const float* state = nullptr;  // [N, P], before the first row
  float* out = nullptr;  // where the state after the last row goes, `state` itself or other memory;
                         // null: nowhere, of at most kScanTile rows
  const float* x = nullptr;
  const float* b = nullptr;
  const float* c = nullptr;
  std::ptrdiff_t stride = 0;
  const float* dt = nullptr;
  const float* decay = nullptr;
  std::ptrdiff_t heads = 0;  // stride of dt and decay
  float d = 0;
  float* y = nullptr;  // of row `first_y`; rows before it move the state only
  std::ptrdiff_t y_stride = 0;
  int tokens = 0, first_y = 0, n = 0, p = 0;
};
using SsmScan = void(const ScanArgs& a) noexcept;

namespace cpu::scalar {
ConvSilu conv_silu;
SsmScan ssm_scan;
}  // namespace cpu::scalar
namespace cpu::avx2 {
ConvSilu conv_silu;
SsmScan ssm_scan;
}  // namespace cpu::avx2
namespace cpu::avx512 {
ConvSilu conv_silu;
SsmScan ssm_scan;
}  // namespace cpu::avx512
namespace cpu::neon {
ConvSilu conv_silu;
SsmScan ssm_scan;
}  // namespace cpu::neon

}  // namespace lacuna
