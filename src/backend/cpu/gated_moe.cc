// SPDX-License-Identifier: Apache-2.0
// SwiGLU MLPs, alone and as experts: down · (silu(gate · x) · (up · x)).
#include <algorithm>
#include <vector>

#include "backend/cpu/cpu_backend.h"

namespace lacuna {
namespace {

// Rows of experts whose values are at hand at once; a prompt's are taken in several goes.
constexpr int kMostRows = 4096;
constexpr int kRowsPerTask = 8;

}  // namespace

// Runs with the same number of neurons: gate and up, the gate's product, down; each token's result
// is added to y [*, out] in the order of the runs.
void CpuBackend::gated_runs(std::span<const GatedRun> runs, Inputs& inputs, float* y, int out) {
  const std::size_t top = scratch_.mark();
  const int neurons = runs[0].mlp->up.out;
  int rows = 0;
  for (const GatedRun& run : runs) rows += static_cast<int>(run.tokens.size());
  const auto values = static_cast<std::size_t>(rows) * neurons;
  float* gate = scratch_.take<float>(values);
  float* up = scratch_.take<float>(values);
  std::vector<Product> products;
  int first = 0;
  for (const GatedRun& run : runs) {
    for (const auto& [weight, to] : {std::pair{run.mlp->gate, gate}, {run.mlp->up, up}}) {
      Product p = product(weight, inputs, bf16_, to + static_cast<std::ptrdiff_t>(first) * neurons);
      p.rows = run.tokens.data();
      p.count = static_cast<int>(run.tokens.size());
      products.push_back(p);
    }
    first += static_cast<int>(run.tokens.size());
  }
  multiply(products);
  pool_.run((rows + kRowsPerTask - 1) / kRowsPerTask, [&](int task, int) {
    const std::ptrdiff_t begin = static_cast<std::ptrdiff_t>(task) * kRowsPerTask * neurons;
    const int n = std::min(kRowsPerTask, rows - task * kRowsPerTask) * neurons;
    kernels_.swiglu(gate + begin, up + begin, n, gate + begin);
  });

  Inputs hidden(*this, gate, rows);
  float* parts = scratch_.take<float>(static_cast<std::size_t>(rows) * out);
  int* numbers = scratch_.take<int>(static_cast<std::size_t>(rows));
  for (int i = 0; i < rows; ++i) numbers[i] = i;
  products.clear();
  first = 0;
  for (const GatedRun& run : runs) {
    Product p =
        product(run.mlp->down, hidden, bf16_, parts + static_cast<std::ptrdiff_t>(first) * out);
    p.rows = numbers + first;
    p.count = static_cast<int>(run.tokens.size());
    products.push_back(p);
    first += p.count;
  }
  multiply(products);

  // A thread owns outputs, in whole cache lines, and takes the runs in order.
  const int pieces = std::min(pool_.size(), (out + 15) / 16);
  pool_.run(pieces, [&](int piece, int) {
    const int lines = (out + 15) / 16;
    const int begin = lines * piece / pieces * 16;
    const int end = std::min(out, lines * (piece + 1) / pieces * 16);
    const float* part = parts + begin;
    for (const GatedRun& run : runs) {
      for (std::size_t i = 0; i < run.tokens.size(); ++i, part += out) {
        kernels_.axpy(run.weights.empty() ? 1.0f : run.weights[i], part, end - begin,
                      y + static_cast<std::ptrdiff_t>(run.tokens[i]) * out + begin);
      }
    }
  });
  scratch_.release(top);
}

CpuBackend::GatedRun CpuBackend::whole_run(const GatedMlpWeights& mlp, int tokens) {
  GatedRun run{&mlp, {}, {}};
  for (int t = 0; t < tokens; ++t) run.tokens.push_back(t);
  return run;
}

Tensor CpuBackend::gated_mlp(Tensor x, const GatedMlpWeights& w) {
  const Tensor out = make(x.rows, w.down.out);
  std::fill_n(data(out), static_cast<std::size_t>(x.rows) * out.width, 0.0f);
  const std::size_t top = scratch_.mark();
  Inputs inputs(*this, data(x), x.rows);
  const GatedRun run = whole_run(w, x.rows);
  gated_runs({&run, 1}, inputs, data(out), out.width);
  lap("mlp");
  scratch_.release(top);
  return out;
}

Tensor CpuBackend::gated_moe(Tensor x, const GatedMoeWeights& w) {
  const Tensor out = make(x.rows, x.width);
  std::fill_n(data(out), static_cast<std::size_t>(x.rows) * out.width, 0.0f);
  const std::size_t top = scratch_.mark();
  Inputs inputs(*this, data(x), x.rows);
  // The router reads float32 in every mode: a choice of experts must not hang on a rounding.
  float* logits = scratch_.take<float>(static_cast<std::size_t>(x.rows) * w.rules.experts);
  const Product router = product(w.router, inputs, false, logits);
  multiply({&router, 1});
  std::vector<GatedRun> runs(static_cast<std::size_t>(w.rules.experts));
  std::vector<int> ids(static_cast<std::size_t>(w.rules.chosen));
  std::vector<float> weights(ids.size());
  for (int t = 0; t < x.rows; ++t) {
    moe_route(w.rules,
              {logits + static_cast<std::ptrdiff_t>(t) * w.rules.experts,
               static_cast<std::size_t>(w.rules.experts)},
              w.correction_bias, ids, weights);
    for (std::size_t k = 0; k < ids.size(); ++k) {
      runs[ids[k]].tokens.push_back(t);
      runs[ids[k]].weights.push_back(weights[k]);
    }
  }
  for (std::size_t e = 0; e < runs.size(); ++e) runs[e].mlp = &w.experts[e];
  std::erase_if(runs, [](const GatedRun& run) { return run.tokens.empty(); });
  lap("route");

  for (std::size_t begin = 0; begin < runs.size();) {
    std::size_t end = begin;
    std::size_t rows = 0;
    do {
      rows += runs[end++].tokens.size();
    } while (end < runs.size() && rows + runs[end].tokens.size() <= kMostRows);
    gated_runs(std::span(runs).subspan(begin, end - begin), inputs, data(out), out.width);
    begin = end;
  }
  if (w.shared.up.out > 0) {
    const GatedRun shared = whole_run(w.shared, x.rows);
    gated_runs({&shared, 1}, inputs, data(out), out.width);
  }
  lap("experts");
  scratch_.release(top);
  return out;
}

}  // namespace lacuna
