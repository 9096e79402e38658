// SPDX-License-Identifier: Apache-2.0
// What is in a checkpoint, for `lacuna inspect`: sizes by component, quantisation, drafting head,
// tensors.
//
// Works for any safetensors checkpoint; for an architecture this build does not run it says so and
// still lists what is there. The weights are not read, only headers and the small files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lacuna/result.h"

namespace lacuna {

struct InspectReport {
  std::string name;          // the folder's
  std::string architecture;  // config.json's model_type
  std::string synthetic;     // what `lacuna synth` says of its random weights; else empty
  std::string problem;       // why this build will not run it; empty when it will
  // From config.json; 0 or empty when it does not say.
  int layers = 0, width = 0, vocabulary = 0, context = 0;
  // A letter a layer: of Nemotron-H "MEMEM*E", of GLM and DeepSeek "FFSF" (F has an indexer, S
  // shares picks).
  std::string pattern;
  std::vector<int> stop_tokens;  // of config.json and generation_config.json together, rising

  // Parameters count a quantised module by its weights, not by codes, scales and biases; 0 when the
  // quantisation is one we cannot read. The drafting head is apart.
  std::uint64_t parameters = 0, bytes = 0;

  std::vector<std::string> notes;  // a line for tensors that are in the files and not used

  struct Component {
    std::string name;  // "routed experts"
    std::uint64_t tensors = 0, parameters = 0, bytes = 0;
  };
  std::vector<Component> components;  // the drafting head too, last

  struct Format {
    std::string name;  // "4 bits, group 64", or a dtype such as "BF16" for plain tensors
    std::uint64_t modules = 0, parameters = 0, bytes = 0;
  };
  std::vector<Format> formats;         // by falling bytes, the drafting head included
  std::vector<std::string> overrides;  // "backbone.layers.3.mixer.in_proj: 8 bits, group 32"

  enum class Head {
    kNone,
    kPresent,
    kMissing
  };  // kMissing: declared by the config, tensors absent
  Head head = Head::kNone;
  std::string head_file;     // where its first tensor is
  std::string head_problem;  // why it is left out; empty when it will be used
  std::uint64_t head_parameters = 0, head_bytes = 0;

  struct File {
    std::string name;
    std::uint64_t bytes = 0;
  };
  std::vector<File> files;

  struct Tensor {
    std::string name, dtype, file;
    std::vector<std::int64_t> shape;
    std::uint64_t bytes = 0;
  };
  std::vector<Tensor> tensors;  // by name
};

// Errors as Checkpoint::open. What keeps the model from running, a missing tensor for example, is
// no error here but `problem`.
Result<InspectReport> inspect_checkpoint(const std::filesystem::path& folder);

// A page for a terminal, without colours, each line ended; `with_tensors` adds a line per tensor.
std::string inspect_text(const InspectReport& report, bool with_tensors);
// The same facts as one object, its keys named as the fields above; "head" is "none", "present" or
// "missing".
nlohmann::ordered_json inspect_json(const InspectReport& report, bool with_tensors);

}  // namespace lacuna
