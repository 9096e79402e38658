// SPDX-License-Identifier: Apache-2.0
// The attention mixer: projections, cache, bands of keys in order, out-projection.
#include "ops/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/cpu_backend.h"
#include "tensor/dtype.h"

namespace lacuna {
namespace {

struct Queries {
  const float* q;  // [tokens, heads, head_dim]
  float* out;      // likewise
  int first;       // position of token 0
  int tokens, heads, kv_heads, head_dim;
};

// Rows [begin, end) of one kv head: row r is token r / share, and query head r % share of those
// that share the kv head. All bands up to the last row's own key, in order.
void attend_rows(const Kernels& kernels, const KvCache& kv, const Queries& in, int kv_head,
                 int begin, int end) {
  const int share = in.heads / in.kv_heads;
  const int dim = in.head_dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  const int rows = end - begin;
  float m[kAttendRows];
  float l[kAttendRows];
  std::fill_n(m, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(l, rows, 0.0f);
  const auto offset = [&](int r) {
    return (static_cast<std::ptrdiff_t>(r / share) * in.heads + kv_head * share + r % share) * dim;
  };
  for (int r = begin; r < end; ++r) std::fill_n(in.out + offset(r), dim, 0.0f);
  std::vector<float> band_o(static_cast<std::size_t>(kAttendRows) * dim);
  const int last = in.first + (end - 1) / share;
  for (int start = 0; start <= last; start += kBandKeys) {
    const float* q[kAttendRows];
    int valid[kAttendRows];
    int row[kAttendRows];
    int n = 0;
    for (int r = begin; r < end; ++r) {
      const int keys = in.first + r / share + 1 - start;
      if (keys <= 0) continue;
      q[n] = in.q + offset(r);
      valid[n] = std::min(keys, kBandKeys);
      row[n++] = r;
    }
    const KvBand band{kv.keys_at(kv_head, start), kv.values_at(kv_head, start), kv.bf16, dim};
    float band_m[kAttendRows];
    float band_l[kAttendRows];
    kernels.attend_band(band, q, valid, n, scale, band_m, band_l, band_o.data());
    for (int i = 0; i < n; ++i) {
      const int k = row[i] - begin;
      kernels.merge_band(band_m[i], band_l[i], band_o.data() + static_cast<std::ptrdiff_t>(i) * dim,
                         dim, &m[k], &l[k], in.out + offset(row[i]));
    }
  }
  for (int r = begin; r < end; ++r) {
    float* o = in.out + offset(r);
    for (int d = 0; d < dim; ++d) o[d] /= l[r - begin];
  }
}

}  // namespace

Tensor CpuBackend::attention(Tensor x, const AttentionWeights& w, SequenceState& state, int layer) {
  auto& cpu_state = static_cast<CpuState&>(state);
  KvCache& kv = cpu_state.kv(layer);
  const int tokens = x.rows;
  const int first = cpu_state.length();
  const Tensor out = make(tokens, w.o.out);
  const std::size_t top = scratch_.mark();

  float* q = scratch_.take<float>(static_cast<std::size_t>(tokens) * w.q.out);
  float* k = scratch_.take<float>(static_cast<std::size_t>(tokens) * w.k.out);
  float* v = scratch_.take<float>(static_cast<std::size_t>(tokens) * w.v.out);
  Inputs inputs(*this, data(x), tokens);
  multiply({{product(w.q, inputs, bf16_, q), product(w.k, inputs, bf16_, k),
             product(w.v, inputs, bf16_, v)}});
  if (bf16_) {
    for (std::ptrdiff_t i = 0; i < static_cast<std::ptrdiff_t>(tokens) * w.q.out; ++i) {
      q[i] = bf16_to_f32(f32_to_bf16(q[i]));
    }
  }
  for (int t = 0; t < tokens; ++t) {
    for (int h = 0; h < w.kv_heads; ++h) {
      const std::ptrdiff_t at = (static_cast<std::ptrdiff_t>(t) * w.kv_heads + h) * w.head_dim;
      kv.put(h, first + t, k + at, v + at);
    }
  }

  lap("qkv");

  float* o = scratch_.take<float>(static_cast<std::size_t>(tokens) * w.q.out);
  const Queries queries{q, o, first, tokens, w.heads, w.kv_heads, w.head_dim};
  const int rows = tokens * (w.heads / w.kv_heads);
  const int tiles = (rows + kAttendRows - 1) / kAttendRows;
  pool_.run(tiles * w.kv_heads, [&](int task, int) {
    const int begin = task / w.kv_heads * kAttendRows;
    attend_rows(kernels_, kv, queries, task % w.kv_heads, begin,
                std::min(rows, begin + kAttendRows));
  });
  counters_.state_bytes +=
      2 * kv.element() * static_cast<std::size_t>(w.kv_heads) * w.head_dim * (first + tokens);
  lap("attend");
  project(o, tokens, w.o, bf16_, data(out), out.width);
  lap("out_proj");
  scratch_.release(top);
  return out;
}

}  // namespace lacuna
