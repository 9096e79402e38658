// SPDX-License-Identifier: Apache-2.0
// Mixture of ReLU² experts: routing, up projections, lists of live neurons, sparse down
// projections.
#include <algorithm>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "base/check.h"

namespace lacuna {
namespace {

// Tokens of one expert from which its live rows are decoded once for a tile of them.
constexpr int kTileFrom = 4;

}  // namespace

void CpuBackend::up_and_live(const float* x, int rows, std::vector<Assignment>& assignments) {
  // All up projections of a call read the same inputs; experts of one layer share a group size
  // unless the checkpoint overrides single modules, so inputs are prepared once per size that
  // occurs.
  std::vector<Activations> prepared;
  std::vector<int> inputs(assignments.size());
  struct Task {
    int assignment, block;
  };
  std::vector<Task> up_tasks, live_tasks;
  std::vector<float*> ups(assignments.size());
  for (std::size_t i = 0; i < assignments.size(); ++i) {
    Assignment& a = assignments[i];
    const RowBlocks& w = store_.row_blocks(a.mlp.up.id);
    const auto same = std::find_if(prepared.begin(), prepared.end(),
                                   [&](const Activations& p) { return p.group == w.group; });
    inputs[i] = static_cast<int>(same - prepared.begin());
    if (same == prepared.end())
      prepared.push_back(prepare(x, rows, w.in, w.group, w.groups, bf16_));
    ups[i] = scratch_.take<float>(a.tokens.size() * static_cast<std::size_t>(w.out));
    for (int b = 0; b < w.blocks(); ++b) up_tasks.push_back({static_cast<int>(i), b});
    for (std::size_t t = 0; t < a.tokens.size(); ++t)
      live_tasks.push_back({static_cast<int>(i), static_cast<int>(t)});
  }
  pool_.run(static_cast<int>(up_tasks.size()), [&](int task, int) {
    const auto [i, block] = up_tasks[task];
    const Assignment& a = assignments[i];
    const RowBlocks& w = store_.row_blocks(a.mlp.up.id);
    kernels_.linear_block(w, block, prepared[inputs[i]], a.tokens.data(),
                          static_cast<int>(a.tokens.size()), ups[i], w.out);
  });

  std::vector<int*> indices(assignments.size()), begins(assignments.size());
  std::vector<float*> sums(assignments.size());
  for (std::size_t i = 0; i < assignments.size(); ++i) {
    Assignment& a = assignments[i];
    const NeuronMajor& w = store_.neuron_major(a.mlp.down.id);
    indices[i] = scratch_.take<int>(a.tokens.size() * static_cast<std::size_t>(w.in));
    begins[i] = scratch_.take<int>(a.tokens.size() * static_cast<std::size_t>(w.groups + 1));
    sums[i] = scratch_.take<float>(a.tokens.size() * static_cast<std::size_t>(w.groups));
    a.live.resize(a.tokens.size());
  }
  std::vector<std::uint64_t> live_neurons(assignments.size() * pool_.size());
  pool_.run(static_cast<int>(live_tasks.size()), [&](int task, int thread) {
    const auto [i, t] = live_tasks[task];
    Assignment& a = assignments[i];
    const NeuronMajor& w = store_.neuron_major(a.mlp.down.id);
    float* up = ups[i] + static_cast<std::ptrdiff_t>(t) * w.in;
    int* index = indices[i] + static_cast<std::ptrdiff_t>(t) * w.in;
    int* begin = begins[i] + static_cast<std::ptrdiff_t>(t) * (w.groups + 1);
    float* sum = sums[i] + static_cast<std::ptrdiff_t>(t) * w.groups;
    // The values replace the up projection's output in place: the list never runs ahead of its
    // source.
    live_neurons[i * pool_.size() + thread] += static_cast<std::uint64_t>(
        kernels_.relu2_live(up, w.in, w.group, bf16_, !pass_.sparse_experts, index, up, begin, sum));
    a.live[t] = {index, up, begin, sum};
  });
  for (std::size_t i = 0; i < live_neurons.size(); ++i) {
    counters_.live_neurons += live_neurons[i];
    if (assignments[i / pool_.size()].shared()) counters_.shared_live_neurons += live_neurons[i];
  }
}

void CpuBackend::down(const std::vector<Assignment>& assignments, int rows, float* y, int out) {
  const auto kernel = bf16_ ? kernels_.sparse_down_bf16 : kernels_.sparse_down;
  const int width = (out + kColumnBlock - 1) / kColumnBlock * kColumnBlock;
  // Few tokens: one wide band of columns per thread, so that a row is read in long pieces. Many:
  // one column block a task. A column's sums are the same either way.
  const int blocks = width / kColumnBlock;
  const int tasks = rows < kTileFrom ? std::min(blocks, pool_.size()) : blocks;
  std::vector<float*> temporary(pool_.size());
  std::size_t most = kTileFrom;
  for (const Assignment& a : assignments) most = std::max(most, a.tokens.size());
  const std::size_t room = std::max<std::size_t>(width, most * kColumnBlock);
  for (auto& p : temporary) p = scratch_.take<float>(room);
  std::vector<std::uint64_t> rows_read(pool_.size()), bytes_read(pool_.size());

  pool_.run(tasks, [&](int task, int thread) {
    const int begin = blocks * task / tasks * kColumnBlock;
    const int end = blocks * (task + 1) / tasks * kColumnBlock;
    float* part = temporary[thread];
    const auto add = [&](const Assignment& a, std::size_t t, const float* from, int first,
                         int last) {
      float* to = y + static_cast<std::ptrdiff_t>(a.tokens[t]) * out;
      const float weight = a.weights.empty() ? 1.0f : a.weights[t];
      for (int d = first; d < std::min(last, out); ++d)
        to[d] = __builtin_fmaf(weight, from[d - first], to[d]);
    };
    for (const Assignment& a : assignments) {
      const NeuronMajor& w = store_.neuron_major(a.mlp.down.id);
      if (a.tokens.size() < kTileFrom) {
        for (std::size_t t = 0; t < a.tokens.size(); ++t) {
          kernel(w, a.live[t], begin, end, part);
          add(a, t, part + begin, begin, end);
        }
        continue;
      }
      for (int column = begin; column < end; column += kColumnBlock) {
        const int n = static_cast<int>(a.tokens.size());
        const int decoded = kernels_.sparse_down_tokens(w, a.live.data(), n, column, part);
        rows_read[thread] += static_cast<std::uint64_t>(decoded);
        bytes_read[thread] +=
            static_cast<std::uint64_t>(decoded) * w.row_bytes() * kColumnBlock / w.width();
        for (std::size_t t = 0; t < a.tokens.size(); ++t) {
          add(a, t, part + t * kColumnBlock, column, column + kColumnBlock);
        }
      }
    }
  });
  // Each column block of a tile decodes the same rows.
  for (const std::uint64_t n : rows_read)
    counters_.tile_rows_read += n / static_cast<std::uint64_t>(blocks);
  for (const std::uint64_t bytes : bytes_read) counters_.weight_bytes += bytes;
}

void CpuBackend::count_experts(const std::vector<Assignment>& assignments) {
  for (const Assignment& a : assignments) {
    const RowBlocks& up = store_.row_blocks(a.mlp.up.id);
    const NeuronMajor& w = store_.neuron_major(a.mlp.down.id);
    counters_.weight_bytes += up.bytes();
    const std::uint64_t neurons = a.tokens.size() * static_cast<std::uint64_t>(w.in);
    counters_.neurons += neurons;
    if (a.shared()) counters_.shared_neurons += neurons;
    const bool tiled = a.tokens.size() >= kTileFrom;
    // Dense decode reads the matrix once per token of a small batch, dense prefill once per tile.
    const std::uint64_t passes =
        tiled ? (a.tokens.size() + kDownTile - 1) / kDownTile : a.tokens.size();
    counters_.weight_bytes_dense += up.bytes() + passes * w.bytes();
    if (tiled) {
      counters_.tile_rows += passes * static_cast<std::uint64_t>(w.in);
      counters_.weight_bytes += passes * w.scale_row_bytes() * static_cast<std::uint64_t>(w.groups);
      continue;
    }
    for (const LiveRows& live : a.live) {
      int live_groups = 0;
      for (int g = 0; g < w.groups; ++g)
        live_groups += live.group_begin[g] < live.group_begin[g + 1];
      counters_.weight_bytes +=
          w.row_bytes() * static_cast<std::uint64_t>(live.group_begin[w.groups]) +
          w.scale_row_bytes() * static_cast<std::uint64_t>(live_groups);
    }
  }
}

void CpuBackend::run_experts(const float* x, int rows, std::vector<Assignment>& assignments,
                             float* y, int out) {
  const std::size_t top = scratch_.mark();
  up_and_live(x, rows, assignments);
  lap("up");
  down(assignments, rows, y, out);
  count_experts(assignments);
  lap("down");
  scratch_.release(top);
}

Tensor CpuBackend::mlp(Tensor x, const MlpWeights& w) {
  const Tensor out = make(x.rows, w.down.out);
  std::fill_n(data(out), static_cast<std::size_t>(x.rows) * out.width, 0.0f);
  std::vector<Assignment> all(1);
  all[0].mlp = w;
  for (int t = 0; t < x.rows; ++t) all[0].tokens.push_back(t);
  run_experts(data(x), x.rows, all, data(out), out.width);
  return out;
}

Tensor CpuBackend::moe(Tensor x, const MoeWeights& w) {
  const int tokens = x.rows;
  const Tensor out = make(tokens, x.width);
  std::fill_n(data(out), static_cast<std::size_t>(tokens) * out.width, 0.0f);
  const std::size_t top = scratch_.mark();

  // The router reads float32 in every mode: a choice of experts must not hang on a rounding.
  float* logits = scratch_.take<float>(static_cast<std::size_t>(tokens) * w.rules.experts);
  project(data(x), tokens, w.router, false, logits, w.rules.experts);
  std::vector<Assignment> by_expert(w.rules.experts);
  std::vector<int> ids(w.rules.chosen);
  std::vector<float> weights(w.rules.chosen);
  for (int t = 0; t < tokens; ++t) {
    moe_route(w.rules,
              {logits + static_cast<std::ptrdiff_t>(t) * w.rules.experts,
               static_cast<std::size_t>(w.rules.experts)},
              w.correction_bias, ids, weights);
    for (int k = 0; k < w.rules.chosen; ++k) {
      by_expert[ids[k]].tokens.push_back(t);
      by_expert[ids[k]].weights.push_back(weights[k]);
    }
  }
  lap("route");
  // Rising expert number is the order in which a token's experts are added.
  std::vector<Assignment> work;
  for (int e = 0; e < w.rules.experts; ++e) {
    if (by_expert[e].tokens.empty()) continue;
    by_expert[e].mlp = w.experts[e];
    work.push_back(std::move(by_expert[e]));
  }
  Assignment shared;
  shared.mlp = w.shared;
  if (w.shared.up.out > 0) {
    for (int t = 0; t < tokens; ++t) shared.tokens.push_back(t);
  }

  if (w.latent_in.out == 0) {
    if (!shared.tokens.empty()) work.push_back(std::move(shared));
    run_experts(data(x), tokens, work, data(out), out.width);
  } else {
    const int latent = w.latent_in.out;
    float* u = scratch_.take<float>(static_cast<std::size_t>(tokens) * latent);
    float* mixed = scratch_.take<float>(static_cast<std::size_t>(tokens) * latent);
    std::fill_n(mixed, static_cast<std::size_t>(tokens) * latent, 0.0f);
    project(data(x), tokens, w.latent_in, bf16_, u, latent);
    run_experts(u, tokens, work, mixed, latent);
    project(mixed, tokens, w.latent_out, bf16_, data(out), out.width);
    std::vector<Assignment> only_shared;
    if (!shared.tokens.empty()) only_shared.push_back(std::move(shared));
    run_experts(data(x), tokens, only_shared, data(out), out.width);
  }
  scratch_.release(top);
  return out;
}

}  // namespace lacuna
