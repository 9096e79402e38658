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

// Measures from its construction to done().
class Interval {
 public:
  explicit Interval(const Session& session)
      : session_(session), counters_(session.counters()), start_(Clock::now()) {}
  Phase done(int tokens) const {
    const std::chrono::duration<double> seconds = Clock::now() - start_;
    return {tokens, seconds.count(), session_.counters() - counters_};
  }

 private:
  using Clock = std::chrono::steady_clock;
  const Session& session_;
  Counters counters_;
  Clock::time_point start_;
};

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
  int steps = 0;
  while (!answer.done()) {
    if (cancelled(options)) {
      answer.cancel();
    } else if (const std::optional<int> token = answer.next(session.logits())) {
      LAC_TRY_VOID(session.decode(*token));
      ++steps;
    }
  }
  result.decode = decode.done(steps);
  result.text = answer.text();
  result.tokens = answer.tokens();
  result.finish = answer.reason();
  return result;
}

}  // namespace lacuna
