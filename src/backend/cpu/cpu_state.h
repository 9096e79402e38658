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

struct MambaCache {
  std::vector<float>
      history;               // [taps − 1, channels]: raw rows before the convolution, oldest first
  std::vector<float> state;  // [heads][state][head_dim]
};

class CpuState : public SequenceState {
 public:
  static Result<std::unique_ptr<CpuState>> make(std::span<const LayerState> layers, int context,
                                                bool bf16);
  ~CpuState() override;

  int length() const override { return length_; }
  std::shared_ptr<const Snapshot> snapshot() const override;
  void restore(const Snapshot& snapshot, int length) override;
  void clear() override;
  std::size_t bytes() const override;

  KvCache& kv(int layer) { return kv_[layer]; }
  MambaCache& mamba(int layer) { return mamba_[layer]; }
  void advance(int tokens) { length_ += tokens; }

 private:
  CpuState() = default;

  std::vector<KvCache> kv_;        // one a layer; empty ones for other kinds
  std::vector<MambaCache> mamba_;  // likewise
  int length_ = 0;
  void* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
};

}  // namespace lacuna
