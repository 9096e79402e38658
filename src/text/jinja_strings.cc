// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_strings.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "text/jinja_unicode.h"

namespace lacuna::jinja {
namespace {

constexpr char32_t kCapitalSigma = 0x3A3;  // its lower case depends on the letters around it

void append_char_as(Text& out, const Text& s, std::size_t at, std::size_t next, Case to) {
  const char32_t c = code_point(s.bytes(), at);
  if (c >= 0xDC00 && c <= 0xDCFF) return out.append(s, at, next);  // an invalid byte stays
  if (c == kCapitalSigma && to == Case::kLower)
    fail_unsupported("lower case of a Greek capital sigma is not supported");
  std::string changed;
  append_case(changed, c, to);
  out.append(changed, s.from_user(at));
}

void append_as(Text& out, const Text& s, std::size_t begin, std::size_t end, Case to) {
  for (std::size_t i = begin; i < end;) {
    const std::size_t next = next_char(s.bytes(), i);
    append_char_as(out, s, i, next, to);
    i = next;
  }
}

// The digits of a number without the underscores that may stand between two digits.
std::optional<std::string> without_underscores(std::string_view s) {
  std::string out;
  for (std::size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '_') {
      out += s[i];
      continue;
    }
    const auto alnum = [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    };
    if (i == 0 || i + 1 == s.size() || !alnum(s[i - 1]) || !alnum(s[i + 1])) return std::nullopt;
  }
  return out;
}

bool equal_ascii_case(std::string_view s, std::string_view lower_case) {
  if (s.size() != lower_case.size()) return false;
  for (std::size_t i = 0; i < s.size(); ++i) {
    const char c = s[i] >= 'A' && s[i] <= 'Z' ? static_cast<char>(s[i] | 0x20) : s[i];
    if (c != lower_case[i]) return false;
  }
  return true;
}

}  // namespace

Text lower(const Text& s) {
  Text out;
  append_as(out, s, 0, s.size(), Case::kLower);
  return out;
}

Text upper(const Text& s) {
  Text out;
  append_as(out, s, 0, s.size(), Case::kUpper);
  return out;
}

Text capitalize(const Text& s) {
  Text out;
  if (s.empty()) return out;
  const std::size_t first = next_char(s.bytes(), 0);
  append_as(out, s, 0, first, Case::kTitle);
  append_as(out, s, first, s.size(), Case::kLower);
  return out;
}

Text title_words(const Text& s) {
  Text out;
  bool at_word_begin = true;
  for (std::size_t i = 0; i < s.size();) {
    const std::size_t next = next_char(s.bytes(), i);
    const char32_t c = code_point(s.bytes(), i);
    append_char_as(out, s, i, next, at_word_begin ? Case::kUpper : Case::kLower);
    at_word_begin = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    i = next;
  }
  return out;
}

std::optional<double> parse_float(std::string_view text) {
  const Text stripped = strip(Text(std::string(text)), nullptr, true, true);
  std::string_view s = stripped.bytes();
  bool minus = false;
  if (!s.empty() && (s[0] == '-' || s[0] == '+')) {
    minus = s[0] == '-';
    s.remove_prefix(1);
  }
  double d = 0;
  if (equal_ascii_case(s, "inf") || equal_ascii_case(s, "infinity")) {
    d = std::numeric_limits<double>::infinity();
  } else if (equal_ascii_case(s, "nan")) {
    d = std::numeric_limits<double>::quiet_NaN();
  } else {
    const std::optional<std::string> digits = without_underscores(s);
    if (!digits || digits->empty() ||
        !((digits->front() >= '0' && digits->front() <= '9') || digits->front() == '.')) {
      return std::nullopt;
    }
    const auto read = std::from_chars(digits->data(), digits->data() + digits->size(), d);
    if (read.ptr != digits->data() + digits->size() || read.ec == std::errc::invalid_argument)
      return std::nullopt;
    if (read.ec == std::errc::result_out_of_range) {
      const bool tiny =
          digits->find("e-") != std::string::npos || digits->find("E-") != std::string::npos;
      d = tiny ? 0.0 : std::numeric_limits<double>::infinity();
    }
  }
  return minus ? -d : d;
}

std::optional<Int> parse_int(std::string_view text, int base) {
  const Text stripped = strip(Text(std::string(text)), nullptr, true, true);
  std::string_view s = stripped.bytes();
  const bool minus = !s.empty() && s[0] == '-';
  if (!s.empty() && (s[0] == '-' || s[0] == '+')) s.remove_prefix(1);
  const char prefix = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : '\0';
  if (prefix != '\0' && s.size() > 2 && s[0] == '0' && (s[1] | 0x20) == prefix)
    s.remove_prefix(s[2] == '_' ? 3 : 2);
  const std::optional<std::string> digits = without_underscores(s);
  if (!digits || digits->empty()) return std::nullopt;
  Int value = 0;
  for (const char c : *digits) {
    const char letter = static_cast<char>(c | 0x20);
    const int digit = c >= '0' && c <= '9'             ? c - '0'
                      : letter >= 'a' && letter <= 'z' ? letter - 'a' + 10
                                                       : 99;
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, Int{base}, &value) ||
        __builtin_add_overflow(value, Int{digit}, &value)) {
      fail_unsupported("an integer with more than 127 bits is not supported");
    }
  }
  return minus ? -value : value;
}

void pay_for_replace(Budget& budget, const Text& s, std::string_view old, const Text& with) {
  std::uint64_t times = old.empty() ? s.size() + 1 : 0;
  if (!old.empty()) {
    for (std::size_t at = s.bytes().find(old); at != std::string::npos;
         at = s.bytes().find(old, at + old.size())) {
      ++times;
    }
  }
  budget.step(s.size() / 4 + times);
  budget.allocate(s.size() + times * with.size());
}

}  // namespace lacuna::jinja
