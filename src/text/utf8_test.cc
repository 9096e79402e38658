// SPDX-License-Identifier: Apache-2.0
#include "text/utf8.h"

#include <gtest/gtest.h>

#include <set>

namespace lacuna {
namespace {

const std::string R(kReplacement);

TEST(Utf8, RepairsAsPythonDoes) {
  // bytes.decode("utf-8", "replace") of Python 3.11.
  const std::pair<std::string, std::string> cases[] = {
      {"", ""},
      {"plain é日🦙", "plain é日🦙"},
      {"\x80", R},
      {"a\xFFz", "a" + R + "z"},
      {"\xC0\xAF", R + R},                  // overlong slash
      {"\xE0\x80\xAF", R + R + R},          // overlong in three bytes
      {"\xED\xA0\x80", R + R + R},          // a surrogate
      {"\xF4\x90\x80\x80", R + R + R + R},  // above U+10FFFF
      {"\xF0\x9F\xA6", R},                  // a llama without its last byte
      {"\xF0\x9F\xA6x", R + "x"},
      {"\xE6\x97"
       "\xE6\x97\xA5",
       R + "日"},
      {"\xF0\x9F\x41\xA6", R + "A" + R},
      {"\xC3", R},
      {std::string("\0\xC3\0", 3), std::string("\0", 1) + R + std::string("\0", 1)},
  };
  for (const auto& [bytes, want] : cases) {
    EXPECT_EQ(repair_utf8(bytes), want);
    EXPECT_EQ(is_utf8(bytes), bytes == want) << want;
  }
}

TEST(Utf8, TellsTruncatedFromInvalid) {
  using Kind = Utf8Char::Kind;
  EXPECT_EQ(utf8_at("\xE6\x97\xA5", 0).kind, Kind::kWhole);
  EXPECT_EQ(utf8_at("\xE6\x97\xA5", 0).code, U'日');
  EXPECT_EQ(utf8_at("\xE6\x97", 0).kind, Kind::kTruncated);
  EXPECT_EQ(utf8_at("\xE6\x97", 0).length, 2);
  EXPECT_EQ(utf8_at("\xE6\x97x", 0).kind, Kind::kInvalid);
  EXPECT_EQ(utf8_at("\xE0\x80", 0).kind, Kind::kInvalid);  // no third byte could mend it
  EXPECT_EQ(utf8_at("\xF4\x8F", 0).kind, Kind::kTruncated);
  EXPECT_EQ(utf8_at("\xF4\x90", 0).kind, Kind::kInvalid);
}

TEST(Utf8, EveryCodePointComesBack) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    std::string bytes;
    append_utf8(bytes, c);
    const Utf8Char read = utf8_at(bytes, 0);
    const bool surrogate = c >= 0xD800 && c < 0xE000;
    ASSERT_EQ(read.kind == Utf8Char::Kind::kWhole, !surrogate) << static_cast<unsigned>(c);
    if (surrogate) continue;
    ASSERT_EQ(read.code, c);
    ASSERT_EQ(read.length, static_cast<int>(bytes.size()));
  }
}

TEST(Utf8, ByteLettersAreOneToOne) {
  std::set<char32_t> letters;
  for (int b = 0; b < 256; ++b) {
    const char32_t letter = byte_to_letter(static_cast<unsigned char>(b));
    letters.insert(letter);
    EXPECT_EQ(letter_to_byte(letter), b);
  }
  EXPECT_EQ(letters.size(), 256u);
  EXPECT_EQ(byte_to_letter(' '), U'Ġ');
  EXPECT_EQ(byte_to_letter('\n'), U'Ċ');
  EXPECT_EQ(byte_to_letter('a'), U'a');
  EXPECT_EQ(byte_to_letter(0xAD), char32_t{0x143});
  EXPECT_EQ(letter_to_byte(U' '), -1);
  EXPECT_EQ(letter_to_byte(0x144), -1);
  EXPECT_EQ(letter_to_byte(U'日'), -1);
}

}  // namespace
}  // namespace lacuna
