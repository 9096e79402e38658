// SPDX-License-Identifier: Apache-2.0
#include "model/nemotron_h_bind.h"

#include <fmt/core.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

namespace lacuna {
namespace {

constexpr const char* kMtp = "mtp.";

float read_float(const TensorView& tensor, std::size_t i) {
  const std::uint8_t* at = tensor.data + i * dtype_bytes(tensor.dtype);
  if (tensor.dtype == Dtype::kF32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  std::uint16_t half;
  std::memcpy(&half, at, sizeof half);
  return tensor.dtype == Dtype::kBf16 ? bf16_to_f32(half) : f16_to_f32(half);
}

// Takes tensors out of a checkpoint by name and keeps what is wrong: the missing ones are counted
// to the end, of the rest the first complaint stays. Whoever asks goes on with empty fields until
// finish().
class Binder {
 public:
  // `head`: of the drafting head's tensors, else of all others.
  Binder(const Checkpoint& checkpoint, QuantizationRules rules, ScaleCheck scale_check, bool head)
      : checkpoint_(checkpoint), rules_(std::move(rules)), scale_check_(scale_check), head_(head) {}

  bool has(const std::string& name) const { return checkpoint_.find(name) != nullptr; }

  LinearSource linear(const std::string& module, int out, int in, int expert = -1,
                      int experts = 0) {
    if (!is_there(module + ".weight")) return {};
    for (const char* part : {".weight", ".scales", ".biases"}) use(module + part);
    auto found = find_linear(checkpoint_, rules_, module, out, in, expert, experts);
    if (!found) {
      keep(std::move(found).error());
      return {};
    }
    if (scale_check_ == ScaleCheck::kAll) keep(check_finite_scales(*found));
    parameters_ += static_cast<std::uint64_t>(out) * static_cast<std::uint64_t>(in);
    return *std::move(found);
  }

  // A small tensor of one of `shapes`, widened.
  std::vector<float> floats(const std::string& name,
                            const std::vector<std::vector<std::int64_t>>& shapes) {
    if (!is_there(name)) return {};
    use(name);
    const TensorView& tensor = *checkpoint_.find(name);
    bool fits = false;
    std::string wanted;
    for (const auto& shape : shapes) {
      fits = fits || tensor.shape == shape;
      wanted += fmt::format("{}{}", wanted.empty() ? "" : " or ", shape_text(shape));
    }
    if (!fits) {
      keep(corrupt(name, fmt::format("shape {}, wanted {}", shape_text(tensor.shape), wanted)));
      return {};
    }
    if (tensor.dtype != Dtype::kF32 && tensor.dtype != Dtype::kF16 &&
        tensor.dtype != Dtype::kBf16) {
      keep(corrupt(name,
                   fmt::format("dtype {}, wanted F32, F16 or BF16", dtype_name(tensor.dtype))));
      return {};
    }
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = read_float(tensor, i);
      if (!std::isfinite(values[i])) {
        keep(corrupt(name, fmt::format("value {} is {}, wanted a finite one", i, values[i])));
        break;
      }
    }
    parameters_ += values.size();
    return values;
  }

  std::vector<float> vector(const std::string& name, int size) { return floats(name, {{size}}); }

  void keep(Error error) {
    if (!error_) error_ = std::move(error);
  }
  void keep(Result<void> result) {
    if (!result) keep(std::move(result).error());
  }
  static Error corrupt(const std::string& name, const std::string& what) {
    return {ErrorCode::kCorrupt, fmt::format("{}: {}", name, what)};
  }

  std::uint64_t parameters() const { return parameters_; }
  std::uint64_t bytes() const { return bytes_; }

  // All complaints.
  Result<void> finish() const {
    const auto [surplus, surplus_count] = find_surplus();
    if (!missing_.empty()) {
      std::string what = missing_.size() == 1
                             ? "missing"
                             : fmt::format("missing, and {} more are", missing_.size() - 1);
      if (surplus_count > 0)
        what += fmt::format("; the checkpoint has {}, which has no place", surplus);
      return corrupt(first_missing_, what);
    }
    if (error_) return *error_;
    if (!head_) LAC_TRY_VOID(rules_.check_all_used(checkpoint_));
    if (surplus_count > 0) {
      return corrupt(surplus,
                     surplus_count == 1
                         ? "has no place in the model that config.json describes"
                         : fmt::format("this and {} other tensors have no place in the model that "
                                       "config.json describes",
                                       surplus_count - 1));
    }
    return {};
  }

 private:
  bool is_there(const std::string& name) {
    if (has(name)) return true;
    if (missing_.empty()) first_missing_ = name;
    missing_.insert(name);
    return false;
  }

  void use(const std::string& name) {
    const TensorView* tensor = checkpoint_.find(name);
    if (tensor != nullptr && used_.insert(name).second) bytes_ += tensor->bytes;
  }

  // The first tensor nobody asked for, and how many there are.
  std::pair<std::string, std::size_t> find_surplus() const {
    std::pair<std::string, std::size_t> found{"", 0};
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      if (name.starts_with(kMtp) != head_ || used_.contains(name)) continue;
      if (found.second++ == 0) found.first = name;
    }
    return found;
  }

  const Checkpoint& checkpoint_;
  QuantizationRules rules_;
  ScaleCheck scale_check_;
  bool head_;
  std::set<std::string> used_;
  std::optional<Error> error_;
  std::string first_missing_;      // in the model's order
  std::set<std::string> missing_;  // a set: every expert asks for the same stacked tensor
  std::uint64_t parameters_ = 0, bytes_ = 0;
};

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
  Binder b(checkpoint, std::move(rules), scale_check, false);
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
  Binder b(checkpoint, std::move(rules), scale_check, true);
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
