// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <memory>

#include "console.h"

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kLargestCount = std::numeric_limits<int>::max();

// Prints one spelling of a flag: "-n,--max-tokens", whatever aliases there are.
class Formatter : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    if (positional) return option->get_name(true, false);
    const auto& shorts = option->get_snames();
    const auto& longs = option->get_lnames();
    const std::string brief = shorts.empty() ? "    " : "-" + shorts[0] + ", ";
    return "  " + brief + (longs.empty() ? "" : "--" + longs[0]);
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    const std::string type = option->get_type_name();
    return " " + type.substr(0, type.find(":INT in"));  // ranges are for the error message
  }
};

// CLI11 would wrap a negative number around.
std::string not_negative(const std::string& text) {
  return text.starts_with('-') ? fmt::format("{}, want 0 or more", text) : "";
}

bool is_switch_value(const std::string& text) {
  return text == "on" || text == "off" || text == "auto" || text == "sparse" || text == "dense";
}

}  // namespace

ExitCode exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kContextLength:
      return kExitUsage;
    case ErrorCode::kNotFound:
    case ErrorCode::kUnsupported:
    case ErrorCode::kCorrupt:
      return kExitModel;
    case ErrorCode::kOutOfMemory:
      return kExitMemory;
    case ErrorCode::kCancelled:
      return kExitInterrupted;
    case ErrorCode::kIo:
      return kExitFailure;
  }
  return kExitFailure;
}

CommandLine::CommandLine(const std::string& command, const std::string& summary)
    : app_(summary, "lacuna " + command) {
  app_.formatter(std::make_shared<Formatter>());
  app_.get_formatter()->column_width(36);
}

CLI::Option* CommandLine::from_environment(CLI::Option* option) {
  std::string name = "LACUNA_" + option->get_lnames().front();
  for (char& c : name) {
    c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return option->envname(name);
}

CLI::Option* CommandLine::list(const std::string& names, std::vector<std::string>& values,
                               const std::string& help) {
  // Without this CLI11 would take "[a,b]" apart and eat the arguments that follow.
  return from_environment(app_.add_option(names, values, help)->allow_extra_args(false));
}

CLI::Option* CommandLine::flag(const std::string& names, bool& value, const std::string& help) {
  return from_environment(app_.add_flag(names, value, help)->take_last());
}

std::optional<int> CommandLine::parse(const Arguments& arguments) {
  Arguments reversed = normalize_arguments(arguments);
  std::reverse(reversed.begin(), reversed.end());  // CLI11 takes them from the back
  try {
    app_.parse(std::move(reversed));
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    return write_out(app_.help()) ? kExitDone : kExitFailure;
  } catch (const CLI::Error& error) {
    tell(fmt::format("{}: {} (see {} --help)", app_.get_name(), error.what(), app_.get_name()));
    return kExitUsage;
  }
}

Arguments normalize_arguments(const Arguments& arguments) {
  Arguments result;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "-sys") {
      result.push_back("--system");
    } else if (argument == "-ub") {
      result.push_back("--prefill-chunk");
    } else if (argument == "--no-sparse-experts") {
      result.push_back("--experts=dense");
    } else if (argument == "--sparse-experts" &&
               (i + 1 == arguments.size() || !is_switch_value(arguments[i + 1]))) {
      result.push_back("--experts=sparse");
    } else {
      result.push_back(argument);
    }
  }
  return result;
}

EngineOptions ModelFlags::engine_options() const {
  EngineOptions options;
  options.threads = threads;
  options.precision = precision == "f32" ? Precision::kF32 : Precision::kBf16;
  options.sparse_experts = experts != "dense" && experts != "off";
  if (!sparse_prefill.empty()) options.sparse_attention = sparse_prefill == "on";
  options.sparse_min_context = sparse_min_context;
  options.context = context;
  options.prefill_chunk = prefill_chunk;
  return options;
}

void add_model_flags(CommandLine& line, ModelFlags& flags) {
  line.option("-m,--model,--model-path,model", flags.model,
              "checkpoint folder; without one the bundled small model");
  line.option("-c,--ctx-size,--max-model-len,--context-length,--max-kv-size", flags.context,
              "tokens of context; 0: the model's own limit")
      ->check(CLI::Range(0, kLargestCount));
  line.option("-t,--threads", flags.threads, "worker threads; 0: the physical cores")
      ->check(CLI::Range(0, 4096));
  line.option("-b,--prefill-chunk,--batch-size,--prefill-step-size,--chunked-prefill-size",
              flags.prefill_chunk, "prompt tokens per forward pass; changes no result")
      ->check(CLI::Range(1, 1 << 20));
  line.option("--precision", flags.precision, "f32 or bf16: what activations are rounded to")
      ->check(CLI::IsMember({"f32", "bf16"}));
  line.option("--experts,--sparse-experts", flags.experts,
              "sparse, or dense to read the rows of dead neurons too; same bits")
      ->check(CLI::IsMember({"sparse", "dense", "on", "off", "auto"}));
  line.option("--sparse-prefill", flags.sparse_prefill,
              "on: skip the keys that the model's indexer did not pick; off: mask them")
      ->check(CLI::IsMember({"on", "off"}));
  line.option("--sparse-prefill-min-context", flags.sparse_min_context,
              "skip them from this many visible keys on")
      ->check(CLI::Range(0, kLargestCount));
  line.flag("-q,--quiet", flags.quiet, "errors only on stderr");
}

void add_answer_flags(CommandLine& line, AnswerFlags& flags) {
  SamplingParams& s = flags.others;
  line.option("--system,--system-prompt", flags.system, "system message");
  line.option("--chat-template-kwargs,--chat-template-args,--chat-template-config",
              flags.template_keywords, "JSON object of keywords for the chat template");
  line.option("-n,--max-tokens,--predict,--n-predict", flags.max_tokens,
              "tokens to generate at most; -1: until the context is full")
      ->check(CLI::Range(-1, kLargestCount));
  line.option("--temp,--temperature", flags.temperature,
              "0: greedy; without it the model's own, else 1");
  line.option("--top-k", flags.top_k, "keep the K most likely tokens; 0: all");
  line.option("--top-p", flags.top_p, "keep the likeliest tokens up to this mass; 1: all");
  line.option("--min-p", s.min_p, "drop tokens less likely than this times the best; 0: none");
  line.option("--repeat-penalty,--repetition-penalty", s.repeat_penalty,
              "over prompt and answer; 1: off");
  line.option("--presence-penalty", s.presence_penalty, "once per generated token; 0: off");
  line.option("--frequency-penalty", s.frequency_penalty, "per time it was generated; 0: off");
  line.option("-s,--seed", s.seed, "of the random draws; 0: from the system")
      ->check(not_negative, "");
  line.list("--logit-bias", flags.logit_bias, "ID=VALUE, added to a token's logit; repeatable");
  line.list("--stop", flags.stops, "text that ends the answer; repeatable");
  line.option("--draft,--draft-tokens,--spec-draft-n-max,--num-draft-tokens", flags.draft,
              "tokens the model's own head guesses a step: auto, off or a number; changes no text");
  line.flag("--ignore-eos", flags.ignore_eos, "go on after the model's stop tokens");
}

Result<SamplingParams> AnswerFlags::sampling(const ModelInfo& model) const {
  SamplingParams params = others;
  params.temperature = temperature.value_or(model.default_temperature);
  params.top_p = top_p.value_or(model.default_top_p);
  params.top_k = top_k.value_or(model.default_top_k);
  for (const std::string& text : logit_bias) {
    LAC_TRY(const auto biases, parse_logit_bias(text));
    params.logit_bias.insert(params.logit_bias.end(), biases.begin(), biases.end());
  }
  return params;
}

Result<Json> AnswerFlags::keywords() const {
  if (template_keywords.empty()) return Json::object();
  Json json = Json::parse(template_keywords, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--chat-template-kwargs: {}, want a JSON object", template_keywords)};
  }
  return json;
}

Result<DraftPolicy> AnswerFlags::drafts() const {
  auto policy = parse_draft_policy(draft, kMostDrafts);
  if (!policy.ok()) return Error{policy.error().code, "--draft: " + policy.error().what};
  return policy;
}

Result<std::vector<std::pair<int, float>>> parse_logit_bias(const std::string& text) {
  std::vector<std::pair<int, float>> biases;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const char* const last = text.data() + end;
    int id = 0;
    float value = 0;
    const auto [equals, id_error] = std::from_chars(text.data() + begin, last, id);
    const bool has_value = id_error == std::errc() && equals < last && *equals == '=';
    const auto [rest, value_error] =
        has_value ? std::from_chars(equals + 1, last, value)
                  : std::from_chars_result{last, std::errc::invalid_argument};
    if (value_error != std::errc() || rest != last) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("--logit-bias: \"{}\", want ID=VALUE",
                                                            text.substr(begin, end - begin))};
    }
    biases.emplace_back(id, value);
    begin = end + 1;
  }
  return biases;
}

}  // namespace lacuna
