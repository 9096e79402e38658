// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/weight_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <mutex>
#include <span>
#include <utility>

#include "base/mmap.h"
#include "checkpoint/pack.h"

namespace lacuna {
namespace {

constexpr std::uint64_t kAlign = 4096;  // of a matrix in the payload

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
  return hash ^ hash >> 29;
}

std::uint64_t chunk_begin(std::uint64_t offset) { return offset / kCacheChunk * kCacheChunk; }

template <class Advice>
void advise(const LinearSource& s, Advice advice) {
  advice(std::span(s.weight, static_cast<std::size_t>(s.out) * s.row_bytes()));
  if (!s.quantized) return;
  advice(std::span(s.scales, s.scale_bytes()));
  advice(std::span(s.biases, s.scale_bytes()));
}

}  // namespace

LinearSource WeightStore::Item::slice(int first, int count) const {
  LinearSource s = source;
  const int row = first * unit_rows();
  s.out = std::min(source.out - row, count * unit_rows());
  s.weight += static_cast<std::size_t>(row) * source.row_bytes();
  if (s.quantized) {
    const std::size_t scales = static_cast<std::size_t>(row) * (source.scale_bytes() / source.out);
    s.scales += scales;
    s.biases += scales;
  }
  return s;
}

void WeightStore::place(Item& item, bool compact) {
  if (item.neuron_major) {
    item.neurons = plan_neuron_major(item.source, compact);
  } else {
    item.blocks = plan_row_blocks(item.source, compact);
  }
  item.offset = total_;
  total_ += (item.bytes() + kAlign - 1) / kAlign * kAlign;
}

int WeightStore::add(const LinearSource& source, bool neuron_major) {
  Item item;
  item.source = source;
  item.neuron_major = neuron_major;
  place(item, true);
  items_.push_back(std::move(item));
  return static_cast<int>(items_.size()) - 1;
}

int WeightStore::add_row_blocks(const LinearSource& source) { return add(source, false); }
int WeightStore::add_neuron_major(const LinearSource& source) { return add(source, true); }

CacheKey WeightStore::cache_key(const Options& options) const {
  std::uint64_t layout = items_.size();
  for (const Item& i : items_) {
    const auto& s = i.source;
    for (const int v : {s.out, s.in, s.quantized ? s.bits : 0, s.group, static_cast<int>(s.dtype),
                        static_cast<int>(i.neuron_major), static_cast<int>(i.form())}) {
      layout = mix(layout, static_cast<std::uint64_t>(v));
    }
  }
  return {options.name, options.fingerprint, layout, total_};
}

Result<void> WeightStore::load(ThreadPool& pool, const Options& options) {
  if (map_or_find_compact(pool, options)) return {};
  auto packed = pack_to_file(pool, options);
  if (packed.ok() || packed.error().code != ErrorCode::kIo) return packed;
  notes_.push_back(packed.error().what + "; weights are packed in memory for this run");
  return pack_to_memory(pool, options);
}

// Looks for a file in which every matrix is compact that can be; when there is none, finds which
// are and looks again.
bool WeightStore::map_or_find_compact(ThreadPool& pool, const Options& options) {
  if (map_cache(pool, options)) return true;
  std::vector<std::uint8_t> compact(items_.size());
  pool.run(static_cast<int>(items_.size()), [&](int i, int) {
    compact[i] = items_[i].form() == ScaleForm::kCompact && has_compact_scales(items_[i].source);
  });
  bool all = true;
  for (std::size_t i = 0; i < items_.size(); ++i)
    all = all && (compact[i] != 0 || items_[i].form() != ScaleForm::kCompact);
  if (all) return false;
  total_ = 0;
  for (std::size_t i = 0; i < items_.size(); ++i) place(items_[i], compact[i] != 0);
  return map_cache(pool, options);
}

bool WeightStore::map_cache(ThreadPool& pool, const Options& options) {
  const CacheKey key = cache_key(options);
  auto file = CacheFile::open(options.folder, key);
  if (!file) return false;
  if (!file->is_verified()) {
    if (const auto damage = file->find_damage(pool)) {
      notes_.push_back(fmt::format("{}: {} is damaged at byte {} of its weights; packed again",
                                   key.path(options.folder).string(), item_at(*damage).source.name,
                                   *damage));
      return false;
    }
    file->mark_verified();
  }
  file_ = std::move(file);
  point_into(file_->payload());
  return true;
}

std::vector<WeightStore::Batch> WeightStore::plan_batches(std::uint64_t batch_bytes) const {
  std::vector<Batch> batches;
  Batch batch;
  const auto close = [&] {
    if (!batch.parts.empty()) batches.push_back(std::move(batch));
    batch = Batch{};
    batch.begin = batch.end = batches.empty() ? 0 : batches.back().end;
  };
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const Item& item = items_[i];
    const std::uint64_t item_end = i + 1 < items_.size() ? items_[i + 1].offset : total_;
    for (int first = 0; first < item.units();) {
      int count = item.units() - first;
      if (!item.neuron_major) {
        const std::uint64_t room = batch_bytes - std::min(batch_bytes, batch.end - batch.begin);
        count = std::min(count, 1 + static_cast<int>(room / item.blocks.block_bytes()));
      }
      const bool whole = first + count == item.units();
      const std::uint64_t end = whole ? item_end : batch.end + count * item.blocks.block_bytes();
      batch.parts.push_back({&item, first, count, batch.end, end});
      batch.units += count;
      batch.end = end;
      first += count;
      if (batch.end - batch.begin >= batch_bytes) close();
    }
  }
  close();
  return batches;
}

Result<void> WeightStore::pack_unit(const Part& part, int unit, std::uint8_t* memory) {
  const Item& item = *part.item;
  LAC_TRY_VOID(check_finite_scales(item.slice(unit, 1)));
  if (item.neuron_major) {
    const NeuronMajor& w = item.neurons;
    pack_neuron_columns(item.source, w, unit * kColumnBlock, memory,
                        memory + w.row_bytes() * static_cast<std::size_t>(w.in));
  } else {
    const RowBlocks& w = item.blocks;
    pack_row_block(item.source, w, unit, memory + w.block_bytes() * (unit - part.first));
  }
  return {};
}

// The units of `batch` and, as a task of its own, `beside`. Of several errors the first unit's is
// returned, whichever thread was there first.
Result<void> WeightStore::pack_batch(ThreadPool& pool, const Batch& batch, std::uint8_t* memory,
                                     const std::function<void()>& beside) {
  std::vector<std::pair<const Part*, int>> units;
  units.reserve(static_cast<std::size_t>(batch.units));
  for (const Part& part : batch.parts) {
    for (int unit = part.first; unit < part.first + part.count; ++unit)
      units.emplace_back(&part, unit);
    const std::uint64_t used = std::min(part.end, part.item->offset + part.item->bytes());
    std::memset(memory + (used - batch.begin), 0, part.end - used);
  }
  std::mutex mutex;
  int failed = batch.units;
  Result<void> result;
  pool.run(batch.units + 1, [&](int task, int) {
    if (task == 0) return beside();
    const auto& [part, unit] = units[task - 1];
    auto done = pack_unit(*part, unit, memory + (part->begin - batch.begin));
    if (done.ok()) return;
    const std::lock_guard lock(mutex);
    if (task - 1 >= failed) return;
    failed = task - 1;
    result = std::move(done);
  });
  return result;
}

Result<void> WeightStore::pack_batches(ThreadPool& pool, const Options& options,
                                       const std::vector<Batch>& batches,
                                       const Target& target) const {
  const auto advise_batch = [&](std::size_t i, auto advice) {
    if (!options.mapped_sources || i >= batches.size()) return;
    for (const Part& part : batches[i].parts)
      advise(part.item->slice(part.first, part.count), advice);
  };
  for (std::size_t i = 0; i < batches.size(); ++i) {
    Result<void> settled;
    LAC_TRY_VOID(pack_batch(pool, batches[i], target.memory(i), [&] {
      advise_batch(i + 1, read_ahead);
      settled = target.settle(i);
    }));
    LAC_TRY_VOID(std::move(settled));
    advise_batch(i, drop_pages);
    if (options.on_packing) options.on_packing(batches[i].end, total_);
  }
  return target.settle(batches.size());
}

Result<void> WeightStore::pack_to_file(ThreadPool& pool, const Options& options) {
  LAC_TRY(CacheWriter writer, CacheWriter::create(options.folder, cache_key(options)));
  const std::vector<Batch> batches = plan_batches(options.batch_bytes);
  // A buffer holds a batch from the border of the chunk it begins in.
  std::uint64_t most = kCacheChunk;
  for (const Batch& b : batches) most = std::max(most, b.end - chunk_begin(b.begin));
  Pages buffers[2];
  for (Pages& buffer : buffers) {
    buffer = Pages::anonymous(static_cast<std::size_t>(most));
    if (!buffer) {
      return Error{ErrorCode::kOutOfMemory,
                   fmt::format("packing weights takes two buffers of {:.1f} MB: {}",
                               static_cast<double>(most) / 1e6, std::strerror(errno))};
    }
  }
  Target target;
  target.memory = [&](std::size_t i) {
    const Batch& b = batches[i];
    std::uint8_t* buffer = buffers[i % 2].data();
    const std::uint64_t begun = b.begin - chunk_begin(b.begin);
    if (begun > 0) {  // the chunk that the batch before left unfinished
      const std::uint8_t* before = buffers[(i + 1) % 2].data();
      std::memcpy(buffer, before + (chunk_begin(b.begin) - chunk_begin(batches[i - 1].begin)),
                  begun);
    }
    return buffer + begun;
  };
  target.settle = [&](std::size_t done) -> Result<void> {
    if (done == 0) return {};
    const std::uint64_t begin = chunk_begin(batches[done - 1].begin);
    const std::uint64_t end = done == batches.size() ? total_ : chunk_begin(batches[done].begin);
    return writer.write(begin, std::span(buffers[(done - 1) % 2].data(), end - begin));
  };
  LAC_TRY_VOID(pack_batches(pool, options, batches, target));
  std::string note;
  LAC_TRY(CacheFile file, std::move(writer).finish(note));
  if (!note.empty()) notes_.push_back(std::move(note));
  file_ = std::move(file);
  point_into(file_->payload());
  return {};
}

Result<void> WeightStore::pack_to_memory(ThreadPool& pool, const Options& options) {
  const std::uint64_t available = available_memory_bytes();
  if (total_ <= available) memory_ = Pages::anonymous(static_cast<std::size_t>(total_));
  if (!memory_ && total_ > 0) {
    return Error{
        ErrorCode::kOutOfMemory,
        fmt::format("packed weights take {:.1f} MB of memory, {:.1f} MB are available",
                    static_cast<double>(total_) / 1e6, static_cast<double>(available) / 1e6)};
  }
  const std::vector<Batch> batches = plan_batches(options.batch_bytes);
  LAC_TRY_VOID(pack_batches(pool, options, batches,
                            {[&](std::size_t i) { return memory_.data() + batches[i].begin; },
                             [](std::size_t) { return Result<void>(); }}));
  memory_.make_read_only();
  point_into(memory_.data());
  return {};
}

const WeightStore::Item& WeightStore::item_at(std::uint64_t offset) const {
  const auto after =
      std::upper_bound(items_.begin(), items_.end(), offset,
                       [](std::uint64_t at, const Item& i) { return at < i.offset; });
  return *std::prev(after);
}

void WeightStore::point_into(const std::uint8_t* base) {
  for (Item& item : items_) {
    if (item.neuron_major) {
      NeuronMajor& w = item.neurons;
      w.rows = base + item.offset;
      w.scales =
          is_quantized(w.kind) ? w.rows + w.row_bytes() * static_cast<std::size_t>(w.in) : nullptr;
    } else {
      item.blocks.data = base + item.offset;
    }
  }
}

}  // namespace lacuna
