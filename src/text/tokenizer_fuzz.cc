// SPDX-License-Identifier: Apache-2.0
// Up to the first NUL a pattern, then a text; or, when the input begins with '{', a tokenizer.json.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "text/split_regex.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

// The pieces of a text must be all of it, in order.
void check_pattern(std::string_view pattern, std::string_view raw) {
  const auto regex = lacuna::SplitRegex::compile(pattern);
  if (!regex.ok()) return;
  const std::string text = lacuna::repair_utf8(raw);
  lacuna::RegexScratch scratch;
  std::vector<lacuna::MatchPiece> pieces;
  regex->find(text, scratch, pieces);
  std::size_t end = 0;
  for (const lacuna::MatchPiece& p : pieces) {
    if (p.begin != end || p.end < p.begin) std::abort();
    end = p.end;
  }
  if (end != text.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (!input.starts_with('{')) {
    const std::size_t split = std::min(input.find('\0'), input.size());
    check_pattern(input.substr(0, split), input.substr(std::min(split + 1, input.size())));
    return 0;
  }
  const auto tokenizer = lacuna::Tokenizer::parse(input, "fuzz");
  if (!tokenizer.ok()) return 0;
  for (const auto special : {lacuna::SpecialTokens::kParse, lacuna::SpecialTokens::kPlainText}) {
    const std::vector<int> ids = tokenizer->encode(input, special);
    lacuna::StreamDecoder stream(*tokenizer, true);
    std::string streamed;
    for (int id : ids) streamed += stream.push(id);
    streamed += stream.finish();
    if (streamed != lacuna::repair_utf8(tokenizer->decode(ids, true))) std::abort();
  }
  return 0;
}
