// SPDX-License-Identifier: Apache-2.0
// The packed weights of a model: one file in the cache folder (cache_file.h), packed at the first
// start and mapped at later ones. Each weight is in memory once.
//
// Scales are stored compactly (ScaleForm, tensor/packed.h) in every matrix whose own scales all
// follow from their biases. Which those are is found by looking; a file in which all that could be
// compact are says so by being there.
//
// The file is made again when the checkpoint, the layout or the format is another one, or when its
// data is damaged. When the folder cannot be written, weights are packed in memory for this run and
// notes() says why.
//
// Packing goes through the matrices in the order they were added, in batches: the
// threads pack one batch while one of them writes the batch before and another has the system read
// the sources of the batch after. So beside the file's own pages two batches are in memory, and of
// the sources three.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/cache_file.h"
#include "base/memory.h"
#include "base/threads.h"
#include "checkpoint/linear_source.h"
#include "lacuna/result.h"
#include "tensor/packed.h"

namespace lacuna {

class WeightStore {
 public:
  WeightStore() = default;
  WeightStore(const WeightStore&) = delete;

  // Each returns the matrix's number. Sources must live until load() returns.
  int add_row_blocks(const LinearSource& source);
  int add_neuron_major(const LinearSource& source);

  struct Options {
    std::string name;
    std::uint64_t fingerprint = 0;
    std::filesystem::path folder;
    // Bytes packed so far and in all, after each batch, from the thread that called load().
    std::function<void(std::uint64_t done, std::uint64_t total)> on_packing;
    // Sources lie in files mapped by MappedFile: what was packed is dropped from memory.
    bool mapped_sources = false;
    std::uint64_t batch_bytes = std::uint64_t{64} << 20;  // or one matrix, if that is larger
  };
  // Errors: kOutOfMemory, with both numbers, when there is neither a cache file nor memory for the
  // weights; kCorrupt names the tensor of scales or biases with a NaN or an infinity. They are
  // looked at while packing, so weights that come from a file have been looked at.
  Result<void> load(ThreadPool& pool, const Options& options);

  const RowBlocks& row_blocks(int id) const { return items_[id].blocks; }
  const NeuronMajor& neuron_major(int id) const { return items_[id].neurons; }
  std::uint64_t bytes() const { return total_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  // A matrix. Its units are row blocks, or column blocks of 128 outputs.
  struct Item {
    LinearSource source;
    bool neuron_major = false;
    RowBlocks blocks;
    NeuronMajor neurons;
    std::uint64_t offset = 0;  // in the payload

    ScaleForm form() const { return neuron_major ? neurons.form : blocks.form; }
    std::uint64_t bytes() const { return neuron_major ? neurons.bytes() : blocks.bytes(); }
    int unit_rows() const { return neuron_major ? kColumnBlock : kBlockRows; }
    int units() const { return (source.out + unit_rows() - 1) / unit_rows(); }
    // Outputs of units [first, first + count) as a matrix of their own.
    LinearSource slice(int first, int count) const;
  };
  // Units that lie together: some of a matrix in row blocks, all of a neuron-major one.
  struct Part {
    const Item* item;
    int first, count;
    std::uint64_t begin, end;  // in the payload; the end includes the padding behind a matrix
  };
  struct Batch {
    std::vector<Part> parts;
    std::uint64_t begin = 0, end = 0;  // in the payload
    int units = 0;
  };
  // Where the batches go. `memory` returns the place of a batch's first byte. `settle` is called by
  // one thread, with how many batches are done, while the others pack the next one.
  struct Target {
    std::function<std::uint8_t*(std::size_t batch)> memory;
    std::function<Result<void>(std::size_t batches)> settle;
  };

  int add(const LinearSource& source, bool neuron_major);
  void place(Item& item, bool compact);  // behind all that was placed before
  bool map_or_find_compact(ThreadPool& pool, const Options& options);
  CacheKey cache_key(const Options& options) const;
  bool map_cache(ThreadPool& pool, const Options& options);
  Result<void> pack_to_file(ThreadPool& pool, const Options& options);
  Result<void> pack_to_memory(ThreadPool& pool, const Options& options);
  std::vector<Batch> plan_batches(std::uint64_t batch_bytes) const;
  Result<void> pack_batches(ThreadPool& pool, const Options& options,
                            const std::vector<Batch>& batches, const Target& target) const;
  static Result<void> pack_batch(ThreadPool& pool, const Batch& batch, std::uint8_t* memory,
                                 const std::function<void()>& beside);
  static Result<void> pack_unit(const Part& part, int unit, std::uint8_t* memory);
  const Item& item_at(std::uint64_t offset) const;
  void point_into(const std::uint8_t* base);

  std::vector<Item> items_;
  std::uint64_t total_ = 0;  // payload bytes
  std::optional<CacheFile> file_;
  Pages memory_;  // of weights that are in no file
  std::vector<std::string> notes_;
};

}  // namespace lacuna
