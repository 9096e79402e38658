// SPDX-License-Identifier: Apache-2.0
// The packed weights of a model: one file in the cache folder, packed at the first start and mapped
// at later ones. Each weight is in memory once.
//
// The file appears under its name only when it is whole (an unnamed temporary file is linked at the
// end), so a crash, a full disk or a second process at the same time cannot leave half of one. When
// the folder cannot be written, weights are packed in memory for this run and notes() says why.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/mmap.h"
#include "base/threads.h"
#include "checkpoint/linear_source.h"
#include "lacuna/result.h"
#include "tensor/packed.h"

namespace lacuna {

class WeightStore {
 public:
  WeightStore() = default;
  ~WeightStore();
  WeightStore(const WeightStore&) = delete;

  // Each returns the matrix's number. Sources must live until load() returns.
  int add_row_blocks(const LinearSource& source);
  int add_neuron_major(const LinearSource& source);

  struct Options {
    std::string name;
    std::uint64_t fingerprint = 0;
    std::filesystem::path folder;
    std::function<void(std::uint64_t done, std::uint64_t total)> on_packing;
  };
  // kOutOfMemory, with both numbers, when there is neither a cache file nor memory for the weights.
  Result<void> load(ThreadPool& pool, const Options& options);

  const RowBlocks& row_blocks(int id) const { return items_[id].blocks; }
  const NeuronMajor& neuron_major(int id) const { return items_[id].neurons; }
  std::uint64_t bytes() const { return total_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Item {
    LinearSource source;
    bool neuron_major = false;
    RowBlocks blocks;
    NeuronMajor neurons;
    std::uint64_t offset = 0;
  };

  std::uint64_t layout_hash() const;
  bool map_cache(const std::filesystem::path& file, std::uint64_t fingerprint);
  Result<void> pack_to_file(ThreadPool& pool, const Options& options,
                            const std::filesystem::path& file);
  Result<void> pack_to_memory(ThreadPool& pool, const Options& options);
  void pack_all(ThreadPool& pool, const Options& options, std::uint8_t* base);
  void point_into(const std::uint8_t* base);

  std::vector<Item> items_;
  std::uint64_t total_ = 0;  // payload bytes
  void* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace lacuna
