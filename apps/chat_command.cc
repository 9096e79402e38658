// SPDX-License-Identifier: Apache-2.0
// lacuna chat: a conversation over one session.
//
// Every turn hands the whole rendered conversation to the session, which keeps what it has
// computed.
#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands.h"
#include "console.h"
#include "decode/conversation.h"
#include "decode/generate.h"
#include "facts.h"
#include "line_editor.h"
#include "open_model.h"

namespace lacuna {
namespace {

constexpr const char* kHelp =
    "/reset          forget the conversation\n"
    "/system TEXT    start again with another system message\n"
    "/stats          facts about the last answer\n"
    "/quit           leave (so does Ctrl-D)\n"
    "/help           this\n"
    "Ctrl-C stops an answer; a second one leaves.\n";

class Chat {
 public:
  Chat(const Engine& engine, Session& session, Conversation conversation, GenerateOptions options,
       const DraftPolicy& policy, std::string system)
      : engine_(engine),
        session_(session),
        conversation_(std::move(conversation)),
        options_(std::move(options)),
        policy_(policy),
        drafts_(policy),
        system_(std::move(system)) {
    if (can_draft(engine_.info(), policy_)) options_.drafts = &drafts_;
    conversation_.start(system_);
  }

  // Until the user leaves: the exit code.
  int talk();

 private:
  // Nothing: go on. A value: leave with this code.
  std::optional<int> turn(const std::string& text);
  std::optional<int> command(std::string_view line);
  std::optional<int> after_answer(const GenerateResult& result);

  const Engine& engine_;
  Session& session_;
  Conversation conversation_;
  GenerateOptions options_;
  DraftPolicy policy_;
  DraftControl drafts_;  // what it learns of the machine and the model holds for the next answer
  std::string system_;
  LineEditor editor_;
  InterruptGuard interrupt_;
  bool written_ = true;
  std::optional<GenerateResult> last_;
};

int Chat::talk() {
  options_.cancel = &interrupt_.stop_flag();
  options_.on_text = [this](std::string_view text) {
    if (write_out(text)) return;
    written_ = false;
    interrupt_.stop_flag() = true;
  };
  if (editor_.interactive()) tell(fmt::format("{}: /help lists the commands", engine_.info().name));
  std::string line;
  for (;;) {
    const LineEditor::Event event = editor_.read(line);
    if (event == LineEditor::Event::kEnd) return kExitDone;
    if (event == LineEditor::Event::kInterrupted)
      return editor_.interactive() ? kExitDone : kExitInterrupted;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::optional<int> code = line.front() == '/' ? command(line) : turn(line);
    if (code) return *code;
  }
}

std::optional<int> Chat::turn(const std::string& text) {
  interrupt_.reset();
  auto prompt = conversation_.ask(text);
  auto result = prompt.ok() ? generate(session_, *prompt, options_)
                            : Result<GenerateResult>(std::move(prompt).error());
  if (!result.ok()) {
    conversation_.withdraw();
    const int code = fail("chat", result.error());
    if (!editor_.interactive()) return code;
    return std::nullopt;
  }
  conversation_.answer(result->text, result->tokens);
  last_ = *std::move(result);
  warn_of_drafts(last_->drafts);
  return after_answer(*last_);
}

std::optional<int> Chat::after_answer(const GenerateResult& result) {
  if (!written_ || !write_out("\n"))
    return fail("chat", {ErrorCode::kIo, "stdout: cannot be written"});
  if (result.finish == FinishReason::kLength)
    tell(fmt::format("(stopped after {} tokens)", result.tokens.size()));
  if (result.finish != FinishReason::kCancelled) return std::nullopt;
  if (!editor_.interactive() || interrupt_.count() > 1) return kExitInterrupted;
  tell("(stopped)");
  return std::nullopt;
}

std::optional<int> Chat::command(std::string_view line) {
  line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
  const std::string_view name = line.substr(0, line.find(' '));
  if (name == "/quit" || name == "/exit") return kExitDone;
  if (name == "/system") {
    const std::size_t text = line.find_first_not_of(' ', name.size());
    system_ = text == std::string_view::npos ? "" : line.substr(text);
    conversation_.start(system_);
  } else if (name == "/reset") {
    conversation_.start(system_);
  } else if (name == "/stats") {
    tell(last_ ? facts_line(engine_.info(), policy_, *last_, 0) : "no answer yet");
  } else if (name == "/help") {
    std::fputs(kHelp, stderr);
  } else {
    tell(fmt::format("no command {} (see /help)", name));
  }
  return std::nullopt;
}

struct ChatFlags {
  ModelFlags model;
  AnswerFlags answer;
};

Result<int> chat(const ChatFlags& flags) {
  LAC_TRY(nlohmann::ordered_json keywords, flags.answer.keywords());
  LAC_TRY(const DraftPolicy policy, flags.answer.drafts());
  LAC_TRY(const std::unique_ptr<Engine> engine, open_engine(flags.model));
  if (engine->chat_template() == nullptr) {
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("{}: no chat template; lacuna run --raw continues text", engine->info().name)};
  }
  GenerateOptions options;
  LAC_TRY(options.sampling, flags.answer.sampling(engine->info()));
  LAC_TRY_VOID(check_sampling(options.sampling, engine->info().vocabulary));
  options.max_tokens = flags.answer.max_tokens;
  options.ignore_eos = flags.answer.ignore_eos;
  options.stops = flags.answer.stops;
  SessionOptions session_options;
  session_options.drafts = can_draft(engine->info(), policy);
  LAC_TRY(const std::unique_ptr<Session> session, engine->new_session(session_options));
  Conversation conversation(engine->tokenizer(), *engine->chat_template(), std::move(keywords));
  Chat chat(*engine, *session, std::move(conversation), std::move(options), policy,
            flags.answer.system);
  return chat.talk();
}

}  // namespace

int chat_command(const Arguments& arguments) {
  ChatFlags flags;
  CommandLine line("chat", "Talks with a model. Without a terminal, each line of stdin is a turn.");
  add_model_flags(line, flags.model);
  add_answer_flags(line, flags.answer);
  if (const auto code = line.parse(arguments)) return *code;
  const Result<int> code = chat(flags);
  return code.ok() ? *code : fail("chat", code.error());
}

}  // namespace lacuna
