// SPDX-License-Identifier: Apache-2.0
// Converts an original release of a Nemotron-H model to MLX's layout: affine codes, experts
// stacked, the drafting head in mtp.safetensors. docs/convert.md has the rules.
//
// Files   Shards of about 5 GB with tensors by name, model.safetensors.index.json, config.json, and
//         the source's tokenizer files, chat template and generation config.
// Bytes   The same for the same source and options, whatever the number of threads, and also when
//         the conversion was stopped and gone on with.
// Memory  A few megabytes a thread, whatever the size of the model.
// Whole   A file gets its name when it is complete, config.json last. After an error or a cancel
//         what was done stays, with convert.progress.json, and the next call with the same source
//         and options goes on from there. The head alone is one file that is there or not.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>

#include "checkpoint/quantize.h"
#include "lacuna/result.h"
#include "model/convert_plan.h"

namespace lacuna {

struct ConvertOptions {
  AffineFormat format;          // of what no rule names
  std::filesystem::path rules;  // empty: none
  HeadMode head = HeadMode::kAuto;
  int threads = 0;                            // 0: the cores this process may use
  std::uint64_t shard_bytes = 5'000'000'000;  // at most, unless one module is larger
  std::uint64_t note_bytes = 64 << 20;        // written between two notes of progress
  bool force = false;                         // replace a checkpoint or a conversion that is there
  const std::atomic<bool>* cancel = nullptr;  // looked at every few megabytes
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress;  // bytes written
};

struct ConvertReport {
  std::uint64_t modules = 0;  // quantised ones
  std::uint64_t tensors = 0, bytes = 0, files = 0;
  std::uint64_t bytes_before = 0;  // of them, done by an earlier call
  bool has_head = false;
};

// `destination` is a new or empty folder, or holds an unfinished conversion of the same source with
// the same options. With HeadMode::kOnly it may also be a finished checkpoint of the same model,
// which then gets its head.
// Errors: those of opening the source, of the rule file and of plan_conversion; kInvalidArgument (a
// folder in use, or the source's own), kCorrupt (a NaN or an infinity, with tensor and row), kIo
// (no room, with both numbers; a write failed), kCancelled.
Result<ConvertReport> convert_checkpoint(const std::filesystem::path& source,
                                         const std::filesystem::path& destination,
                                         const ConvertOptions& options);

}  // namespace lacuna
