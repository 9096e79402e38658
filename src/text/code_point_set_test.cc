// SPDX-License-Identifier: Apache-2.0
#include "text/code_point_set.h"

#include <gtest/gtest.h>

#include <bitset>
#include <random>

namespace lacuna {
namespace {

TEST(CodePointSet, AgreesWithABitmap) {
  std::mt19937 rng(7);
  for (int round = 0; round < 200; ++round) {
    CodePointSet set;
    std::bitset<300> bits;
    for (int i = 0; i < 12; ++i) {
      const auto first = static_cast<char32_t>(rng() % 280);
      const auto last = static_cast<char32_t>(first + rng() % 20);
      set.add(first, last);
      for (char32_t c = first; c <= last; ++c) bits[c] = true;
    }
    const CodePointSet inverted = set.inverted();
    for (char32_t c = 0; c < 300; ++c) {
      ASSERT_EQ(set.contains(c), bits[c]);
      ASSERT_EQ(inverted.contains(c), !bits[c]);
    }
    ASSERT_EQ(set.size(), bits.count());
    ASSERT_EQ(set.size() + inverted.size(), kLastCodePoint + 1u);
    ASSERT_EQ(inverted.inverted(), set);
    for (std::size_t i = 1; i < set.ranges().size(); ++i) {
      ASSERT_GT(set.ranges()[i].first, set.ranges()[i - 1].last + 1) << "ranges touch";
    }
  }
}

TEST(CodePointSet, EmptyAndFull) {
  const CodePointSet empty;
  EXPECT_EQ(empty.size(), 0u);
  EXPECT_TRUE(empty.inverted().contains(0));
  EXPECT_TRUE(empty.inverted().contains(kLastCodePoint));
  EXPECT_EQ(empty.inverted().inverted(), empty);
}

TEST(GeneralCategory, SizesAreHuggingFaces) {
  // Counted with tokenizers 0.23.3: Split(Regex("\p{…}")) over all code points but surrogates.
  const std::pair<const char*, std::size_t> counts[] = {
      {"L", 141028}, {"Lu", 1858}, {"Ll", 2258}, {"Lt", 31}, {"Lm", 404}, {"Lo", 136477},
      {"M", 2501},   {"N", 1911},  {"Nd", 760},  {"P", 855}, {"S", 8514}, {"Z", 19},
  };
  for (const auto& [name, count] : counts) {
    ASSERT_TRUE(general_category_set(name).has_value()) << name;
    EXPECT_EQ(general_category_set(name)->size(), count) << name;
  }
  for (const char* unknown : {"", "X", "Lx", "l", "lu", "Letter", "Han"}) {
    EXPECT_FALSE(general_category_set(unknown).has_value()) << unknown;
  }
}

TEST(GeneralCategory, EveryCodePointHasOne) {
  std::size_t total = 0;
  for (const char* group : {"L", "M", "N", "P", "S", "Z", "C"}) {
    total += general_category_set(group)->size();
  }
  EXPECT_EQ(total, kLastCodePoint + 1u);
  EXPECT_EQ(general_category(U'A'), GeneralCategory::kLu);
  EXPECT_EQ(general_category(U'ǅ'), GeneralCategory::kLt);
  EXPECT_EQ(general_category(U'日'), GeneralCategory::kLo);
  EXPECT_EQ(general_category(U'½'), GeneralCategory::kNo);
  EXPECT_EQ(general_category(0x1C89), GeneralCategory::kLu);  // new in Unicode 16
  EXPECT_EQ(general_category(0x0378), GeneralCategory::kCn);
  EXPECT_EQ(general_category(kLastCodePoint), GeneralCategory::kCn);
}

TEST(UnicodeRanges, SpacesAndNumbers) {
  const CodePointSet spaces{space_ranges()};
  EXPECT_EQ(spaces.size(), 25u);
  for (char32_t c : {U' ', U'\n', U'\v', char32_t{0x85}, char32_t{0xA0}, char32_t{0x3000}}) {
    EXPECT_TRUE(spaces.contains(c)) << static_cast<unsigned>(c);
  }
  EXPECT_FALSE(spaces.contains(0x200B));
  EXPECT_FALSE(spaces.contains(0x180E));
  // The numbers of Digits come from a newer Unicode than those of \p{N}.
  const CodePointSet numeric{numeric_ranges()};
  EXPECT_EQ(numeric.size(), 1924u);
  EXPECT_TRUE(numeric.contains(0x11DE0));
  EXPECT_FALSE(general_category_set("N")->contains(0x11DE0));
}

}  // namespace
}  // namespace lacuna
