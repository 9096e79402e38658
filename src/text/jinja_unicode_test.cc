// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_unicode.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "text/jinja_strings.h"

namespace lacuna::jinja {
namespace {

std::string changed(char32_t c, Case to) {
  std::string out;
  append_case(out, c, to);
  return out;
}

TEST(JinjaUnicode, KnownCharacters) {
  EXPECT_EQ(changed(U'a', Case::kUpper), "A");
  EXPECT_EQ(changed(U'é', Case::kUpper), "É");
  EXPECT_EQ(changed(U'ß', Case::kUpper), "SS");
  EXPECT_EQ(changed(U'ß', Case::kTitle), "Ss");
  EXPECT_EQ(changed(U'İ', Case::kLower), "i̇");
  EXPECT_EQ(changed(U'東', Case::kUpper), "東");
  EXPECT_TRUE(is_space(0x3000));
  EXPECT_FALSE(is_space(0x200B));
  EXPECT_TRUE(is_printable(U'é'));
  EXPECT_FALSE(is_printable(0xAD));
  EXPECT_FALSE(is_printable(0x2028));
}

// Every character, against a hash of Python's answers (tools/make_jinja_unicode.py).
TEST(JinjaUnicode, AllCharactersAsPython) {
  std::uint64_t digest = 0xCBF29CE484222325;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string answer(1, is_printable(c) ? '1' : '0');
    for (const Case to : {Case::kLower, Case::kUpper, Case::kTitle}) append_case(answer, c, to);
    answer += is_space(c) ? '1' : '0';
    for (const char byte : answer)
      digest = (digest ^ static_cast<unsigned char>(byte)) * 0x100000001B3;
  }
  std::ifstream file("tests/data/templates/unicode_digest.txt");
  std::string recorded;
  ASSERT_TRUE(file >> recorded);
  EXPECT_EQ(fmt::format("{:016x}", digest), recorded);
}

TEST(JinjaUnicode, InvalidBytesPassThrough) {
  const Text broken("a\xFFz\xC3");
  EXPECT_EQ(upper(broken).bytes(), "A\xFFZ\xC3");
  EXPECT_EQ(count_chars(broken.bytes()), 4u);
  EXPECT_EQ(strip(Text(" \xE2\x80 "), nullptr, true, true).bytes(), "\xE2\x80");
}

TEST(JinjaUnicode, FinalSigmaIsRefused) {
  EXPECT_THROW(lower(Text("ΑΣ")), Failure);
  EXPECT_EQ(upper(Text("ας")).bytes(), "ΑΣ");
}

}  // namespace
}  // namespace lacuna::jinja
