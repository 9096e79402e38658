// SPDX-License-Identifier: Apache-2.0
// An opened model. Start here: Engine::open, then Engine::new_session, then session.h.
//
// An Engine is immutable once open and may be used from several threads; the sessions it makes are
// each used by one thread at a time, and the Engine must outlive them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lacuna/result.h"

namespace lacuna {

class Session;
class Trace;
class Tokenizer;
class ChatTemplate;

// Where activations meet weights: kept in float32, or rounded to bfloat16 first (what the
// checkpoints were made for). Everything else is float32 in both.
enum class Precision { kF32, kBf16 };

struct EngineOptions {
  int threads = 0;  // 0: the physical cores this process may use (affinity mask, cgroup quota)
  Precision precision = Precision::kBf16;
  bool sparse_experts = true;  // false: read every row of a ReLU² down projection, same bits
  // Of models with an indexer: skip keys that it did not pick, from this many visible keys on.
  // Empty: as config.json says (sparse_prefill, sparse_prefill_min_context).
  std::optional<bool> sparse_attention;
  std::optional<int> sparse_min_context;
  int context = 0;           // tokens a session may hold; 0: the model's own limit
  int prefill_chunk = 2048;  // tokens per forward pass of a prompt; no effect on the result
  std::filesystem::path
      cache_dir;  // packed weights; empty: $LACUNA_CACHE, else the XDG cache folder
  // Told while weights are packed (the first start with a checkpoint): bytes done of bytes in all.
  std::function<void(std::uint64_t done, std::uint64_t total)> on_packing;
};

struct SessionOptions {
  std::optional<bool> sparse_experts;  // instead of the engine's
  Trace* trace = nullptr;              // told of every forward pass; must outlive the session
  bool sparse_attention = true;        // false: mask the keys that were not picked
  bool drafts = false;                 // keep what Session::draft needs, if the model has a head
};

struct ModelInfo {
  std::string name;          // the folder's name
  std::string architecture;  // "nemotron_h"
  int layers = 0, width = 0, vocabulary = 0;
  std::vector<std::string> layer_kinds;  // "mamba", "attention", "moe", "mlp"
  int context = 0;                       // tokens a session may hold
  std::uint64_t parameters = 0;          // without a drafting head
  std::uint64_t head_parameters = 0;     // of the drafting head; 0: there is none
  std::uint64_t weight_bytes = 0;        // resident bytes of packed weights
  std::vector<int> stop_tokens;          // union of config, generation config and tokenizer
  float default_temperature = 1.0f;      // of generation_config.json
  float default_top_p = 1.0f;
  int default_top_k = 0;
  std::string precision;  // "f32" or "bf16"
  std::string isa;        // the kernels in use: "scalar", "avx2", "avx512", "avx512bf16", "neon"
  int threads = 0;
  std::vector<std::string>
      notes;  // one line each for whatever a user should be told about the load
};

class Engine {
 public:
  // Opens a checkpoint folder (config.json, *.safetensors, tokenizer.json) and checks all of it.
  // Errors name the file, the tensor or the field: kNotFound, kUnsupported, kCorrupt, kOutOfMemory,
  // kIo.
  static Result<std::unique_ptr<Engine>> open(const std::filesystem::path& folder,
                                              const EngineOptions& options);
  ~Engine();

  const ModelInfo& info() const;
  const EngineOptions& options() const;
  const Tokenizer& tokenizer() const;
  const ChatTemplate* chat_template() const;  // null when the checkpoint has none

  // Allocates the caches of one timeline. kOutOfMemory names the bytes wanted.
  Result<std::unique_ptr<Session>> new_session(const SessionOptions& options = {}) const;

 private:
  friend class Session;
  class Trace;
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lacuna
