// SPDX-License-Identifier: Apache-2.0
// Attention over latents with an indexer (GLM-5.x, DeepSeek-V3.2): projections, caches, picks, and
// the attention in its absorbed form, so that a cached row serves all heads.
#include "ops/latent_attention/latent_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/check.h"
#include "ops/index_topk/top_k.h"
#include "tensor/dtype.h"

namespace lacuna {
namespace {

constexpr int kScoreBlock = 4096;  // keys whose scores are at hand at once
constexpr int kQueryTile = 8;      // queries that share a block of index keys
constexpr int kRowsPerTask = 4;    // of loops over tokens

void round_to_bf16(float* x, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] = bf16_to_f32(f32_to_bf16(x[i]));
}

// Weight, bias, mean and variance in float64: one key of 128 values a token.
void layer_norm(float* x, int n, const float* weight, const float* bias, float eps) {
  double mean = 0, squares = 0;
  for (int i = 0; i < n; ++i) mean += static_cast<double>(x[i]);
  mean /= n;
  for (int i = 0; i < n; ++i) {
    const double d = static_cast<double>(x[i]) - mean;
    squares += d * d;
  }
  const double scale = 1.0 / std::sqrt(squares / n + static_cast<double>(eps));
  for (int i = 0; i < n; ++i) {
    const auto normed = static_cast<float>((static_cast<double>(x[i]) - mean) * scale);
    x[i] = std::fma(normed, weight[i], bias[i]);
  }
}

}  // namespace

// What the stages of one call hand on; all of it is scratch.
struct CpuBackend::LatentPass {
  const LatentWeights& w;
  LatentCache& cache;
  int first = 0, tokens = 0;    // positions [first, first + tokens)
  std::vector<float> cos, sin;  // [tokens, rope / 2]
  float* q = nullptr;           // [tokens, heads, nope + rope]
  float* joined = nullptr;      // [tokens, heads, latent + rope]: absorbed
  float *index_q = nullptr,
        *index_weights = nullptr;  // [tokens, index heads, dim], [tokens, heads]

  int row() const { return w.latent + w.rope; }
  int visible(int t) const { return first + t + 1; }
  RopeTable table(int t, bool interleaved) const {
    const int pairs = w.rope / 2;
    const std::size_t at = static_cast<std::size_t>(t) * static_cast<std::size_t>(pairs);
    return {cos.data() + at, sin.data() + at, pairs, interleaved};
  }
};

Picks CpuBackend::make_picks(int tokens, int most) {
  Picks picks{tokens, most, nullptr, nullptr};
  picks.keys = scratch_.take<std::int32_t>(static_cast<std::size_t>(tokens) * most);
  picks.counts = scratch_.take<int>(static_cast<std::size_t>(tokens));
  return picks;
}

// Angles are float32 products, as every implementation takes them: at a million tokens their
// rounding is part of the model.
void CpuBackend::fill_rope(LatentPass& pass) {
  const int pairs = pass.w.rope / 2;
  const float* frequency = vector(pass.w.frequencies);
  pass.cos.resize(static_cast<std::size_t>(pass.tokens) * static_cast<std::size_t>(pairs));
  pass.sin.resize(pass.cos.size());
  pool_.run((pass.tokens + kRowsPerTask - 1) / kRowsPerTask, [&](int task, int) {
    const int end = std::min(pass.tokens, (task + 1) * kRowsPerTask);
    for (int t = task * kRowsPerTask; t < end; ++t) {
      for (int i = 0; i < pairs; ++i) {
        const float angle = static_cast<float>(pass.first + t) * frequency[i];
        const std::size_t at = static_cast<std::size_t>(t) * static_cast<std::size_t>(pairs) +
                               static_cast<std::size_t>(i);
        pass.cos[at] = static_cast<float>(std::cos(static_cast<double>(angle)));
        pass.sin[at] = static_cast<float>(std::sin(static_cast<double>(angle)));
      }
    }
  });
}

// From the projections of x to rotated queries, and the caches' new rows.
void CpuBackend::project_latents(LatentPass& pass, const float* x, int width) {
  const LatentWeights& w = pass.w;
  const IndexerWeights& ix = w.indexer;
  const auto tokens = static_cast<std::size_t>(pass.tokens);
  float* qa = scratch_.take<float>(tokens * w.q_a.out);
  float* kva = scratch_.take<float>(tokens * w.kv_a.out);
  float* index_k = scratch_.take<float>(tokens * ix.dim);
  Inputs inputs(*this, x, pass.tokens);
  std::vector<Product> products{product(w.q_a, inputs, bf16_, qa),
                                product(w.kv_a, inputs, bf16_, kva)};
  if (ix.heads > 0) {
    // The weights of the index heads read float32 in every mode, as a router does: picks must not
    // hang on a rounding.
    products.push_back(product(ix.wk, inputs, bf16_, index_k));
    products.push_back(product(ix.weights, inputs, false, pass.index_weights));
  }
  multiply(products);
  LAC_CHECK(width == w.q_a.in, "x is {} wide, the weights take {}", width, w.q_a.in);

  pool_.run((pass.tokens + kRowsPerTask - 1) / kRowsPerTask, [&](int task, int) {
    const int end = std::min(pass.tokens, (task + 1) * kRowsPerTask);
    for (int t = task * kRowsPerTask; t < end; ++t) {
      float* latent = kva + static_cast<std::ptrdiff_t>(t) * w.kv_a.out;
      float* a = qa + static_cast<std::ptrdiff_t>(t) * w.q_a.out;
      kernels_.rms_norm(a, vector(w.q_norm), w.q_a.out, w.eps, a);
      kernels_.rms_norm(latent, vector(w.kv_norm), w.latent, w.eps, latent);
      kernels_.rope(pass.table(t, true), latent + w.latent, 1, 0);
      pass.cache.put(pass.first + t, latent);
      if (ix.heads == 0) continue;
      float* key = index_k + static_cast<std::ptrdiff_t>(t) * ix.dim;
      layer_norm(key, ix.dim, vector(ix.norm), vector(ix.norm_bias), ix.norm_eps);
      kernels_.rope(pass.table(t, ix.interleaved), key, 1, 0);
      pass.cache.put_index(pass.first + t, key);
    }
  });

  Inputs latents(*this, qa, pass.tokens);
  std::vector<Product> second{product(w.q_b, latents, bf16_, pass.q)};
  if (ix.heads > 0) second.push_back(product(ix.wq, latents, bf16_, pass.index_q));
  multiply(second);
  pool_.run((pass.tokens + kRowsPerTask - 1) / kRowsPerTask, [&](int task, int) {
    const int end = std::min(pass.tokens, (task + 1) * kRowsPerTask);
    for (int t = task * kRowsPerTask; t < end; ++t) {
      const int head = w.nope + w.rope;
      kernels_.rope(pass.table(t, true),
                    pass.q + static_cast<std::ptrdiff_t>(t) * w.heads * head + w.nope, w.heads,
                    head);
      if (ix.heads == 0) continue;
      float* at = pass.index_q + static_cast<std::ptrdiff_t>(t) * ix.heads * ix.dim;
      kernels_.rope(pass.table(t, ix.interleaved), at, ix.heads, ix.dim);
      if (bf16_) round_to_bf16(at, static_cast<std::size_t>(ix.heads) * ix.dim);
    }
  });
}

// One matrix a head, all heads in one loop: x [rows, in], where row t · heads + h is head h's of
// token t, or h · tokens + t with `head_major`; y [tokens, heads, stride].
void CpuBackend::multiply_heads(std::span<const Weight> weights, const float* x, int tokens,
                                bool head_major, float* y, int stride) {
  const int heads = static_cast<int>(weights.size());
  const RowBlocks& shape = store_.row_blocks(weights[0].id);
  const Activations a = prepare(x, tokens * heads, weights[0].in, shape.group, shape.groups, bf16_);
  int* rows = scratch_.take<int>(static_cast<std::size_t>(tokens) * heads);
  std::vector<Product> products;
  for (int h = 0; h < heads; ++h) {
    const RowBlocks& w = store_.row_blocks(weights[h].id);
    int* mine = rows + static_cast<std::ptrdiff_t>(h) * tokens;
    for (int t = 0; t < tokens; ++t) mine[t] = head_major ? h * tokens + t : t * heads + h;
    counters_.weight_bytes += w.bytes();
    counters_.weight_bytes_dense += w.bytes();
    products.push_back({&w, &a, mine, tokens, y + static_cast<std::ptrdiff_t>(h) * stride,
                        static_cast<std::ptrdiff_t>(heads) * stride});
  }
  multiply(products);
}

// q without positions through each head's matrix into the latent, with the rotated part behind it.
void CpuBackend::absorb_queries(LatentPass& pass) {
  const LatentWeights& w = pass.w;
  const int head = w.nope + w.rope;
  float* nope = scratch_.take<float>(static_cast<std::size_t>(pass.tokens) * w.heads * w.nope);
  pool_.run(w.heads, [&](int h, int) {
    for (int t = 0; t < pass.tokens; ++t) {
      const float* q = pass.q + (static_cast<std::ptrdiff_t>(t) * w.heads + h) * head;
      std::copy_n(q, w.nope, nope + (static_cast<std::ptrdiff_t>(h) * pass.tokens + t) * w.nope);
      std::copy_n(
          q + w.nope, w.rope,
          pass.joined + (static_cast<std::ptrdiff_t>(t) * w.heads + h) * pass.row() + w.latent);
    }
  });
  multiply_heads(w.absorb, nope, pass.tokens, true, pass.joined, pass.row());
  if (!bf16_) return;
  pool_.run(pass.tokens, [&](int t, int) {
    round_to_bf16(pass.joined + static_cast<std::ptrdiff_t>(t) * w.heads * pass.row(),
                  static_cast<std::size_t>(w.heads) * pass.row());
  });
}

// Which keys each query looks at: all it sees while they are no more than topk.
void CpuBackend::pick_keys(const LatentPass& pass, const Picks& picks) {
  const IndexerWeights& ix = pass.w.indexer;
  const int topk = pass.w.topk;
  for (int t = 0; t < pass.tokens; ++t) picks.counts[t] = std::min(topk, pass.visible(t));
  const int begin = std::max(0, topk - pass.first);  // the first query that sees more than topk
  const int queries = pass.tokens - begin;
  if (queries <= 0) return;
  const float scale = 1.0f / std::sqrt(static_cast<float>(ix.heads) * static_cast<float>(ix.dim));
  const auto score = [&](int t, int count, int key, int keys, float* scores,
                         std::ptrdiff_t stride) {
    const IndexQueries q{pass.index_q + static_cast<std::ptrdiff_t>(t) * ix.heads * ix.dim,
                         pass.index_weights + static_cast<std::ptrdiff_t>(t) * ix.heads, count,
                         ix.heads, scale};
    kernels_.index_scores({pass.cache.index_at(key), pass.cache.bf16, ix.dim}, keys, q, scores,
                          stride);
  };
  const auto finish = [&](TopK& best, int t) {
    best.finish(picks.keys + static_cast<std::ptrdiff_t>(t) * topk);
  };
  counters_.state_bytes +=
      pass.cache.index_bytes() * static_cast<std::size_t>(pass.visible(pass.tokens - 1));
  if (queries <= pool_.size()) {  // decode: threads share the keys
    const std::ptrdiff_t stride = (pass.visible(pass.tokens - 1) + 15) / 16 * 16;
    float* scores = scratch_.take<float>(static_cast<std::size_t>(queries) * stride);
    const int blocks = static_cast<int>((stride + kScoreBlock - 1) / kScoreBlock);
    pool_.run(blocks, [&](int b, int) {
      const int key = b * kScoreBlock;
      score(begin, queries, key, std::min<int>(kScoreBlock, static_cast<int>(stride) - key),
            scores + key, stride);
    });
    pool_.run(queries, [&](int i, int) {
      TopK best(topk, kernels_.keep_above);
      best.push(scores + i * stride, pass.visible(begin + i), 0);
      finish(best, begin + i);
    });
    return;
  }
  float* room = scratch_.take<float>(std::size_t{kQueryTile} * kScoreBlock * pool_.size());
  pool_.run((queries + kQueryTile - 1) / kQueryTile, [&](int task, int thread) {
    const int from = begin + task * kQueryTile;
    const int count = std::min(kQueryTile, pass.tokens - from);
    float* scores = room + static_cast<std::ptrdiff_t>(thread) * kQueryTile * kScoreBlock;
    std::vector<TopK> best(static_cast<std::size_t>(count), TopK(topk, kernels_.keep_above));
    const int last = pass.visible(from + count - 1);
    for (int key = 0; key < last; key += kScoreBlock) {
      score(from, count, key, std::min(kScoreBlock, last - key), scores, kScoreBlock);
      for (int i = 0; i < count; ++i) {
        const int seen = std::min(kScoreBlock, pass.visible(from + i) - key);
        if (seen > 0) best[i].push(scores + i * kScoreBlock, seen, key);
      }
    }
    for (int i = 0; i < count; ++i) finish(best[i], from + i);
  });
}

// z [tokens, heads, latent].
void CpuBackend::attend_latents(const LatentPass& pass, const Picks& picks, float* z) {
  const LatentWeights& w = pass.w;
  const LatentRows rows{pass.cache.rows, pass.cache.bf16, w.latent, w.rope};
  // Few queries: threads share the heads, in whole vectors of them.
  const int vectors = (w.heads + 15) / 16;
  const int parts = pass.tokens >= 2 * pool_.size() ? 1 : std::min(vectors, pool_.size());
  const int most = std::max(w.topk, kLatentPanel);
  const std::size_t room = latent_scratch_floats(w.heads, w.latent, w.rope, most);
  float* scratch = scratch_.take<float>((room + 15) / 16 * 16 * pool_.size());
  const std::size_t words = static_cast<std::size_t>(pass.visible(pass.tokens - 1)) / 64 + 1;
  pool_.run(pass.tokens * parts, [&](int task, int thread) {
    const int t = task / parts;
    const int begin = vectors * (task % parts) / parts * 16;
    const int end = std::min(w.heads, vectors * (task % parts + 1) / parts * 16);
    float* mine = scratch + (room + 15) / 16 * 16 * static_cast<std::size_t>(thread);
    const LatentQuery query{
        pass.joined + (static_cast<std::ptrdiff_t>(t) * w.heads + begin) * pass.row(), end - begin,
        w.scale};
    float* out = z + (static_cast<std::ptrdiff_t>(t) * w.heads + begin) * w.latent;
    const int visible = pass.visible(t);
    const std::int32_t* keys = picks.keys + static_cast<std::ptrdiff_t>(t) * w.topk;
    if (visible <= w.topk) {
      kernels_.latent_picked(rows, nullptr, visible, query, mine, out);
    } else if (gathers(w, visible)) {
      kernels_.latent_picked(rows, keys, picks.counts[t], query, mine, out);
    } else {
      std::vector<std::uint64_t> mask(words);
      for (int i = 0; i < picks.counts[t]; ++i)
        mask[static_cast<std::size_t>(keys[i]) / 64] |= std::uint64_t{1} << (keys[i] % 64);
      kernels_.latent_masked(rows, mask.data(), visible, query, mine, out);
    }
  });
  for (int t = 0; t < pass.tokens; ++t) {
    const int visible = pass.visible(t);
    const bool gathered = gathers(w, visible);
    const bool all = visible <= w.topk || !gathered;
    counters_.state_bytes +=
        pass.cache.row_bytes() * static_cast<std::size_t>(all ? visible : picks.counts[t]);
    if (visible > w.topk) ++(gathered ? counters_.gathered_queries : counters_.masked_queries);
  }
}

// The one place that decides.
bool CpuBackend::gathers(const LatentWeights& w, int visible) const {
  return pass_.sparse_attention && visible >= w.min_context;
}

Tensor CpuBackend::latent_attention(Tensor x, const LatentWeights& w, SequenceState& state,
                                    int layer, const Picks& picks) {
  auto& cpu_state = static_cast<CpuState&>(state);
  const Tensor out = make(x.rows, w.o.out);
  const std::size_t top = scratch_.mark();
  LatentPass pass{w, cpu_state.latents(layer), cpu_state.length(), x.rows, {}, {}};
  const auto tokens = static_cast<std::size_t>(x.rows);
  const auto heads = static_cast<std::size_t>(w.heads);
  pass.q = scratch_.take<float>(tokens * heads * (w.nope + w.rope));
  pass.joined = scratch_.take<float>(tokens * heads * pass.row());
  pass.index_q = scratch_.take<float>(tokens * w.indexer.heads * w.indexer.dim);
  pass.index_weights = scratch_.take<float>(tokens * w.indexer.heads);
  fill_rope(pass);
  project_latents(pass, data(x), x.width);
  absorb_queries(pass);
  lap("qkv");
  if (w.indexer.heads > 0) pick_keys(pass, picks);
  lap("pick");
  float* z = scratch_.take<float>(tokens * heads * w.latent);
  attend_latents(pass, picks, z);
  lap("attend");
  float* values = scratch_.take<float>(tokens * heads * w.value);
  multiply_heads(w.release, z, x.rows, false, values, w.value);
  project(values, x.rows, w.o, bf16_, data(out), out.width);
  lap("out_proj");
  scratch_.release(top);
  return out;
}

}  // namespace lacuna
