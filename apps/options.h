// SPDX-License-Identifier: Apache-2.0
// The command line: flags shared by the commands, their environment variables, and exit codes.
//
// A flag --some-name is also read from LACUNA_SOME_NAME; the command line beats the environment.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "decode/draft_control.h"
#include "lacuna/engine.h"
#include "lacuna/result.h"
#include "lacuna/sampling.h"

namespace lacuna {

enum ExitCode : int {
  kExitDone = 0,
  kExitFailure = 1,        // at run time
  kExitUsage = 2,          // flags, input files, a prompt longer than the context
  kExitModel = 3,          // not found, corrupt or not supported
  kExitMemory = 4,         // does not fit
  kExitInterrupted = 130,  // Ctrl-C before the work ended
};
ExitCode exit_code(ErrorCode code);

using Arguments = std::vector<std::string>;  // what follows the command's name

// A command's parser, with our help format and nothing to parse yet.
class CommandLine {
 public:
  CommandLine(const std::string& command, const std::string& summary);

  CLI::App& app() { return app_; }

  // An option --name and its LACUNA_NAME; given twice, the last one counts. `names` are CLI11's:
  // ours first, then aliases, which --help leaves out.
  template <class T>
  CLI::Option* option(const std::string& names, T& value, const std::string& help) {
    CLI::Option* added = app_.add_option(names, value, help);
    return from_environment(added->take_last());
  }
  // One that may be given several times, one value each.
  CLI::Option* list(const std::string& names, std::vector<std::string>& values,
                    const std::string& help);
  CLI::Option* flag(const std::string& names, bool& value, const std::string& help);

  // Nothing when the command should go on; the exit code after --help, or after a usage error was
  // told on stderr.
  std::optional<int> parse(const Arguments& arguments);

 private:
  CLI::Option* from_environment(CLI::Option* option);

  CLI::App app_;
};

// Spellings that CLI11 cannot take as aliases (-sys, -ub, --no-sparse-experts, a bare
// --sparse-experts) become those it can.
Arguments normalize_arguments(const Arguments& arguments);

struct ModelFlags {
  std::string model;  // empty: the bundled one
  int context = 0;
  int threads = 0;
  int prefill_chunk = 2048;
  std::string precision = "bf16";
  std::string experts = "sparse";
  std::string sparse_prefill;  // empty: as config.json says
  std::optional<int> sparse_min_context;
  bool quiet = false;

  EngineOptions engine_options() const;
};
void add_model_flags(CommandLine& line, ModelFlags& flags);

// Unset fields come from the model's generation_config.json.
struct AnswerFlags {
  std::optional<float> temperature, top_p;
  std::optional<int> top_k;
  SamplingParams others;                // its temperature, top_p and top_k are not looked at
  std::vector<std::string> logit_bias;  // "ID=VALUE", also several with commas between
  std::vector<std::string> stops;
  int max_tokens = 256;
  bool ignore_eos = false;
  std::string draft = "auto";
  std::string system;
  std::string template_keywords;  // a JSON object, or empty

  // kInvalidArgument names the flag.
  Result<SamplingParams> sampling(const ModelInfo& model) const;
  Result<nlohmann::ordered_json> keywords() const;
  Result<DraftPolicy> drafts() const;
};
void add_answer_flags(CommandLine& line, AnswerFlags& flags);

// "ID=VALUE[,ID=VALUE…]"; kInvalidArgument quotes the part that is not.
Result<std::vector<std::pair<int, float>>> parse_logit_bias(const std::string& text);

}  // namespace lacuna
