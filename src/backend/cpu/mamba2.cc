// SPDX-License-Identifier: Apache-2.0
// The Mamba-2 mixer: in-projection, convolution, scan, gated norm, out-projection.
#include "ops/mamba2/mamba2.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"

namespace lacuna {
namespace {

// Tokens whose convolution a task keeps in the second-level cache for its scan.
constexpr int kTokenBlock = 64;

// ln(1 + e^x) in double precision; for large x it is x.
float softplus(float x) {
  return x > 40.0f ? x : static_cast<float>(std::log1p(std::exp(static_cast<double>(x))));
}

// Channels [begin, end) of the window after `tokens` more rows: the last rows of history and x
// together.
void slide_history(std::vector<float>& history, const float* x, std::ptrdiff_t stride, int tokens,
                   int channels, int begin, int end) {
  const int rows = static_cast<int>(history.size()) / channels;
  const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(end - begin);
  for (int r = 0; r < rows; ++r) {
    const int from = r + tokens;  // rows of history, then of x
    const float* row = from < rows ? history.data() + static_cast<std::ptrdiff_t>(from) * channels
                                   : x + (from - rows) * stride;
    std::memcpy(history.data() + static_cast<std::ptrdiff_t>(r) * channels + begin, row + begin,
                bytes);
  }
}

// The heads of each group in as many parts as give every thread some two tasks. Parts of a group
// convolve its B and C again, which is little.
std::vector<CpuBackend::HeadRange> split_heads(const MambaWeights& w, int threads) {
  const int per_group = w.heads / w.groups;
  const int parts = std::clamp((2 * threads + w.groups - 1) / w.groups, 1, per_group);
  std::vector<CpuBackend::HeadRange> ranges;
  for (int g = 0; g < w.groups; ++g) {
    for (int p = 0; p < parts; ++p) {
      ranges.push_back(
          {g, g * per_group + per_group * p / parts, g * per_group + per_group * (p + 1) / parts});
    }
  }
  return ranges;
}

}  // namespace

// Convolution and scan of some heads over all tokens, a block of tokens at a time. p [tokens,
// width] is what the in-projection gave: z, then x B C, then dt. y [tokens, inner].
void CpuBackend::recur(const MambaWeights& w, MambaCache& cache, const float* p, int tokens,
                       const HeadRange& heads, float* scratch, float* y) {
  const int inner = w.inner();
  const int channels = w.channels();
  const std::ptrdiff_t width = w.in_proj.out;
  const int count = heads.end - heads.begin;
  const int x_width = count * w.head_dim;
  const int row = x_width + 2 * w.state;  // x, B and C of these heads
  float* dt = scratch;                    // [kTokenBlock, count]
  float* decay = dt + kTokenBlock * count;
  float* conv = decay + kTokenBlock * count;  // [kTokenBlock, row]
  const struct {
    int channel, width, at;
  } parts[] = {{heads.begin * w.head_dim, x_width, 0},
               {inner + heads.group * w.state, w.state, x_width},
               {inner + (w.groups + heads.group) * w.state, w.state, x_width + w.state}};
  for (int first = 0; first < tokens; first += kTokenBlock) {
    const int n = std::min(kTokenBlock, tokens - first);
    const float* x = p + first * width + inner;
    const bool fresh = first == 0;  // later blocks have their history in x itself
    for (const auto& part : parts) {
      const ConvArgs args{x,
                          width,
                          fresh ? cache.history.data() : x - (w.taps - 1) * width,
                          fresh ? channels : width,
                          vector(w.conv_weight),
                          vector(w.conv_bias),
                          conv + part.at - part.channel,
                          row,
                          n,
                          channels,
                          w.taps};
      kernels_.conv_silu(args, part.channel, part.channel + part.width);
    }
    for (int h = 0; h < count; ++h) {
      const int head = heads.begin + h;
      const double rate = std::exp(static_cast<double>(vector(w.a_log)[head]));
      for (int t = 0; t < n; ++t) {
        const float raw = x[t * width + channels + head] + vector(w.dt_bias)[head];
        const float delta = std::clamp(softplus(raw), w.dt_min, w.dt_max);
        dt[t * count + h] = delta;
        decay[t * count + h] = static_cast<float>(std::exp(-rate * delta));
      }
      const ScanArgs scan{
          cache.state.data() + static_cast<std::ptrdiff_t>(head) * w.head_dim * w.state,
          conv + h * w.head_dim,
          conv + x_width,
          conv + x_width + w.state,
          row,
          dt + h,
          decay + h,
          count,
          vector(w.d)[head],
          y + static_cast<std::ptrdiff_t>(first) * inner + head * w.head_dim,
          inner,
          n,
          w.state,
          w.head_dim};
      kernels_.ssm_scan(scan);
    }
  }
}

Tensor CpuBackend::mamba2(Tensor x, const MambaWeights& w, SequenceState& state, int layer) {
  MambaCache& cache = static_cast<CpuState&>(state).mamba(layer);
  const int tokens = x.rows;
  const int inner = w.inner();
  const int width = w.in_proj.out;  // z, then x B C, then dt
  const Tensor out = make(tokens, w.out_proj.out);
  const std::size_t top = scratch_.mark();

  float* p = scratch_.take<float>(static_cast<std::size_t>(tokens) * width);
  project(data(x), tokens, w.in_proj, bf16_, p, width);
  lap("in_proj");

  float* y = scratch_.take<float>(static_cast<std::size_t>(tokens) * inner);
  const std::vector<HeadRange> ranges = split_heads(w, pool_.size());
  const int most = w.heads / w.groups;
  const std::size_t room =
      std::size_t{kTokenBlock} * static_cast<std::size_t>(most * (w.head_dim + 2) + 2 * w.state);
  float* parts = scratch_.take<float>(room * pool_.size());
  pool_.run(static_cast<int>(ranges.size()), [&](int task, int thread) {
    recur(w, cache, p, tokens, ranges[task], parts + room * thread, y);
  });
  counters_.state_bytes += 2 * sizeof(float) * cache.state.size();
  lap("scan");

  const int group_width = inner / w.groups;
  pool_.run(tokens * w.groups, [&](int task, int) {
    const int t = task / w.groups;
    const int g = task % w.groups;
    float* at = y + static_cast<std::ptrdiff_t>(t) * inner + g * group_width;
    const float* z = p + static_cast<std::ptrdiff_t>(t) * width + g * group_width;
    kernels_.gated_norm(at, z, vector(w.gate_norm) + g * group_width, group_width, w.eps, at);
    if (t > 0) return;
    for (const auto& [begin, count] : {std::pair{g * group_width, group_width},
                                       {inner + g * w.state, w.state},
                                       {inner + (w.groups + g) * w.state, w.state}}) {
      slide_history(cache.history, p + inner, width, tokens, w.channels(), begin, begin + count);
    }
  });
  lap("norm");
  project(y, tokens, w.out_proj, bf16_, data(out), out.width);
  lap("out_proj");
  scratch_.release(top);
  return out;
}

}  // namespace lacuna
