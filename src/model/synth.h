// SPDX-License-Identifier: Apache-2.0
// Writes a checkpoint of random weights for measuring speed and memory where the real weights are
// not at hand: MLX's 4-bit layout, with a chosen share of live neurons (synth_plan.h).
//
// Files   Shards of about 5 GB with model.safetensors.index.json, config.json, and the
//         tokenizer, chat template and generation config of another checkpoint; the drafting head
//         in mtp.safetensors. A sentence in every shard's metadata and in config.json, both under
//         "lacuna_synthetic", says what it is.
// Bytes   The same for the same options, whatever the number of threads.
// Whole   A file gets its name when it is complete, config.json last. After an error or a cancel
//         nothing that was written is left.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "lacuna/result.h"
#include "model/synth_shape.h"

namespace lacuna {

struct SynthOptions {
  ShapeOptions shape;
  std::string live = "published";  // see parse_live_profile
  std::uint64_t seed = 1;
  int threads = 0;                            // 0: the cores this process may use
  std::uint64_t shard_bytes = 5'000'000'000;  // at most, unless one module is larger
  bool force = false;                         // write over a synthetic checkpoint that is there
  std::filesystem::path tokenizer_from;       // a checkpoint folder
  const std::atomic<bool>* cancel = nullptr;  // looked at every few megabytes
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress;  // bytes
};

struct SynthReport {
  std::string description;                          // the sentence
  std::uint64_t tensors = 0, bytes = 0, files = 0;  // of weights
};

// Errors: kInvalidArgument (a flag; a folder in use), kIo (no room, with both numbers; a write
// failed), kCancelled, and those of reading `tokenizer_from` and a shape's config.
Result<SynthReport> write_synthetic(const std::filesystem::path& folder,
                                    const SynthOptions& options);

}  // namespace lacuna
