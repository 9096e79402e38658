// SPDX-License-Identifier: Apache-2.0
// Mixture of ReLU² experts: routing, up projections, lists of live neurons, sparse down
// projections.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/cpu/cpu_backend.h"
#include "base/check.h"

namespace lacuna {
namespace {

// Rows of a pass up to which each (token, expert) has outputs of its own that are summed at the
// end: any split over threads, at the price of that memory. Above, threads own columns.
constexpr int kFewRows = 64;
constexpr int kTokensPerList = 16;  // tokens of a task that lists live neurons

int column_blocks(int out) { return (out + kColumnBlock - 1) / kColumnBlock; }

}  // namespace

const Activations& CpuBackend::Inputs::of(const RowBlocks& w, bool round) {
  for (const auto& [a, rounded] : prepared_) {
    if (a.group == w.group && rounded == round) return a;
  }
  prepared_.emplace_back(backend_.prepare(x_, rows_, w.in, w.group, w.groups, round), round);
  return prepared_.back().first;
}

CpuBackend::Product CpuBackend::up(ExpertRun& run, Inputs& inputs) {
  const RowBlocks& w = store_.row_blocks(run.mlp.up.id);
  const NeuronMajor& down = store_.neuron_major(run.mlp.down.id);
  run.stride = down.group * down.groups;
  run.up = scratch_.take<float>(run.tokens.size() * static_cast<std::size_t>(run.stride));
  counters_.weight_bytes += w.bytes();
  counters_.weight_bytes_dense += w.bytes();
  return {&w,
          &inputs.of(w, bf16_),
          run.tokens.data(),
          static_cast<int>(run.tokens.size()),
          run.up,
          run.stride};
}

void CpuBackend::list_live(std::span<ExpertRun> runs, bool few) {
  struct Task {
    ExpertRun* run;
    std::size_t begin;
  };
  std::vector<Task> tasks;
  const std::size_t per_task = few ? 1 : kTokensPerList;
  for (ExpertRun& run : runs) {
    const NeuronMajor& w = store_.neuron_major(run.mlp.down.id);
    const std::size_t n = run.tokens.size();
    int* index = scratch_.take<int>(n * static_cast<std::size_t>(w.in));
    float* h = scratch_.take<float>(n * static_cast<std::size_t>(w.in));
    int* begin = scratch_.take<int>(n * static_cast<std::size_t>(w.groups + 1));
    float* sums = scratch_.take<float>(n * static_cast<std::size_t>(w.groups));
    run.live.resize(n);
    run.live_count.resize(n);
    run.pairs = few ? nullptr : scratch_.take<std::uint32_t>(n * (run.stride / 2u));
    run.sums = sums;
    for (std::size_t t = 0; t < n; ++t) {
      run.live[t] = {index + t * w.in, h + t * w.in, begin + t * (w.groups + 1),
                     sums + t * w.groups};
      if (t % per_task == 0) tasks.push_back({&run, t});
    }
  }
  pool_.run(static_cast<int>(tasks.size()), [&](int task, int) {
    ExpertRun& run = *tasks[task].run;
    const NeuronMajor& w = store_.neuron_major(run.mlp.down.id);
    const std::size_t end = std::min(run.tokens.size(), tasks[task].begin + per_task);
    for (std::size_t t = tasks[task].begin; t < end; ++t) {
      float* up = run.up + static_cast<std::ptrdiff_t>(t) * run.stride;
      const LiveRows& live = run.live[t];
      // This scratch is ours: the lists are const only to those who read them.
      run.live_count[t] =
          kernels_.relu2_live(up, w.in, w.group, bf16_, few && !pass_.sparse_experts,
                              const_cast<int*>(live.index), const_cast<float*>(live.h),
                              const_cast<int*>(live.group_begin), const_cast<float*>(live.sums));
      if (few || !takes_every_row(run, t)) continue;
      kernels_.prepare_activations(up, w.in, run.stride, w.group, bf16_, up,
                                   run.pairs + static_cast<std::ptrdiff_t>(t) * (run.stride / 2),
                                   const_cast<float*>(live.sums));
    }
  });
}

bool CpuBackend::takes_every_row(const ExpertRun& run, std::size_t t) const {
  return !pass_.sparse_experts ||
         static_cast<float>(run.live_count[t]) >= kDenseShare * static_cast<float>(run.mlp.down.in);
}

// Few rows: each token's pass through an expert is a task of its own, or several side by side.
void CpuBackend::down_few(std::span<const ExpertRun> runs, float* y, int out) {
  const auto kernel = bf16_ ? kernels_.sparse_down_bf16 : kernels_.sparse_down;
  const int width = column_blocks(out) * kColumnBlock;
  struct Task {
    const ExpertRun* run;
    std::size_t token;
    int begin, end;  // outputs
    float* part;     // [width]
  };
  std::vector<Task> tasks;
  double neurons = 0;
  for (const ExpertRun& run : runs)
    neurons += static_cast<double>(run.tokens.size()) * run.mlp.down.in;
  for (const ExpertRun& run : runs) {
    // About four equal tasks a thread, and each a long piece of a row.
    const int bands =
        std::clamp(static_cast<int>(std::lround(run.mlp.down.in * 4.0 * pool_.size() / neurons)), 1,
                   column_blocks(out));
    for (std::size_t t = 0; t < run.tokens.size(); ++t) {
      float* part = scratch_.take<float>(width);
      for (int b = 0; b < bands; ++b) {
        tasks.push_back({&run, t, column_blocks(out) * b / bands * kColumnBlock,
                         column_blocks(out) * (b + 1) / bands * kColumnBlock, part});
      }
    }
  }
  pool_.run(static_cast<int>(tasks.size()), [&](int task, int) {
    const Task& k = tasks[task];
    kernel(store_.neuron_major(k.run->mlp.down.id), k.run->live[k.token], k.begin, k.end, k.part);
  });
  for (const Task& k : tasks) {  // in the order of the runs, which is that of the sum
    if (k.begin > 0) continue;
    kernels_.axpy(k.run->weight(k.token), k.part, out,
                  y + static_cast<std::ptrdiff_t>(k.run->tokens[k.token]) * out);
  }
}

// One expert's share of outputs [begin, end) for its tokens in [first, last), added to y.
void CpuBackend::down_band(const ExpertRun& run, int first, int last, int begin, int end,
                           float* part, float* y, int out) {
  const auto kernel = bf16_ ? kernels_.sparse_down_bf16 : kernels_.sparse_down;
  const NeuronMajor& w = store_.neuron_major(run.mlp.down.id);
  const auto from = std::lower_bound(run.tokens.begin(), run.tokens.end(), first);
  const auto to = std::lower_bound(from, run.tokens.end(), last);
  const auto add = [&](int t, const float* values, int d, int count) {
    kernels_.axpy(run.weight(t), values, std::min(count, out - d),
                  y + static_cast<std::ptrdiff_t>(run.tokens[t]) * out + d);
  };
  std::vector<int> whole;
  for (int t = static_cast<int>(from - run.tokens.begin()); t < to - run.tokens.begin(); ++t) {
    if (takes_every_row(run, t)) {
      whole.push_back(t);
      continue;
    }
    kernel(w, run.live[t], begin, end, part);
    add(t, part + begin, begin, end - begin);
  }
  if (whole.empty()) return;
  const bool paired = bf16_ && kernels_.isa == Isa::kAvx512Bf16;
  const Activations a{static_cast<int>(run.tokens.size()), run.stride, w.group, w.groups, run.up,
                      paired ? run.pairs : nullptr,        run.sums};
  for (int column = begin; column < end; column += kColumnBlock) {
    kernels_.dense_down(w, a, whole.data(), static_cast<int>(whole.size()), column, part);
    for (std::size_t i = 0; i < whole.size(); ++i)
      add(whole[i], part + i * kColumnBlock, column, kColumnBlock);
  }
}

// Many rows: a thread owns columns and adds expert after expert to them. Columns that do not divide
// among the threads are shared out by token.
void CpuBackend::down_many(std::span<const ExpertRun> runs, int rows, float* y, int out) {
  const int blocks = column_blocks(out);
  const int threads = pool_.size();
  const int own = blocks / threads;  // column blocks of each thread, in two tasks
  struct Task {
    int first, last;  // tokens
    int begin, end;   // column blocks
  };
  std::vector<Task> tasks;
  for (int half = 0; half < 2 * threads && own > 0; ++half) {
    const int begin = half / 2 * own + half % 2 * ((own + 1) / 2);
    const int end = half % 2 == 0 ? begin + (own + 1) / 2 : half / 2 * own + own;
    if (begin < end) tasks.push_back({0, rows, begin, end});
  }
  if (own * threads < blocks) {
    for (int part = 0; part < threads; ++part) {
      tasks.push_back({rows * part / threads, rows * (part + 1) / threads, own * threads, blocks});
    }
  }
  std::size_t most = 1;
  for (const ExpertRun& run : runs) most = std::max(most, run.tokens.size());
  std::vector<float*> parts(threads);
  for (auto& p : parts)
    p = scratch_.take<float>(std::max<std::size_t>(blocks, most) * kColumnBlock);
  pool_.run(static_cast<int>(tasks.size()), [&](int task, int thread) {
    const Task& k = tasks[task];
    for (const ExpertRun& run : runs) {
      down_band(run, k.first, k.last, k.begin * kColumnBlock, k.end * kColumnBlock, parts[thread],
                y, out);
    }
  });
}

// Rows and scales are counted once for the tokens that share them: caches hold an expert that long.
void CpuBackend::count_down(const ExpertRun& run) {
  const NeuronMajor& w = store_.neuron_major(run.mlp.down.id);
  const auto neurons = static_cast<std::uint64_t>(w.in);
  const std::size_t tokens = run.tokens.size();
  std::uint64_t live = 0;
  std::uint64_t rows_read = 0;
  std::uint64_t groups_read = 0;
  for (const int n : run.live_count) live += static_cast<std::uint64_t>(n);
  std::vector<std::uint8_t> needed(tokens > 1 ? w.group : 0);
  for (int g = 0; g < w.groups; ++g) {
    int rows = std::min(w.group, w.in - g * w.group);
    if (pass_.sparse_experts && tokens == 1) {
      rows = run.live[0].group_begin[g + 1] - run.live[0].group_begin[g];
    } else if (pass_.sparse_experts) {
      std::fill(needed.begin(), needed.end(), std::uint8_t{0});
      for (const LiveRows& l : run.live) {
        for (int i = l.group_begin[g]; i < l.group_begin[g + 1]; ++i)
          needed[l.index[i] - g * w.group] = 1;
      }
      rows = std::accumulate(needed.begin(), needed.end(), 0);
    }
    rows_read += static_cast<std::uint64_t>(rows);
    groups_read += rows > 0;
  }
  counters_.neurons += tokens * neurons;
  counters_.live_neurons += live;
  if (run.shared()) {
    counters_.shared_neurons += tokens * neurons;
    counters_.shared_live_neurons += live;
  }
  counters_.expert_rows += neurons;
  counters_.expert_rows_read += rows_read;
  counters_.weight_bytes += rows_read * w.row_bytes() + groups_read * w.scale_row_bytes();
  counters_.weight_bytes_dense += w.bytes();
}

void CpuBackend::down(std::span<ExpertRun> runs, int rows, float* y, int out) {
  const bool few = rows <= kFewRows;
  list_live(runs, few);
  lap("lists");
  if (few) {
    down_few(runs, y, out);
  } else {
    down_many(runs, rows, y, out);
  }
  for (const ExpertRun& run : runs) count_down(run);
}

// The tokens by expert, experts rising: the order in which a token's experts are added.
std::vector<CpuBackend::ExpertRun> CpuBackend::route(const MoeWeights& w, const float* logits,
                                                     int tokens) {
  std::vector<ExpertRun> by_expert(w.rules.experts);
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
  std::vector<ExpertRun> runs;
  for (int e = 0; e < w.rules.experts; ++e) {
    if (by_expert[e].tokens.empty()) continue;
    by_expert[e].mlp = w.experts[e];
    runs.push_back(std::move(by_expert[e]));
  }
  return runs;
}

CpuBackend::ExpertRun CpuBackend::all_tokens(const MlpWeights& mlp, int tokens) {
  ExpertRun run;
  run.mlp = mlp;
  for (int t = 0; t < tokens; ++t) run.tokens.push_back(t);
  return run;
}

Tensor CpuBackend::mlp(Tensor x, const MlpWeights& w) {
  const Tensor out = make(x.rows, w.down.out);
  std::fill_n(data(out), static_cast<std::size_t>(x.rows) * out.width, 0.0f);
  const std::size_t top = scratch_.mark();
  ExpertRun run = all_tokens(w, x.rows);
  Inputs inputs(*this, data(x), x.rows);
  const Product product = up(run, inputs);
  multiply({&product, 1});
  lap("up");
  down({&run, 1}, x.rows, data(out), out.width);
  lap("down");
  scratch_.release(top);
  return out;
}

Tensor CpuBackend::moe(Tensor x, const MoeWeights& w) {
  const int tokens = x.rows;
  const Tensor out = make(tokens, x.width);
  std::fill_n(data(out), static_cast<std::size_t>(tokens) * out.width, 0.0f);
  const std::size_t top = scratch_.mark();
  const bool latent = w.latent_in.out > 0;
  Inputs inputs(*this, data(x), tokens);

  // All that reads x alone in one loop. The router reads float32 in every mode: a choice of experts
  // must not hang on a rounding.
  std::vector<Product> first;
  float* logits = scratch_.take<float>(static_cast<std::size_t>(tokens) * w.rules.experts);
  first.push_back(product(w.router, inputs, false, logits));
  ExpertRun shared;
  if (w.shared.up.out > 0) {
    shared = all_tokens(w.shared, tokens);
    first.push_back(up(shared, inputs));
  }
  float* u = data(x);
  if (latent) {
    u = scratch_.take<float>(static_cast<std::size_t>(tokens) * w.latent_in.out);
    first.push_back(product(w.latent_in, inputs, bf16_, u));
  }
  multiply(first);
  std::vector<ExpertRun> runs = route(w, logits, tokens);
  lap("route");

  Inputs latent_inputs(*this, u, tokens);
  std::vector<Product> ups;
  for (ExpertRun& run : runs) ups.push_back(up(run, latent ? latent_inputs : inputs));
  multiply(ups);
  lap("up");

  if (latent) {
    const int width = w.latent_in.out;
    float* mixed = scratch_.take<float>(static_cast<std::size_t>(tokens) * width);
    std::fill_n(mixed, static_cast<std::size_t>(tokens) * width, 0.0f);
    down(runs, tokens, mixed, width);
    project(mixed, tokens, w.latent_out, bf16_, data(out), out.width);
    runs.clear();
  }
  if (w.shared.up.out > 0) runs.push_back(std::move(shared));
  down(runs, tokens, data(out), out.width);
  lap("down");
  scratch_.release(top);
  return out;
}

}  // namespace lacuna
