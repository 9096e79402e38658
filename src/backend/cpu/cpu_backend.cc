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
  return store_.load(pool_, {options.name, options.fingerprint, options.cache_dir,
                             options.on_packing, options.mapped_sources});
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

CpuBackend::Product CpuBackend::product(Weight w, Inputs& inputs, bool round, float* y) {
  const RowBlocks& blocks = store_.row_blocks(w.id);
  counters_.weight_bytes += blocks.bytes();
  counters_.weight_bytes_dense += blocks.bytes();
  return {&blocks, &inputs.of(blocks, round), nullptr, inputs.rows(), y, w.out};
}

void CpuBackend::multiply(std::span<const Product> products) {
  std::vector<int> first;  // number of each product's first block
  int total = 0;
  for (const Product& p : products) {
    LAC_CHECK(p.a->group == p.w->group && p.a->groups == p.w->groups,
              "activations in {} groups of {}, weights in {} of {}", p.a->groups, p.a->group,
              p.w->groups, p.w->group);
    first.push_back(total);
    total += p.blocks();
  }
  // A task is a run of neighbouring blocks, which is one sequential stream for its thread: long
  // runs at first, single blocks at last, so that the threads end together.
  std::vector<int> ends;
  for (int at = 0; at < total;) {
    at += std::max(1, (total - at) / (2 * pool_.size()));
    ends.push_back(at);
  }
  pool_.run(static_cast<int>(ends.size()), [&](int task, int) {
    const int begin = task == 0 ? 0 : ends[task - 1];
    std::size_t i = std::upper_bound(first.begin(), first.end(), begin) - first.begin() - 1;
    for (int b = begin; b < ends[task]; ++b) {
      while (b - first[i] >= products[i].blocks()) ++i;
      const Product& p = products[i];
      const int place = b - first[i];
      const int block = p.only.empty() ? place : p.only[place];
      float* y = p.y + static_cast<std::ptrdiff_t>(place - block) * kBlockRows;
      kernels_.linear_block(*p.w, block, *p.a, p.rows, p.count, y, p.y_stride);
    }
  });
}

void CpuBackend::project(const float* x, int rows, Weight w, bool round, float* y, int y_width) {
  LAC_CHECK(y_width == w.out, "y is {} wide, the weight gives {}", y_width, w.out);
  const std::size_t top = scratch_.mark();
  Inputs inputs(*this, x, rows);
  const Product p = product(w, inputs, round, y);
  multiply({&p, 1});
  scratch_.release(top);
}

Tensor CpuBackend::linear(Tensor x, Weight w) {
  LAC_CHECK(x.width == w.in, "x is {} wide, the weight takes {}", x.width, w.in);
  const Tensor y = make(x.rows, w.out);
  project(data(x), x.rows, w, bf16_, data(y), w.out);
  return y;
}

Tensor CpuBackend::linear_slices(Tensor x, Weight w, std::span<const int> slices) {
  static_assert(kOutputSlice == kBlockRows);
  LAC_CHECK(x.width == w.in, "x is {} wide, the weight takes {}", x.width, w.in);
  const RowBlocks& blocks = store_.row_blocks(w.id);
  const Tensor y = make(x.rows, static_cast<int>(slices.size()) * kOutputSlice);
  const std::size_t top = scratch_.mark();
  Inputs inputs(*this, data(x), x.rows);
  const Product p{&blocks, &inputs.of(blocks, bf16_), nullptr, x.rows, data(y), y.width, slices};
  counters_.weight_bytes += blocks.block_bytes() * slices.size();
  counters_.weight_bytes_dense += blocks.bytes();
  multiply({&p, 1});
  scratch_.release(top);
  return y;
}

void CpuBackend::add(Tensor x, Tensor y) {
  const int tasks = (x.rows + kRowsPerTask - 1) / kRowsPerTask;
  pool_.run(tasks, [&](int task, int) {
    const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(task) * kRowsPerTask * x.width;
    const int rows = std::min(kRowsPerTask, x.rows - task * kRowsPerTask);
    kernels_.axpy(1.0f, data(y) + at, rows * x.width, data(x) + at);
  });
}

Tensor CpuBackend::last_rows(Tensor x, int rows) {
  return {rows, x.width, data(x) + static_cast<std::ptrdiff_t>(x.rows - rows) * x.width};
}

Tensor CpuBackend::join(Tensor x, Tensor y) {
  const Tensor out = make(x.rows, x.width + y.width);
  for (int t = 0; t < x.rows; ++t) {
    float* at = data(out) + static_cast<std::ptrdiff_t>(t) * out.width;
    std::copy_n(data(x) + static_cast<std::ptrdiff_t>(t) * x.width, x.width, at);
    std::copy_n(data(y) + static_cast<std::ptrdiff_t>(t) * y.width, y.width, at + x.width);
  }
  return out;
}

Tensor CpuBackend::write(std::span<const float> values, int width) {
  const Tensor out = make(static_cast<int>(values.size()) / width, width);
  std::copy(values.begin(), values.end(), data(out));
  return out;
}

void CpuBackend::advance(SequenceState& state, int tokens) {
  static_cast<CpuState&>(state).advance(tokens);
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
