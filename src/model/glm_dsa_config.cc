// SPDX-License-Identifier: Apache-2.0
#include "model/glm_dsa_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "checkpoint/json.h"
#include "model/config_fields.h"

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;
using Fields = ConfigFields;

constexpr int kMaxVocabulary = 1 << 22, kMaxWidth = 1 << 16, kMaxLayers = 1024;
constexpr int kMaxHeads = 4096, kMaxHeadDim = 1024;
constexpr int kMaxExperts = 4096, kMaxNeurons = 1 << 20, kMaxContext = 1 << 30;
constexpr int kMaxSharedExperts = 64, kMaxMtpLayers = 16;
constexpr std::int64_t kMaxExpertsInAll = 1 << 18,
                       kMaxHeadsInAll = 1 << 18;  // ten times any release
constexpr int kLanes = 16;  // the attention kernels work on whole vectors of these

std::optional<GlmDsaFamily> family_of(const Json& config) {
  const auto type = config.is_object() ? config.find("model_type") : config.end();
  if (type == config.end()) return std::nullopt;
  if (*type == "glm_moe_dsa") return GlmDsaFamily::kGlmMoeDsa;
  if (*type == "deepseek_v32") return GlmDsaFamily::kDeepseekV32;
  return std::nullopt;
}

Result<GlmDsaFamily> read_family(const Json& config) {
  if (!config.is_object()) return Error{ErrorCode::kCorrupt, "config.json: wanted an object"};
  if (const auto family = family_of(config)) return *family;
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) {
    return Error{ErrorCode::kCorrupt,
                 "config.json: model_type: missing, so the architecture is unknown"};
  }
  return Error{ErrorCode::kUnsupported,
               fmt::format("config.json: architecture {} is not supported here, wanted glm_moe_dsa "
                           "or deepseek_v32",
                           printable_json(*type))};
}

void whole_vectors(Fields& fields, const char* name, int size) {
  if (size % kLanes == 0) return;
  fields.fail(ErrorCode::kUnsupported, name,
              fmt::format("{} is not supported, only multiples of {} are", size, kLanes));
}

void read_attention(Fields& fields, GlmDsaConfig& out) {
  out.heads = fields.integer({"num_attention_heads"}, 1, kMaxHeads);
  const int kv_heads = fields.integer({"num_key_value_heads"}, 1, kMaxHeads, out.heads);
  fields.require(kv_heads == out.heads, "num_key_value_heads",
                 fmt::format("{}, wanted the {} of num_attention_heads", kv_heads, out.heads));
  fields.require(static_cast<std::int64_t>(out.layers.size()) * out.heads <= kMaxHeadsInAll,
                 "num_attention_heads",
                 fmt::format("{} in each of {} layers, more than {} in all", out.heads,
                             out.layers.size(), kMaxHeadsInAll));
  out.q_rank = fields.integer({"q_lora_rank"}, 1, kMaxWidth);
  out.latent = fields.integer({"kv_lora_rank"}, 1, kMaxWidth);
  out.nope = fields.integer({"qk_nope_head_dim"}, 1, kMaxHeadDim);
  out.rope = fields.integer({"qk_rope_head_dim"}, 1, kMaxHeadDim);
  out.value = fields.integer({"v_head_dim"}, 1, kMaxHeadDim);
  whole_vectors(fields, "kv_lora_rank", out.latent);
  whole_vectors(fields, "qk_rope_head_dim", out.rope);
  // head_dim is left alone: releases put unlike things in it.
  const int query = out.nope + out.rope;
  const int stated = fields.integer({"qk_head_dim"}, 1, 2 * kMaxHeadDim, query);
  fields.require(
      stated == query, "qk_head_dim",
      fmt::format("{}, wanted the sum {} of qk_nope_head_dim and qk_rope_head_dim", stated, query));
  fields.must_be("attention_bias", false);
  fields.must_be("rope_interleave", true);
  fields.must_be_absent("sliding_window");
}

// All that is said of rope, in one object: newer files hold it in rope_parameters, older ones in
// rope_scaling and rope_theta. Two places that disagree are a complaint.
Json rope_object(Fields& fields, const Json& config) {
  Json out = Json::object();
  const auto add = [&](const char* place, const char* name, const Json& value) {
    const auto it = out.find(name);
    if (it == out.end()) {
      out[name] = value;
    } else if (*it != value) {
      fields.fail(ErrorCode::kCorrupt, name,
                  fmt::format("{} in {}, though {} elsewhere", printable_json(value), place,
                              printable_json(*it)));
    }
  };
  for (const char* place : {"rope_parameters", "rope_scaling"}) {
    const Json* object = fields.find({place}).second;
    if (object == nullptr) continue;
    if (!object->is_object()) {
      fields.wrong(place, *object, "an object");
      continue;
    }
    for (const char* name : {"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor",
                             "beta_fast", "beta_slow", "original_max_position_embeddings", "mscale",
                             "mscale_all_dim", "attention_factor", "truncate"}) {
      const auto it = object->find(name);
      if (it != object->end() && !it->is_null()) add(place, name, *it);
    }
  }
  for (const char* name : {"rope_theta", "partial_rotary_factor"}) {
    if (const auto it = config.find(name); it != config.end() && !it->is_null())
      add("config.json", name, *it);
  }
  return out;
}

// YaRN: pairs that turn fast keep their frequency, slow ones are divided by `factor`, those between
// the two bounds are blended. Its factor of attention scores is 1 + mscale_all_dim·ln(factor)/10,
// squared as queries and keys both have it.
void apply_yarn(Fields& rope, double theta, GlmDsaConfig& out) {
  const double factor = rope.number({"factor"}, 0.0, 1e6);
  rope.require(factor >= 1.0, "factor", fmt::format("{}, wanted at least 1", factor));
  const double original = rope.integer({"original_max_position_embeddings"}, 1, kMaxContext);
  const double fast = rope.number({"beta_fast"}, 0.0, 1e6, 32.0f);
  const double slow = rope.number({"beta_slow"}, 0.0, 1e6, 1.0f);
  rope.require(fast > slow, "beta_fast", fmt::format("{}, wanted above beta_slow {}", fast, slow));
  const double mscale = rope.number({"mscale"}, 0.0, 100.0);
  const double mscale_all = rope.number({"mscale_all_dim"}, 0.0, 100.0);
  if (mscale != mscale_all) {  // equal, sines and cosines keep their length
    rope.fail(
        ErrorCode::kUnsupported, "mscale",
        fmt::format("{} is not supported, only the {} of mscale_all_dim is", mscale, mscale_all));
  }
  rope.must_be("attention_factor", 1);
  rope.must_be("truncate", true);
  if (rope.error()) return;

  const int pairs = out.rope / 2;
  // The pair, as a fraction, that turns `rotations` times over the original context.
  const auto pair_of = [&](double rotations) {
    return out.rope * std::log(original / (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(theta));
  };
  const double low = std::max(std::floor(pair_of(fast)), 0.0);
  const double high = std::min(std::ceil(pair_of(slow)), out.rope - 1.0);
  for (int i = 0; i < pairs; ++i) {
    const double width = high > low ? high - low : 0.001;
    const double ramp = std::clamp((i - low) / width, 0.0, 1.0);
    float& frequency = out.rope_frequencies[static_cast<std::size_t>(i)];
    frequency = static_cast<float>(frequency * (1.0 - ramp) + frequency / factor * ramp);
  }
  const double m = 0.1 * mscale_all * std::log(factor) + 1.0;
  out.softmax_scale = static_cast<float>(m * m / std::sqrt(out.nope + out.rope));
}

void read_rope(Fields& fields, const Json& config, GlmDsaConfig& out) {
  const Json object = rope_object(fields, config);
  const bool newer = config.contains("rope_parameters") && config["rope_parameters"].is_object();
  const auto [type_name, type] = Fields(object).find({"rope_type", "type"});
  Fields rope(object, newer             ? "config.json: rope_parameters"
                      : type != nullptr ? "config.json: rope_scaling"
                                        : "config.json");
  rope.find({"rope_type", "type"});  // two that disagree
  const double theta = rope.number({"rope_theta"}, 1.0, 1e12);
  rope.must_be("partial_rotary_factor", 1);
  for (int i = 0; i < out.rope / 2; ++i) {
    out.rope_frequencies.push_back(
        static_cast<float>(std::pow(theta, -2.0 * i / static_cast<double>(out.rope))));
  }
  out.softmax_scale = static_cast<float>(1.0 / std::sqrt(out.nope + out.rope));
  if (type == nullptr) {
    rope.require(!object.contains("factor"), "rope_type", "missing, though factor is there");
  } else if (*type == "yarn") {
    if (!rope.error()) apply_yarn(rope, theta, out);
  } else if (*type != "default") {
    rope.fail(ErrorCode::kUnsupported, type_name,
              fmt::format("{} is not supported, only default and yarn are", printable_json(*type)));
  }
  fields.keep(rope.error());
}

// A list of one word (or letter) a layer into flags: true for `yes`, false for `no`.
std::vector<bool> read_words(Fields& fields, const char* name, std::size_t layers,
                             const std::vector<std::string>& yes,
                             const std::vector<std::string>& no) {
  const Json& value = *fields.find({name}).second;
  std::vector<bool> flags;
  const auto push = [&](const Json& word) {
    const auto is_one_of = [&word](const std::vector<std::string>& words) {
      return std::any_of(words.begin(), words.end(), [&](const auto& w) { return word == w; });
    };
    flags.push_back(is_one_of(yes));
    if (flags.back() || is_one_of(no)) return true;
    fields.fail(ErrorCode::kUnsupported, name,
                fmt::format("layer {} is {}, wanted {} or {}", flags.size() - 1,
                            printable_json(word), yes[0], no[0]));
    return false;
  };
  std::size_t found = 0;
  if (value.is_string()) {
    found = value.get_ref<const std::string&>().size();
  } else if (value.is_array()) {
    found = value.size();
  } else {
    fields.wrong(name, value, fmt::format("a list of {} and {}", yes[0], no[0]));
    return flags;
  }
  if (found != layers) {
    fields.fail(ErrorCode::kCorrupt, name,
                fmt::format("{} layers, wanted the {} of num_hidden_layers", found, layers));
    return flags;
  }
  for (std::size_t i = 0; i < found; ++i) {
    const bool known = value.is_string()
                           ? push(std::string(1, value.get_ref<const std::string&>()[i]))
                           : push(value[i]);
    if (!known) break;
  }
  return flags;
}

// Which layers have an indexer: the list of types, else the pattern, else every freq-th layer.
void read_indexer_schedule(Fields& fields, GlmDsaConfig& out) {
  const char* source = "index_topk_freq";
  std::vector<bool> full;
  for (const char* name : {"indexer_types", "index_topk_pattern"}) {
    if (!full.empty() || fields.find({name}).second == nullptr) continue;
    source = name;
    full = read_words(fields, name, out.layers.size(), {"full", "F"}, {"shared", "S"});
    if (fields.error()) return;
  }
  const int freq = std::max(fields.integer({"index_topk_freq"}, 0, kMaxLayers, 1), 1);
  const int offset = fields.integer({"index_skip_topk_offset"}, 0, kMaxLayers, 2);
  for (int i = 0; full.size() < out.layers.size(); ++i)
    full.push_back(std::max(i - offset + 1, 0) % freq == 0);
  for (std::size_t i = 0; i < full.size(); ++i) out.layers[i].has_indexer = full[i];
  fields.require(full[0], source, "layer 0 shares picks, though no layer before it has any");
}

void read_indexer(Fields& fields, GlmDsaConfig& out) {
  read_indexer_schedule(fields, out);
  out.index_heads = fields.integer({"index_n_heads"}, 1, kMaxHeads);
  out.index_dim = fields.integer({"index_head_dim"}, 1, kMaxHeadDim);
  out.index_topk = fields.integer({"index_topk"}, 1, kMaxContext);
  whole_vectors(fields, "index_head_dim", out.index_dim);
  fields.require(
      out.index_dim >= out.rope, "index_head_dim",
      fmt::format("{}, wanted at least the {} of qk_rope_head_dim", out.index_dim, out.rope));
  // The families differ, and files of the one that is not interleaved do not say so.
  out.indexer_interleaved =
      fields.flag("indexer_rope_interleave", out.family == GlmDsaFamily::kGlmMoeDsa);
  out.sparse_prefill = fields.flag("sparse_prefill", true);
  out.sparse_prefill_min_context =
      fields.integer({"sparse_prefill_min_context"}, 0, kMaxContext, 16384);
}

// Which layers have experts: from first_k_dense_replace on, every moe_layer_freq-th; a list of
// kinds must agree, and counts where there is no first_k_dense_replace.
void read_layer_kinds(Fields& fields, GlmDsaConfig& out) {
  const bool has_experts = fields.find({"n_routed_experts", "num_experts"}).second != nullptr;
  const bool has_list = fields.find({"mlp_layer_types"}).second != nullptr;
  const bool has_first = fields.find({"first_k_dense_replace"}).second != nullptr;
  std::vector<bool> listed;
  if (has_list) {
    listed = read_words(fields, "mlp_layer_types", out.layers.size(), {"sparse"}, {"dense"});
    if (fields.error()) return;
  }
  const int first = has_experts && !(has_list && !has_first)
                        ? fields.integer({"first_k_dense_replace"}, 0, kMaxLayers)
                        : 0;
  const int freq = fields.integer({"moe_layer_freq"}, 1, kMaxLayers, 1);
  for (int i = 0; i < static_cast<int>(out.layers.size()); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool by_rule = has_experts && i >= first && i % freq == 0;
    out.layers[at].is_moe = has_list && !has_first ? listed[at] : by_rule;
    if (!has_list || listed[at] == out.layers[at].is_moe) continue;
    fields.fail(ErrorCode::kCorrupt, "mlp_layer_types",
                fmt::format("layer {} is {}, wanted {}, as first_k_dense_replace, moe_layer_freq "
                            "and n_routed_experts say",
                            i, listed[at] ? "sparse" : "dense", by_rule ? "sparse" : "dense"));
    return;
  }
}

void read_moe(Fields& fields, std::int64_t moe_layers, GlmDsaConfig& out) {
  out.experts = fields.integer({"n_routed_experts", "num_experts"}, 1, kMaxExperts);
  out.experts_per_token = fields.integer({"num_experts_per_tok"}, 1, kMaxExperts);
  out.expert_neurons = fields.integer({"moe_intermediate_size"}, 1, kMaxNeurons);
  out.shared_experts = fields.integer({"n_shared_experts"}, 0, kMaxSharedExperts, 0);
  out.shared_neurons = out.shared_experts * out.expert_neurons;
  out.router_groups = fields.integer({"n_group"}, 1, kMaxExperts, 1);
  out.router_topk_groups = fields.integer({"topk_group"}, 1, kMaxExperts, 1);
  out.normalize_weights = fields.flag("norm_topk_prob", true);
  out.routed_scaling = fields.number({"routed_scaling_factor"}, 0.0, 1e6);
  fields.must_be("scoring_func", "sigmoid");
  fields.must_be("topk_method", "noaux_tc");
  fields.must_be("moe_router_dtype", "float32");
  fields.require(out.experts * moe_layers <= kMaxExpertsInAll, "n_routed_experts",
                 fmt::format("{} in each of {} layers, more than {} in all", out.experts,
                             moe_layers, kMaxExpertsInAll));
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
  // A group is judged by its two best experts.
  fields.require(
      out.router_groups == 1 || out.experts / out.router_groups >= 2, "n_group",
      fmt::format("{}, which leaves groups of one expert, wanted two or more", out.router_groups));
}

void read_stop_tokens(Fields& fields, GlmDsaConfig& out) {
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

std::uint64_t wide(int size) { return static_cast<std::uint64_t>(size); }

}  // namespace

bool is_glm_dsa(const Json& config) { return family_of(config).has_value(); }

Result<GlmDsaConfig> parse_glm_dsa_config(const Json& config) {
  GlmDsaConfig out;
  LAC_TRY(out.family, read_family(config));
  Fields fields(config);
  out.vocabulary = fields.integer({"vocab_size"}, 1, kMaxVocabulary);
  out.width = fields.integer({"hidden_size"}, 1, kMaxWidth);
  out.layers.resize(static_cast<std::size_t>(fields.integer({"num_hidden_layers"}, 1, kMaxLayers)));
  out.norm_eps = out.latent_norm_eps = fields.number({"rms_norm_eps"}, 0.0, 1.0);
  out.tied_embeddings = fields.flag("tie_word_embeddings", false);
  out.max_context = fields.integer({"max_position_embeddings"}, 1, kMaxContext);
  fields.must_be("hidden_act", "silu");
  fields.must_be("mlp_bias", false);
  fields.must_be_absent("swiglu_limit");
  read_attention(fields, out);
  read_rope(fields, config, out);
  read_indexer(fields, out);
  read_layer_kinds(fields, out);
  out.mtp_layers = fields.integer({"num_nextn_predict_layers"}, 0, kMaxMtpLayers, 0);

  const auto moe = std::count_if(out.layers.begin(), out.layers.end(),
                                 [](const GlmDsaLayer& layer) { return layer.is_moe; });
  if (moe > 0) read_moe(fields, moe, out);
  if (moe < static_cast<std::int64_t>(out.layers.size()))
    out.mlp_neurons = fields.integer({"intermediate_size"}, 1, kMaxNeurons);
  read_stop_tokens(fields, out);
  if (fields.error()) return *fields.error();
  return out;
}

std::string indexer_pattern(const GlmDsaConfig& config) {
  std::string out;
  for (const GlmDsaLayer& layer : config.layers) out.push_back(layer.has_indexer ? 'F' : 'S');
  return out;
}

std::uint64_t layer_parameters(const GlmDsaConfig& c, const GlmDsaLayer& layer) {
  const std::uint64_t width = wide(c.width), q_rank = wide(c.q_rank), latent = wide(c.latent);
  const std::uint64_t queries = q_rank * width + q_rank + wide(c.q_rows()) * q_rank;
  const std::uint64_t keys = wide(c.kv_a_rows()) * width + latent + wide(c.kv_b_rows()) * latent;
  std::uint64_t sum = 2 * width + queries + keys + width * wide(c.o_inputs());
  if (layer.has_indexer) {
    const std::uint64_t dim = wide(c.index_dim);
    sum += wide(c.index_rows()) * q_rank + dim * width + 2 * dim + wide(c.index_heads) * width;
  }
  if (!layer.is_moe) return sum + 3 * wide(c.mlp_neurons) * width;
  const std::uint64_t neurons = wide(c.experts) * wide(c.expert_neurons) + wide(c.shared_neurons);
  return sum + wide(c.experts) * width + wide(c.experts) + 3 * neurons * width;
}

std::uint64_t main_parameters(const GlmDsaConfig& c) {
  const std::uint64_t width = wide(c.width), table = wide(c.vocabulary) * width;
  std::uint64_t sum = (c.tied_embeddings ? 1 : 2) * table + width;
  for (const GlmDsaLayer& layer : c.layers) sum += layer_parameters(c, layer);
  return sum;
}

std::uint64_t mtp_parameters(const GlmDsaConfig& c) {
  const std::uint64_t width = wide(c.width);
  // enorm, hnorm, shared_head.norm, eh_proj, and a layer of experts with an indexer.
  const std::uint64_t layer =
      3 * width + 2 * width * width + layer_parameters(c, {.is_moe = true, .has_indexer = true});
  return wide(c.mtp_layers) * layer;
}

}  // namespace lacuna
