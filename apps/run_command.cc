// SPDX-License-Identifier: Apache-2.0
// lacuna run: one prompt, one answer.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bandwidth.h"
#include "base/mmap.h"
#include "commands.h"
#include "console.h"
#include "decode/conversation.h"
#include "decode/generate.h"
#include "facts.h"
#include "open_model.h"

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxPromptBytes = std::size_t{64} << 20;

struct RunFlags {
  ModelFlags model;
  AnswerFlags answer;
  std::optional<std::string> prompt, file;
  bool json = false;
  bool raw = false;
  bool probe = false;
};

Result<std::string> read_stdin() {
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, stdin)) {
    text.append(buffer, n);
    if (text.size() > kMaxPromptBytes) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("stdin: more than {} bytes", kMaxPromptBytes)};
    }
  }
  return text;
}

// From the flag, the file or stdin; a missing one is the user's to mend.
Result<std::string> read_prompt(const RunFlags& flags) {
  if (flags.prompt && flags.file)
    return Error{ErrorCode::kInvalidArgument, "--prompt and --file: want one of them"};
  Result<std::string> text = std::string();
  if (flags.file) {
    text = read_text_file(*flags.file, kMaxPromptBytes);
    if (!text.ok()) return Error{ErrorCode::kInvalidArgument, text.error().what};
  } else if (!flags.prompt && isatty(STDIN_FILENO) != 0) {
    return Error{ErrorCode::kInvalidArgument, "no prompt: want --prompt, --file or text on stdin"};
  } else if (!flags.prompt || *flags.prompt == "-") {
    text = read_stdin();
  } else {
    text = *flags.prompt;
  }
  if (text.ok() && text->empty()) return Error{ErrorCode::kInvalidArgument, "the prompt is empty"};
  return text;
}

// As a user's message through the model's template, or as it is.
Result<std::vector<int>> encode(const RunFlags& flags, const Engine& engine,
                                const std::string& prompt) {
  const Tokenizer& tokenizer = engine.tokenizer();
  const ChatTemplate* chat_template = engine.chat_template();
  if (!flags.raw && chat_template != nullptr) {
    LAC_TRY(Json keywords, flags.answer.keywords());
    Conversation conversation(tokenizer, *chat_template, std::move(keywords));
    conversation.start(flags.answer.system);
    return conversation.ask(prompt);
  }
  if (!flags.answer.system.empty() || !flags.answer.template_keywords.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--system and --chat-template-kwargs need a chat template: {}",
                             flags.raw ? "--raw leaves it out" : "the model has none")};
  }
  return encode_text(tokenizer, prompt);
}

Json answer_json(const Engine& engine, const DraftPolicy& policy, const GenerateResult& result,
                 double peak_gb_s) {
  return {{"text", result.text},
          {"tokens", result.tokens},
          {"prompt_tokens", result.prompt_tokens},
          {"finish_reason", finish_reason_name(result.finish)},
          {"stats",
           stats_json(engine.info(), engine.options().sparse_experts, policy, result, peak_gb_s)}};
}

// The text was streamed, or the object is to be printed; then the facts.
bool report(const RunFlags& flags, const Engine& engine, const DraftPolicy& policy,
            const GenerateResult& result) {
  const bool facts = !flags.json && !flags.model.quiet;
  const double peak = flags.probe || facts ? measure_read_bandwidth(engine.info().threads) : 0;
  if (flags.json) {
    const Json json = answer_json(engine, policy, result, peak);
    return write_out(json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  const bool ended = result.text.empty() || result.text.back() == '\n' || write_out("\n");
  if (facts) tell(facts_line(engine.info(), policy, result, peak));
  if (!flags.model.quiet) warn_of_drafts(result.drafts);
  return ended;
}

Result<int> run(const RunFlags& flags) {
  LAC_TRY(const std::string prompt, read_prompt(flags));
  LAC_TRY_VOID(flags.answer.keywords());
  LAC_TRY(const DraftPolicy policy, flags.answer.drafts());
  LAC_TRY(const std::unique_ptr<Engine> engine, open_engine(flags.model));
  GenerateOptions options;
  LAC_TRY(options.sampling, flags.answer.sampling(engine->info()));
  options.max_tokens = flags.answer.max_tokens;
  options.ignore_eos = flags.answer.ignore_eos;
  options.stops = flags.answer.stops;
  LAC_TRY(const std::vector<int> tokens, encode(flags, *engine, prompt));
  SessionOptions session_options;
  session_options.drafts = can_draft(engine->info(), policy);
  LAC_TRY(const std::unique_ptr<Session> session, engine->new_session(session_options));
  DraftControl drafts(policy);
  if (session_options.drafts) options.drafts = &drafts;

  InterruptGuard interrupt;
  bool written = true;
  std::optional<ProgressLine> progress(std::in_place, "reading the prompt", !flags.model.quiet);
  options.on_prefill = [&](int done, int total) {
    if (done == total) progress.reset();
    if (progress) progress->update(done, total);
  };
  options.cancel = &interrupt.stop_flag();
  if (!flags.json) {
    options.on_text = [&](std::string_view text) {
      if (write_out(text)) return;
      written = false;
      interrupt.stop_flag() = true;
    };
  }
  LAC_TRY(const GenerateResult result, generate(*session, tokens, options));
  progress.reset();
  if (!written || !report(flags, *engine, policy, result))
    return Error{ErrorCode::kIo, "stdout: cannot be written"};
  return result.finish == FinishReason::kCancelled ? kExitInterrupted : kExitDone;
}

}  // namespace

int run_command(const Arguments& arguments) {
  RunFlags flags;
  CommandLine line("run", "Answers one prompt; the text goes to stdout, facts to stderr.");
  add_model_flags(line, flags.model);
  line.app().add_option("-p,--prompt", flags.prompt, "the prompt; - reads stdin")->take_last();
  line.app().add_option("-f,--file", flags.file, "a file with the prompt")->take_last();
  add_answer_flags(line, flags.answer);
  line.flag("--raw", flags.raw, "no chat template: continue the text as it is");
  line.flag("--json", flags.json, "one JSON object on stdout instead of text");
  line.flag("--probe", flags.probe, "measure the memory's read speed for --json too");
  if (const auto code = line.parse(arguments)) return *code;
  const Result<int> code = run(flags);
  return code.ok() ? *code : fail("run", code.error());
}

}  // namespace lacuna
