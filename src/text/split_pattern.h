// SPDX-License-Identifier: Apache-2.0
// A pre-tokenizer's regular expression, read with the meaning that Hugging Face gives it.
//
// Tokenizer files are written for Oniguruma. General engines differ from it in Unicode version,
// case folding and some operators, and none bounds its time in a way that depends on pattern and
// text only. So the pattern is parsed here into a small tree, and split_program.h matches it.
//
// Every class and literal is a set of code points (unicode_ranges.h). Code points that lie in
// exactly the same sets cannot be told apart by the pattern and share a *symbol*, a byte: a dozen
// or two are enough for the patterns in use. Text is matched as one symbol a character, so that a
// class test is one table look-up, whatever the script.
//
// What the reader is not certain to understand as Oniguruma does is refused by name.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "lacuna/result.h"
#include "text/code_point_set.h"

namespace lacuna {

// Code point to symbol, in two steps: pages of 256 code points, equal pages kept once.
class SymbolTable {
 public:
  // Code points get equal symbols exactly when every set holds both or neither. kUnsupported when
  // that takes more than 256 symbols.
  static Result<SymbolTable> build(const std::vector<CodePointSet>& sets);

  std::uint8_t symbol(char32_t c) const { return pages_[page_of_[c >> 8]][c & 0xFF]; }
  // One code point of each symbol.
  const std::vector<char32_t>& examples() const { return examples_; }

 private:
  std::array<std::uint16_t, 0x1100> page_of_{};
  std::vector<std::array<std::uint8_t, 256>> pages_;
  std::vector<char32_t> examples_;
};

struct PatternNode {
  enum class Kind {
    kSet,           // one character of sets[set]
    kSequence,      // the children one after another
    kAlternatives,  // the first child that lets the rest match
    kRepeat,        // the only child, min to max times
    kAtomic,        // the only child, its first way to match and no other
    kLookahead,     // the only child matches here, and the place stays
    kLookbehind,    // the only child matches up to here
    kBegin,         // the beginning of the text
    kEnd,           // the end of the text
  };
  static constexpr int kUnlimited = std::numeric_limits<int>::max();

  Kind kind = Kind::kSequence;
  std::vector<PatternNode> children = {};
  int set = -1;
  int min = 0, max = 0;
  bool lazy = false;     // kRepeat: as few as possible first
  bool negated = false;  // kLookahead, kLookbehind
};

struct SplitPattern {
  PatternNode root;
  std::vector<CodePointSet> sets;
};

// kUnsupported with the construct and its byte offset, or kCorrupt for an unfinished pattern.
Result<SplitPattern> parse_pattern(std::string_view pattern);

}  // namespace lacuna
