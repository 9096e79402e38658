// SPDX-License-Identifier: Apache-2.0
#include "model/convert_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "checkpoint/json.h"
#include "model/nemotron_h_config.h"

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;
using Shape = std::vector<std::int64_t>;

constexpr std::string_view kHead = "mtp.";
constexpr const char* kWanted = "wanted BF16, F16, F32, or FP8 with one scale per tensor";
// Ranges of activations in FP8 releases: nothing that weights depend on.
constexpr std::array<std::string_view, 3> kIgnored = {".input_scale", ".k_scale", ".v_scale"};

Error corrupt(const std::string& name, const std::string& what) {
  return {ErrorCode::kCorrupt, fmt::format("{}: {}", name, what)};
}
Error unsupported(const std::string& name, const std::string& what) {
  return {ErrorCode::kUnsupported, fmt::format("{}: {}", name, what)};
}

bool is_ignored(std::string_view name) {
  return std::any_of(kIgnored.begin(), kIgnored.end(),
                     [name](std::string_view end) { return name.ends_with(end); });
}

bool is_fp8(Dtype dtype) { return dtype == Dtype::kF8E4M3; }
bool is_readable(Dtype dtype) {
  return dtype == Dtype::kF32 || dtype == Dtype::kF16 || dtype == Dtype::kBf16 || is_fp8(dtype);
}
// Of the values as they are read.
Dtype value_dtype(Dtype dtype) { return is_fp8(dtype) ? Dtype::kBf16 : dtype; }

Json format_json(int bits, int group) {
  return {{"group_size", group}, {"bits", bits}, {"mode", "affine"}};
}

// Formats that are known by a tensor's name: their other tensors would only be confusing to name.
Result<void> check_format(const TensorView& tensor) {
  if (tensor.name.ends_with(".scales") || tensor.dtype == Dtype::kU32)
    return unsupported(tensor.name,
                       "the checkpoint is quantised by MLX already, wanted the original");
  if (tensor.name.ends_with(".weight_scale_2"))
    return unsupported(tensor.name, fmt::format("NVFP4 is not converted, {}", kWanted));
  if (tensor.name.ends_with(".weight_scale_inv"))
    return unsupported(tensor.name, fmt::format("FP8 in blocks is not converted, {}", kWanted));
  return {};
}

// Goes through the tensors that the config asks for, and keeps what is wrong: missing ones are
// counted to the end, of the rest the first complaint stays.
class Planner {
 public:
  Planner(const Checkpoint& source, const NemotronHConfig& config, const AffineFormat& format,
          const std::vector<ConvertRule>& rules)
      : source_(source), c_(config), format_(format), rules_(rules), matched_(rules.size()) {
    quantization_ = format_json(format.bits, format.group);
  }

  void add_model() {
    add_module("backbone.embeddings", c_.vocabulary, c_.width);
    for (std::size_t i = 0; i < c_.layers.size(); ++i)
      add_layer(fmt::format("backbone.layers.{}.", i), c_.layers[i]);
    add_vector("backbone.norm_f.weight", c_.width);
    if (!c_.tied_embeddings) add_module("lm_head", c_.vocabulary, c_.width);
  }

  void add_head() {
    const auto layer = [](std::size_t i) { return fmt::format("mtp.layers.{}.", i); };
    add_vector(layer(0) + "enorm.weight", c_.width);
    add_vector(layer(0) + "hnorm.weight", c_.width);
    add_module(layer(0) + "eh_proj", c_.width, 2 * c_.width);
    for (std::size_t i = 0; i < c_.mtp_layers.size(); ++i) add_layer(layer(i), c_.mtp_layers[i]);
    add_vector(layer(c_.mtp_layers.size() - 1) + "final_layernorm.weight", c_.width);
  }

  // The parts since the last call, by name.
  std::vector<ConvertPart> take() {
    std::sort(parts_.begin(), parts_.end(), [](const ConvertPart& a, const ConvertPart& b) {
      return a.tensors[0].name < b.tensors[0].name;
    });
    return std::exchange(parts_, {});
  }

  // The first thing that was wrong. Surplus tensors come last: a missing one says more.
  Result<void> check(bool with_model, bool with_head) const {
    if (missing_count_ > 0) {
      return corrupt(missing_, missing_count_ == 1
                                   ? "missing"
                                   : fmt::format("missing, and {} more are", missing_count_ - 1));
    }
    if (error_) return *error_;
    for (const auto& [name, tensor] : source_.tensors()) {
      const bool looked_at = name.starts_with(kHead) ? with_head : with_model;
      if (looked_at && !is_ignored(name) && !used_.contains(name))
        return corrupt(name, "has no place in the model that config.json describes");
    }
    for (std::size_t i = 0; with_model && i < rules_.size(); ++i) {
      const ConvertRule& rule = rules_[i];
      if (matched_[i] || (!with_head && std::string_view(rule.pattern).starts_with(kHead)))
        continue;
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{}: {} matches no module that can be quantised", rule.where,
                               printable(rule.pattern))};
    }
    return {};
  }

  Json take_quantization() { return std::move(quantization_); }

 private:
  void complain(Error error) {
    if (!error_) error_ = std::move(error);
  }

  const TensorView* find(const std::string& name) {
    const TensorView* tensor = source_.find(name);
    if (tensor != nullptr) {
      used_.insert(name);
    } else if (missing_count_++ == 0) {
      missing_ = name;
    }
    return tensor;
  }

  bool has_shape(const TensorView& tensor, const Shape& wanted) {
    if (tensor.shape == wanted) return true;
    complain(corrupt(tensor.name, fmt::format("shape {}, wanted {}", shape_text(tensor.shape),
                                              shape_text(wanted))));
    return false;
  }

  bool has_readable_dtype(const TensorView& tensor) {
    if (is_readable(tensor.dtype)) return true;
    complain(unsupported(tensor.name, fmt::format("dtype {} is not converted, {}",
                                                  dtype_name(tensor.dtype), kWanted)));
    return false;
  }

  // The scale of an FP8 matrix; 1 for others.
  float scale_of(const TensorView& weight) {
    if (!is_fp8(weight.dtype)) return 1;
    const TensorView* scale = find(weight.name + "_scale");
    if (scale == nullptr) return 1;
    if (scale->elements() != 1 || !is_readable(scale->dtype) || is_fp8(scale->dtype)) {
      complain(unsupported(scale->name,
                           fmt::format("{} {}, wanted one F32, F16 or BF16 number",
                                       dtype_name(scale->dtype), shape_text(scale->shape))));
      return 1;
    }
    float value = 1;
    widen(scale->dtype, scale->data, {&value, 1});
    if (!std::isfinite(value))
      complain(corrupt(scale->name, fmt::format("{}, wanted a finite number", value)));
    return value;
  }

  // A tensor that stays as it is. `source_shapes` are those it may have there, which hold the same
  // bytes; the first one is written.
  void add_tensor(const std::string& name, const std::vector<Shape>& source_shapes,
                  std::optional<Dtype> dtype = {}) {
    const TensorView* tensor = find(name);
    if (tensor == nullptr || !has_readable_dtype(*tensor)) return;
    const bool known =
        std::find(source_shapes.begin(), source_shapes.end(), tensor->shape) != source_shapes.end();
    if (!known && !has_shape(*tensor, source_shapes.front())) return;
    ConvertPart& part = parts_.emplace_back();
    part.name = name;
    part.tensors = {{name, dtype.value_or(value_dtype(tensor->dtype)), source_shapes.front()}};
    part.sources = {{tensor, tensor->data, scale_of(*tensor)}};
    part.rows = tensor->shape.size() > 1 ? tensor->shape[0] : 1;
    part.in = tensor->elements() / part.rows;
  }
  void add_vector(const std::string& name, int size) { add_tensor(name, {{size}}); }

  // How a module is written; none: as it is. Notes in `quantization_` what differs from the
  // default.
  std::optional<AffineFormat> choose_format(const std::string& module, int in) {
    const ConvertRule* first = nullptr;
    for (std::size_t i = 0; i < rules_.size(); ++i) {
      if (!matches(rules_[i], module)) continue;
      matched_[i] = true;
      if (first == nullptr) first = &rules_[i];
    }
    if (first == nullptr) return in % format_.group == 0 ? std::optional(format_) : std::nullopt;
    if (first->keep) {
      quantization_[module] = false;
      return {};
    }
    if (in % first->group != 0) {
      complain({ErrorCode::kInvalidArgument,
                fmt::format("{}: group {}: {} has {} inputs, wanted a group that divides them",
                            first->where, first->group, module, in)});
      return {};
    }
    AffineFormat format = format_;
    format.bits = first->bits;
    format.group = first->group;
    if (format != format_) quantization_[module] = format_json(format.bits, format.group);
    return format;
  }

  // The part of `sources`, whose shapes are [out, in]. `experts` > 0: stacked, that many.
  void add_part(const std::string& module, std::vector<SourceMatrix> sources, int experts, int out,
                int in) {
    const Dtype dtype = value_dtype(sources.front().tensor->dtype);
    for (const SourceMatrix& source : sources) {
      if (value_dtype(source.tensor->dtype) == dtype) continue;
      return complain(corrupt(
          source.tensor->name,
          fmt::format("dtype {}, wanted that of {}, {}", dtype_name(source.tensor->dtype),
                      sources.front().tensor->name, dtype_name(sources.front().tensor->dtype))));
    }
    ConvertPart& part = parts_.emplace_back();
    part.name = module;
    part.sources = std::move(sources);
    part.rows = out;
    part.in = in;
    part.format = choose_format(module, in);
    const auto add = [&](const char* suffix, Dtype as, std::int64_t last) {
      Shape shape = {out, last};
      if (experts > 0) shape.insert(shape.begin(), experts);
      part.tensors.push_back({module + suffix, as, std::move(shape)});
    };
    if (part.format) {
      add(".biases", dtype, in / part.format->group);
      add(".scales", dtype, in / part.format->group);
      add(".weight", Dtype::kU32, std::int64_t{in} * part.format->bits / 32);
    } else {
      add(".weight", dtype, in);
    }
  }

  void add_module(const std::string& module, int out, int in) {
    const TensorView* weight = find(module + ".weight");
    if (weight == nullptr || !has_readable_dtype(*weight) || !has_shape(*weight, {out, in})) return;
    add_part(module, {{weight, weight->data, scale_of(*weight)}}, 0, out, in);
  }

  // Experts of the source are separate matrices, or stacked already in a plain MLX checkpoint.
  void add_experts(const std::string& mixer, const char* stacked, const char* separate, int out,
                   int in) {
    const std::string module = mixer + "switch_mlp." + stacked;
    std::vector<SourceMatrix> sources;
    if (source_.find(module + ".weight") != nullptr) {
      const TensorView* weight = find(module + ".weight");
      if (!has_readable_dtype(*weight) || !has_shape(*weight, {c_.experts, out, in})) return;
      const std::size_t bytes = weight->bytes / static_cast<std::size_t>(c_.experts);
      const float scale = scale_of(*weight);
      for (int e = 0; e < c_.experts; ++e)
        sources.push_back({weight, weight->data + static_cast<std::size_t>(e) * bytes, scale});
    }
    for (int e = 0; sources.size() < static_cast<std::size_t>(c_.experts) && e < c_.experts; ++e) {
      const TensorView* weight = find(fmt::format("{}experts.{}.{}.weight", mixer, e, separate));
      if (weight == nullptr) continue;
      if (!has_readable_dtype(*weight) || !has_shape(*weight, {out, in})) return;
      sources.push_back({weight, weight->data, scale_of(*weight)});
    }
    if (sources.size() == static_cast<std::size_t>(c_.experts))
      add_part(module, std::move(sources), c_.experts, out, in);
  }

  void add_layer(const std::string& layer, LayerKind kind) {
    add_vector(layer + "norm.weight", c_.width);
    const std::string mixer = layer + "mixer.";
    switch (kind) {
      case LayerKind::kMamba:
        return add_mamba(mixer);
      case LayerKind::kAttention:
        return add_attention(mixer);
      case LayerKind::kMoe:
        return add_moe(mixer);
      case LayerKind::kMlp:
        add_module(mixer + "up_proj", c_.mlp_neurons, c_.width);
        return add_module(mixer + "down_proj", c_.width, c_.mlp_neurons);
    }
  }

  void add_mamba(const std::string& mixer) {
    const int channels = c_.conv_channels(), taps = c_.conv_kernel;
    add_module(mixer + "in_proj", c_.in_proj_rows(), c_.width);
    add_tensor(mixer + "conv1d.weight", {{channels, taps, 1}, {channels, 1, taps}});
    add_vector(mixer + "conv1d.bias", channels);
    for (const char* name : {"A_log", "D", "dt_bias"}) add_vector(mixer + name, c_.ssm_heads);
    add_vector(mixer + "norm.weight", c_.ssm_inner());
    add_module(mixer + "out_proj", c_.width, c_.ssm_inner());
  }

  void add_attention(const std::string& mixer) {
    const int queries = c_.heads * c_.head_dim, keys = c_.kv_heads * c_.head_dim;
    add_module(mixer + "q_proj", queries, c_.width);
    add_module(mixer + "k_proj", keys, c_.width);
    add_module(mixer + "v_proj", keys, c_.width);
    add_module(mixer + "o_proj", c_.width, queries);
  }

  void add_moe(const std::string& mixer) {
    add_tensor(mixer + "gate.weight", {{c_.experts, c_.width}});
    add_tensor(mixer + "gate.e_score_correction_bias", {{c_.experts}}, Dtype::kF32);
    if (c_.latent > 0) {
      add_module(mixer + "fc1_latent_proj", c_.latent, c_.width);
      add_module(mixer + "fc2_latent_proj", c_.width, c_.latent);
    }
    const int width = c_.latent > 0 ? c_.latent : c_.width;
    add_experts(mixer, "fc1", "up_proj", c_.expert_neurons, width);
    add_experts(mixer, "fc2", "down_proj", width, c_.expert_neurons);
    if (c_.shared_neurons > 0) {
      add_module(mixer + "shared_experts.up_proj", c_.shared_neurons, c_.width);
      add_module(mixer + "shared_experts.down_proj", c_.width, c_.shared_neurons);
    }
  }

  const Checkpoint& source_;
  const NemotronHConfig& c_;
  const AffineFormat& format_;
  const std::vector<ConvertRule>& rules_;
  std::vector<bool> matched_;  // by a module, whether or not an earlier rule counted
  Json quantization_;
  std::vector<ConvertPart> parts_;
  std::set<std::string> used_;
  std::string missing_;  // the first
  std::size_t missing_count_ = 0;
  std::optional<Error> error_;
};

std::uint64_t parameters_of(const std::vector<ConvertPart>& parts) {
  std::uint64_t sum = 0;
  for (const ConvertPart& part : parts)
    sum += part.sources.size() * static_cast<std::uint64_t>(part.rows * part.in);
  return sum;
}

}  // namespace

std::uint64_t ConvertPart::bytes() const {
  std::uint64_t sum = 0;
  for (const OutputTensor& tensor : tensors) sum += tensor.bytes();
  return sum;
}

Result<ConvertPlan> plan_conversion(const Checkpoint& source, const AffineFormat& format,
                                    const std::vector<ConvertRule>& rules, HeadMode head) {
  LAC_TRY(const NemotronHConfig config, parse_nemotron_h_config(source.config()));
  bool has_head = false;
  for (const auto& [name, tensor] : source.tensors()) {
    const bool of_head = name.starts_with(kHead);
    has_head = has_head || of_head;
    if (of_head ? head != HeadMode::kOff : head != HeadMode::kOnly)
      LAC_TRY_VOID(check_format(tensor));
  }
  const bool with_model = head != HeadMode::kOnly;
  const bool with_head = has_head && head != HeadMode::kOff;
  if (head == HeadMode::kOnly && !has_head) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--mtp only: {} has no mtp.* tensors, wanted a release with its "
                             "drafting head",
                             source.folder().string())};
  }
  if (with_head && config.mtp_layers.empty()) {
    return corrupt("config.json",
                   "declares no drafting head, but there are mtp.* tensors; --mtp "
                   "off leaves them out");
  }

  Planner planner(source, config, format, rules);
  ConvertPlan plan;
  if (with_model) planner.add_model();
  plan.model = planner.take();
  if (with_head) planner.add_head();
  plan.head = planner.take();
  LAC_TRY_VOID(planner.check(with_model, with_head));
  plan.quantization = planner.take_quantization();
  plan.parameters = parameters_of(plan.model);
  return plan;
}

}  // namespace lacuna
