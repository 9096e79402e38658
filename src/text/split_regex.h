// SPDX-License-Identifier: Apache-2.0
// Finds the matches of a pre-tokenizer's regular expression, in bounded time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lacuna/result.h"
#include "text/split_pattern.h"
#include "text/split_program.h"

namespace lacuna {

// A piece of text and whether the pattern matched it or it lay between matches.
struct MatchPiece {
  std::size_t begin, end;  // bytes
  bool is_match;
};

// Working memory of one thread, for any number of patterns.
struct RegexScratch {
  std::string symbols;
  SplitProgram::Stack stack;
};

class SplitRegex {
 public:
  // Errors: the pattern is not supported or not one (split_pattern.h), with the offending part.
  static Result<SplitRegex> compile(std::string_view pattern);

  // Appends `text` (valid UTF-8) cut into matches and what lies between them, in order; a piece is
  // empty where the pattern matches nothing. Thread-safe with one scratch a thread.
  //
  // A pattern that backtracks without end is stopped: it may take a fixed number of steps a text
  // plus some a character, some ten times what real ones need. When they are used up, what is left
  // becomes one unmatched piece. The steps depend on pattern and text only, so the result does too.
  void find(std::string_view text, RegexScratch& scratch, std::vector<MatchPiece>& pieces) const;

 private:
  struct Span {
    std::size_t begin, end;  // symbols
  };

  SplitRegex(SymbolTable symbols, SplitProgram program)
      : symbols_(std::move(symbols)), program_(std::move(program)) {}
  bool next_match(std::size_t from, RegexScratch& scratch, Span& span) const;

  SymbolTable symbols_;
  SplitProgram program_;
};

}  // namespace lacuna
