// SPDX-License-Identifier: Apache-2.0
// The op set on the CPU: each op splits its work into tasks for the pool and calls the kernels of
// the chosen instruction set. No arithmetic of its own beyond single scalars per token and head.
//
//   cpu_backend.cc  weights, embedding, norms, projections
//   mamba2.cc       the Mamba-2 mixer        attention.cc   the attention mixer
//   moe.cc          experts, ReLU² MLPs and their sparse down projections
//   latent_attention.cc  attention over latents with an indexer     gated_moe.cc   SwiGLU experts
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
  Tensor linear_slices(Tensor x, Weight w, std::span<const int> slices) override;
  void add(Tensor x, Tensor y) override;
  Tensor last_rows(Tensor x, int rows) override;
  Tensor join(Tensor x, Tensor y) override;
  Tensor write(std::span<const float> values, int width) override;
  Tensor mamba2(Tensor x, const MambaWeights& w, SequenceState& state, int layer) override;
  Tensor attention(Tensor x, const AttentionWeights& w, SequenceState& state, int layer,
                   int want) override;
  Tensor moe(Tensor x, const MoeWeights& w) override;
  Tensor mlp(Tensor x, const MlpWeights& w) override;
  Tensor gated_moe(Tensor x, const GatedMoeWeights& w) override;
  Tensor gated_mlp(Tensor x, const GatedMlpWeights& w) override;
  Picks make_picks(int tokens, int most) override;
  Tensor latent_attention(Tensor x, const LatentWeights& w, SequenceState& state, int layer,
                          const Picks& picks) override;
  void advance(SequenceState& state, int tokens) override;
  void read(Tensor x, std::span<float> out) override;

  Result<std::unique_ptr<SequenceState>> new_state(std::span<const LayerState> layers,
                                                   int context) override;
  Counters& counters() override { return counters_; }

  // Some heads of one group: what a task of the Mamba-2 recurrence owns.
  struct HeadRange {
    int group, begin, end;
  };
  // The queries of a pass in one attention layer.
  struct Queries {
    const float* q;  // [tokens, heads, head_dim]
    float* out;      // likewise
    int first;       // position of token 0
    int tokens, heads, kv_heads, head_dim;
  };
  // Rows [begin, end) of one kv head, at most kAttendRows: row r is token r / share, and query head
  // r % share of those that share the kv head.
  struct QueryRows {
    int kv_head, begin, end;
  };

 private:
  // One matrix product: rows `rows` of `a` (its first `count` when null) times w, into y.
  struct Product {
    const RowBlocks* w;
    const Activations* a;
    const int* rows;
    int count;
    float* y;
    std::ptrdiff_t y_stride;
    std::span<const int> only = {};  // these blocks, whose outputs lie side by side; empty: all

    int blocks() const { return only.empty() ? w->blocks() : static_cast<int>(only.size()); }
  };
  // The tokens of a pass that go through one expert, or all of them through the shared one, and
  // their rows on the way.
  struct ExpertRun {
    MlpWeights mlp;
    std::vector<int> tokens;     // rising
    std::vector<float> weights;  // of each token; empty: 1 (a shared expert, an MLP)
    int stride = 0;              // floats between rows of up
    float* up = nullptr;         // [tokens, stride]: what up gives, then its ReLU²
    std::vector<LiveRows> live;  // of each token
    std::vector<int> live_count;
    std::uint32_t* pairs = nullptr;  // [tokens, stride / 2], of tokens that take every row
    float* sums = nullptr;           // [tokens, groups]

    bool shared() const { return weights.empty(); }
    float weight(std::size_t t) const { return weights.empty() ? 1.0f : weights[t]; }
  };
  // x [rows, …] prepared once for each group size and rounding that its matrices ask for.
  class Inputs {
   public:
    Inputs(CpuBackend& backend, const float* x, int rows) : backend_(backend), x_(x), rows_(rows) {}
    const Activations& of(const RowBlocks& w, bool round);
    int rows() const { return rows_; }

   private:
    CpuBackend& backend_;
    const float* x_;
    int rows_;
    std::deque<std::pair<Activations, bool>> prepared_;  // references stay
  };

  Tensor make(int rows, int width);
  static float* data(Tensor t) { return static_cast<float*>(t.handle); }
  const float* vector(Vector v) const { return vectors_[v.id].data(); }

  // Inputs for projections with this group size; `round` to bf16 when the mode says so.
  Activations prepare(const float* x, int rows, int in, int group, int groups, bool round);
  // All rows times w into y [rows, w.out]; counts the bytes.
  Product product(Weight w, Inputs& inputs, bool round, float* y);
  void multiply(std::span<const Product> products);  // in one loop over all their blocks
  // Prepares x for w and multiplies: for inputs that only one matrix reads.
  void project(const float* x, int rows, Weight w, bool round, float* y, int y_width);

  void attend_tiles(const KvCache& kv, const Queries& in, std::span<const QueryRows> tiles);
  void attend_bands(const KvCache& kv, const Queries& in, std::span<const QueryRows> tiles);

  // Attention over latents (latent_attention.cc).
  struct LatentPass;
  void fill_rope(LatentPass& pass);
  void project_latents(LatentPass& pass, const float* x, int width);
  void absorb_queries(LatentPass& pass);
  void pick_keys(const LatentPass& pass, const Picks& picks);
  void attend_latents(const LatentPass& pass, const Picks& picks, float* z);
  bool gathers(const LatentWeights& w, int visible) const;
  void multiply_heads(std::span<const Weight> weights, const float* x, int tokens, bool head_major,
                      float* y, int stride);

  // SwiGLU experts (gated_moe.cc).
  struct GatedRun {
    const GatedMlpWeights* mlp;
    std::vector<int> tokens;     // rising
    std::vector<float> weights;  // of each token; empty: 1
  };
  static GatedRun whole_run(const GatedMlpWeights& mlp, int tokens);
  void gated_runs(std::span<const GatedRun> runs, Inputs& inputs, float* y, int out);

  void recur(const MambaWeights& w, MambaCache& cache, const float* p, int tokens,
             const HeadRange& heads, float* scratch, float* y);

  // ReLU² MLPs (moe.cc).
  std::vector<ExpertRun> route(const MoeWeights& w, const float* logits, int tokens);
  static ExpertRun all_tokens(const MlpWeights& mlp, int tokens);
  Product up(ExpertRun& run, Inputs& inputs);
  // From what up gave: each token's outputs are added to y [rows, out] in the order of the runs.
  void down(std::span<ExpertRun> runs, int rows, float* y, int out);
  void list_live(std::span<ExpertRun> runs, bool few);
  bool takes_every_row(const ExpertRun& run, std::size_t t) const;
  void down_few(std::span<const ExpertRun> runs, float* y, int out);
  void down_many(std::span<const ExpertRun> runs, int rows, float* y, int out);
  void down_band(const ExpertRun& run, int first, int last, int begin, int end, float* part,
                 float* y, int out);
  void count_down(const ExpertRun& run);

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
