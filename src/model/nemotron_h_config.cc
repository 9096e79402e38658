// SPDX-License-Identifier: Apache-2.0
#include "model/nemotron_h_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "checkpoint/json.h"
#include "model/config_fields.h"

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;
using Fields = ConfigFields;

constexpr int kMaxVocabulary = 1 << 22, kMaxWidth = 1 << 16, kMaxLayers = 1024;
constexpr int kMaxHeads = 4096, kMaxHeadDim = 1024, kMaxState = 4096, kMaxGroups = 1024;
constexpr int kMaxExperts = 4096, kMaxNeurons = 1 << 20, kMaxContext = 1 << 30;
constexpr std::int64_t kMaxExpertsInAll = 1 << 18;  // ten times the largest release
constexpr int kConvKernel = 4;  // the convolution and its cache are written for four taps

std::optional<LayerKind> kind_of_letter(char letter) {
  switch (letter) {
    case 'M':
      return LayerKind::kMamba;
    case '*':
      return LayerKind::kAttention;
    case 'E':
      return LayerKind::kMoe;
    case '-':
      return LayerKind::kMlp;
    default:
      return std::nullopt;
  }
}

std::optional<LayerKind> kind_of_word(const Json& value) {
  if (value == "mamba" || value == "linear_attention") return LayerKind::kMamba;
  if (value == "attention" || value == "full_attention") return LayerKind::kAttention;
  if (value == "moe") return LayerKind::kMoe;
  if (value == "mlp") return LayerKind::kMlp;
  return std::nullopt;
}

// A layer list: the pattern of letters wins over the list of words when both are there.
std::vector<LayerKind> read_layers(Fields& fields, const char* pattern_name,
                                   const char* list_name) {
  std::vector<LayerKind> layers;
  const auto push = [&](const char* name, std::optional<LayerKind> kind, const std::string& found,
                        const char* wanted) {
    if (layers.size() >= kMaxLayers) {
      fields.fail(ErrorCode::kUnsupported, name, fmt::format("more than {} layers", kMaxLayers));
    } else if (!kind) {
      fields.fail(ErrorCode::kUnsupported, name,
                  fmt::format("layer {} is {}, wanted {}", layers.size(), found, wanted));
    } else {
      layers.push_back(*kind);
    }
    return !fields.error();
  };
  if (const Json* pattern = fields.find({pattern_name}).second; pattern != nullptr) {
    if (!pattern->is_string()) fields.wrong(pattern_name, *pattern, "a string of M, E, * and -");
    if (fields.error()) return layers;
    for (const char letter : pattern->get_ref<const std::string&>()) {
      const std::string found = fmt::format("'{}'", printable(std::string_view(&letter, 1)));
      if (!push(pattern_name, kind_of_letter(letter), found, "M, E, * or -")) break;
    }
  } else if (const Json* list = fields.find({list_name}).second; list != nullptr) {
    if (!list->is_array()) fields.wrong(list_name, *list, "a list of layer kinds");
    if (fields.error()) return layers;
    for (const Json& word : *list) {
      if (!push(list_name, kind_of_word(word), printable_json(word),
                "mamba, moe, attention or mlp"))
        break;
    }
  }
  return layers;
}

void read_layer_lists(Fields& fields, NemotronHConfig& out) {
  out.layers = read_layers(fields, "hybrid_override_pattern", "layers_block_type");
  fields.require(!out.layers.empty(), "hybrid_override_pattern",
                 "missing or empty, and so is layers_block_type");
  const auto count = static_cast<int>(out.layers.size());
  const int stated = fields.integer({"num_hidden_layers"}, 1, kMaxLayers, count);
  fields.require(stated == count, "num_hidden_layers",
                 fmt::format("{}, though the layer list has {}", stated, count));

  out.mtp_layers = read_layers(fields, "mtp_hybrid_override_pattern", "mtp_layers_block_type");
  const int heads =
      fields.integer({"num_nextn_predict_layers"}, 0, 16, out.mtp_layers.empty() ? 0 : 1);
  if (heads == 0) out.mtp_layers.clear();
  if (heads > 0 && out.mtp_layers.empty()) {  // every release that declares a head has this one
    out.mtp_layers = {LayerKind::kAttention, LayerKind::kMoe};
  }
}

void read_attention(Fields& fields, NemotronHConfig& out) {
  out.heads = fields.integer({"num_attention_heads"}, 1, kMaxHeads);
  out.kv_heads = fields.integer({"num_key_value_heads"}, 1, kMaxHeads, out.heads);
  out.head_dim = fields.integer({"head_dim", "attention_head_dim"}, 1, kMaxHeadDim, 128);
  fields.require(
      out.heads % out.kv_heads == 0, "num_attention_heads",
      fmt::format("{}, no multiple of the {} of num_key_value_heads", out.heads, out.kv_heads));
  if (out.head_dim % 16 != 0) {  // attention kernels work on whole vectors of 16
    fields.fail(ErrorCode::kUnsupported, "head_dim",
                fmt::format("{} is not supported, only multiples of 16 are", out.head_dim));
  }
  fields.must_be("attention_bias", false);
  fields.must_be_absent("sliding_window");
}

// Bounds of the run-time clamp. What is no number means "no limit" there: copies of the original
// files hold {"__float__": "Infinity"} and the like.
void read_time_step_limit(Fields& fields, NemotronHConfig& out) {
  constexpr const char* kName = "time_step_limit";
  const Json* limit = fields.find({kName}).second;
  if (limit == nullptr) return;
  if (!limit->is_array() || limit->size() != 2) return fields.wrong(kName, *limit, "[least, most]");
  if ((*limit)[0].is_number()) out.dt_min = Fields::to_float((*limit)[0]);
  if ((*limit)[1].is_number()) out.dt_max = Fields::to_float((*limit)[1]);
  if (!(out.dt_min <= out.dt_max)) fields.wrong(kName, *limit, "[least, most]");
}

void read_mamba(Fields& fields, NemotronHConfig& out) {
  out.ssm_heads = fields.integer({"mamba_num_heads"}, 1, kMaxHeads);
  out.ssm_head_dim = fields.integer({"mamba_head_dim"}, 1, kMaxHeadDim, 64);
  out.ssm_state = fields.integer({"ssm_state_size"}, 1, kMaxState, 128);
  out.ssm_groups = fields.integer({"n_groups", "mamba_n_groups"}, 1, kMaxGroups, 8);
  out.conv_kernel = fields.integer({"conv_kernel", "mamba_d_conv"}, 1, 64, kConvKernel);
  if (out.conv_kernel != kConvKernel) {
    fields.fail(ErrorCode::kUnsupported, "conv_kernel",
                fmt::format("{} is not supported, only {} is", out.conv_kernel, kConvKernel));
  }
  fields.require(
      out.ssm_heads % out.ssm_groups == 0, "mamba_num_heads",
      fmt::format("{}, no multiple of the {} of n_groups", out.ssm_heads, out.ssm_groups));
  fields.must_be("use_conv_bias", true);
  fields.must_be("mamba_proj_bias", false);
  fields.must_be("mamba_hidden_act", "silu");
  read_time_step_limit(fields, out);
}

void read_moe(Fields& fields, NemotronHConfig& out) {
  out.experts = fields.integer({"n_routed_experts"}, 1, kMaxExperts);
  out.experts_per_token = fields.integer({"num_experts_per_tok"}, 1, kMaxExperts);
  out.expert_neurons = fields.integer({"moe_intermediate_size"}, 1, kMaxNeurons);
  out.latent = fields.integer({"moe_latent_size"}, 1, kMaxWidth, 0);
  out.router_groups = fields.integer({"n_group"}, 1, kMaxExperts, 1);
  out.router_topk_groups = fields.integer({"topk_group"}, 1, kMaxExperts, 1);
  out.normalize_weights = fields.flag("norm_topk_prob", true);
  out.routed_scaling = fields.number({"routed_scaling_factor"}, 0.0, 1e6);

  const auto moe_layers = std::count(out.layers.begin(), out.layers.end(), LayerKind::kMoe);
  fields.require(out.experts * moe_layers <= kMaxExpertsInAll, "n_routed_experts",
                 fmt::format("{} in each of {} layers, more than {} in all", out.experts,
                             moe_layers, kMaxExpertsInAll));

  // How several shared experts share their neurons is read in two ways by others, and no release
  // has them.
  out.shared_experts = fields.integer({"n_shared_experts"}, 0, kMaxExperts, 1);
  if (out.shared_experts > 1) {
    fields.fail(ErrorCode::kUnsupported, "n_shared_experts",
                fmt::format("{} is not supported, only 0 and 1 are", out.shared_experts));
  }
  if (out.shared_experts == 1) {
    out.shared_neurons = fields.integer({"moe_shared_expert_intermediate_size"}, 1, kMaxNeurons);
  }
  fields.require(
      out.experts % out.router_groups == 0, "n_routed_experts",
      fmt::format("{}, no multiple of the {} of n_group", out.experts, out.router_groups));
  fields.require(
      out.router_topk_groups <= out.router_groups, "topk_group",
      fmt::format("{}, more than the {} of n_group", out.router_topk_groups, out.router_groups));
  const int eligible =
      out.experts / out.router_groups * std::min(out.router_topk_groups, out.router_groups);
  fields.require(
      out.experts_per_token <= eligible, "num_experts_per_tok",
      fmt::format("{}, more than the {} experts to choose from", out.experts_per_token, eligible));
}

void read_stop_tokens(Fields& fields, NemotronHConfig& out) {
  const Json* value = fields.find({"eos_token_id"}).second;
  if (value == nullptr) return;
  const Json list = value->is_array() ? *value : Json::array({*value});
  for (const Json& id : list) {
    if (!Fields::in_range(id, 0, out.vocabulary - 1)) {
      return fields.wrong("eos_token_id", id, fmt::format("token ids below {}", out.vocabulary));
    }
    out.stop_tokens.push_back(id.get<int>());
  }
}

Result<void> check_architecture(const Json& config) {
  constexpr const char* kOurs = "nemotron_h";
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) {
    return Error{ErrorCode::kCorrupt,
                 "config.json: model_type: missing, so the architecture is unknown"};
  }
  if (*type == kOurs) return {};
  return Error{ErrorCode::kUnsupported,
               fmt::format("config.json: architecture {} is not supported; lacuna runs {}",
                           printable_json(*type), kOurs)};
}

}  // namespace

Result<NemotronHConfig> parse_nemotron_h_config(const Json& config) {
  if (!config.is_object()) return Error{ErrorCode::kCorrupt, "config.json: wanted an object"};
  LAC_TRY_VOID(check_architecture(config));
  Fields fields(config);
  NemotronHConfig out;
  out.vocabulary = fields.integer({"vocab_size"}, 1, kMaxVocabulary);
  out.width = fields.integer({"hidden_size"}, 1, kMaxWidth);
  out.norm_eps = fields.number({"layer_norm_epsilon", "norm_eps"}, 0.0, 1.0, 1e-5f);
  out.tied_embeddings = fields.flag("tie_word_embeddings", false);
  out.max_context = fields.integer({"max_position_embeddings"}, 1, kMaxContext);
  fields.must_be("mlp_hidden_act", "relu2");
  fields.must_be("use_bias", false);
  fields.must_be("mlp_bias", false);
  read_layer_lists(fields, out);

  const auto has = [&out](LayerKind kind) {
    return std::count(out.layers.begin(), out.layers.end(), kind) +
               std::count(out.mtp_layers.begin(), out.mtp_layers.end(), kind) >
           0;
  };
  if (has(LayerKind::kAttention)) read_attention(fields, out);
  if (has(LayerKind::kMamba)) read_mamba(fields, out);
  if (has(LayerKind::kMoe)) read_moe(fields, out);
  if (has(LayerKind::kMlp)) out.mlp_neurons = fields.integer({"intermediate_size"}, 1, kMaxNeurons);
  read_stop_tokens(fields, out);
  if (fields.error()) return *fields.error();
  return out;
}

std::string pattern_text(const std::vector<LayerKind>& layers) {
  std::string out;
  for (const LayerKind kind : layers) out.push_back("M*E-"[static_cast<int>(kind)]);
  return out;
}

std::uint64_t layer_parameters(const NemotronHConfig& c, LayerKind kind) {
  const auto u = [](int size) { return static_cast<std::uint64_t>(size); };
  const std::uint64_t width = u(c.width), norm = width;
  switch (kind) {
    case LayerKind::kMamba: {
      const std::uint64_t inner = u(c.ssm_inner()), channels = u(c.conv_channels());
      const std::uint64_t conv = channels * u(c.conv_kernel) + channels;
      const std::uint64_t per_head = 3 * u(c.ssm_heads);  // A_log, D, dt_bias
      return norm + u(c.in_proj_rows()) * width + conv + per_head + inner + width * inner;
    }
    case LayerKind::kAttention:
      return norm + 2 * width * u(c.heads) * u(c.head_dim) +
             2 * width * u(c.kv_heads) * u(c.head_dim);
    case LayerKind::kMoe: {
      const std::uint64_t expert_width = c.latent > 0 ? u(c.latent) : width;
      const std::uint64_t router = u(c.experts) * width + u(c.experts);
      const std::uint64_t routed = 2 * u(c.experts) * u(c.expert_neurons) * expert_width;
      return norm + router + routed + 2 * u(c.shared_neurons) * width + 2 * u(c.latent) * width;
    }
    case LayerKind::kMlp:
      return norm + 2 * u(c.mlp_neurons) * width;
  }
  return 0;
}

std::uint64_t main_parameters(const NemotronHConfig& c) {
  const auto width = static_cast<std::uint64_t>(c.width);
  const std::uint64_t table = static_cast<std::uint64_t>(c.vocabulary) * width;
  std::uint64_t sum = (c.tied_embeddings ? 1 : 2) * table + width;
  for (const LayerKind kind : c.layers) sum += layer_parameters(c, kind);
  return sum;
}

std::uint64_t mtp_parameters(const NemotronHConfig& c) {
  if (c.mtp_layers.empty()) return 0;
  const auto width = static_cast<std::uint64_t>(c.width);
  std::uint64_t sum = 3 * width + 2 * width * width;  // enorm, hnorm, final_layernorm, eh_proj
  for (const LayerKind kind : c.mtp_layers) sum += layer_parameters(c, kind);
  return sum;
}

}  // namespace lacuna
