// SPDX-License-Identifier: Apache-2.0
// GLM-5.x and DeepSeek-V3.2: attention over latents that reads the keys an indexer picked, and
// SwiGLU experts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/glm_dsa_bind.h"
#include "model/glm_dsa_config.h"
#include "model/model.h"

namespace lacuna {

class GlmDsa : public Model {
 public:
  // Errors name the tensor or the field.
  static Result<std::unique_ptr<Model>> make(const Checkpoint& checkpoint, Backend& backend,
                                             const ModelOptions& options);

  int layers() const override { return static_cast<int>(config_.layers.size()); }
  std::vector<std::string> layer_kinds() const override;
  int width() const override { return config_.width; }
  int vocabulary() const override { return config_.vocabulary; }
  int max_context() const override { return config_.max_context; }
  std::uint64_t parameters() const override { return parameters_; }
  const std::vector<int>& stop_tokens() const override { return config_.stop_tokens; }
  const std::vector<LayerState>& layer_states() const override { return states_; }
  const DraftHead* draft_head() const override { return nullptr; }
  const std::vector<std::string>& notes() const override { return notes_; }
  Output forward(Backend& b, std::span<const int> tokens, SequenceState& state, int want,
                 int hidden) const override;

 private:
  struct Layer {
    Vector input_norm, post_attention_norm;
    LatentWeights attention;
    bool is_moe = false;
    GatedMlpWeights mlp;
    GatedMoeWeights moe;
  };
  LatentWeights make_attention(const GlmDsaLayerTensors& t, Backend& b);

  GlmDsaConfig config_;
  Weight embeddings_, head_;
  Vector final_norm_, frequencies_;
  std::vector<Layer> layers_;
  std::vector<LayerState> states_;
  std::uint64_t parameters_ = 0;
  std::vector<std::string> notes_;
  // Heads' key matrices of a release, transposed: the backend packs them when it loads.
  std::vector<std::vector<std::uint8_t>> transposed_;
};

}  // namespace lacuna
