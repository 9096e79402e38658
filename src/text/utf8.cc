// SPDX-License-Identifier: Apache-2.0
#include "text/utf8.h"

#include <cstdint>

namespace lacuna {
namespace {

// How a character that begins with `lead` goes on: its length, and what its second byte may be
// (which is where overlong forms, surrogates and codes above U+10FFFF are told apart).
struct Lead {
  int length;  // 0: no character begins so
  unsigned char second_min, second_max;
};

Lead lead_of(unsigned char lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

struct Alphabet {
  std::array<char32_t, 256> letter{};
  std::array<std::int16_t, 0x144> byte{};
};

constexpr Alphabet make_alphabet() {
  Alphabet a;
  for (std::int16_t& b : a.byte) b = -1;
  char32_t spare = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);
    a.letter[b] = printable ? static_cast<char32_t>(b) : spare++;
    a.byte[a.letter[b]] = static_cast<std::int16_t>(b);
  }
  return a;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

Utf8Char utf8_at(std::string_view text, std::size_t pos) {
  using Kind = Utf8Char::Kind;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[pos + i]); };
  const Lead lead = lead_of(byte(0));
  if (lead.length == 0) return {Kind::kInvalid, 0, 1};
  if (lead.length == 1) return {Kind::kWhole, byte(0), 1};
  char32_t code = byte(0) & (0x7F >> lead.length);
  for (int i = 1; i < lead.length; ++i) {
    if (pos + i >= text.size()) return {Kind::kTruncated, 0, i};
    const unsigned char min = i == 1 ? lead.second_min : 0x80;
    const unsigned char max = i == 1 ? lead.second_max : 0xBF;
    if (byte(i) < min || byte(i) > max) return {Kind::kInvalid, 0, i};
    code = code << 6 | (byte(i) & 0x3F);
  }
  return {Kind::kWhole, code, lead.length};
}

std::string repair_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (std::size_t pos = 0; pos < bytes.size();) {
    const Utf8Char c = utf8_at(bytes, pos);
    out += c.kind == Utf8Char::Kind::kWhole ? bytes.substr(pos, c.length) : kReplacement;
    pos += c.length;
  }
  return out;
}

bool is_utf8(std::string_view bytes) {
  for (std::size_t pos = 0; pos < bytes.size();) {
    const Utf8Char c = utf8_at(bytes, pos);
    if (c.kind != Utf8Char::Kind::kWhole) return false;
    pos += c.length;
  }
  return true;
}

void append_utf8(std::string& out, char32_t code) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

char32_t byte_to_letter(unsigned char byte) { return kAlphabet.letter[byte]; }

int letter_to_byte(char32_t letter) {
  return letter < kAlphabet.byte.size() ? kAlphabet.byte[letter] : -1;
}

}  // namespace lacuna
