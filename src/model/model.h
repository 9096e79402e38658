// SPDX-License-Identifier: Apache-2.0
// A model family, written once over the op set.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "lacuna/result.h"
#include "ops/backend.h"

namespace lacuna {

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

  // Runs `tokens` (at least one) after what `state` holds, moves the state on, and returns the
  // logits [want, V] of the last `want` rows (want ≤ tokens). Decode is one token, prefill many, a
  // verify of drafts a few: the same function.
  virtual Tensor forward(Backend& b, std::span<const int> tokens, SequenceState& state,
                         int want) const = 0;
};

// Reads config, binds tensors and declares weights to `backend`, which the caller then loads; the
// checkpoint must live as long as the backend. The family is chosen by config.json's model_type;
// kUnsupported names one that this build does not know.
Result<std::unique_ptr<Model>> make_model(const Checkpoint& checkpoint, Backend& backend);

}  // namespace lacuna
