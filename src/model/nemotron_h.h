// SPDX-License-Identifier: Apache-2.0
// Nemotron-H: one mixer a layer (Mamba-2, attention, mixture of ReLU² experts, or a ReLU² MLP),
// each behind one norm, no positions anywhere.
#pragma once

#include <memory>
#include <vector>

#include "model/model.h"
#include "model/nemotron_h_config.h"

namespace lacuna {

class NemotronH : public Model {
 public:
  // Errors name the tensor or the field.
  static Result<std::unique_ptr<Model>> make(const Checkpoint& checkpoint, Backend& backend);

  int layers() const override { return static_cast<int>(config_.layers.size()); }
  std::vector<std::string> layer_kinds() const override;
  int width() const override { return config_.width; }
  int vocabulary() const override { return config_.vocabulary; }
  int max_context() const override { return config_.max_context; }
  std::uint64_t parameters() const override { return parameters_; }
  const std::vector<int>& stop_tokens() const override { return config_.stop_tokens; }
  const std::vector<LayerState>& layer_states() const override { return states_; }
  Tensor forward(Backend& b, std::span<const int> tokens, SequenceState& state,
                 int want) const override;

 private:
  struct Layer {
    LayerKind kind = LayerKind::kMamba;
    Vector norm;
    MambaWeights mamba;
    AttentionWeights attention;
    MoeWeights moe;
    MlpWeights mlp;
  };

  NemotronHConfig config_;
  Weight embeddings_, head_;
  Vector final_norm_;
  std::vector<Layer> layers_;
  std::vector<LayerState> states_;
  std::uint64_t parameters_ = 0;
};

}  // namespace lacuna
