// SPDX-License-Identifier: Apache-2.0
#include "text/pretokenizer.h"

#include <gtest/gtest.h>

namespace lacuna {
namespace {

using Pieces = std::vector<std::string>;

SplitRegex regex(std::string_view pattern) {
  Result<SplitRegex> compiled = SplitRegex::compile(pattern);
  EXPECT_TRUE(compiled.ok()) << compiled.error().what;
  return *std::move(compiled);
}

Pieces split(const PreTokenizer& pre_tokenizer, std::string_view text) {
  PreTokenizeScratch scratch;
  pre_tokenizer.split(text, scratch);
  return Pieces(scratch.pieces.begin(), scratch.pieces.end());
}

Pieces split_at_dash(SplitBehavior behavior, bool invert, std::string_view text = "a-b--c---") {
  PreTokenizer p;
  p.add(SplitStep{regex("-"), behavior, invert});
  return split(p, text);
}

// What Hugging Face's Split answers for the same text.
TEST(PreTokenizer, SplitBehaviors) {
  using enum SplitBehavior;
  const Pieces isolated = {"a", "-", "b", "-", "-", "c", "-", "-", "-"};
  const Pieces contiguous = {"a", "-", "b", "--", "c", "---"};
  EXPECT_EQ(split_at_dash(kRemoved, false), (Pieces{"a", "b", "c"}));
  EXPECT_EQ(split_at_dash(kRemoved, true), (Pieces{"-", "-", "-", "-", "-", "-"}));
  EXPECT_EQ(split_at_dash(kIsolated, false), isolated);
  EXPECT_EQ(split_at_dash(kIsolated, true), isolated);
  EXPECT_EQ(split_at_dash(kMergedWithPrevious, false), (Pieces{"a-", "b-", "-", "c-", "-", "-"}));
  EXPECT_EQ(split_at_dash(kMergedWithPrevious, true),
            (Pieces{"a", "-b", "-", "-c", "-", "-", "-"}));
  EXPECT_EQ(split_at_dash(kMergedWithNext, false), (Pieces{"a", "-b", "-", "-c", "-", "-", "-"}));
  EXPECT_EQ(split_at_dash(kMergedWithNext, true), (Pieces{"a-", "b-", "-", "c-", "-", "-"}));
  EXPECT_EQ(split_at_dash(kContiguous, false), contiguous);
  EXPECT_EQ(split_at_dash(kContiguous, true), contiguous);
}

TEST(PreTokenizer, EmptyTextHasNoPieces) {
  EXPECT_EQ(split_at_dash(SplitBehavior::kIsolated, false, ""), Pieces{});
  PreTokenizer p;
  p.add(PrefixSpaceStep{});
  EXPECT_EQ(split(p, ""), Pieces{});
}

TEST(PreTokenizer, Digits) {
  PreTokenizer runs, single;
  runs.add(DigitsStep{false});
  single.add(DigitsStep{true});
  EXPECT_EQ(split(runs, "ab12½c٣"), (Pieces{"ab", "12½", "c", "٣"}));
  EXPECT_EQ(split(single, "ab12½c"), (Pieces{"ab", "1", "2", "½", "c"}));
  EXPECT_EQ(split(single, "7"), (Pieces{"7"}));
}

TEST(PreTokenizer, PrefixSpaceOnEveryPiece) {
  PreTokenizer p;
  p.add(SplitStep{regex(" "), SplitBehavior::kIsolated, false});
  p.add(PrefixSpaceStep{});
  EXPECT_EQ(split(p, "a b"), (Pieces{" a", " ", " b"}));
}

TEST(PreTokenizer, StepsWorkOnThePiecesBefore) {
  PreTokenizer p;
  p.add(SplitStep{regex(R"(\p{N}{1,3})"), SplitBehavior::kIsolated, false});
  p.add(SplitStep{regex(R"(\p{L}+(?=\z))"), SplitBehavior::kIsolated, false});
  // The lookahead sees the end of a piece, as the text goes on in another one.
  EXPECT_EQ(split(p, "x ab1234"), (Pieces{"x ", "ab", "123", "4"}));
}

}  // namespace
}  // namespace lacuna
