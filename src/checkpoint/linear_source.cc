// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/linear_source.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "checkpoint/json.h"

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;
using Rule = QuantizationRules::Rule;

constexpr std::array kBits = {2, 3, 4, 5, 6, 8};
constexpr std::array kGroups = {32, 64, 128};

Error corrupt(std::string what) { return {ErrorCode::kCorrupt, std::move(what)}; }

template <std::size_t N>
Result<int> one_of(const Json& value, const std::array<int, N>& choices) {
  std::string list;
  for (const int choice : choices) {
    if (value == choice) return choice;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", choice);
  }
  const ErrorCode code = value.is_number_integer() ? ErrorCode::kUnsupported : ErrorCode::kCorrupt;
  return Error{code, fmt::format("{}, wanted one of {}", printable_json(value), list)};
}

// One field of a rule into `rule`. False: the field is none of a rule's.
Result<bool> read_field(const std::string& key, const Json& value, Rule& rule) {
  const auto named = [&key](Error error) { return std::move(error).in(key); };
  if (key == "bits") {
    auto bits = one_of(value, kBits);
    if (!bits) return named(std::move(bits).error());
    rule.bits = *bits;
  } else if (key == "group_size") {
    auto group = one_of(value, kGroups);
    if (!group) return named(std::move(group).error());
    rule.group = *group;
  } else if (key == "mode") {
    if (value != "affine") {
      return Error{
          ErrorCode::kUnsupported,
          fmt::format("mode {} is not supported, only \"affine\" is", printable_json(value))};
    }
  } else {
    return false;
  }
  return true;
}

// The mode first: other modes have group sizes of their own, and the mode is what the user must
// know.
Result<void> read_mode(const Json& object, Rule& rule) {
  if (!object.contains("mode")) return {};
  if (auto r = read_field("mode", object["mode"], rule); !r) return std::move(r).error();
  return {};
}

Result<Rule> read_override(const Json& value, const Rule& defaults) {
  Rule rule = defaults;
  if (value.is_boolean()) {
    rule.quantized = value.get<bool>();
    return rule;
  }
  if (!value.is_object()) {
    return corrupt(fmt::format("{}, wanted false or an object with bits and group_size",
                               printable_json(value)));
  }
  LAC_TRY_VOID(read_mode(value, rule));
  for (const auto& [key, field] : value.items()) {
    LAC_TRY(const bool known, read_field(key, field, rule));
    if (!known) return corrupt(fmt::format("{}: an unknown field", printable(key)));
  }
  return rule;
}

// A module's path without the prefixes that writers add or leave out.
std::string_view common_path(std::string_view module) {
  for (const std::string_view prefix : {"language_model.", "model.", "backbone."}) {
    if (module.starts_with(prefix)) module.remove_prefix(prefix.size());
  }
  return module;
}

// The stacked name of one of many experts: "….experts.7.up_proj" is a part of "….switch_mlp.fc1".
// Empty for any other module.
std::string stacked_path(std::string_view module) {
  constexpr std::string_view kExperts = ".experts.";
  const std::size_t at = module.find(kExperts);
  if (at == std::string_view::npos) return {};
  const std::string_view tail = module.substr(at + kExperts.size());
  const std::size_t digits = tail.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string_view::npos) return {};
  const std::string_view projection = tail.substr(digits);
  const char* stacked = projection == ".up_proj"     ? "fc1"
                        : projection == ".down_proj" ? "fc2"
                                                     : nullptr;
  if (stacked == nullptr) return {};
  return fmt::format("{}.switch_mlp.{}", module.substr(0, at), stacked);
}

bool is_small_float(Dtype dtype) {
  return dtype == Dtype::kF32 || dtype == Dtype::kF16 || dtype == Dtype::kBf16;
}

bool is_fp8(Dtype dtype) { return dtype == Dtype::kF8E4M3 || dtype == Dtype::kF8E5M2; }

// The tensor `name`, which must have `shape` behind the expert dimension, and its slice for
// `expert`.
struct Slice {
  const std::uint8_t* data;
  Dtype dtype;
};
Result<Slice> find_slice(const Checkpoint& checkpoint, const std::string& name,
                         std::vector<std::int64_t> shape, int expert, int experts) {
  const TensorView* tensor = checkpoint.find(name);
  if (tensor == nullptr) return corrupt(fmt::format("{}: missing", name));
  if (expert >= 0) shape.insert(shape.begin(), experts);
  if (tensor->shape != shape) {
    return corrupt(
        fmt::format("{}: shape {}, wanted {}", name, shape_text(tensor->shape), shape_text(shape)));
  }
  const std::size_t slice_bytes =
      tensor->bytes / static_cast<std::size_t>(expert >= 0 ? experts : 1);
  const auto index = static_cast<std::size_t>(std::max(expert, 0));
  return Slice{tensor->data + index * slice_bytes, tensor->dtype};
}

Error wrong_dtype(const std::string& name, Dtype found, const char* wanted) {
  return {is_fp8(found) || found == Dtype::kU8 ? ErrorCode::kUnsupported : ErrorCode::kCorrupt,
          fmt::format("{}: dtype {} is not supported here, wanted {}", name, dtype_name(found),
                      wanted)};
}

Result<void> fill_plain(const Checkpoint& checkpoint, LinearSource& linear, int expert,
                        int experts) {
  const std::string name = linear.name + ".weight";
  const TensorView* tensor = checkpoint.find(name);
  if (tensor != nullptr && tensor->dtype == Dtype::kU32) {
    return corrupt(
        fmt::format("{}.scales: missing, though {} holds codes (U32)", linear.name, name));
  }
  // Packed formats have other shapes, so the dtype is what to complain about first.
  if (tensor != nullptr && !is_small_float(tensor->dtype)) {
    return wrong_dtype(name, tensor->dtype, "BF16, F16, F32, or MLX affine codes");
  }
  LAC_TRY(const Slice weight,
          find_slice(checkpoint, name, {linear.out, linear.in}, expert, experts));
  linear.weight = weight.data;
  linear.dtype = weight.dtype;
  return {};
}

Result<void> fill_quantized(const Checkpoint& checkpoint, const QuantizationRules& rules,
                            LinearSource& linear, int expert, int experts) {
  const std::string& module = linear.name;
  const Rule rule = rules.rule(module);
  if (!rules.any()) {
    return corrupt(
        fmt::format("{}.scales: there, though config.json has no \"quantization\"", module));
  }
  if (!rule.quantized) {
    return corrupt(
        fmt::format("{}.scales: there, though config.json's quantization says false", module));
  }
  linear.quantized = true;
  linear.bits = rule.bits;
  linear.group = rule.group;
  if (linear.in % rule.group != 0) {
    return corrupt(fmt::format("{}: {} inputs are no multiple of the group size {}", module,
                               linear.in, rule.group));
  }
  const TensorView* codes = checkpoint.find(module + ".weight");
  if (codes != nullptr && codes->dtype != Dtype::kU32) {
    return wrong_dtype(codes->name, codes->dtype, "U32 codes, as the module has scales");
  }
  const std::int64_t words = std::int64_t{linear.in} * rule.bits / 32,
                     groups = linear.in / rule.group;
  const auto explain = [&rule](Error error) {
    error.what += fmt::format(" at {} bits, group size {}", rule.bits, rule.group);
    return error;
  };
  auto weight = find_slice(checkpoint, module + ".weight", {linear.out, words}, expert, experts);
  if (!weight) return explain(std::move(weight).error());
  auto scales = find_slice(checkpoint, module + ".scales", {linear.out, groups}, expert, experts);
  if (!scales) return explain(std::move(scales).error());
  auto biases = find_slice(checkpoint, module + ".biases", {linear.out, groups}, expert, experts);
  if (!biases) return explain(std::move(biases).error());
  if (!is_small_float(scales->dtype))
    return wrong_dtype(module + ".scales", scales->dtype, "BF16, F16 or F32");
  if (biases->dtype != scales->dtype) {
    return wrong_dtype(module + ".biases", biases->dtype, "the dtype of the scales");
  }
  linear.weight = weight->data;
  linear.scales = scales->data;
  linear.biases = biases->data;
  linear.dtype = scales->dtype;
  return {};
}

// True when any value is a NaN or an infinity: its exponent bits are all ones.
template <class Bits>
bool has_non_finite(const std::uint8_t* data, std::size_t bytes, Bits exponent) {
  Bits found = 0;
  for (std::size_t i = 0; i < bytes; i += sizeof(Bits)) {
    Bits value;
    std::memcpy(&value, data + i, sizeof(Bits));
    found = static_cast<Bits>(found | ((value & exponent) == exponent ? 1 : 0));
  }
  return found != 0;
}

bool has_non_finite(Dtype dtype, const std::uint8_t* data, std::size_t bytes) {
  if (dtype == Dtype::kF32) return has_non_finite<std::uint32_t>(data, bytes, 0x7f800000u);
  return has_non_finite<std::uint16_t>(data, bytes, dtype == Dtype::kF16 ? 0x7c00 : 0x7f80);
}

}  // namespace

std::size_t LinearSource::row_bytes() const {
  const auto inputs = static_cast<std::size_t>(in);
  return quantized ? inputs * static_cast<std::size_t>(bits) / 8 : inputs * dtype_bytes(dtype);
}

std::size_t LinearSource::scale_bytes() const {
  if (!quantized) return 0;
  return static_cast<std::size_t>(out) * static_cast<std::size_t>(in / group) * dtype_bytes(dtype);
}

std::uint64_t LinearSource::bytes() const {
  return static_cast<std::uint64_t>(out) * row_bytes() + 2 * scale_bytes();
}

Result<QuantizationRules> QuantizationRules::parse(const Json& config) {
  QuantizationRules out;
  const auto is_there = [&config](const char* key) {
    return config.contains(key) && !config[key].is_null();
  };
  const char* field = is_there("quantization") ? "quantization" : "quantization_config";
  if (!is_there(field)) return out;
  const auto named = [field](Error error) {
    return std::move(error).in(fmt::format("config.json: {}", field));
  };
  const Json& object = config[field];
  if (!object.is_object())
    return named(corrupt(fmt::format("{}, wanted an object", printable_json(object))));
  if (object.contains("quant_method")) {
    return named({ErrorCode::kUnsupported,
                  fmt::format("quant_method {} is not supported, only MLX affine is",
                              printable_json(object["quant_method"]))});
  }
  out.any_ = true;
  if (auto r = read_mode(object, out.default_); !r) return named(std::move(r).error());
  std::vector<std::pair<std::string, const Json*>> modules;
  for (const auto& [key, value] : object.items()) {
    auto known = read_field(key, value, out.default_);
    if (!known) return named(std::move(known).error());
    if (!*known) modules.emplace_back(key, &value);
  }
  for (const auto& [module, value] : modules) {  // once all defaults are known
    auto rule = read_override(*value, out.default_);
    if (!rule) return named(std::move(rule).error().in(printable(module)));
    if (!out.by_path_.emplace(common_path(module), *rule).second) {
      return named(corrupt(fmt::format("{}: the same module under two names", printable(module))));
    }
    out.overrides_.emplace(module, *std::move(rule));
  }
  return out;
}

Rule QuantizationRules::rule(const std::string& module) const {
  const std::string path(common_path(module));
  for (const std::string& candidate : {path, stacked_path(path)}) {
    if (const auto it = by_path_.find(candidate); it != by_path_.end()) return it->second;
  }
  return default_;
}

Result<void> QuantizationRules::check_all_used(const Checkpoint& checkpoint) const {
  if (overrides_.empty()) return {};
  constexpr std::string_view kWeight = ".weight";
  std::set<std::string> modules;
  bool has_mtp = false;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!name.ends_with(kWeight)) continue;
    const std::string path(common_path(name.substr(0, name.size() - kWeight.size())));
    has_mtp = has_mtp || path.starts_with("mtp.");
    if (std::string stacked = stacked_path(path); !stacked.empty())
      modules.insert(std::move(stacked));
    modules.insert(path);
  }
  for (const auto& [name, rule] : overrides_) {
    const std::string path(common_path(name));
    if (modules.contains(path) || (!has_mtp && path.starts_with("mtp."))) continue;
    return corrupt(fmt::format("config.json: quantization: {}: no such module in the checkpoint",
                               printable(name)));
  }
  return {};
}

Result<LinearSource> find_linear(const Checkpoint& checkpoint, const QuantizationRules& rules,
                                 const std::string& module, int out, int in, int expert,
                                 int experts) {
  LAC_CHECK(out > 0 && in > 0 && expert < std::max(experts, 1), "{} [{}, {}] {}/{}", module, out,
            in, expert, experts);
  LinearSource linear;
  linear.name = module;
  linear.out = out;
  linear.in = in;
  if (checkpoint.find(module + ".scales") != nullptr) {
    LAC_TRY_VOID(fill_quantized(checkpoint, rules, linear, expert, experts));
  } else {
    LAC_TRY_VOID(fill_plain(checkpoint, linear, expert, experts));
  }
  return linear;
}

Result<void> check_finite_scales(const LinearSource& linear) {
  for (const auto& [data, suffix] :
       {std::pair(linear.scales, "scales"), std::pair(linear.biases, "biases")}) {
    if (has_non_finite(linear.dtype, data, linear.scale_bytes())) {
      return corrupt(fmt::format("{}.{}: holds a NaN or an infinity", linear.name, suffix));
    }
  }
  return {};
}

}  // namespace lacuna
