// SPDX-License-Identifier: Apache-2.0
// The caches of one sequence on the CPU: keys and values of attention layers, window and state of
// Mamba-2 layers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ops/backend.h"

namespace lacuna {

// Keys and values of one attention layer, per kv head in the layout of ops/attention/attention.h.
// Address space is reserved for the whole context; pages come with use.
struct KvCache {
  int kv_heads = 0, head_dim = 0, context = 0;  // context rounded up to a whole band
  bool bf16 = false;
  std::uint8_t* keys = nullptr;
  std::uint8_t* values = nullptr;

  std::size_t element() const { return bf16 ? 2 : 4; }
  std::size_t head_bytes() const {
    return static_cast<std::size_t>(context) * head_dim * element();
  }
  // From key `first`, a multiple of 16, of one kv head on.
  const void* keys_at(int head, int first) const {
    return keys + head * head_bytes() + static_cast<std::size_t>(first) * head_dim * element();
  }
  const void* values_at(int head, int first) const {
    return values + head * head_bytes() + static_cast<std::size_t>(first) * head_dim * element();
  }
  void put(int head, int position, const float* key, const float* value);
};

// One Mamba-2 layer. Rows are what the in-projection gave for a token: x B C before the
// convolution, then dt. Drafts are not taken into the state before they are accepted; until then
// their rows are kept, and the next pass takes in those that are left of them before its own.
struct MambaCache {
  int stride = 0;            // floats of a row: channels + heads
  int window = 0;            // taps − 1
  std::vector<float> rows;   // [window + waiting, stride], oldest first
  std::vector<float> state;  // [heads][state][head_dim], after the last row of the window

  int waiting() const { return static_cast<int>(rows.size()) / stride - window; }
  const float* row(int i) const { return rows.data() + static_cast<std::ptrdiff_t>(i) * stride; }
  float* row(int i) { return rows.data() + static_cast<std::ptrdiff_t>(i) * stride; }
  void resize(int waiting) { rows.resize(static_cast<std::size_t>(window + waiting) * stride); }
};

// One layer of attention over latents: a token's latent and rotated key side by side, the same for
// all heads, and its index key in the layout of ops/index_topk. Reserved as KvCache.
struct LatentCache {
  int width = 0, index_dim = 0;  // index_dim == 0: the layer has no indexer
  bool bf16 = false;
  std::uint8_t* rows = nullptr;  // [context, width]
  std::uint8_t* index = nullptr;

  std::size_t element() const { return bf16 ? 2 : 4; }
  std::size_t row_bytes() const { return static_cast<std::size_t>(width) * element(); }
  std::size_t index_bytes() const { return static_cast<std::size_t>(index_dim) * element(); }
  const void* index_at(int first) const {  // from key `first`, a multiple of 16, on
    return index + static_cast<std::size_t>(first) * index_bytes();
  }
  void put(int position, const float* row);
  void put_index(int position, const float* key);
};

class CpuState : public SequenceState {
 public:
  static Result<std::unique_ptr<CpuState>> make(std::span<const LayerState> layers, int context,
                                                bool bf16);
  ~CpuState() override;

  int length() const override { return length_; }
  std::shared_ptr<const Snapshot> snapshot() const override;
  void restore(const Snapshot& snapshot, int length) override;
  void take_back(int length) override;
  void clear() override;
  std::size_t bytes() const override;

  KvCache& kv(int layer) { return kv_[layer]; }
  MambaCache& mamba(int layer) { return mamba_[layer]; }
  LatentCache& latents(int layer) { return latents_[layer]; }
  void advance(int tokens) { length_ += tokens; }  // caches hold them already

 private:
  CpuState() = default;

  std::vector<KvCache> kv_;        // one a layer; empty ones for other kinds
  std::vector<MambaCache> mamba_;  // likewise
  std::vector<LatentCache> latents_;
  int length_ = 0;
  void* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
};

}  // namespace lacuna
