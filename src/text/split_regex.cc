// SPDX-License-Identifier: Apache-2.0
#include "text/split_regex.h"

#include <optional>

#include "base/check.h"
#include "text/utf8.h"

namespace lacuna {
namespace {

constexpr std::uint64_t kSteps = 32u << 20;
constexpr std::uint64_t kStepsPerChar = 256;

}  // namespace

Result<SplitRegex> SplitRegex::compile(std::string_view pattern) {
  LAC_TRY(const SplitPattern parsed, parse_pattern(pattern));
  LAC_TRY(SymbolTable symbols, SymbolTable::build(parsed.sets));
  LAC_TRY(SplitProgram program, SplitProgram::compile(parsed, symbols));
  return SplitRegex(std::move(symbols), std::move(program));
}

bool SplitRegex::next_match(std::size_t from, RegexScratch& scratch, Span& span) const {
  const std::string& symbols = scratch.symbols;
  for (std::size_t at = from; at <= symbols.size(); ++at) {
    const bool possible = at == symbols.size()
                              ? program_.can_be_empty()
                              : program_.can_begin(static_cast<std::uint8_t>(symbols[at]));
    if (!possible) continue;
    const std::size_t end = program_.match(symbols, at, scratch.stack);
    if (scratch.stack.steps_left == 0) return false;
    if (end == SplitProgram::kNoMatch) continue;
    span = {at, end};
    return true;
  }
  return false;
}

void SplitRegex::find(std::string_view text, RegexScratch& scratch,
                      std::vector<MatchPiece>& pieces) const {
  std::string& symbols = scratch.symbols;
  symbols.clear();
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_at(text, pos);
    LAC_CHECK(c.kind == Utf8Char::Kind::kWhole, "the text is not UTF-8 at byte {}", pos);
    symbols.push_back(static_cast<char>(symbols_.symbol(c.code)));
    pos += c.length;
  }

  // Spans come in rising order, so one walk over the text turns symbols into bytes.
  std::size_t symbol = 0, byte = 0;
  const auto byte_of = [&](std::size_t target) {
    if (symbols.size() == text.size()) return target;
    for (; symbol < target; ++symbol) byte += utf8_at(text, byte).length;
    return byte;
  };

  scratch.stack.steps_left = kSteps + kStepsPerChar * symbols.size();
  std::size_t from = 0, done = 0;
  std::optional<std::size_t> last_end;
  for (Span span{}; from <= symbols.size() && next_match(from, scratch, span);) {
    if (span.begin == span.end && last_end == span.end) {
      from = span.end + 1;  // an empty match right after a match does not count
      continue;
    }
    const std::size_t gap = byte_of(done), begin = byte_of(span.begin), end = byte_of(span.end);
    if (begin != gap) pieces.push_back({gap, begin, false});
    pieces.push_back({begin, end, true});
    from = done = span.end;
    last_end = span.end;
  }
  if (const std::size_t rest = byte_of(done); rest != text.size()) {
    pieces.push_back({rest, text.size(), false});
  }
}

}  // namespace lacuna
