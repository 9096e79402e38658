// SPDX-License-Identifier: Apache-2.0
#include "model/glm_dsa_bind.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>
#include <utility>

#include "tensor/dtype.h"

namespace lacuna {
namespace {

constexpr std::string_view kLayers = "model.layers.";

std::string layer_path(std::size_t layer) { return fmt::format("{}{}.", kLayers, layer); }

// Rows of a matrix: whole rows lie side by side, plain ones without scales.
LinearSource plain_rows(const LinearSource& matrix, int first, int rows) {
  LinearSource out = matrix;
  out.out = rows;
  out.weight += static_cast<std::size_t>(first) * matrix.row_bytes();
  return out;
}

void bind_kv_b(Binder& b, const std::string& module, const GlmDsaConfig& c,
               GlmDsaAttentionTensors& out) {
  const LinearSource kv_b = b.linear(module, c.kv_b_rows(), c.latent);
  if (kv_b.quantized) {
    return b.keep({ErrorCode::kUnsupported,
                   fmt::format("{}: quantised, wanted embed_q and unembed_out as MLX conversions "
                               "have them, or plain BF16, F16 or F32",
                               module)});
  }
  if (kv_b.weight == nullptr) return;
  for (int h = 0; h < c.heads; ++h) {
    const int first = h * (c.nope + c.value);
    out.key_b.push_back(plain_rows(kv_b, first, c.nope));
    out.unembed_out.push_back(plain_rows(kv_b, first + c.nope, c.value));
  }
}

// All slices of a stacked tensor, which is asked for once when it is missing.
std::vector<LinearSource> bind_stacked(Binder& b, const std::string& module, int count, int out,
                                       int in) {
  std::vector<LinearSource> slices;
  const int asked = b.has(module + ".weight") ? count : 1;
  for (int i = 0; i < asked; ++i) slices.push_back(b.linear(module, out, in, i, count));
  return slices;
}

GlmDsaAttentionTensors bind_attention(Binder& b, const std::string& path, const GlmDsaConfig& c) {
  GlmDsaAttentionTensors out;
  out.q_a = b.linear(path + "q_a_proj", c.q_rank, c.width);
  out.q_a_norm = b.vector(path + "q_a_layernorm.weight", c.q_rank);
  out.q_b = b.linear(path + "q_b_proj", c.q_rows(), c.q_rank);
  out.kv_a = b.linear(path + "kv_a_proj_with_mqa", c.kv_a_rows(), c.width);
  out.kv_a_norm = b.vector(path + "kv_a_layernorm.weight", c.latent);
  if (b.has(path + "embed_q.weight") || b.has(path + "unembed_out.weight")) {
    out.embed_q = bind_stacked(b, path + "embed_q", c.heads, c.latent, c.nope);
    out.unembed_out = bind_stacked(b, path + "unembed_out", c.heads, c.value, c.latent);
  } else {
    bind_kv_b(b, path + "kv_b_proj", c, out);
  }
  out.o = b.linear(path + "o_proj", c.width, c.o_inputs());
  return out;
}

GlmDsaIndexerTensors bind_indexer(Binder& b, const std::string& path, const GlmDsaConfig& c) {
  GlmDsaIndexerTensors out;
  out.wq_b = b.linear(path + "wq_b", c.index_rows(), c.q_rank);
  out.wk = b.linear(path + "wk", c.index_dim, c.width);
  out.k_norm = b.vector(path + "k_norm.weight", c.index_dim);
  out.k_norm_bias = b.vector(path + "k_norm.bias", c.index_dim);
  out.weights_proj = b.linear(path + "weights_proj", c.index_heads, c.width);
  return out;
}

GlmDsaMlpSources bind_mlp(Binder& b, const std::string& path, int neurons, int width) {
  return {b.linear(path + "gate_proj", neurons, width), b.linear(path + "up_proj", neurons, width),
          b.linear(path + "down_proj", width, neurons)};
}

GlmDsaExpertSources bind_experts(Binder& b, const std::string& mlp, const GlmDsaConfig& c) {
  const std::string stacked = mlp + "switch_mlp.";
  GlmDsaExpertSources out;
  if (b.has(stacked + "gate_proj.weight") || b.has(stacked + "up_proj.weight") ||
      b.has(stacked + "down_proj.weight")) {
    out.gate = bind_stacked(b, stacked + "gate_proj", c.experts, c.expert_neurons, c.width);
    out.up = bind_stacked(b, stacked + "up_proj", c.experts, c.expert_neurons, c.width);
    out.down = bind_stacked(b, stacked + "down_proj", c.experts, c.width, c.expert_neurons);
    return out;
  }
  for (int e = 0; e < c.experts; ++e) {
    GlmDsaMlpSources expert =
        bind_mlp(b, fmt::format("{}experts.{}.", mlp, e), c.expert_neurons, c.width);
    out.gate.push_back(std::move(expert.gate));
    out.up.push_back(std::move(expert.up));
    out.down.push_back(std::move(expert.down));
  }
  return out;
}

GlmDsaLayerTensors bind_layer(Binder& b, const std::string& path, const GlmDsaLayer& kind,
                              const GlmDsaConfig& c) {
  GlmDsaLayerTensors out;
  out.kind = kind;
  out.input_norm = b.vector(path + "input_layernorm.weight", c.width);
  out.attention = bind_attention(b, path + "self_attn.", c);
  if (kind.has_indexer) out.indexer = bind_indexer(b, path + "self_attn.indexer.", c);
  out.post_attention_norm = b.vector(path + "post_attention_layernorm.weight", c.width);
  const std::string mlp = path + "mlp.";
  if (!kind.is_moe) {
    out.mlp = bind_mlp(b, mlp, c.mlp_neurons, c.width);
    return out;
  }
  out.router = b.linear(mlp + "gate", c.experts, c.width);
  out.correction_bias = b.vector(mlp + "gate.e_score_correction_bias", c.experts);
  out.experts = bind_experts(b, mlp, c);
  if (c.shared_neurons > 0)
    out.shared = bind_mlp(b, mlp + "shared_experts.", c.shared_neurons, c.width);
  return out;
}

// FP8 releases are refused by one clear line, not by the first shape or scale that looks odd.
Result<void> refuse_fp8(const Checkpoint& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (tensor.dtype != Dtype::kF8E4M3 && tensor.dtype != Dtype::kF8E5M2) continue;
    return Error{ErrorCode::kUnsupported,
                 fmt::format("{}: dtype {}: FP8 releases are not read, and `lacuna convert` does "
                             "not convert them yet; wanted BF16, F16, F32 or MLX affine codes",
                             name, dtype_name(tensor.dtype))};
  }
  return {};
}

// Tensors of indexers on layers that share picks.
std::set<std::string> spare_indexers(const Checkpoint& checkpoint, const GlmDsaConfig& config,
                                     std::vector<std::string>& notes) {
  std::set<std::string> names;
  int layers = 0;
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    if (config.layers[i].has_indexer) continue;
    const std::string path = layer_path(i) + "self_attn.indexer.";
    const std::size_t before = names.size();
    for (auto it = checkpoint.tensors().lower_bound(path);
         it != checkpoint.tensors().end() && it->first.starts_with(path); ++it) {
      names.insert(it->first);
    }
    layers += names.size() > before ? 1 : 0;
  }
  if (!names.empty()) {
    notes.push_back(
        fmt::format("{}: left out with {} more indexer tensors, on {} layers that share "
                    "picks by config.json",
                    *names.begin(), names.size() - 1, layers));
  }
  return names;
}

}  // namespace

bool is_glm_dsa_mtp(const Checkpoint& checkpoint, const GlmDsaConfig& config,
                    const std::string& name) {
  if (name.starts_with("mtp.")) return true;
  if (!name.starts_with(kLayers)) return false;
  std::size_t layer = 0;
  const char* begin = name.data() + kLayers.size();
  const auto [stop, problem] = std::from_chars(begin, name.data() + name.size(), layer);
  if (problem != std::errc() || layer < config.layers.size()) return false;
  const std::string path(name.data(), stop);
  return checkpoint.find(path + ".eh_proj.weight") != nullptr && name.starts_with(path + ".");
}

Result<GlmDsaTensors> bind_glm_dsa(const Checkpoint& checkpoint, const GlmDsaConfig& config,
                                   ScaleCheck scale_check) {
  LAC_TRY_VOID(refuse_fp8(checkpoint));
  LAC_TRY(QuantizationRules rules, QuantizationRules::parse(checkpoint.config()));
  GlmDsaTensors out;
  const std::set<std::string> spare = spare_indexers(checkpoint, config, out.notes);
  const auto is_mtp = [&](const std::string& name) {
    return is_glm_dsa_mtp(checkpoint, config, name);
  };
  out.has_mtp = std::any_of(checkpoint.tensors().begin(), checkpoint.tensors().end(),
                            [&](const auto& tensor) { return is_mtp(tensor.first); });
  Binder b(checkpoint, std::move(rules), scale_check,
           [&](const std::string& name) { return !is_mtp(name) && !spare.contains(name); });
  out.embeddings = b.linear("model.embed_tokens", config.vocabulary, config.width);
  for (std::size_t i = 0; i < config.layers.size(); ++i)
    out.layers.push_back(bind_layer(b, layer_path(i), config.layers[i], config));
  out.final_norm = b.vector("model.norm.weight", config.width);
  out.lm_head = config.tied_embeddings ? out.embeddings
                                       : b.linear("lm_head", config.vocabulary, config.width);
  LAC_TRY_VOID(b.finish());
  LAC_TRY_VOID(b.rules().check_all_used(checkpoint));
  out.parameters = b.parameters();
  out.bytes = b.bytes();
  return out;
}

}  // namespace lacuna
