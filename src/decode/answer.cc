// SPDX-License-Identifier: Apache-2.0
#include "decode/answer.h"

#include <algorithm>
#include <utility>

namespace lacuna {

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "";
}

AnswerBuilder::AnswerBuilder(const Tokenizer& tokenizer, std::span<const int> prompt,
                             AnswerOptions options)
    : options_(std::move(options)),
      sampler_(options_.sampling, prompt),
      decoder_(tokenizer),
      stops_(options_.stops) {
  for (const std::string& stop : options_.stops) {
    const std::optional<int> id = tokenizer.find_token(stop);
    if (id && tokenizer.is_special(*id)) options_.stop_tokens.push_back(*id);
  }
  if (options_.limit == 0) finish(FinishReason::kLength);
}

std::optional<int> AnswerBuilder::next(std::span<const float> logits) {
  const int id = sampler_.pick(logits);
  const auto& ends = options_.stop_tokens;
  if (std::find(ends.begin(), ends.end(), id) != ends.end()) {
    finish(FinishReason::kStop);
    return std::nullopt;
  }
  tokens_.push_back(id);
  show(stops_.push(decoder_.push(id)));
  if (stops_.stopped()) {
    finish(FinishReason::kStop);
  } else if (static_cast<int>(tokens_.size()) >= options_.limit) {
    finish(FinishReason::kLength);
  }
  if (done()) return std::nullopt;
  return id;
}

void AnswerBuilder::show(const std::string& piece) {
  if (piece.empty()) return;
  text_ += piece;
  if (options_.on_text) options_.on_text(piece);
}

void AnswerBuilder::finish(FinishReason reason) {
  show(stops_.push(decoder_.finish()));
  show(stops_.finish());
  reason_ = reason;
}

}  // namespace lacuna
