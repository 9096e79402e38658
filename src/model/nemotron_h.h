// SPDX-License-Identifier: Apache-2.0
// Nemotron-H: one mixer a layer (Mamba-2, attention, mixture of ReLU² experts, or a ReLU² MLP),
// each behind one norm, no positions anywhere.
#pragma once

#include <memory>
#include <vector>

#include "model/model.h"
#include "model/nemotron_h_bind.h"
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
  const DraftHead* draft_head() const override { return draft_head_.get(); }
  const std::vector<std::string>& notes() const override { return notes_; }
  Output forward(Backend& b, std::span<const int> tokens, SequenceState& state, int want,
                 int hidden) const override;

 private:
  friend class NemotronHDraftHead;
  struct Layer {
    LayerKind kind = LayerKind::kMamba;
    Vector norm;
    MambaWeights mamba;
    AttentionWeights attention;
    MoeWeights moe;
    MlpWeights mlp;
  };
  static Layer make_layer(const NemotronHConfig& c, const NemotronHLayerTensors& t, Backend& b,
                          LayerState& state);

  NemotronHConfig config_;
  Weight embeddings_, head_;
  Vector final_norm_;
  std::vector<Layer> layers_;
  std::vector<LayerState> states_;
  std::uint64_t parameters_ = 0;
  std::unique_ptr<DraftHead> draft_head_;
  std::vector<std::string> notes_;
};

// The multi-token-prediction head: embedding of the next token beside the hidden state, one
// projection, one attention and one expert layer; embeddings and output head are the model's.
class NemotronHDraftHead : public DraftHead {
 public:
  NemotronHDraftHead(const NemotronH& model, const NemotronHHeadTensors& tensors, Backend& backend);

  std::uint64_t parameters() const override { return parameters_; }
  const std::vector<LayerState>& layer_states() const override { return states_; }
  Output forward(Backend& b, std::span<const int> tokens, Tensor hidden, SequenceState& state,
                 int want, std::span<const int> slices) const override;

 private:
  const NemotronH& model_;
  Vector token_norm_, hidden_norm_, final_norm_;
  Weight joined_;  // [D, 2D]: embedding first
  std::vector<NemotronH::Layer> layers_;
  std::vector<LayerState> states_;
  std::uint64_t parameters_;
};

}  // namespace lacuna
