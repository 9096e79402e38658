// SPDX-License-Identifier: Apache-2.0
// The op set on the CPU: each op splits its work into tasks for the pool and calls the kernels of
// the chosen instruction set. No arithmetic of its own beyond single scalars per token and head.
//
//   cpu_backend.cc  weights, embedding, norms, projections
//   mamba2.cc       the Mamba-2 mixer        attention.cc   the attention mixer
//   moe.cc          experts, ReLU² MLPs and their sparse down projections
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/cpu_state.h"
#include "backend/cpu/scratch.h"
#include "backend/cpu/weight_store.h"
#include "base/threads.h"
#include "ops/backend.h"
#include "ops/kernels.h"

namespace lacuna {

class CpuBackend : public Backend {
 public:
  CpuBackend(Isa isa, int threads, bool bf16);

  Weight add_projection(const LinearSource& source) override;
  Weight add_down(const LinearSource& source) override;
  Weight add_table(const LinearSource& source) override;
  Vector add_vector(std::span<const float> values) override;
  Result<void> load(const LoadOptions& options) override;
  std::uint64_t weight_bytes() const override;
  std::vector<std::string> notes() const override { return store_.notes(); }

  std::size_t mark() override { return scratch_.mark(); }
  void release(std::size_t mark) override { scratch_.release(mark); }

  Tensor embed(Weight table, std::span<const int> tokens) override;
  Tensor rms_norm(Tensor x, Vector weight, float eps) override;
  Tensor linear(Tensor x, Weight w) override;
  void add(Tensor x, Tensor y) override;
  Tensor last_rows(Tensor x, int rows) override;
  Tensor mamba2(Tensor x, const MambaWeights& w, SequenceState& state, int layer) override;
  Tensor attention(Tensor x, const AttentionWeights& w, SequenceState& state, int layer) override;
  Tensor moe(Tensor x, const MoeWeights& w) override;
  Tensor mlp(Tensor x, const MlpWeights& w) override;
  void advance(SequenceState& state, int tokens) override;
  void read(Tensor x, std::span<float> out) override;

  Result<std::unique_ptr<SequenceState>> new_state(std::span<const LayerState> layers,
                                                   int context) override;
  Counters& counters() override { return counters_; }

 private:
  // Tokens that chose one expert, or all of them for the shared one, and where their rows lie.
  struct Assignment {
    MlpWeights mlp;
    std::vector<int> tokens;     // rising; also the rows of x
    std::vector<float> weights;  // of each token, empty: 1 (the shared expert)
    std::vector<LiveRows> live;  // of each token
    bool shared() const { return weights.empty(); }
  };

  Tensor make(int rows, int width);
  static float* data(Tensor t) { return static_cast<float*>(t.handle); }
  const float* vector(Vector v) const { return vectors_[v.id].data(); }

  // Inputs for projections with this group size; `round` to bf16 when the mode says so.
  Activations prepare(const float* x, int rows, int in, int group, int groups, bool round);
  void project(const RowBlocks& w, const Activations& a, float* y, std::ptrdiff_t y_stride);
  // Prepares x for w and multiplies: for inputs that only one matrix reads.
  void project(const float* x, int rows, Weight w, bool round, float* y, std::ptrdiff_t y_stride);

  // ReLU² MLPs of `assignments`: up, the lists of live neurons, down; each token's outputs are
  // added to y [rows, out] in the order of the assignments. y must be zero or hold what is added
  // to.
  void run_experts(const float* x, int rows, std::vector<Assignment>& assignments, float* y,
                   int out);
  void up_and_live(const float* x, int rows, std::vector<Assignment>& assignments);
  void down(const std::vector<Assignment>& assignments, int rows, float* y, int out);
  void count_experts(const std::vector<Assignment>& assignments);

  ThreadPool pool_;
  const Kernels& kernels_;
  bool bf16_;
  WeightStore store_;
  std::deque<LinearSource> tables_;
  std::vector<std::vector<float>> vectors_;
  Scratch scratch_;
  Counters counters_;
};

}  // namespace lacuna
