// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/cpu_state.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "ops/attention/attention.h"
#include "tensor/dtype.h"

namespace lacuna {
namespace {

struct CpuSnapshot : Snapshot {
  std::vector<MambaCache> layers;
  std::size_t bytes() const override {
    std::size_t sum = 0;
    for (const auto& l : layers) sum += (l.rows.size() + l.state.size()) * sizeof(float);
    return sum;
  }
};

}  // namespace

void KvCache::put(int head, int position, const float* key, const float* value) {
  std::uint8_t* k = keys + head * head_bytes();
  std::uint8_t* v = values + head * head_bytes();
  for (int d = 0; d < head_dim; ++d) {
    const std::ptrdiff_t key_at = key_index(bf16, head_dim, position, d);
    const std::ptrdiff_t value_at = value_index(bf16, head_dim, position, d);
    if (bf16) {
      reinterpret_cast<std::uint16_t*>(k)[key_at] = f32_to_bf16(key[d]);
      reinterpret_cast<std::uint16_t*>(v)[value_at] = f32_to_bf16(value[d]);
    } else {
      reinterpret_cast<float*>(k)[key_at] = key[d];
      reinterpret_cast<float*>(v)[value_at] = value[d];
    }
  }
}

void LatentCache::put(int position, const float* row) {
  std::uint8_t* at = rows + static_cast<std::size_t>(position) * row_bytes();
  if (!bf16) {
    std::memcpy(at, row, row_bytes());
    return;
  }
  auto* halves = reinterpret_cast<std::uint16_t*>(at);
  for (int d = 0; d < width; ++d) halves[d] = f32_to_bf16(row[d]);
}

void LatentCache::put_index(int position, const float* key) {
  for (int d = 0; d < index_dim; ++d) {
    const std::ptrdiff_t at = key_index(bf16, index_dim, position, d);
    if (bf16) {
      reinterpret_cast<std::uint16_t*>(index)[at] = f32_to_bf16(key[d]);
    } else {
      reinterpret_cast<float*>(index)[at] = key[d];
    }
  }
}

Result<std::unique_ptr<CpuState>> CpuState::make(std::span<const LayerState> layers, int context,
                                                 bool bf16) {
  std::unique_ptr<CpuState> s(new CpuState());
  s->kv_.resize(layers.size());
  s->mamba_.resize(layers.size());
  s->latents_.resize(layers.size());
  const int room = (context + kBandKeys - 1) / kBandKeys * kBandKeys;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerState& l = layers[i];
    if (l.heads > 0) {
      MambaCache& m = s->mamba_[i];
      m.stride = l.channels + l.heads;
      m.window = l.taps - 1;
      m.resize(0);
      m.state.assign(static_cast<std::size_t>(l.heads) * l.ssm_head_dim * l.ssm_state, 0.0f);
    }
    if (l.kv_heads > 0) {
      s->kv_[i] = {l.kv_heads, l.head_dim, room, bf16, nullptr, nullptr};
      s->mapping_bytes_ += 2 * s->kv_[i].head_bytes() * l.kv_heads;
    }
    if (l.latent_row > 0) {
      LatentCache& cache = s->latents_[i];
      cache = {l.latent_row, l.index_dim, bf16, nullptr, nullptr};
      s->mapping_bytes_ += room * (cache.row_bytes() + cache.index_bytes());
    }
  }
  if (s->mapping_bytes_ == 0) return s;
  void* p = ::mmap(nullptr, s->mapping_bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    return Error{
        ErrorCode::kOutOfMemory,
        fmt::format("a cache for {} tokens takes {:.1f} MB of address space, which the system "
                    "refuses; ask for a smaller --ctx-size",
                    context, static_cast<double>(s->mapping_bytes_) / 1e6)};
  }
  s->mapping_ = p;
  auto* at = static_cast<std::uint8_t*>(p);
  for (KvCache& kv : s->kv_) {
    const std::size_t bytes = kv.head_bytes() * kv.kv_heads;
    kv.keys = at;
    kv.values = at + bytes;
    at += 2 * bytes;
  }
  for (LatentCache& cache : s->latents_) {
    cache.rows = at;
    cache.index = at + room * cache.row_bytes();
    at += room * (cache.row_bytes() + cache.index_bytes());
  }
  return s;
}

CpuState::~CpuState() {
  if (mapping_ != nullptr) ::munmap(mapping_, mapping_bytes_);
}

std::shared_ptr<const Snapshot> CpuState::snapshot() const {
  auto s = std::make_shared<CpuSnapshot>();
  s->layers = mamba_;
  return s;
}

void CpuState::restore(const Snapshot& snapshot, int length) {
  const auto& from = static_cast<const CpuSnapshot&>(snapshot);
  LAC_CHECK(from.layers.size() == mamba_.size(), "{} layers, {} in the snapshot", mamba_.size(),
            from.layers.size());
  mamba_ = from.layers;
  length_ = length;
}

void CpuState::take_back(int length) {
  LAC_CHECK(length >= 0 && length <= length_, "{} of {} tokens", length, length_);
  for (MambaCache& m : mamba_) {
    if (m.state.empty()) continue;
    const int waiting = m.waiting() - (length_ - length);
    LAC_CHECK(waiting >= 0, "{} tokens to take back, {} are drafts", length_ - length, m.waiting());
    m.resize(waiting);
  }
  length_ = length;
}

void CpuState::clear() {
  for (MambaCache& m : mamba_) {
    if (m.state.empty()) continue;
    m.resize(0);
    std::fill(m.rows.begin(), m.rows.end(), 0.0f);
    std::fill(m.state.begin(), m.state.end(), 0.0f);
  }
  length_ = 0;
}

std::size_t CpuState::bytes() const {
  std::size_t sum = 0;
  for (const MambaCache& m : mamba_) sum += (m.rows.size() + m.state.size()) * sizeof(float);
  for (const KvCache& kv : kv_) {
    sum += 2 * static_cast<std::size_t>(kv.kv_heads) * kv.head_dim * kv.element() * length_;
  }
  for (const LatentCache& cache : latents_)
    sum += (cache.row_bytes() + cache.index_bytes()) * static_cast<std::size_t>(length_);
  return sum;
}

}  // namespace lacuna
