// SPDX-License-Identifier: Apache-2.0
// A checkpoint folder: its config and every tensor of its safetensors files, mapped and checked.
//
// Opening checks, before a byte of weight is used: header size (25 MB at most) and JSON, dtypes,
// shapes without overflow, offsets inside the file, ends that match shape × dtype, no overlap and
// no hole, the index file against the shards both ways, no tensor twice. Files are untrusted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "lacuna/result.h"

namespace lacuna {

class Checkpoint {
 public:
  // `folder` holds config.json and model.safetensors, or shards with model.safetensors.index.json.
  // A file mtp.safetensors or model-mtp*.safetensors beside them is mapped too (a drafting head);
  // one that cannot be read is left out, with a line in notes(). Errors: kNotFound (folder, config,
  // weights, a shard), kUnsupported (GGUF, an unknown dtype), kCorrupt, kIo; each names the file
  // and the tensor.
  static Result<Checkpoint> open(const std::filesystem::path& folder);

  struct File {
    std::string name;
    std::size_t bytes = 0;
    std::map<std::string, std::string> metadata;
    bool is_side_file = false;  // a drafting head's, found by its name
  };

  const std::filesystem::path& folder() const { return folder_; }
  const nlohmann::ordered_json& config() const { return config_; }  // an object
  const std::map<std::string, TensorView>& tensors() const { return tensors_; }
  const TensorView* find(const std::string& name) const;  // null when there is none
  const std::vector<File>& files() const {
    return files_;
  }  // weight files, by name, side files last

  const std::vector<std::string>& notes() const { return notes_; }

  // Changes when a weight file or the config does: names, sizes, modification times and headers.
  // The key of anything derived from this checkpoint and kept on disk.
  std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  Result<void> add_file(const std::string& name, bool is_side_file);
  Result<void> check_index(const std::map<std::string, std::string>& index) const;
  void mix(std::string_view bytes);  // into the fingerprint

  std::filesystem::path folder_;
  nlohmann::ordered_json config_;
  std::map<std::string, TensorView> tensors_;
  std::vector<File> files_;
  std::vector<std::shared_ptr<const void>> mappings_;
  std::vector<std::string> notes_;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace lacuna
