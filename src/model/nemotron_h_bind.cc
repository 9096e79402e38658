// SPDX-License-Identifier: Apache-2.0
#include "model/nemotron_h_bind.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "model/binder.h"

namespace lacuna {
namespace {

constexpr const char* kMtp = "mtp.";

void bind_mamba(Binder& b, const std::string& mixer, const NemotronHConfig& c,
                NemotronHLayerTensors& layer) {
  const int channels = c.conv_channels();
  layer.in_proj = b.linear(mixer + "in_proj", c.in_proj_rows(), c.width);
  // Both layouts hold the taps of a channel side by side, so the bytes are the same.
  layer.conv_weight = b.floats(mixer + "conv1d.weight",
                               {{channels, 1, c.conv_kernel}, {channels, c.conv_kernel, 1}});
  layer.conv_bias = b.vector(mixer + "conv1d.bias", channels);
  layer.a_log = b.vector(mixer + "A_log", c.ssm_heads);
  for (std::size_t i = 0; i < layer.a_log.size(); ++i) {
    const float a = std::exp(layer.a_log[i]);
    if (std::isfinite(a) && a > 0.0f) continue;
    b.keep(Binder::corrupt(mixer + "A_log",
                           fmt::format("value {} is {}, whose exponential is {}, wanted a "
                                       "finite one above 0",
                                       i, layer.a_log[i], a)));
    break;
  }
  layer.d = b.vector(mixer + "D", c.ssm_heads);
  layer.dt_bias = b.vector(mixer + "dt_bias", c.ssm_heads);
  layer.gate_norm = b.vector(mixer + "norm.weight", c.ssm_inner());
  layer.out_proj = b.linear(mixer + "out_proj", c.width, c.ssm_inner());
}

void bind_attention(Binder& b, const std::string& mixer, const NemotronHConfig& c,
                    NemotronHLayerTensors& layer) {
  const int queries = c.heads * c.head_dim, keys = c.kv_heads * c.head_dim;
  layer.q_proj = b.linear(mixer + "q_proj", queries, c.width);
  layer.k_proj = b.linear(mixer + "k_proj", keys, c.width);
  layer.v_proj = b.linear(mixer + "v_proj", keys, c.width);
  layer.o_proj = b.linear(mixer + "o_proj", c.width, queries);
}

ExpertSources bind_experts(Binder& b, const std::string& mixer, const NemotronHConfig& c) {
  const int width = c.latent > 0 ? c.latent : c.width;
  const bool stacked =
      b.has(mixer + "switch_mlp.fc1.weight") || b.has(mixer + "switch_mlp.fc2.weight");
  ExpertSources out;
  for (int e = 0; e < c.experts; ++e) {
    if (stacked) {
      out.up.push_back(b.linear(mixer + "switch_mlp.fc1", c.expert_neurons, width, e, c.experts));
      out.down.push_back(b.linear(mixer + "switch_mlp.fc2", width, c.expert_neurons, e, c.experts));
    } else {
      const std::string expert = fmt::format("{}experts.{}.", mixer, e);
      out.up.push_back(b.linear(expert + "up_proj", c.expert_neurons, width));
      out.down.push_back(b.linear(expert + "down_proj", width, c.expert_neurons));
    }
  }
  return out;
}

void bind_moe(Binder& b, const std::string& mixer, const NemotronHConfig& c,
              NemotronHLayerTensors& layer) {
  layer.router = b.linear(mixer + "gate", c.experts, c.width);
  layer.correction_bias = b.vector(mixer + "gate.e_score_correction_bias", c.experts);
  if (c.latent > 0) {
    layer.latent_in = b.linear(mixer + "fc1_latent_proj", c.latent, c.width);
    layer.latent_out = b.linear(mixer + "fc2_latent_proj", c.width, c.latent);
  }
  layer.experts = bind_experts(b, mixer, c);
  if (c.shared_neurons > 0) {
    layer.shared_up = b.linear(mixer + "shared_experts.up_proj", c.shared_neurons, c.width);
    layer.shared_down = b.linear(mixer + "shared_experts.down_proj", c.width, c.shared_neurons);
  }
}

NemotronHLayerTensors bind_layer(Binder& b, const std::string& layer_path, LayerKind kind,
                                 const NemotronHConfig& c) {
  const std::string mixer = layer_path + "mixer.";
  NemotronHLayerTensors layer;
  layer.kind = kind;
  layer.norm = b.vector(layer_path + "norm.weight", c.width);
  switch (kind) {
    case LayerKind::kMamba:
      bind_mamba(b, mixer, c, layer);
      break;
    case LayerKind::kAttention:
      bind_attention(b, mixer, c, layer);
      break;
    case LayerKind::kMoe:
      bind_moe(b, mixer, c, layer);
      break;
    case LayerKind::kMlp:
      layer.mlp_up = b.linear(mixer + "up_proj", c.mlp_neurons, c.width);
      layer.mlp_down = b.linear(mixer + "down_proj", c.width, c.mlp_neurons);
      break;
  }
  return layer;
}

}  // namespace

Result<NemotronHTensors> bind_nemotron_h(const Checkpoint& checkpoint,
                                         const NemotronHConfig& config, ScaleCheck scale_check) {
  LAC_TRY(QuantizationRules rules, QuantizationRules::parse(checkpoint.config()));
  Binder b(checkpoint, std::move(rules), scale_check,
           [](const std::string& name) { return !name.starts_with(kMtp); });
  NemotronHTensors out;
  out.embeddings = b.linear("backbone.embeddings", config.vocabulary, config.width);
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    out.layers.push_back(
        bind_layer(b, fmt::format("backbone.layers.{}.", i), config.layers[i], config));
  }
  out.final_norm = b.vector("backbone.norm_f.weight", config.width);
  out.lm_head = config.tied_embeddings ? out.embeddings
                                       : b.linear("lm_head", config.vocabulary, config.width);
  LAC_TRY_VOID(b.finish());
  LAC_TRY_VOID(b.rules().check_all_used(checkpoint));
  const auto mtp = checkpoint.tensors().lower_bound(kMtp);
  out.has_mtp = mtp != checkpoint.tensors().end() && mtp->first.starts_with(kMtp);
  out.parameters = b.parameters();
  out.bytes = b.bytes();
  return out;
}

Result<NemotronHHeadTensors> bind_nemotron_h_head(const Checkpoint& checkpoint,
                                                  const NemotronHConfig& config,
                                                  ScaleCheck scale_check) {
  // Conversions drop what the config says of a head; every release so far has this one.
  std::vector<LayerKind> kinds = config.mtp_layers;
  if (kinds.empty()) kinds = {LayerKind::kAttention, LayerKind::kMoe};
  bool fits = kinds[0] == LayerKind::kAttention;
  for (std::size_t i = 1; i < kinds.size(); ++i)
    fits = fits && (kinds[i] == LayerKind::kMoe || kinds[i] == LayerKind::kMlp);
  if (!fits) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("layers {} of the drafting head, wanted attention (*), then experts "
                             "(E) or MLPs (-)",
                             pattern_text(kinds))};
  }
  LAC_TRY(QuantizationRules rules, QuantizationRules::parse(checkpoint.config()));
  Binder b(checkpoint, std::move(rules), scale_check,
           [](const std::string& name) { return name.starts_with(kMtp); });
  NemotronHHeadTensors out;
  const auto path = [](std::size_t i) { return fmt::format("{}layers.{}.", kMtp, i); };
  out.token_norm = b.vector(path(0) + "enorm.weight", config.width);
  out.hidden_norm = b.vector(path(0) + "hnorm.weight", config.width);
  out.joined = b.linear(path(0) + "eh_proj", config.width, 2 * config.width);
  for (std::size_t i = 0; i < kinds.size(); ++i)
    out.layers.push_back(bind_layer(b, path(i), kinds[i], config));
  out.final_norm = b.vector(path(kinds.size() - 1) + "final_layernorm.weight", config.width);
  LAC_TRY_VOID(b.finish());
  out.parameters = b.parameters();
  return out;
}

}  // namespace lacuna
