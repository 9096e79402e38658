// SPDX-License-Identifier: Apache-2.0
// The op set: what a device must do so that a model, written once, runs on it.
//
// Model code handles Tensors, which are names of device memory and have no data pointer; weights
// and states are names too. An op may run behind (a GPU) or at once (the CPU); `read` waits. The
// calls are coarse enough that being virtual costs nothing. One thread uses a Backend at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/linear_source.h"
#include "lacuna/counters.h"
#include "lacuna/result.h"
#include "lacuna/trace.h"
#include "ops/moe_route/moe_route.h"

namespace lacuna {

// Activations [rows, width], float32, row-major. Valid until the scratch mark before it is
// released.
struct Tensor {
  int rows = 0, width = 0;
  void* handle = nullptr;
};

struct Weight {  // a matrix [out, in]; out == 0: absent
  int id = -1, out = 0, in = 0;
};
struct Vector {  // a small float32 tensor
  int id = -1, size = 0;
};

struct MambaWeights {
  Weight in_proj, out_proj;
  Vector conv_weight, conv_bias;  // [taps, channels] (taps outermost), [channels]
  Vector a_log, d, dt_bias;       // [heads]
  Vector gate_norm;               // [inner]
  int heads = 0, head_dim = 0, groups = 0, state = 0, taps = 0;
  float dt_min = 0, dt_max = 0, eps = 0;
  int inner() const { return heads * head_dim; }
  int channels() const { return inner() + 2 * groups * state; }
};

struct AttentionWeights {
  Weight q, k, v, o;
  int heads = 0, kv_heads = 0, head_dim = 0;
};

struct MlpWeights {  // ReLU²: down · max(up · x, 0)²
  Weight up, down;
};

struct MoeWeights {
  Weight router;
  std::vector<float> correction_bias;
  RouteRules rules;
  std::vector<MlpWeights> experts;
  MlpWeights shared;             // up.out == 0: none
  Weight latent_in, latent_out;  // out == 0: experts work on the full width
};

struct GatedMlpWeights {  // SwiGLU: down · (silu(gate · x) · (up · x))
  Weight gate, up, down;
};

struct GatedMoeWeights {
  Weight router;
  std::vector<float> correction_bias;
  RouteRules rules;
  std::vector<GatedMlpWeights> experts;
  GatedMlpWeights shared;  // up.out == 0: none
};

struct IndexerWeights {
  Weight wq, wk, weights;  // [heads · dim, q rank], [dim, D], [heads, D]
  Vector norm, norm_bias;  // [dim], of the keys
  int heads = 0, dim = 0;  // heads == 0: the layer uses the picks of one before it
  float norm_eps = 0;
  bool interleaved = true;
};

// Attention over latents (MLA), and which keys it looks at. Letters as in glm_dsa_config.h.
struct LatentWeights {
  Weight q_a, q_b, kv_a, o;
  Vector q_norm, kv_norm;
  std::vector<Weight> absorb;   // a head's [latent, nope]
  std::vector<Weight> release;  // a head's [value, latent]
  IndexerWeights indexer;
  Vector frequencies;  // [rope / 2], radians a position
  int heads = 0, nope = 0, rope = 0, latent = 0, value = 0;
  int topk = 0;         // keys a query looks at, at most
  int min_context = 0;  // with fewer visible keys the others are masked, not skipped
  float eps = 0, scale = 0;
};

// The keys that each row of a pass looks at, made by a layer with an indexer and used by those
// after it until the next one.
struct Picks {
  int tokens = 0, most = 0;
  std::int32_t* keys = nullptr;  // [tokens, most], rising
  int* counts = nullptr;         // [tokens]
};

// What one sequence keeps in one layer; both zero for layers that keep nothing.
struct LayerState {
  int kv_heads = 0, head_dim = 0;                                          // attention
  int channels = 0, taps = 0, heads = 0, ssm_head_dim = 0, ssm_state = 0;  // Mamba-2
  int latent_row = 0, index_dim = 0;  // attention over latents: a token's row, its index key
};

// Recurrent state at one position, immutable once made.
class Snapshot {
 public:
  virtual ~Snapshot() = default;
  virtual std::size_t bytes() const = 0;
};

// The caches of one sequence. Only ops that name it change it, so rewinding has one place to live.
class SequenceState {
 public:
  virtual ~SequenceState() = default;
  virtual int length() const = 0;  // tokens held
  // Recurrent state after length() tokens. Attention keys are not copied: they stay in place, and a
  // snapshot at n is usable as long as the first n tokens have not been overwritten.
  virtual std::shared_ptr<const Snapshot> snapshot() const = 0;
  virtual void restore(const Snapshot& snapshot, int length) = 0;
  // Takes tokens back, to `length` of them: any number where there is no recurrent state, and
  // otherwise those that the last pass ran as drafts (PassOptions).
  virtual void take_back(int length) = 0;
  virtual void clear() = 0;  // to no tokens
  virtual std::size_t bytes() const = 0;
};

struct LoadOptions {
  std::string name;               // of the model, for the cache file
  std::uint64_t fingerprint = 0;  // of the checkpoint: the cache is for these weights only
  std::filesystem::path cache_dir;
  std::function<void(std::uint64_t done, std::uint64_t total)> on_packing;
  bool mapped_sources = false;  // they lie in mapped files: pages may go once they are packed
};

struct PassOptions {
  bool sparse_experts = true;
  bool sparse_attention = true;  // skip keys that were not picked; else mask them
  Trace* trace = nullptr;
  int drafts = 0;  // rows at the end of the pass that SequenceState::take_back may drop; the first
                   // row is none
};

// Outputs of a matrix that linear_slices computes together.
inline constexpr int kOutputSlice = 64;

class Backend {
 public:
  virtual ~Backend() = default;

  // How the ops of the next forward pass work, and who is told of its parts.
  void begin_pass(const PassOptions& options) {
    pass_ = options;
    if (pass_.trace != nullptr) pass_.trace->begin_pass(counters());
  }
  void enter_layer(int layer) {
    if (pass_.trace != nullptr) pass_.trace->enter_layer(layer);
  }
  void lap(const char* part) {
    if (pass_.trace != nullptr) pass_.trace->lap(part, counters());
  }

  // Weights are declared first, then loaded together. A source must live until load() returns; a
  // table's for as long as the backend.
  virtual Weight add_projection(const LinearSource& source) = 0;
  virtual Weight add_down(const LinearSource& source) = 0;   // of a ReLU² MLP: read by live neurons
  virtual Weight add_table(const LinearSource& source) = 0;  // rows are looked up, not multiplied
  virtual Vector add_vector(std::span<const float> values) = 0;
  // kCorrupt names the scales or biases of a projection that hold a NaN or an infinity.
  virtual Result<void> load(const LoadOptions& options) = 0;
  virtual std::uint64_t weight_bytes() const = 0;      // resident, tables included
  virtual std::vector<std::string> notes() const = 0;  // what a user should be told about the load

  // Scratch of a forward pass: tensors made after mark() are gone after release(mark).
  virtual std::size_t mark() = 0;
  virtual void release(std::size_t mark) = 0;

  virtual Tensor embed(Weight table, std::span<const int> tokens) = 0;  // [T, D]
  virtual Tensor rms_norm(Tensor x, Vector weight, float eps) = 0;      // [T, D]
  virtual Tensor linear(Tensor x, Weight w) = 0;                        // [T, out]
  // Some outputs only, side by side: [T, kOutputSlice · slices], slice s being the outputs from
  // kOutputSlice · s on. What lies past w.out is undefined.
  virtual Tensor linear_slices(Tensor x, Weight w, std::span<const int> slices) = 0;
  virtual void add(Tensor x, Tensor y) = 0;  // x += y
  virtual Tensor last_rows(Tensor x, int rows) = 0;
  virtual Tensor join(Tensor x, Tensor y) = 0;  // [T, Dx], [T, Dy] → [T, Dx + Dy]
  virtual Tensor write(std::span<const float> values, int width) = 0;  // from the caller's memory
  // The mixers: x [T, D] after the norm, [T, D] out. `layer` picks the layer's state, which moves
  // on by T tokens; advance() then moves the sequence's length, once per forward pass.
  virtual Tensor mamba2(Tensor x, const MambaWeights& w, SequenceState& state, int layer) = 0;
  // All rows leave keys and values; only the last `want` look at them and come out: [want, D].
  virtual Tensor attention(Tensor x, const AttentionWeights& w, SequenceState& state, int layer,
                           int want) = 0;
  virtual Tensor moe(Tensor x, const MoeWeights& w) = 0;
  virtual Tensor mlp(Tensor x, const MlpWeights& w) = 0;
  virtual Tensor gated_moe(Tensor x, const GatedMoeWeights& w) = 0;
  virtual Tensor gated_mlp(Tensor x, const GatedMlpWeights& w) = 0;
  virtual Picks make_picks(int tokens, int most) = 0;  // scratch, empty
  virtual Tensor latent_attention(Tensor x, const LatentWeights& w, SequenceState& state, int layer,
                                  const Picks& picks) = 0;
  virtual void advance(SequenceState& state, int tokens) = 0;

  virtual void read(Tensor x, std::span<float> out) = 0;

  virtual Result<std::unique_ptr<SequenceState>> new_state(std::span<const LayerState> layers,
                                                           int context) = 0;
  virtual Counters& counters() = 0;  // summed by the ops; the caller takes differences

 protected:
  PassOptions pass_;
};

}  // namespace lacuna
