// SPDX-License-Identifier: Apache-2.0
#include "decode/stop_strings.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lacuna {
namespace {

struct Shown {
  std::string text;
  std::string matched;
  bool operator==(const Shown&) const = default;
};
void PrintTo(const Shown& s, std::ostream* out) { *out << '"' << s.text << "\" at " << s.matched; }

Shown feed(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopStrings filter(stops);
  std::string text;
  for (const std::string& piece : pieces) text += filter.push(piece);
  text += filter.finish();
  return {text, filter.matched()};
}

TEST(StopStrings, WithoutStopsNothingIsHeld) {
  StopStrings filter({});
  EXPECT_EQ(filter.push("abc"), "abc");
  EXPECT_EQ(filter.push(""), "");
  EXPECT_EQ(filter.finish(), "");
  EXPECT_FALSE(filter.stopped());
}

TEST(StopStrings, CutsBeforeTheStop) {
  EXPECT_EQ(feed({"END"}, {"all good END and more"}), (Shown{"all good ", "END"}));
  EXPECT_EQ(feed({"END"}, {"END"}), (Shown{"", "END"}));
}

// The first half of a stop string must not leak.
TEST(StopStrings, HoldsBackWhatCouldBegin) {
  StopStrings filter({"\n\nUser:"});
  EXPECT_EQ(filter.push("hi\n"), "hi");
  EXPECT_EQ(filter.push("\nUs"), "");
  EXPECT_EQ(filter.push("er"), "");
  EXPECT_EQ(filter.push(": x"), "");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.matched(), "\n\nUser:");
  EXPECT_EQ(filter.push("more"), "");
  EXPECT_EQ(filter.finish(), "");
}

TEST(StopStrings, LetsGoWhenItWasNothing) {
  StopStrings filter({"abcd"});
  EXPECT_EQ(filter.push("xab"), "x");
  EXPECT_EQ(filter.push("cab"), "abc");
  EXPECT_EQ(filter.finish(), "ab");
}

TEST(StopStrings, SelfOverlap) {
  EXPECT_EQ(feed({"aab"}, {"a", "a", "a", "b"}), (Shown{"a", "aab"}));
  EXPECT_EQ(feed({"abab"}, {"aba", "abab"}), (Shown{"aba", "abab"}));
}

TEST(StopStrings, CompletedFirstWins) {
  EXPECT_EQ(feed({"abcd", "bc"}, {"abcd"}), (Shown{"a", "bc"}));
  EXPECT_EQ(feed({"bc", "abc"}, {"xabc"}), (Shown{"x", "abc"}));
  EXPECT_EQ(feed({"abc", "bc"}, {"xabc"}), (Shown{"x", "abc"}));
  EXPECT_EQ(feed({"late", "soon"}, {"soon late"}), (Shown{"", "soon"}));
}

// Every cutting of short texts over two letters, against one piece.
TEST(StopStrings, PiecesDoNotMatter) {
  const std::vector<std::vector<std::string>> sets = {
      {"ab"}, {"aab", "ba"}, {"bbb", "ab"}, {"a"}, {"abab", "bb"}, {"aba", "bab", "aab"}};
  for (int bits = 0; bits < 128; ++bits) {
    std::string text;
    for (int i = 0; i < 7; ++i) text += (bits >> i & 1) != 0 ? 'b' : 'a';
    for (const auto& stops : sets) {
      const Shown whole = feed(stops, {text});
      for (int cuts = 0; cuts < 64; ++cuts) {
        std::vector<std::string> pieces(1);
        for (int i = 0; i < 7; ++i) {
          pieces.back() += text[i];
          if (i < 6 && (cuts >> i & 1) != 0) pieces.emplace_back();
        }
        ASSERT_EQ(feed(stops, pieces), whole) << text << " cuts " << cuts << " " << stops[0];
      }
    }
  }
}

}  // namespace
}  // namespace lacuna
