// SPDX-License-Identifier: Apache-2.0
#include "decode/generate.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "lacuna/engine.h"

namespace lacuna {
namespace {

bool cancelled(const GenerateOptions& options) {
  return options.cancel != nullptr && options.cancel->load(std::memory_order_relaxed);
}

Result<void> check(const ModelInfo& model, std::span<const int> prompt,
                   const GenerateOptions& options) {
  if (prompt.empty())
    return Error{ErrorCode::kInvalidArgument, "prompt: 0 tokens, want at least one"};
  if (options.max_tokens < -1) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("max_tokens: {}, want -1 or more", options.max_tokens)};
  }
  for (const std::string& stop : options.stops)
    if (stop.empty()) return Error{ErrorCode::kInvalidArgument, "stop: an empty string"};
  return check_sampling(options.sampling, model.vocabulary);
}

AnswerOptions answer_options(const ModelInfo& model, int prompt_tokens,
                             const GenerateOptions& options) {
  AnswerOptions answer;
  answer.sampling = options.sampling;
  const int room = std::max(0, model.context - prompt_tokens);
  answer.limit = options.max_tokens < 0 ? room : std::min(options.max_tokens, room);
  if (!options.ignore_eos) answer.stop_tokens = model.stop_tokens;
  answer.stops = options.stops;
  answer.on_text = options.on_text;
  return answer;
}

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

// Measures from its construction to done().
class Interval {
 public:
  explicit Interval(const Session& session)
      : session_(session), counters_(session.counters()), start_(Clock::now()) {}
  Phase done(int tokens) const {
    return {tokens, seconds(Clock::now() - start_), session_.counters() - counters_};
  }

 private:
  const Session& session_;
  Counters counters_;
  Clock::time_point start_;
};

// Runs the chosen token and what is guessed to follow it, and takes the answer on as far as the
// guesses hold: `token` is then the next one to run. Returns how many tokens the timeline grew by.
Result<int> step(Session& session, AnswerBuilder& answer, std::optional<int>& token,
                 DraftControl* control) {
  const auto start = Clock::now();
  std::vector<int> batch{*token};
  if (const int depth = control != nullptr ? std::min(control->depth(), answer.room() - 1) : 0;
      depth > 0) {
    LAC_TRY(const std::vector<int> guesses,
            session.draft(*token, depth, [&](std::span<const float> logits, int ahead) {
              return answer.guess(logits, ahead - 1);
            }));
    batch.insert(batch.end(), guesses.begin(), guesses.end());
  }
  const auto drafted = Clock::now();
  LAC_TRY_VOID(session.decode(batch));
  const auto verified = Clock::now();
  int kept = 0;
  bool agrees = true;
  while (agrees && !answer.done()) {
    token = answer.next(session.logits(kept++));
    agrees = token && kept < static_cast<int>(batch.size()) && *token == batch[kept];
  }
  session.accept(kept);
  if (control != nullptr) {
    control->step(static_cast<int>(batch.size()) - 1, kept - 1, seconds(drafted - start),
                  seconds(verified - drafted));
  }
  return kept;
}

}  // namespace

Result<GenerateResult> generate(Session& session, std::span<const int> prompt,
                                const GenerateOptions& options) {
  const ModelInfo& model = session.engine().info();
  LAC_TRY_VOID(check(model, prompt, options));
  GenerateResult result;
  result.prompt_tokens = static_cast<int>(prompt.size());
  AnswerBuilder answer(session.engine().tokenizer(), prompt,
                       answer_options(model, result.prompt_tokens, options));
  result.seed = answer.seed();

  const Interval prefill(session);
  auto synced = session.sync(prompt, {options.cancel, {}, options.on_prefill});
  if (synced.ok()) {
    result.sync = *std::move(synced);
    result.prefill = prefill.done(result.sync.computed);
  } else if (synced.error().code == ErrorCode::kCancelled) {
    answer.cancel();
  } else {
    return std::move(synced).error();
  }

  const Interval decode(session);
  if (options.drafts != nullptr) options.drafts->start_answer();
  std::optional<int> token;
  if (!answer.done()) token = answer.next(session.logits());
  int grown = 0;
  while (!answer.done()) {
    if (cancelled(options)) {
      answer.cancel();
      break;
    }
    LAC_TRY(const int kept, step(session, answer, token, options.drafts));
    grown += kept;
  }
  result.decode = decode.done(grown);
  if (options.drafts != nullptr) result.drafts = options.drafts->report();
  result.text = answer.text();
  result.tokens = answer.tokens();
  result.finish = answer.reason();
  return result;
}

}  // namespace lacuna
