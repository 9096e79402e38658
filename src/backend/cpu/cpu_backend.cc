// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "checkpoint/pack.h"

namespace lacuna {
namespace {

constexpr int kRowsPerTask = 16;  // of ops that work on rows alone

}  // namespace

CpuBackend::CpuBackend(Isa isa, int threads, bool bf16)
    : pool_(threads), kernels_(kernels_for(isa)), bf16_(bf16) {}

Weight CpuBackend::add_projection(const LinearSource& source) {
  return {store_.add_row_blocks(source), source.out, source.in};
}

Weight CpuBackend::add_down(const LinearSource& source) {
  return {store_.add_neuron_major(source), source.out, source.in};
}

Weight CpuBackend::add_table(const LinearSource& source) {
  tables_.push_back(source);
  return {static_cast<int>(tables_.size()) - 1, source.out, source.in};
}

Vector CpuBackend::add_vector(std::span<const float> values) {
  vectors_.emplace_back(values.begin(), values.end());
  return {static_cast<int>(vectors_.size()) - 1, static_cast<int>(values.size())};
}

Result<void> CpuBackend::load(const LoadOptions& options) {
  return store_.load(pool_,
                     {options.name, options.fingerprint, options.cache_dir, options.on_packing});
}

std::uint64_t CpuBackend::weight_bytes() const {
  std::uint64_t bytes = store_.bytes();
  for (const LinearSource& t : tables_) bytes += t.bytes();
  return bytes;
}

Tensor CpuBackend::make(int rows, int width) {
  return {rows, width, scratch_.take<float>(static_cast<std::size_t>(rows) * width)};
}

Tensor CpuBackend::embed(Weight table, std::span<const int> tokens) {
  const LinearSource& source = tables_[table.id];
  const Tensor y = make(static_cast<int>(tokens.size()), table.in);
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    dequantize_row(source, tokens[t], data(y) + t * table.in);
  }
  const std::uint64_t row = source.bytes() / source.out;
  counters_.weight_bytes += row * tokens.size();
  counters_.weight_bytes_dense += row * tokens.size();
  return y;
}

Tensor CpuBackend::rms_norm(Tensor x, Vector weight, float eps) {
  const Tensor y = make(x.rows, x.width);
  const int tasks = (x.rows + kRowsPerTask - 1) / kRowsPerTask;
  pool_.run(tasks, [&](int task, int) {
    for (int t = task * kRowsPerTask; t < std::min(x.rows, (task + 1) * kRowsPerTask); ++t) {
      const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(t) * x.width;
      kernels_.rms_norm(data(x) + at, vector(weight), x.width, eps, data(y) + at);
    }
  });
  return y;
}

Activations CpuBackend::prepare(const float* x, int rows, int in, int group, int groups,
                                bool round) {
  Activations a{rows, group * groups, group, groups, nullptr, nullptr, nullptr};
  float* out = scratch_.take<float>(static_cast<std::size_t>(rows) * a.padded);
  float* sums = scratch_.take<float>(static_cast<std::size_t>(rows) * groups);
  const bool paired = round && kernels_.isa == Isa::kAvx512Bf16;
  std::uint32_t* pairs =
      paired ? scratch_.take<std::uint32_t>(static_cast<std::size_t>(rows) * a.padded / 2)
             : nullptr;
  const int tasks = (rows + kRowsPerTask - 1) / kRowsPerTask;
  pool_.run(tasks, [&](int task, int) {
    for (int t = task * kRowsPerTask; t < std::min(rows, (task + 1) * kRowsPerTask); ++t) {
      const auto row = static_cast<std::ptrdiff_t>(t);
      kernels_.prepare_activations(x + row * in, in, a.padded, group, round, out + row * a.padded,
                                   paired ? pairs + row * (a.padded / 2) : nullptr,
                                   sums + row * groups);
    }
  });
  a.x = out;
  a.sums = sums;
  a.pairs = pairs;
  return a;
}

void CpuBackend::project(const RowBlocks& w, const Activations& a, float* y,
                         std::ptrdiff_t y_stride) {
  LAC_CHECK(a.group == w.group && a.groups == w.groups,
            "activations in {} groups of {}, weights in {} of {}", a.groups, a.group, w.groups,
            w.group);
  // A task is a run of neighbouring blocks, so that each thread reads one sequential stream.
  const int tasks = std::min(w.blocks(), pool_.size() * 4);
  pool_.run(tasks, [&](int task, int) {
    const int begin = w.blocks() * task / tasks;
    const int end = w.blocks() * (task + 1) / tasks;
    for (int b = begin; b < end; ++b) kernels_.linear_block(w, b, a, nullptr, a.rows, y, y_stride);
  });
  counters_.weight_bytes += w.bytes();
  counters_.weight_bytes_dense += w.bytes();
}

void CpuBackend::project(const float* x, int rows, Weight w, bool round, float* y,
                         std::ptrdiff_t y_stride) {
  const std::size_t top = scratch_.mark();
  const RowBlocks& blocks = store_.row_blocks(w.id);
  project(blocks, prepare(x, rows, w.in, blocks.group, blocks.groups, round), y, y_stride);
  scratch_.release(top);
}

Tensor CpuBackend::linear(Tensor x, Weight w) {
  LAC_CHECK(x.width == w.in, "x is {} wide, the weight takes {}", x.width, w.in);
  const Tensor y = make(x.rows, w.out);
  project(data(x), x.rows, w, bf16_, data(y), w.out);
  return y;
}

void CpuBackend::add(Tensor x, Tensor y) {
  float* a = data(x);
  const float* b = data(y);
  const std::size_t n = static_cast<std::size_t>(x.rows) * x.width;
  for (std::size_t i = 0; i < n; ++i) a[i] += b[i];
}

Tensor CpuBackend::last_rows(Tensor x, int rows) {
  return {rows, x.width, data(x) + static_cast<std::ptrdiff_t>(x.rows - rows) * x.width};
}

void CpuBackend::advance(SequenceState& state, int tokens) {
  static_cast<CpuState&>(state).advance(tokens);
  counters_.tokens += static_cast<std::uint64_t>(tokens);
  ++counters_.passes;
}

void CpuBackend::read(Tensor x, std::span<float> out) {
  std::memcpy(out.data(), data(x), out.size_bytes());
}

Result<std::unique_ptr<SequenceState>> CpuBackend::new_state(std::span<const LayerState> layers,
                                                             int context) {
  LAC_TRY(std::unique_ptr<CpuState> state, CpuState::make(layers, context, bf16_));
  return std::unique_ptr<SequenceState>(std::move(state));
}

}  // namespace lacuna
