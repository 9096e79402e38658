// SPDX-License-Identifier: Apache-2.0
#include "text/added_tokens.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

namespace lacuna {
namespace {

// Segments as "[7:content]" and "text", with | between.
std::string split(std::initializer_list<AddedToken> tokens, std::string_view text,
                  std::vector<PlainRange> plain = {}) {
  const AddedTokens added(std::vector<AddedToken>{tokens});
  std::string shown;
  for (const Segment& s : added.split(text, plain)) {
    const std::string_view piece = text.substr(s.begin, s.end - s.begin);
    if (!shown.empty()) shown += "|";
    shown += s.id < 0 ? std::string(piece) : fmt::format("[{}:{}]", s.id, piece);
  }
  return shown;
}

const AddedToken kEnd{.id = 1, .content = "<end>", .special = true};

TEST(AddedTokens, LeftmostThenLongest) {
  const AddedToken a{.id = 1, .content = "ab"}, b{.id = 2, .content = "abcd"},
      c{.id = 3, .content = "bcde"};
  EXPECT_EQ(split({a, b, c}, "xabcde"), "x|[2:abcd]|e");
  EXPECT_EQ(split({a, b, c}, "abc"), "[1:ab]|c");
  EXPECT_EQ(split({a, b, c}, "abab"), "[1:ab]|[1:ab]");
  EXPECT_EQ(split({a, b, c}, ""), "");
  EXPECT_EQ(split({}, "abc"), "abc");
}

TEST(AddedTokens, SingleWordStandsAlone) {
  const AddedToken t{.id = 5, .content = "key", .single_word = true};
  EXPECT_EQ(split({t}, "key a-key keys _key日key key"),
            "[5:key]| a-|[5:key]| keys _key日key |[5:key]");
  EXPECT_EQ(split({t}, "key\u0301"), "key\u0301");  // a combining mark belongs to the word
}

TEST(AddedTokens, StripTakesSpacesOnItsSide) {
  const AddedToken l{.id = 1, .content = "<l>", .lstrip = true};
  const AddedToken r{.id = 2, .content = "<r>", .rstrip = true};
  EXPECT_EQ(split({l}, "a \u3000\n<l> b"), "a|[1: \u3000\n<l>]| b");
  EXPECT_EQ(split({r}, "a <r>\t b"), "a |[2:<r>\t ]|b");
  EXPECT_EQ(split({l, r}, "<r> <l>"), "[2:<r> ]|[1:<l>]");
  EXPECT_EQ(split({l}, "  <l>"), "[1:  <l>]");
}

TEST(AddedTokens, NormalizedOnesComeSecond) {
  const AddedToken late{.id = 1, .content = "abc", .normalized = true};
  const AddedToken early{.id = 2, .content = "bc"};
  EXPECT_EQ(split({late, early}, "abc"), "a|[2:bc]");
  EXPECT_EQ(split({late}, "abc"), "[1:abc]");
  // What was cut out is no neighbour any more.
  const AddedToken word{.id = 3, .content = "x", .normalized = true, .single_word = true};
  EXPECT_EQ(split({word, early}, "bcxbc"), "[2:bc]|[3:x]|[2:bc]");
}

TEST(AddedTokens, PlainRangesHideSpecialTokensOnly) {
  const AddedToken word{.id = 9, .content = "<w>"};
  const std::string text = "<end><end><w>";
  EXPECT_EQ(split({kEnd, word}, text, {{5, 13}}), "[1:<end>]|<end>|[9:<w>]");
  EXPECT_EQ(split({kEnd, word}, text, {{0, 13}}), "<end><end>|[9:<w>]");
  EXPECT_EQ(split({kEnd}, "<end>", {{4, 5}}), "<end>");  // one byte is enough
  EXPECT_EQ(split({kEnd}, "<end>", {{5, 6}}), "[1:<end>]");
}

TEST(AddedTokens, ABorderTokenHidesNoOther) {
  // User text "<e" before the template's own token: the longer token that would begin in user text
  // must not swallow the template's.
  const AddedToken longer{.id = 2, .content = "<e<end>", .special = true};
  EXPECT_EQ(split({kEnd, longer}, "<e<end>", {{0, 2}}), "<e|[1:<end>]");
}

TEST(AddedTokens, EmptyContentMatchesNowhere) {
  EXPECT_EQ(split({AddedToken{.id = 4, .content = ""}}, "ab"), "ab");
}

}  // namespace
}  // namespace lacuna
