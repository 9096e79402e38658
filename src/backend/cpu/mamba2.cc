// SPDX-License-Identifier: Apache-2.0
// The Mamba-2 mixer: in-projection, convolution, scan, gated norm, out-projection.
#include "ops/mamba2/mamba2.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_backend.h"

namespace lacuna {
namespace {

constexpr int kChannelsPerTask = 256;

// ln(1 + e^x) in double precision; for large x it is x.
float softplus(float x) {
  return x > 40.0f ? x : static_cast<float>(std::log1p(std::exp(static_cast<double>(x))));
}

// The window after `tokens` more rows: the last rows of history and x together.
void slide_history(std::vector<float>& history, const float* x, std::ptrdiff_t stride, int tokens,
                   int channels) {
  const int rows = static_cast<int>(history.size()) / channels;
  const int kept = std::max(rows - tokens, 0);
  std::memmove(history.data(), history.data() + static_cast<std::ptrdiff_t>(rows - kept) * channels,
               sizeof(float) * static_cast<std::size_t>(kept) * channels);
  for (int r = kept; r < rows; ++r) {
    std::memcpy(history.data() + static_cast<std::ptrdiff_t>(r) * channels,
                x + (tokens - rows + r) * stride,
                sizeof(float) * static_cast<std::size_t>(channels));
  }
}

}  // namespace

Tensor CpuBackend::mamba2(Tensor x, const MambaWeights& w, SequenceState& state, int layer) {
  MambaCache& cache = static_cast<CpuState&>(state).mamba(layer);
  const int tokens = x.rows;
  const int inner = w.inner();
  const int channels = w.channels();
  const int width = w.in_proj.out;  // z, then x B C, then dt
  const Tensor out = make(tokens, w.out_proj.out);
  const std::size_t top = scratch_.mark();

  float* p = scratch_.take<float>(static_cast<std::size_t>(tokens) * width);
  project(data(x), tokens, w.in_proj, bf16_, p, width);
  lap("in_proj");

  float* dt = scratch_.take<float>(static_cast<std::size_t>(tokens) * w.heads);
  float* decay = scratch_.take<float>(static_cast<std::size_t>(tokens) * w.heads);
  for (int t = 0; t < tokens; ++t) {
    const float* raw = p + static_cast<std::ptrdiff_t>(t) * width + inner + channels;
    for (int h = 0; h < w.heads; ++h) {
      const float delta = std::clamp(softplus(raw[h] + vector(w.dt_bias)[h]), w.dt_min, w.dt_max);
      const double rate = std::exp(static_cast<double>(vector(w.a_log)[h]));
      dt[t * w.heads + h] = delta;
      decay[t * w.heads + h] = static_cast<float>(std::exp(-rate * delta));
    }
  }

  float* conv = scratch_.take<float>(static_cast<std::size_t>(tokens) * channels);
  const ConvArgs args{p + inner,
                      width,
                      cache.history.data(),
                      vector(w.conv_weight),
                      vector(w.conv_bias),
                      conv,
                      tokens,
                      channels,
                      w.taps};
  pool_.run((channels + kChannelsPerTask - 1) / kChannelsPerTask, [&](int task, int) {
    const int begin = task * kChannelsPerTask;
    kernels_.conv_silu(args, begin, std::min(channels, begin + kChannelsPerTask));
  });
  slide_history(cache.history, p + inner, width, tokens, channels);
  lap("conv");

  float* y = scratch_.take<float>(static_cast<std::size_t>(tokens) * inner);
  pool_.run(w.heads, [&](int head, int) {
    const int group = head / (w.heads / w.groups);
    const float* b = conv + inner + group * w.state;
    const ScanArgs scan{
        cache.state.data() + static_cast<std::ptrdiff_t>(head) * w.head_dim * w.state,
        conv + head * w.head_dim,
        b,
        b + w.groups * w.state,
        channels,
        dt + head,
        decay + head,
        w.heads,
        vector(w.d)[head],
        y + head * w.head_dim,
        inner,
        tokens,
        w.state,
        w.head_dim};
    kernels_.ssm_scan(scan);
  });
  counters_.state_bytes += 2 * sizeof(float) * cache.state.size();

  const int group_width = inner / w.groups;
  pool_.run(tokens * w.groups, [&](int task, int) {
    const std::ptrdiff_t at =
        static_cast<std::ptrdiff_t>(task / w.groups) * inner + task % w.groups * group_width;
    const float* z =
        p + static_cast<std::ptrdiff_t>(task / w.groups) * width + task % w.groups * group_width;
    kernels_.gated_norm(y + at, z, vector(w.gate_norm) + task % w.groups * group_width, group_width,
                        w.eps, y + at);
  });
  lap("scan");
  project(y, tokens, w.out_proj, bf16_, data(out), out.width);
  lap("out_proj");
  scratch_.release(top);
  return out;
}

}  // namespace lacuna
