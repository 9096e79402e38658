// SPDX-License-Identifier: Apache-2.0
// UTF-8: one character at a time, repair of invalid bytes, and the byte-level alphabet of BPE.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace lacuna {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// What stands at one place of a text.
struct Utf8Char {
  enum class Kind {
    kWhole,      // a character
    kInvalid,    // bytes that cannot become a character, whatever follows
    kTruncated,  // the text ends inside a character
  };
  Kind kind;
  char32_t code;  // of a whole character
  int length;     // bytes, at least 1; of an invalid sequence those that one U+FFFD stands for
};

// The character at `pos` < text.size(). Overlong forms and surrogates are invalid. An invalid
// sequence is the longest that could have begun a character, as Unicode recommends and Python does.
Utf8Char utf8_at(std::string_view text, std::size_t pos);

// Python's bytes.decode("utf-8", "replace"): each invalid or truncated sequence becomes U+FFFD.
std::string repair_utf8(std::string_view bytes);
bool is_utf8(std::string_view bytes);

void append_utf8(std::string& out, char32_t code);

// Byte-level BPE writes each byte as one printable character: itself where it is one, else one of
// U+0100 … U+0143. Both directions; the second gives -1 for a character outside the alphabet.
char32_t byte_to_letter(unsigned char byte);
int letter_to_byte(char32_t letter);

}  // namespace lacuna
