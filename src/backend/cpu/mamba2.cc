// SPDX-License-Identifier: Apache-2.0
// The Mamba-2 mixer: in-projection, convolution, scan, gated norm, out-projection.
#include "ops/mamba2/mamba2.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/check.h"

namespace lacuna {
namespace {

// Tokens whose convolution a task keeps in the second-level cache for its scan.
constexpr int kTokenBlock = 64;

// ln(1 + e^x) in double precision; for large x it is x.
float softplus(float x) {
  return x > 40.0f ? x : static_cast<float>(std::log1p(std::exp(static_cast<double>(x))));
}

// Columns [begin, end) of the cache's rows after a pass: of the rows that were there and the
// `tokens` new ones, the last `left`, in place. The cache has room for them.
void keep_rows(MambaCache& cache, int had, const float* x, std::ptrdiff_t stride, int tokens,
               int left, int begin, int end) {
  const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(end - begin);
  const int gone = had + tokens - left;
  for (int r = 0; r < left; ++r) {
    const int from = r + gone;
    const float* row = from < had ? cache.row(from) : x + (from - had) * stride;
    std::memcpy(cache.row(r) + begin, row + begin, bytes);
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

// Convolution and scan of some heads over the rows that wait in the cache and the new ones, a block
// of them at a time. p [tokens, width] is what the in-projection gave: z, then x B C, then dt.
// y [tokens, inner], of the new rows. Drafts move no state.
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
  float* nowhere = conv + kTokenBlock * row;  // a head's state behind many drafts
  const struct {
    int channel, width, at;
  } parts[] = {{heads.begin * w.head_dim, x_width, 0},
               {inner + heads.group * w.state, w.state, x_width},
               {inner + (w.groups + heads.group) * w.state, w.state, x_width + w.state}};
  const int waiting = cache.waiting();
  const int total = waiting + tokens;
  const int settled = total - pass_.drafts;  // rows that the state takes in
  const auto raw = [&](int r) {
    return r < waiting ? cache.row(cache.window + r) : p + (r - waiting) * width + inner;
  };
  // Rows [begin, end), which lie side by side, to their places in the block that starts at `first`.
  const auto convolve = [&](int first, int begin, int end) {
    if (begin >= end) return;
    const bool cached = begin <= waiting;  // the window before them lies in the cache
    for (const auto& part : parts) {
      const ConvArgs args{
          raw(begin),
          begin < waiting ? cache.stride : width,
          cached ? cache.row(begin) : raw(begin - cache.window),
          cached ? cache.stride : width,
          vector(w.conv_weight),
          vector(w.conv_bias),
          conv + static_cast<std::ptrdiff_t>(begin - first) * row + part.at - part.channel,
          row,
          end - begin,
          channels,
          w.taps};
      kernels_.conv_silu(args, part.channel, part.channel + part.width);
    }
  };
  for (int first = 0; first < total; first += kTokenBlock) {
    const int end = std::min(total, first + kTokenBlock);
    convolve(first, first, std::min(end, waiting));
    convolve(first, std::max(first, waiting), end);
    for (int h = 0; h < count; ++h) {
      const int head = heads.begin + h;
      const double rate = std::exp(static_cast<double>(vector(w.a_log)[head]));
      for (int r = first; r < end; ++r) {
        const float shifted = raw(r)[channels + head] + vector(w.dt_bias)[head];
        const float delta = std::clamp(softplus(shifted), w.dt_min, w.dt_max);
        dt[(r - first) * count + h] = delta;
        decay[(r - first) * count + h] = static_cast<float>(std::exp(-rate * delta));
      }
      float* state = cache.state.data() + static_cast<std::ptrdiff_t>(head) * w.head_dim * w.state;
      const auto scan = [&](int begin, int stop, float* out) {
        const std::ptrdiff_t at = begin - first;
        const int shown = std::max(begin, waiting);  // the first row with an output
        kernels_.ssm_scan(
            {.state = state,
             .out = out,
             .x = conv + at * row + h * w.head_dim,
             .b = conv + at * row + x_width,
             .c = conv + at * row + x_width + w.state,
             .stride = row,
             .dt = dt + at * count + h,
             .decay = decay + at * count + h,
             .heads = count,
             .d = vector(w.d)[head],
             .y = y + static_cast<std::ptrdiff_t>(shown - waiting) * inner + head * w.head_dim,
             .y_stride = inner,
             .tokens = stop - begin,
             .first_y = shown - begin,
             .n = w.state,
             .p = w.head_dim});
      };
      scan(first, std::min(end, settled), state);
      if (settled < end) scan(settled, end, end - settled <= kScanTile ? nullptr : nowhere);
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

  const int had = cache.window + cache.waiting();
  const int left = cache.window + pass_.drafts;
  LAC_CHECK(pass_.drafts == 0 || (pass_.drafts < tokens && cache.waiting() + tokens <= kTokenBlock),
            "{} drafts in a pass of {} rows with {} waiting", pass_.drafts, tokens,
            cache.waiting());

  float* p = scratch_.take<float>(static_cast<std::size_t>(tokens) * width);
  project(data(x), tokens, w.in_proj, bf16_, p, width);
  lap("in_proj");

  float* y = scratch_.take<float>(static_cast<std::size_t>(tokens) * inner);
  const std::vector<HeadRange> ranges = split_heads(w, pool_.size());
  const int most = w.heads / w.groups;
  const std::size_t room =
      std::size_t{kTokenBlock} * static_cast<std::size_t>(most * (w.head_dim + 2) + 2 * w.state) +
      static_cast<std::size_t>(w.head_dim) * w.state;
  float* parts = scratch_.take<float>(room * pool_.size());
  pool_.run(static_cast<int>(ranges.size()), [&](int task, int thread) {
    recur(w, cache, p, tokens, ranges[task], parts + room * thread, y);
  });
  counters_.state_bytes += 2 * sizeof(float) * cache.state.size();
  lap("scan");

  const int group_width = inner / w.groups;
  const int group_heads = w.heads / w.groups;
  if (left > had) cache.resize(left - cache.window);
  pool_.run(tokens * w.groups, [&](int task, int) {
    const int t = task / w.groups;
    const int g = task % w.groups;
    float* at = y + static_cast<std::ptrdiff_t>(t) * inner + g * group_width;
    const float* z = p + static_cast<std::ptrdiff_t>(t) * width + g * group_width;
    kernels_.gated_norm(at, z, vector(w.gate_norm) + g * group_width, group_width, w.eps, at);
    if (t > 0) return;
    for (const auto& [begin, count] : {std::pair{g * group_width, group_width},
                                       {inner + g * w.state, w.state},
                                       {inner + (w.groups + g) * w.state, w.state},
                                       {w.channels() + g * group_heads, group_heads}}) {
      keep_rows(cache, had, p + inner, width, tokens, left, begin, begin + count);
    }
  });
  cache.resize(left - cache.window);
  lap("norm");
  project(y, tokens, w.out_proj, bf16_, data(out), out.width);
  lap("out_proj");
  scratch_.release(top);
  return out;
}

}  // namespace lacuna
