// SPDX-License-Identifier: Apache-2.0
// An answer as it grows: logits in, the next token and finished text out. It knows no session, so
// that a loop over one timeline and a server's loop over many can both drive it.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decode/sampler.h"
#include "decode/stop_strings.h"
#include "text/tokenizer.h"

namespace lacuna {

enum class FinishReason {
  kStop,       // a stop token or a stop string
  kLength,     // the limit of tokens, or the end of the context
  kCancelled,  // the caller asked
};
const char* finish_reason_name(FinishReason reason);  // "stop", "length", "cancelled"

struct AnswerOptions {
  SamplingParams sampling;
  int limit = 256;                 // tokens at most, >= 0
  std::vector<int> stop_tokens;    // end the answer and belong neither to its tokens nor its text
  std::vector<std::string> stops;  // none empty; the text ends before the first one met
  std::function<void(std::string_view)> on_text;  // whole UTF-8 characters, never an empty piece
};

class AnswerBuilder {
 public:
  // `options.sampling` has passed check_sampling. A stop string that is exactly a special token of
  // the vocabulary ("<|im_end|>") is met when that token comes, since its text is never shown.
  AnswerBuilder(const Tokenizer& tokenizer, std::span<const int> prompt, AnswerOptions options);

  // Chooses the next token from the logits [V] after the prompt and all tokens so far. Gives the
  // token to compute next, or nothing when the answer is complete. Not called when done().
  std::optional<int> next(std::span<const float> logits);

  // What next() would choose if these were its logits, `ahead` places after the next token (0: the
  // next). Drafts go through the same bias, penalties and filters as the answer, and change
  // nothing.
  int guess(std::span<const float> logits, int ahead) { return sampler_.guess(logits, ahead); }
  // How many more tokens there may be.
  int room() const { return options_.limit - static_cast<int>(tokens_.size()); }

  // Ends the answer here and shows what was held back.
  void cancel() { finish(FinishReason::kCancelled); }

  bool done() const { return reason_.has_value(); }
  FinishReason reason() const { return *reason_; }  // when done()
  const std::string& text() const { return text_; }
  // The tokens chosen, the ones that completed a stop string included.
  const std::vector<int>& tokens() const { return tokens_; }
  std::uint64_t seed() const { return sampler_.seed(); }

 private:
  void show(const std::string& piece);
  void finish(FinishReason reason);

  AnswerOptions options_;
  Sampler sampler_;
  StreamDecoder decoder_;
  StopStrings stops_;
  std::string text_;
  std::vector<int> tokens_;
  std::optional<FinishReason> reason_;
};

}  // namespace lacuna
