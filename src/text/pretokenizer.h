// SPDX-License-Identifier: Apache-2.0
// Cuts text into the pieces that BPE merges within: the "pre_tokenizer" of tokenizer.json.
//
// Steps run one after another, each on every piece of the one before, as Hugging Face's do.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lacuna/result.h"
#include "text/code_point_set.h"
#include "text/split_regex.h"

namespace lacuna {

// What becomes of a match of Split: its own piece, nothing, or part of a neighbour.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct SplitStep {
  SplitRegex regex;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // what lies between matches counts as the match
};

struct DigitsStep {
  bool individual = false;  // each digit a piece, or each run of digits
};

// A space in front of every piece that has none ("add_prefix_space" of ByteLevel).
struct PrefixSpaceStep {};

using PreTokenizeStep = std::variant<SplitStep, DigitsStep, PrefixSpaceStep>;

// Working memory of one encode; the pieces it hands out live as long as it does.
struct PreTokenizeScratch {
  RegexScratch regex;
  std::vector<MatchPiece> matches;
  std::vector<std::string_view> pieces, next;
  std::deque<std::string> prefixed;
};

class PreTokenizer {
 public:
  PreTokenizer() : numeric_(numeric_ranges()) {}

  template <class Step>
  void add(Step step) {
    steps_.emplace_back(std::move(step));
  }

  // The pieces of `text` (valid UTF-8), none of them empty, in scratch.pieces.
  void split(std::string_view text, PreTokenizeScratch& scratch) const;

 private:
  void apply(const SplitStep& step, std::string_view piece, PreTokenizeScratch& scratch) const;
  void apply(const DigitsStep& step, std::string_view piece, PreTokenizeScratch& scratch) const;
  void apply(const PrefixSpaceStep&, std::string_view piece, PreTokenizeScratch& scratch) const;

  std::vector<PreTokenizeStep> steps_;
  CodePointSet numeric_;
};

// Joins or drops pieces as `behavior` says; what is left is in order.
void apply_behavior(SplitBehavior behavior, std::vector<MatchPiece>& pieces);

// The pattern that ByteLevel with use_regex splits by: GPT-2's.
extern const std::string_view kByteLevelPattern;

}  // namespace lacuna
