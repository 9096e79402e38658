// SPDX-License-Identifier: Apache-2.0
#include "model/convert_write.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <span>
#include <utility>

#include "base/cpu.h"
#include "base/mmap.h"
#include "checkpoint/quantize.h"

namespace lacuna {
namespace {

constexpr std::int64_t kTaskValues = 1 << 20;
constexpr std::int64_t kTasksPerThread = 8;  // between two looks at the world

// Where rows of a tensor go.
struct Target {
  std::uint64_t at = 0;
  std::size_t row_bytes = 0;
};

}  // namespace

// A part cut into tasks: some rows of one of its sources.
struct PartWriter::Job {
  const ConvertPart& part;
  const PartialFile& file;
  std::vector<Target> targets;  // of each tensor of the part
  std::int64_t task_rows, tasks_per_source, tasks;

  Job(const ConvertPart& p, const PartialFile& f, std::uint64_t offset) : part(p), file(f) {
    task_rows = std::max<std::int64_t>(1, kTaskValues / part.in);
    tasks_per_source = (part.rows + task_rows - 1) / task_rows;
    tasks = tasks_per_source * static_cast<std::int64_t>(part.sources.size());
    const std::uint64_t rows = static_cast<std::uint64_t>(part.rows) * part.sources.size();
    for (const OutputTensor& tensor : part.tensors) {
      targets.push_back({offset, tensor.bytes() / rows});
      offset += tensor.bytes();
    }
  }

  const SourceMatrix& source(std::int64_t task) const {
    return part.sources[static_cast<std::size_t>(task / tasks_per_source)];
  }
  std::int64_t first_row(std::int64_t task) const { return task % tasks_per_source * task_rows; }
  std::int64_t rows(std::int64_t task) const {
    return std::min(task_rows, part.rows - first_row(task));
  }
  // The task's first row among those of all sources.
  std::int64_t output_row(std::int64_t task) const {
    return task / tasks_per_source * part.rows + first_row(task);
  }
  std::size_t source_row_bytes(std::int64_t task) const {
    return static_cast<std::size_t>(part.in) * dtype_bytes(source(task).tensor->dtype);
  }
  std::span<const std::uint8_t> source_bytes(std::int64_t task) const {
    const std::size_t row = source_row_bytes(task);
    return {source(task).data + static_cast<std::size_t>(first_row(task)) * row,
            static_cast<std::size_t>(rows(task)) * row};
  }
  std::uint64_t output_bytes(std::int64_t task) const {
    std::uint64_t sum = 0;
    for (const Target& target : targets) sum += target.row_bytes;
    return sum * static_cast<std::uint64_t>(rows(task));
  }

  // Rows of tensor `index`; returns 0 or errno.
  int write(std::size_t index, std::int64_t task, const std::vector<std::uint8_t>& bytes) const {
    const Target& target = targets[index];
    return file.write(target.at + static_cast<std::uint64_t>(output_row(task)) * target.row_bytes,
                      {bytes.data(), static_cast<std::size_t>(rows(task)) * target.row_bytes});
  }
};

PartWriter::PartWriter(int threads, std::function<Result<void>(std::uint64_t)> advance)
    : pool_(threads > 0 ? threads : usable_cores()),
      buffers_(static_cast<std::size_t>(pool_.size())),
      advance_(std::move(advance)) {}

// Returns the number of rows that were converted: fewer than the task's when the next one cannot
// be.
std::int64_t PartWriter::convert_rows(const Job& job, std::int64_t task, Buffers& b) {
  const ConvertPart& part = job.part;
  const SourceMatrix& source = job.source(task);
  const Dtype dtype = source.tensor->dtype;
  const auto rows = static_cast<std::size_t>(job.rows(task));
  const auto in = static_cast<std::size_t>(part.in);
  const std::size_t groups = part.format ? in / static_cast<std::size_t>(part.format->group) : 0;
  const std::size_t row_bytes = job.targets.back().row_bytes;  // of the weights
  std::array<float, 256> fp8{};
  if (dtype == Dtype::kF8E4M3) fp8_values(source.scale, fp8);

  b.row.resize(in);
  b.codes.resize(rows * row_bytes);
  b.scales.resize(rows * groups);
  b.biases.resize(rows * groups);
  const std::uint8_t* from = job.source_bytes(task).data();
  for (std::size_t r = 0; r < rows; ++r, from += job.source_row_bytes(task)) {
    if (dtype == Dtype::kF8E4M3) {
      for (std::size_t i = 0; i < in; ++i) b.row[i] = fp8[from[i]];
    } else {
      widen(dtype, from, b.row);
    }
    std::uint8_t* to = b.codes.data() + r * row_bytes;
    const bool finite = part.format ? quantize_row(*part.format, b.row, to, &b.scales[r * groups],
                                                   &b.biases[r * groups])
                                    : all_finite(b.row);
    if (!finite) return static_cast<std::int64_t>(r);
    if (!part.format) narrow(part.tensors[0].dtype, b.row, to);
  }
  return job.rows(task);
}

// Returns 0 or errno.
int PartWriter::write_rows(const Job& job, std::int64_t task, Buffers& b) {
  const std::vector<OutputTensor>& tensors = job.part.tensors;
  if (const int failed = job.write(tensors.size() - 1, task, b.codes)) return failed;
  if (!job.part.format) return 0;
  for (std::size_t i = 0; i < 2; ++i) {  // by name: biases, then scales
    b.bytes.resize(static_cast<std::size_t>(job.rows(task)) * job.targets[i].row_bytes);
    narrow(tensors[i].dtype, i == 0 ? b.biases : b.scales, b.bytes.data());
    if (const int failed = job.write(i, task, b.bytes)) return failed;
  }
  return 0;
}

Result<void> PartWriter::write(const ConvertPart& part, const PartialFile& file,
                               std::uint64_t offset) {
  const Job job(part, file, offset);
  const std::int64_t wave = kTasksPerThread * pool_.size();
  for (std::int64_t begin = 0; begin < job.tasks; begin += wave) {
    const std::int64_t end = std::min(begin + wave, job.tasks);
    for (std::int64_t t = end; t < std::min(end + wave, job.tasks); ++t)
      read_ahead(job.source_bytes(t));
    std::atomic<int> failed{0};
    std::vector<std::int64_t> good(static_cast<std::size_t>(end - begin));  // rows of each task
    pool_.run(static_cast<int>(end - begin), [&](int index, int thread) {
      Buffers& buffers = buffers_[static_cast<std::size_t>(thread)];
      const std::int64_t task = begin + index;
      std::int64_t& rows = good[static_cast<std::size_t>(index)];
      rows = convert_rows(job, task, buffers);
      drop_pages(job.source_bytes(task));
      if (rows < job.rows(task)) return;
      if (const int problem = write_rows(job, task, buffers)) failed.store(problem);
    });
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t rows = good[static_cast<std::size_t>(t - begin)];
      if (rows == job.rows(t)) continue;
      return Error{ErrorCode::kCorrupt,
                   fmt::format("{}: row {} holds a NaN, an infinity, or weights too far apart for "
                               "a scale, wanted finite ones",
                               job.source(t).tensor->name, job.first_row(t) + rows)};
    }
    if (failed.load() != 0) return file.error(failed.load());
    std::uint64_t written = 0;
    for (std::int64_t t = begin; t < end; ++t) written += job.output_bytes(t);
    LAC_TRY_VOID(advance_(written));
  }
  return {};
}

}  // namespace lacuna
