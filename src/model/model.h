// SPDX-License-Identifier: Apache-2.0
// A model family, written once over the op set.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "lacuna/result.h"
#include "ops/backend.h"

namespace lacuna {

// What a forward pass gives.
struct Output {
  Tensor logits;  // [want, V], of the last rows
  Tensor hidden;  // [rows, D]: what the output head read, of as many of the last rows as were asked
};

// A model's own drafting head: guesses tokens further on from the model's hidden states. Families
// differ in its layers, not in how it is used. Immutable once loaded.
class DraftHead {
 public:
  virtual ~DraftHead() = default;

  virtual std::uint64_t parameters() const = 0;
  virtual const std::vector<LayerState>& layer_states() const = 0;  // as Model's, of its own layers

  // `hidden` [T, D] are the model's hidden states of T neighbouring positions and tokens[i] the
  // token after position i. Moves the head's own `state` on by T. With `want` (0 or 1): what may
  // follow the last of `tokens`, as logits [1, kOutputSlice · slices] over those slices of the
  // vocabulary, and a hidden row that takes the model's place when drafting on from there.
  virtual Output forward(Backend& b, std::span<const int> tokens, Tensor hidden,
                         SequenceState& state, int want, std::span<const int> slices) const = 0;
};

// Facts of a model that engine and session need. Immutable once loaded.
class Model {
 public:
  virtual ~Model() = default;

  virtual int layers() const = 0;
  virtual std::vector<std::string> layer_kinds() const = 0;  // as in ModelInfo
  virtual int width() const = 0;
  virtual int vocabulary() const = 0;
  virtual int max_context() const = 0;
  virtual std::uint64_t parameters() const = 0;
  virtual const std::vector<int>& stop_tokens() const = 0;  // of config.json
  virtual const std::vector<LayerState>& layer_states()
      const = 0;  // what a sequence keeps, by layer

  virtual const DraftHead* draft_head() const = 0;  // null: there is none
  // What a user should be told, one line each: a head that does not fit.
  virtual const std::vector<std::string>& notes() const = 0;

  // Runs `tokens` (at least one) after what `state` holds, moves the state on, and returns the
  // logits of the last `want` rows and the hidden states of the last `hidden` ones (want ≤ hidden ≤
  // tokens). Decode is one token, prefill many, a verify of drafts a few: the same function.
  virtual Output forward(Backend& b, std::span<const int> tokens, SequenceState& state, int want,
                         int hidden) const = 0;
};

struct ModelOptions {
  // Instead of the config's sparse_prefill and sparse_prefill_min_context.
  std::optional<bool> sparse_attention;
  std::optional<int> sparse_min_context;
};

// Reads config, binds tensors and declares weights to `backend`, which the caller then loads; the
// checkpoint must live as long as the backend. The family is chosen by config.json's model_type;
// kUnsupported names one that this build does not know.
Result<std::unique_ptr<Model>> make_model(const Checkpoint& checkpoint, Backend& backend,
                                          const ModelOptions& options = {});

}  // namespace lacuna
