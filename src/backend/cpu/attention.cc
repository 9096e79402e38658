// SPDX-License-Identifier: Apache-2.0
// The attention mixer: projections, cache, bands of keys in order, out-projection.
#include "ops/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "tensor/dtype.h"

namespace lacuna {
namespace {

using Queries = CpuBackend::Queries;
using Rows = CpuBackend::QueryRows;

// What the bands gave one call's rows, or the rows' running result.
struct Part {
  float m[kAttendRows], l[kAttendRows];
  float* o;  // [kAttendRows, head_dim]
};

std::ptrdiff_t row_offset(const Queries& in, int kv_head, int r) {
  const int share = in.heads / in.kv_heads;
  return (static_cast<std::ptrdiff_t>(r / share) * in.heads + kv_head * share + r % share) *
         in.head_dim;
}

// One band for those of the rows that have keys in it: the last ones, from the returned one on.
int attend_band(const Kernels& kernels, const KvCache& kv, const Queries& in, const Rows& rows,
                int start, Part& part) {
  const int share = in.heads / in.kv_heads;
  const float* q[kAttendRows];
  int valid[kAttendRows];
  int first = rows.begin;
  while (in.first + first / share < start) ++first;
  for (int r = first; r < rows.end; ++r) {
    q[r - first] = in.q + row_offset(in, rows.kv_head, r);
    valid[r - first] = std::min(in.first + r / share + 1 - start, kBandKeys);
  }
  const KvBand band{kv.keys_at(rows.kv_head, start), kv.values_at(rows.kv_head, start), kv.bf16,
                    in.head_dim};
  const float scale = 1.0f / std::sqrt(static_cast<float>(in.head_dim));
  kernels.attend_band(band, q, valid, rows.end - first, scale, part.m, part.l, part.o);
  return first;
}

// Folds a band's part, whose row 0 is row `first`, into the rows' result.
void merge(const Kernels& kernels, const Queries& in, const Rows& rows, const Part& part, int first,
           float* m, float* l) {
  for (int r = first; r < rows.end; ++r) {
    kernels.merge_band(part.m[r - first], part.l[r - first],
                       part.o + static_cast<std::ptrdiff_t>(r - first) * in.head_dim, in.head_dim,
                       &m[r - rows.begin], &l[r - rows.begin],
                       in.out + row_offset(in, rows.kv_head, r));
  }
}

void start_rows(const Queries& in, const Rows& rows, float* m, float* l) {
  std::fill_n(m, kAttendRows, -std::numeric_limits<float>::infinity());
  std::fill_n(l, kAttendRows, 0.0f);
  for (int r = rows.begin; r < rows.end; ++r)
    std::fill_n(in.out + row_offset(in, rows.kv_head, r), in.head_dim, 0.0f);
}

void finish_rows(const Queries& in, const Rows& rows, const float* l) {
  for (int r = rows.begin; r < rows.end; ++r) {
    float* o = in.out + row_offset(in, rows.kv_head, r);
    for (int d = 0; d < in.head_dim; ++d) o[d] /= l[r - rows.begin];
  }
}

int bands_of(const Queries& in, const Rows& rows) {
  return (in.first + (rows.end - 1) / (in.heads / in.kv_heads)) / kBandKeys + 1;
}

}  // namespace

// Enough rows for all threads: each takes some through all their bands.
void CpuBackend::attend_tiles(const KvCache& kv, const Queries& in,
                              std::span<const QueryRows> tiles) {
  float* memory = scratch_.take<float>(static_cast<std::size_t>(kAttendRows) * in.head_dim *
                                       static_cast<std::size_t>(pool_.size()));
  pool_.run(static_cast<int>(tiles.size()), [&](int task, int thread) {
    const Rows& t = tiles[task];
    float m[kAttendRows], l[kAttendRows];
    start_rows(in, t, m, l);
    Part part;
    part.o = memory + static_cast<std::ptrdiff_t>(thread) * kAttendRows * in.head_dim;
    for (int b = 0; b < bands_of(in, t); ++b) {
      const int first = attend_band(kernels_, kv, in, t, b * kBandKeys, part);
      merge(kernels_, in, t, part, first, m, l);
    }
    finish_rows(in, t, l);
  });
}

// Few rows, as at decode: threads share the bands, some at a time, which are then merged in order.
// All rows take a band together, so that it comes from memory once.
void CpuBackend::attend_bands(const KvCache& kv, const Queries& in,
                              std::span<const QueryRows> tiles) {
  constexpr int kAtOnce = 256;
  const int bands = bands_of(in, tiles.back());
  const int count = static_cast<int>(tiles.size());
  const std::size_t at_once = std::min(bands, kAtOnce);
  std::vector<Part> parts(at_once * tiles.size());
  std::vector<int> first(parts.size());
  std::vector<float> m(tiles.size() * kAttendRows), l(m.size());
  const std::size_t room = static_cast<std::size_t>(kAttendRows) * in.head_dim;
  float* memory = scratch_.take<float>(room * parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].o = memory + room * i;
  for (int t = 0; t < count; ++t)
    start_rows(in, tiles[t], &m[t * kAttendRows], &l[t * kAttendRows]);
  for (int begin = 0; begin < bands; begin += kAtOnce) {
    const int n = std::min(kAtOnce, bands - begin);
    pool_.run(n * count, [&](int task, int) {
      const int b = begin + task / count;
      const Rows& t = tiles[task % count];
      if (b < bands_of(in, t)) {
        first[task] = attend_band(kernels_, kv, in, t, b * kBandKeys, parts[task]);
      }
    });
    pool_.run(count, [&](int t, int) {
      for (int b = 0; b < n && begin + b < bands_of(in, tiles[t]); ++b) {
        merge(kernels_, in, tiles[t], parts[b * count + t], first[b * count + t],
              &m[t * kAttendRows], &l[t * kAttendRows]);
      }
    });
  }
  for (int t = 0; t < count; ++t) finish_rows(in, tiles[t], &l[t * kAttendRows]);
}

Tensor CpuBackend::attention(Tensor x, const AttentionWeights& w, SequenceState& state, int layer,
                             int want) {
  auto& cpu_state = static_cast<CpuState&>(state);
  KvCache& kv = cpu_state.kv(layer);
  const int tokens = x.rows;
  const int first = cpu_state.length();
  const Tensor out = make(want, w.o.out);
  const std::size_t top = scratch_.mark();

  float* q = scratch_.take<float>(static_cast<std::size_t>(want) * w.q.out);
  float* k = scratch_.take<float>(static_cast<std::size_t>(tokens) * w.k.out);
  float* v = scratch_.take<float>(static_cast<std::size_t>(tokens) * w.v.out);
  Inputs inputs(*this, data(x), tokens);
  Inputs asking(*this, data(last_rows(x, want)), want);
  std::vector<Product> products;
  if (want > 0) products.push_back(product(w.q, want == tokens ? inputs : asking, bf16_, q));
  products.push_back(product(w.k, inputs, bf16_, k));
  products.push_back(product(w.v, inputs, bf16_, v));
  multiply(products);
  if (bf16_) {
    for (std::ptrdiff_t i = 0; i < static_cast<std::ptrdiff_t>(want) * w.q.out; ++i) {
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
  if (want == 0) {
    scratch_.release(top);
    return out;
  }

  float* o = scratch_.take<float>(static_cast<std::size_t>(want) * w.q.out);
  const Queries queries{q, o, first + tokens - want, want, w.heads, w.kv_heads, w.head_dim};
  std::vector<Rows> tiles;
  const int rows = want * (w.heads / w.kv_heads);
  for (int begin = 0; begin < rows; begin += kAttendRows) {
    for (int h = 0; h < w.kv_heads; ++h)
      tiles.push_back({h, begin, std::min(rows, begin + kAttendRows)});
  }
  if (static_cast<int>(tiles.size()) > 4 * pool_.size()) {
    attend_tiles(kv, queries, tiles);
  } else {
    attend_bands(kv, queries, tiles);
  }
  counters_.state_bytes +=
      2 * kv.element() * static_cast<std::size_t>(w.kv_heads) * w.head_dim * (first + tokens);
  lap("attend");
  project(o, want, w.o, bf16_, data(out), out.width);
  lap("out_proj");
  scratch_.release(top);
  return out;
}

}  // namespace lacuna
