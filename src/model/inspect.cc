// SPDX-License-Identifier: Apache-2.0
#include "model/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "checkpoint/generation_config.h"
#include "checkpoint/json.h"
#include "checkpoint/linear_source.h"
#include "model/glm_dsa_bind.h"
#include "model/glm_dsa_config.h"
#include "model/nemotron_h_bind.h"
#include "model/nemotron_h_config.h"

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;
using Report = InspectReport;

// In the order of the report.
constexpr std::array kComponents = {
    "embeddings", "mamba",  "attention", "indexer",         "routed experts", "shared experts",
    "router",     "latent", "dense mlp", "norms and other", "output head",    "drafting head"};
constexpr const char* kDraftingHead = kComponents.back();

// What the reader of a checkpoint's family knows of its tensors' names.
struct Names {
  std::vector<LayerKind> layers;  // of Nemotron-H, whose names do not tell what a layer is
  std::function<bool(const std::string& name)> is_head = [](const std::string& name) {
    return name.starts_with("mtp.");
  };
};

const char* component_of(const std::string& name, const Names& names) {
  const auto has = [&name](const char* part) { return name.find(part) != std::string::npos; };
  if (names.is_head(name)) return kDraftingHead;
  if (has(".switch_mlp.") || has(".experts.")) return "routed experts";
  if (has(".shared_experts.")) return "shared experts";
  if (has(".gate.")) return "router";
  if (has("_latent_proj.")) return "latent";
  if (has("lm_head.")) return "output head";
  if (has(".indexer.")) return "indexer";
  if (has(".self_attn.")) return "attention";  // before the next: MLX has an embed_q in there
  if (has("embed")) return "embeddings";
  if (has(".mlp.")) return "dense mlp";
  const std::size_t at = name.find(".layers.");
  if (at == std::string::npos || !has(".mixer.")) return "norms and other";
  const std::size_t layer =
      std::strtoul(name.c_str() + at + std::string_view(".layers.").size(), nullptr, 10);
  if (layer >= names.layers.size()) return "norms and other";
  switch (names.layers[layer]) {
    case LayerKind::kMamba:
      return "mamba";
    case LayerKind::kAttention:
      return "attention";
    case LayerKind::kMoe:
      return "routed experts";
    case LayerKind::kMlp:
      return "dense mlp";
  }
  return "norms and other";
}

// Modules and their quantisation; `rules` is null when the config's cannot be read.
class Sizes {
 public:
  Sizes(const Checkpoint& checkpoint, const QuantizationRules* rules)
      : checkpoint_(checkpoint), rules_(rules) {}

  struct Part {
    std::string format;
    std::uint64_t parameters = 0;
    bool is_scale = false;  // scales or biases: bytes of a module, no weights of their own
  };

  Part of(const TensorView& tensor) const {
    const std::size_t dot = tensor.name.rfind('.');
    const std::string module = tensor.name.substr(0, dot);
    const std::string part = dot == std::string::npos ? "" : tensor.name.substr(dot);
    const bool quantized = checkpoint_.find(module + ".scales") != nullptr &&
                           (part == ".weight" || part == ".scales" || part == ".biases");
    if (!quantized)
      return {dtype_name(tensor.dtype), static_cast<std::uint64_t>(tensor.elements()), false};
    Part out{"quantised", 0, part != ".weight"};
    if (rules_ != nullptr) {
      const auto rule = rules_->rule(module);
      out.format = fmt::format("{} bits, group {}", rule.bits, rule.group);
      if (!out.is_scale) out.parameters = tensor.bytes * 8 / static_cast<std::uint64_t>(rule.bits);
    }
    return out;
  }

 private:
  const Checkpoint& checkpoint_;
  const QuantizationRules* rules_;
};

void add_sizes(const Checkpoint& checkpoint, const QuantizationRules* rules, const Names& names,
               Report& report) {
  const Sizes sizes(checkpoint, rules);
  std::map<std::string, Report::Component> components;
  std::map<std::string, Report::Format> formats;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const Sizes::Part part = sizes.of(tensor);
    Report::Component& component = components[component_of(name, names)];
    component.tensors += 1;
    component.parameters += part.parameters;
    component.bytes += tensor.bytes;
    Report::Format& format = formats[part.format];
    format.modules += part.is_scale ? 0 : 1;
    format.parameters += part.parameters;
    format.bytes += tensor.bytes;
    const bool is_head = names.is_head(name);
    (is_head ? report.head_parameters : report.parameters) += part.parameters;
    (is_head ? report.head_bytes : report.bytes) += tensor.bytes;
    if (is_head && report.head_file.empty()) report.head_file = tensor.file;
    report.tensors.push_back(
        {name, dtype_name(tensor.dtype), tensor.file, tensor.shape, tensor.bytes});
  }
  for (const char* name : kComponents) {
    if (const auto it = components.find(name); it != components.end()) {
      it->second.name = name;
      report.components.push_back(it->second);
    }
  }
  for (auto& [name, format] : formats) {
    format.name = name;
    report.formats.push_back(format);
  }
  std::sort(report.formats.begin(), report.formats.end(),
            [](const Report::Format& a, const Report::Format& b) {
              return a.bytes != b.bytes ? a.bytes > b.bytes : a.name < b.name;
            });
  if (rules != nullptr) return;
  // A sum that leaves modules out would only mislead.
  report.parameters = report.head_parameters = 0;
  for (Report::Component& component : report.components) component.parameters = 0;
}

void add_quantization(const QuantizationRules& rules, Report& report) {
  for (const auto& [module, rule] : rules.overrides()) {
    const std::string what =
        rule.quantized ? fmt::format("{} bits, group {}", rule.bits, rule.group) : "not quantised";
    report.overrides.push_back(fmt::format("{}: {}", printable(module), what));
  }
}

int config_size(const Json& config, const char* field) {
  const auto it = config.find(field);
  if (it == config.end() || !it->is_number_integer()) return 0;
  const auto value = it->get<std::int64_t>();
  return value > 0 && value < (std::int64_t{1} << 31) ? static_cast<int>(value) : 0;
}

// What any architecture's config says under the usual names.
void add_config(const Json& config, Report& report) {
  const auto type = config.find("model_type");
  report.architecture =
      type != config.end() && type->is_string() ? printable(type->get<std::string>()) : "unknown";
  const auto synthetic = config.find("lacuna_synthetic");
  if (synthetic != config.end() && synthetic->is_string())
    report.synthetic = printable(synthetic->get<std::string>(), 400);
  report.layers = config_size(config, "num_hidden_layers");
  report.width = config_size(config, "hidden_size");
  report.vocabulary = config_size(config, "vocab_size");
  report.context = config_size(config, "max_position_embeddings");
}

void add_stop_tokens(const Checkpoint& checkpoint, Report& report) {
  std::set<int> ids;
  const auto add = [&](Result<GenerationConfig> generation) {
    if (generation) {
      ids.insert(generation->stop_tokens.begin(), generation->stop_tokens.end());
    } else if (report.problem.empty()) {
      report.problem = generation.error().what;
    }
  };
  const auto eos = checkpoint.config().find("eos_token_id");
  if (eos != checkpoint.config().end()) {
    // A complaint about this field is the config parser's, under the config's own name.
    if (auto parsed = parse_generation_config({{"eos_token_id", *eos}}); parsed)
      add(std::move(parsed));
  }
  add(read_generation_config(checkpoint.folder()));
  report.stop_tokens.assign(ids.begin(), ids.end());
}

std::string count(std::uint64_t value) { return fmt::format("{}", fmt::group_digits(value)); }

std::string head_text(const Report& report) {
  switch (report.head) {
    case Report::Head::kNone:
      return "none";
    case Report::Head::kPresent:
      return fmt::format("present in {}: {} parameters, {} bytes", report.head_file,
                         count(report.head_parameters), count(report.head_bytes));
    case Report::Head::kMissing:
      return "missing: config.json declares one, no file here holds its tensors; no drafting with "
             "it";
  }
  return {};
}

std::string architecture_text(const Report& report) {
  std::string out = report.architecture;
  const auto add = [&out](const char* what, int value) {
    if (value > 0) out += fmt::format(", {} {}", what, value);
  };
  if (report.layers > 0) out += fmt::format(", {} layers", report.layers);
  if (!report.pattern.empty()) out += " " + report.pattern;
  add("width", report.width);
  add("vocabulary", report.vocabulary);
  add("context", report.context);
  return out;
}

double bits_per_weight(std::uint64_t bytes, std::uint64_t parameters) {
  return parameters == 0 ? 0.0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(parameters);
}

void append_tensors(const Report& report, std::string& out) {
  std::size_t name_width = 0;
  for (const Report::Tensor& tensor : report.tensors)
    name_width = std::max(name_width, tensor.name.size());
  out += '\n';
  for (const Report::Tensor& t : report.tensors) {
    out += fmt::format("{:<{}}  {:<7}  {:<22}  {}  {} bytes\n", t.name, name_width, t.dtype,
                       shape_text(t.shape), t.file, t.bytes);
  }
}

void set_head(bool declared, Report& report) {
  if (report.head_bytes > 0) {
    report.head = Report::Head::kPresent;
  } else if (declared) {
    report.head = Report::Head::kMissing;
  }
}

// Each reader below takes a checkpoint of one family as the engine would: the layers, what does not
// fit, and the sizes.

void read_nemotron_h(const Checkpoint& checkpoint, const QuantizationRules* rules, Report& report) {
  const auto config = parse_nemotron_h_config(checkpoint.config());
  Names names;
  bool declares_head = config_size(checkpoint.config(), "num_nextn_predict_layers") > 0;
  if (config.ok()) {
    names.layers = config->layers;
    report.layers = static_cast<int>(config->layers.size());
    report.pattern = pattern_text(config->layers);
    declares_head = !config->mtp_layers.empty();
    if (auto bound = bind_nemotron_h(checkpoint, *config, ScaleCheck::kNone); !bound)
      report.problem = bound.error().what;
  } else {
    report.problem = config.error().what;
  }
  add_sizes(checkpoint, rules, names, report);
  set_head(declares_head, report);
  if (report.head == Report::Head::kPresent && config.ok()) {
    if (auto head = bind_nemotron_h_head(checkpoint, *config, ScaleCheck::kNone); !head.ok())
      report.head_problem = "left out: " + head.error().what;
  }
}

void read_glm_dsa(const Checkpoint& checkpoint, const QuantizationRules* rules, Report& report) {
  const auto config = parse_glm_dsa_config(checkpoint.config());
  Names names;
  if (config.ok()) {
    names.is_head = [&](const std::string& name) {
      return is_glm_dsa_mtp(checkpoint, *config, name);
    };
    report.pattern = indexer_pattern(*config);
    if (auto bound = bind_glm_dsa(checkpoint, *config, ScaleCheck::kNone); bound.ok()) {
      report.notes = bound->notes;
    } else {
      report.problem = bound.error().what;
    }
  } else {
    report.problem = config.error().what;
  }
  add_sizes(checkpoint, rules, names, report);
  set_head(config_size(checkpoint.config(), "num_nextn_predict_layers") > 0, report);
  if (report.head == Report::Head::kPresent)
    report.head_problem = "left out: drafting layers of this architecture are not used";
}

}  // namespace

Result<InspectReport> inspect_checkpoint(const std::filesystem::path& folder) {
  LAC_TRY(const Checkpoint checkpoint, Checkpoint::open(folder));
  Report report;
  std::error_code ignored;
  const auto absolute = std::filesystem::weakly_canonical(folder, ignored);
  report.name = absolute.filename().string();
  add_config(checkpoint.config(), report);
  if (!checkpoint.notes().empty()) report.head_problem = checkpoint.notes()[0];

  const auto rules = QuantizationRules::parse(checkpoint.config());
  const auto read = is_glm_dsa(checkpoint.config()) ? read_glm_dsa : read_nemotron_h;
  read(checkpoint, rules ? &*rules : nullptr, report);
  if (rules) {
    add_quantization(*rules, report);
  } else if (report.problem.empty()) {
    report.problem = rules.error().what;
  }
  add_stop_tokens(checkpoint, report);
  for (const Checkpoint::File& file : checkpoint.files())
    report.files.push_back({file.name, file.bytes});
  return report;
}

std::string inspect_text(const Report& report, bool with_tensors) {
  std::string out;
  const auto line = [&out](const char* label, const std::string& text) {
    out += fmt::format("{:<14}{}\n", label, text);
  };
  line("checkpoint", report.name);
  if (!report.synthetic.empty()) line("synthetic", report.synthetic);
  line("architecture", architecture_text(report));
  line("runs here", report.problem.empty() ? "yes" : "no: " + report.problem);
  line("parameters", report.parameters == 0 ? "unknown" : count(report.parameters));
  line("weights", fmt::format("{} bytes", count(report.bytes)));
  line("head", head_text(report));
  if (!report.head_problem.empty()) line("", report.head_problem);
  for (const std::string& note : report.notes) line("note", note);
  line("stop tokens", report.stop_tokens.empty()
                          ? "none"
                          : fmt::format("{}", fmt::join(report.stop_tokens, ", ")));
  for (const Report::Format& f : report.formats) {
    line("format",
         fmt::format("{}: {} tensors, {} bytes", f.name, count(f.modules), count(f.bytes)));
  }
  for (const std::string& text : report.overrides) line("override", text);
  for (const Report::File& file : report.files)
    line("file", fmt::format("{}: {} bytes", file.name, count(file.bytes)));

  out += fmt::format("\n{:<16}{:>9}{:>18}{:>18}{:>13}\n", "component", "tensors", "parameters",
                     "bytes", "bits/weight");
  for (const Report::Component& c : report.components) {
    out += fmt::format("{:<16}{:>9}{:>18}{:>18}{:>13.2f}\n", c.name, count(c.tensors),
                       count(c.parameters), count(c.bytes), bits_per_weight(c.bytes, c.parameters));
  }
  if (with_tensors) append_tensors(report, out);
  return out;
}

nlohmann::ordered_json inspect_json(const Report& report, bool with_tensors) {
  constexpr std::array kHead = {"none", "present", "missing"};
  Json out = {{"name", report.name},
              {"architecture", report.architecture},
              {"synthetic", report.synthetic},
              {"problem", report.problem},
              {"layers", report.layers},
              {"width", report.width},
              {"vocabulary", report.vocabulary},
              {"context", report.context},
              {"pattern", report.pattern},
              {"stop_tokens", report.stop_tokens},
              {"parameters", report.parameters},
              {"bytes", report.bytes}};
  for (const char* list : {"notes", "components", "formats", "overrides", "files"})
    out[list] = Json::array();
  for (const std::string& note : report.notes) out["notes"].push_back(note);
  for (const Report::Component& c : report.components) {
    out["components"].push_back({{"name", c.name},
                                 {"tensors", c.tensors},
                                 {"parameters", c.parameters},
                                 {"bytes", c.bytes}});
  }
  for (const Report::Format& f : report.formats) {
    out["formats"].push_back({{"name", f.name},
                              {"modules", f.modules},
                              {"parameters", f.parameters},
                              {"bytes", f.bytes}});
  }
  for (const std::string& text : report.overrides) out["overrides"].push_back(text);
  out["head"] = kHead[static_cast<std::size_t>(report.head)];
  out["head_file"] = report.head_file;
  out["head_problem"] = report.head_problem;
  out["head_parameters"] = report.head_parameters;
  out["head_bytes"] = report.head_bytes;
  for (const Report::File& file : report.files)
    out["files"].push_back({{"name", file.name}, {"bytes", file.bytes}});
  if (!with_tensors) return out;
  out["tensors"] = Json::array();
  for (const Report::Tensor& t : report.tensors) {
    out["tensors"].push_back({{"name", t.name},
                              {"dtype", t.dtype},
                              {"shape", t.shape},
                              {"file", t.file},
                              {"bytes", t.bytes}});
  }
  return out;
}

}  // namespace lacuna
