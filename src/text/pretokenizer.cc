// SPDX-License-Identifier: Apache-2.0
#include "text/pretokenizer.h"

#include <algorithm>

#include "text/utf8.h"

namespace lacuna {
namespace {

// A match joins the piece before it unless that is a match too; at the beginning it stands alone.
void merge_with_previous(std::vector<MatchPiece>& pieces) {
  std::vector<MatchPiece> merged;
  bool after_match = false;
  for (const MatchPiece& p : pieces) {
    if (p.is_match && !after_match && !merged.empty()) {
      merged.back().end = p.end;
    } else {
      merged.push_back(p);
    }
    after_match = p.is_match;
  }
  pieces = std::move(merged);
}

// The same from the right: a match joins the piece after it unless that is a match too.
void merge_with_next(std::vector<MatchPiece>& pieces) {
  std::vector<MatchPiece> merged;
  bool before_match = false;
  for (auto p = pieces.rbegin(); p != pieces.rend(); ++p) {
    if (p->is_match && !before_match && !merged.empty()) {
      merged.back().begin = p->begin;
    } else {
      merged.push_back(*p);
    }
    before_match = p->is_match;
  }
  pieces.assign(merged.rbegin(), merged.rend());
}

// Neighbours of one kind become one piece.
void merge_alike(std::vector<MatchPiece>& pieces) {
  std::vector<MatchPiece> merged;
  for (const MatchPiece& p : pieces) {
    if (!merged.empty() && merged.back().is_match == p.is_match) {
      merged.back().end = p.end;
    } else {
      merged.push_back(p);
    }
  }
  pieces = std::move(merged);
}

}  // namespace

const std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

void apply_behavior(SplitBehavior behavior, std::vector<MatchPiece>& pieces) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return;
    case SplitBehavior::kRemoved:
      std::erase_if(pieces, [](const MatchPiece& p) { return p.is_match; });
      return;
    case SplitBehavior::kMergedWithPrevious:
      return merge_with_previous(pieces);
    case SplitBehavior::kMergedWithNext:
      return merge_with_next(pieces);
    case SplitBehavior::kContiguous:
      return merge_alike(pieces);
  }
}

void PreTokenizer::split(std::string_view text, PreTokenizeScratch& scratch) const {
  scratch.pieces.clear();
  if (!text.empty()) scratch.pieces.push_back(text);
  for (const PreTokenizeStep& step : steps_) {
    scratch.next.clear();
    for (std::string_view piece : scratch.pieces) {
      std::visit([&](const auto& s) { apply(s, piece, scratch); }, step);
    }
    std::swap(scratch.pieces, scratch.next);
  }
}

void PreTokenizer::apply(const SplitStep& step, std::string_view piece,
                         PreTokenizeScratch& scratch) const {
  std::vector<MatchPiece>& matches = scratch.matches;
  matches.clear();
  step.regex.find(piece, scratch.regex, matches);
  if (step.invert) {
    for (MatchPiece& m : matches) m.is_match = !m.is_match;
  }
  apply_behavior(step.behavior, matches);
  for (const MatchPiece& m : matches) {
    if (m.begin != m.end) scratch.next.push_back(piece.substr(m.begin, m.end - m.begin));
  }
}

void PreTokenizer::apply(const DigitsStep& step, std::string_view piece,
                         PreTokenizeScratch& scratch) const {
  std::size_t begin = 0;
  bool was_digit = false;
  for (std::size_t pos = 0; pos < piece.size();) {
    const Utf8Char c = utf8_at(piece, pos);
    const bool is_digit = numeric_.contains(c.code);
    if (pos > begin && (is_digit != was_digit || (is_digit && step.individual))) {
      scratch.next.push_back(piece.substr(begin, pos - begin));
      begin = pos;
    }
    was_digit = is_digit;
    pos += c.length;
  }
  scratch.next.push_back(piece.substr(begin));
}

void PreTokenizer::apply(const PrefixSpaceStep&, std::string_view piece,
                         PreTokenizeScratch& scratch) const {
  if (piece.starts_with(' ')) return scratch.next.push_back(piece);
  std::string& prefixed = scratch.prefixed.emplace_back(1, ' ');
  prefixed += piece;
  scratch.next.push_back(prefixed);
}

}  // namespace lacuna
