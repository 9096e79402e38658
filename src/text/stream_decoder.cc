// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace lacuna {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool keep_special)
    : tokenizer_(&tokenizer), keep_special_(keep_special) {}

std::string StreamDecoder::push(int id) {
  if (!keep_special_ && tokenizer_->is_special(id)) return {};
  pending_ += tokenizer_->token_bytes(id);
  // All but an unfinished character at the end, of which there are at most three bytes.
  std::size_t whole = 0;
  while (whole < pending_.size()) {
    const Utf8Char c = utf8_at(pending_, whole);
    if (c.kind == Utf8Char::Kind::kTruncated) break;
    whole += c.length;
  }
  std::string text = repair_utf8(std::string_view(pending_).substr(0, whole));
  pending_.erase(0, whole);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text = repair_utf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace lacuna
