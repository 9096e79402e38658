// SPDX-License-Identifier: Apache-2.0
#include "text/split_regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/pretokenizer.h"

namespace lacuna {
namespace {

using testing::HasSubstr;

// The pieces as "|matched" and "·between".
std::string pieces_of(std::string_view pattern, std::string_view text) {
  const Result<SplitRegex> regex = SplitRegex::compile(pattern);
  if (!regex.ok()) return "error: " + regex.error().what;
  RegexScratch scratch;
  std::vector<MatchPiece> pieces;
  regex->find(text, scratch, pieces);
  std::string shown;
  for (const MatchPiece& p : pieces) {
    shown += p.is_match ? "|" : "·";
    shown += text.substr(p.begin, p.end - p.begin);
  }
  return shown;
}

struct Case {
  const char* pattern;
  const char* text;
  const char* want;
};

void check(std::initializer_list<Case> cases) {
  for (const Case& c : cases) EXPECT_EQ(pieces_of(c.pattern, c.text), c.want) << c.pattern;
}

// Answers of Hugging Face tokenizers 0.23.3 (Split with Regex), where the engines disagree most.
TEST(SplitRegex, RepetitionsAreOnigurumas) {
  check({{R"(\d{1,2}+)", "1234567 1", "|1234567· |1"},
         {"a{,2}", "aaaa", "|aa|aa"},
         {"a{2}", "aaaaa", "|aa|aa·a"},
         {"a++a", "aaa", "·aaa"},
         {"a?+a", "a a", "·a a"},
         {"a*+b", "aab", "|aab"},
         {"a+?", "aa", "|a|a"},
         {"a{1,3}?b", "aaab", "|aaab"},
         {"(?>a+)b", "aab", "|aab"},
         {"(?>a|ab)c", "abc", "·abc"},
         {"(?:ab){2,}", "ababab", "|ababab"},
         {"(?:a|b){0,2}c", "abc", "|abc"},
         {"a{", "a{", "|a{"},
         {"a{x}", "a{x}", "|a{x}"},
         {"a{ 1}", "a{ 1}", "|a{ 1}"}});
}

TEST(SplitRegex, PlacesAreOnigurumas) {
  check({{"b$", "ab\nab", "·a|b·\na|b"},
         {"^a", "ab\nab\n", "|a·b\n|a·b\n"},
         {"(?<=a)b", "abb", "·a|b·b"},
         {"(?<!a)b", "abb", "·ab|b"},
         {"(?<=ab|c)d", "abd cd d", "·ab|d· c|d· d"},
         {"a(?=b|c)", "abac", "|a·b|a·c"},
         {"a(?!b)", "abac", "·ab|a·c"},
         {R"(\A.)", "abc", "|a·bc"},
         {R"(c\z)", "cbc", "·cb|c"},
         {".", "a\nb", "|a·\n|b"}});
}

TEST(SplitRegex, EmptyMatchesDoNotRepeatThePlaceOfAMatch) {
  check({{"x*", "baxxb", "|·b|·a|xx·b|"},
         {"$", "ab\nab\n", "·ab|·\nab|·\n|"},
         {"(?:)", "ab", "|·a|·b|"}});
}

TEST(SplitRegex, CaseIsIgnoredForTheThirdFormsToo) {
  check({{"(?i:s)", "sSſ", "|s|S|ſ"},
         {"(?i:[k-m])", "KKl", "|K|K|l"},
         {"(?i:[^s])", "sSſa", "·sSſ|a"},
         {"(?i:'s)x", "'Sx 'sX", "|'Sx· 'sX"},
         {"(?i)b|c", "aB C", "·a|B· |C"},
         {"(?i:a(?-i:b))", "AbAB", "|Ab·AB"}});
}

TEST(SplitRegex, ClassesAndEscapes) {
  check({{R"([\-a])", "-ab", "|-|a·b"},
         {"[a-]", "a-b", "|a|-·b"},
         {"[-a]", "-ab", "|-|a·b"},
         {"[+--]", "+,-.", "|+|,|-·."},
         {R"([a\]b])", "a]", "|a|]"},
         {R"(\x41\u0042\x{43})", "ABC", "|ABC"},
         {R"(\p{Lu}\p{Ll})", "AaB", "|Aa·B"},
         {R"(\P{L}|[^\P{L}])", "a1", "|a|1"},
         {R"(\p{^L})", "a1", "·a|1"},
         {R"([\s\S])", "a\n", "|a|\n"},
         {R"(\.\/\_)", "./_", "|./_"},
         {"[一-龥]+", "日本go", "|日本·go"}});
}

TEST(SplitRegex, Gpt2PatternOnMixedText) {
  EXPECT_EQ(pieces_of(kByteLevelPattern, "I'll  go, 日本 42!\n\n x"),
            "|I|'ll| | go|,| 日本| 42|!|\n\n| x");
}

// Refused, each with its place: what the engines read differently, and what is no pattern.
TEST(SplitRegex, RefusesByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(a\w)", "\"\\w\" at byte 1: this escape is not supported"},
      {R"(\bа)", "at byte 0: this escape"},
      {R"((a)\1)", "this escape is not supported"},
      {R"(\p{Han})", "\"\\p{Han}\" at byte 0: not a general category"},
      {R"(\pL)", "want a name in braces"},
      {"[a[b]]", "a class inside a class"},
      {"[a&&b]", "a class inside a class"},
      {"[]a]", "begins with its closing bracket"},
      {"[a-c-e]", "a dash after a range"},
      {"[z-a]", "ends before it begins"},
      {R"([\d-x])", "a range that begins with a class"},
      {"[a", "without its closing bracket"},
      {"(?<n>a)", "this kind of group"},
      {"a(?i)b", "this kind of group"},
      {"(?#x)", "this kind of group"},
      {"(a", "a group that is not closed"},
      {"a)", "no group is open"},
      {"*a", "nothing to repeat"},
      {"{2}", "nothing to repeat"},
      {"a**", "a repeated repetition"},
      {"a{2}{3}", "a repeated repetition"},
      {"a{2}?", "a lazy exact count"},
      {"a{3,2}", "ends before it begins"},
      {"a{1001}", "a count above 1000"},
      {"(?=a)*", "a repetition of what takes no text"},
      {"(?:a*)*", "repeats a group that can match nothing"},
      {"(?<=a+)b", "no fixed length"},
      {"(?i:é)", "outside ASCII"},
      {"(?i:ss)", "a ligature"},
      {R"((?i:[\p{Lu}]))", "a property in a class"},
      {"a\\", "ends after a backslash"},
      {"\xFF", "not UTF-8"},
  };
  for (const auto& [pattern, want] : cases) {
    const Result<SplitRegex> regex = SplitRegex::compile(pattern);
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_THAT(regex.error().what, HasSubstr(want)) << pattern;
    EXPECT_EQ(regex.error().what.find('\n'), std::string::npos);
  }
}

TEST(SplitRegex, RefusesWhatIsTooLarge) {
  std::string classes, nested;
  for (int i = 0; i < 400; ++i) classes += "\\x{" + std::to_string(1000 + i) + "}";
  EXPECT_THAT(pieces_of(classes, ""), HasSubstr("more than 256 kinds of characters"));
  for (int i = 0; i < 2000; ++i) nested += "(";
  EXPECT_THAT(pieces_of(nested, ""), HasSubstr("nested too deeply"));
  EXPECT_THAT(pieces_of("(?:(?:(?:ab){1000}){1000}){1000}", ""), HasSubstr("instructions"));
  EXPECT_EQ(pieces_of("(?:(?:(?:(?:){1000}){1000}){1000}){1000}", "a"), "|·a|");
  EXPECT_THAT(pieces_of(std::string(20000, 'a'), ""), HasSubstr("at most 16384"));
}

// Patterns that take quadratic, quartic or exponential time elsewhere. All end within the
// allowance, and what is left is one piece.
TEST(SplitRegex, RunawayPatternsAreStopped) {
  const std::string text(100000, 'a');
  for (const char* pattern :
       {"(?:a+)+b", "(?:a|aa)+$b", "a*a*a*a*b", "a*b", "(?=a*b)a", "(?:(?:a+)+)+b"}) {
    EXPECT_EQ(pieces_of(pattern, text), "·" + text) << pattern;
  }
}

TEST(SplitRegex, AMillionPlacesToGoBackTo) {
  const std::string text(1000000, 'a');
  EXPECT_EQ(pieces_of("(?:a|b)*", text), "|" + text);
  EXPECT_EQ(pieces_of("(?:(?:a|b)(?:a|c)(?:a|d)(?:a|e)(?:a|f))*", text), "|" + text);
}

TEST(SplitRegex, LongRunsStayWhole) {
  const std::string spaces(300000, ' ');
  EXPECT_EQ(pieces_of(R"(\s*[\r\n]+|\s+(?!\S)|\s+)", spaces + "x"),
            "|" + spaces.substr(1) + "| ·x");
}

}  // namespace
}  // namespace lacuna
