// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_lexer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "text/jinja_print.h"
#include "text/jinja_unicode.h"

namespace lacuna::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
int digit_value(char c) {
  if (is_digit(c)) return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
}

// Every line end becomes \n, and one line end at the very end is dropped.
std::string normalize_lines(std::string_view source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_lines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) text_and_tag();
    add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void error(const std::string& message) const {
    throw Failure{.code = ErrorCode::kCorrupt, .message = message, .line = line_};
  }

  void add(Token::Kind kind, std::string text, Value value = {}) {
    tokens_.push_back({kind, line_, std::move(text), std::move(value)});
  }

  bool starts(std::string_view s, std::size_t skip = 0) const {
    return std::string_view(source_).substr(std::min(at_ + skip, source_.size())).starts_with(s);
  }

  // Moves on and counts lines; whether the piece ended a line decides about lstrip_blocks.
  void advance_to(std::size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    line_start_ = to > at_ && source_[to - 1] == '\n';
    at_ = to;
  }

  std::size_t after_space(std::size_t at) const {
    while (at < source_.size() && is_space(code_point(source_, at))) at = next_char(source_, at);
    return at;
  }

  // The end of a tag whose closing text is at `at`: `-` eats all whitespace after it; without a
  // sign a block or comment eats one line end (trim_blocks).
  std::size_t after_tag(std::size_t at, char sign, bool trims) const {
    at += 2;
    if (sign == '-') return after_space(at);
    if (sign != '+' && trims && at < source_.size() && source_[at] == '\n') ++at;
    return at;
  }

  char sign_at(std::size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  // Adds source[at_, end) as data, as cut by the tag that follows it.
  void add_data(std::size_t end, char sign, bool is_variable) {
    std::size_t keep = end;
    if (sign == '-') {
      keep = at_ + strip(Text(source_.substr(at_, end - at_)), nullptr, false, true).size();
    } else if (sign != '+' && !is_variable) {
      const std::size_t newline = source_.rfind('\n', end == 0 ? 0 : end - 1);
      const bool has_newline = end > at_ && newline != std::string::npos && newline >= at_;
      const std::size_t line_begin = has_newline ? newline + 1 : at_;
      if ((has_newline || line_start_) && after_space(line_begin) >= end) keep = line_begin;
    }
    if (keep > at_) add(Token::Kind::kData, source_.substr(at_, keep - at_));
    advance_to(end);
  }

  void text_and_tag() {
    std::size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos) {
        add(Token::Kind::kData, source_.substr(at_));
        return advance_to(source_.size());
      }
      const char c = tag + 1 < source_.size() ? source_[tag + 1] : '\0';
      if (c == '{' || c == '%' || c == '#') break;
      ++tag;
    }
    const char kind = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    const std::size_t inside = tag + 2 + (sign != '\0');
    add_data(tag, sign, kind == '{');
    if (kind == '#') return comment(inside);
    if (kind == '%') {
      if (const std::size_t raw_begin = raw_tag(inside, "raw")) return raw(raw_begin);
    }
    add(kind == '{' ? Token::Kind::kVariableBegin : Token::Kind::kBlockBegin, "");
    advance_to(inside);
    tag_body(kind == '{');
  }

  void comment(std::size_t inside) {
    const std::size_t close = source_.find("#}", inside);
    if (close == std::string::npos) error("missing end of comment tag");
    const char sign = close > inside ? sign_at(close - 1) : '\0';
    advance_to(after_tag(close, sign, true));
  }

  // The offset after a tag `{% word %}` whose inside is at `inside`, or 0 when it is another tag.
  // `endraw` trims as a block does, `raw` does not.
  std::size_t raw_tag(std::size_t inside, std::string_view word) const {
    std::size_t at = after_space(inside);
    if (!std::string_view(source_).substr(at).starts_with(word)) return 0;
    at = after_space(at + word.size());
    const char sign = sign_at(at);
    if (sign == '+' && word == "raw") return 0;
    if (sign != '\0') ++at;
    if (!std::string_view(source_).substr(std::min(at, source_.size())).starts_with("%}")) return 0;
    return after_tag(at, sign, word == "endraw");
  }

  void raw(std::size_t begin) {
    advance_to(begin);
    for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      const char sign = sign_at(tag + 2);
      const std::size_t end = raw_tag(tag + 2 + (sign != '\0'), "endraw");
      if (end == 0) continue;
      add_data(tag, sign, false);
      return advance_to(end);
    }
    error("missing end of raw block");
  }

  bool end_of_tag(bool is_variable) {
    const char sign = sign_at(at_);
    if (sign == '+' && is_variable) return false;
    if (!starts(is_variable ? "}}" : "%}", sign != '\0')) return false;
    add(is_variable ? Token::Kind::kVariableEnd : Token::Kind::kBlockEnd, "");
    advance_to(after_tag(at_ + (sign != '\0'), sign, !is_variable));
    return true;
  }

  void tag_body(bool is_variable) {
    std::string open;  // brackets waiting for their partner
    while (at_ < source_.size()) {
      if (open.empty() && end_of_tag(is_variable)) return;
      const char c = source_[at_];
      if (is_space(code_point(source_, at_))) {
        advance_to(after_space(at_));
      } else if (is_digit(c)) {
        number();
      } else if (is_word(c)) {
        std::size_t end = at_;
        while (end < source_.size() && is_word(source_[end])) ++end;
        add(Token::Kind::kName, source_.substr(at_, end - at_));
        advance_to(end);
      } else if (c == '\'' || c == '"') {
        string(c);
      } else {
        operation(open);
      }
    }
    error("the template ends inside a tag");
  }

  void operation(std::string& open) {
    static constexpr std::array<std::string_view, 6> kDouble = {"//", "**", "==", "!=", ">=", "<="};
    std::size_t length = 1;
    for (const std::string_view op : kDouble) {
      if (starts(op)) length = 2;
    }
    const char c = source_[at_];
    if (length == 1 && std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) {
      error(fmt::format("unexpected character {}",
                        quoted(source_.substr(at_, next_char(source_, at_) - at_))));
    }
    if (c == '(') open += ')';
    if (c == '[') open += ']';
    if (c == '{') open += '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) error(fmt::format("unexpected '{}'", c));
      if (open.back() != c) error(fmt::format("unexpected '{}', expected '{}'", c, open.back()));
      open.pop_back();
    }
    add(Token::Kind::kOperator, source_.substr(at_, length));
    advance_to(at_ + length);
  }

  // Digits of a base with single underscores between them, from `at`; returns where they end.
  std::size_t digits_end(std::size_t at, int base) const {
    const auto is_one = [&](std::size_t i) {
      return i < source_.size() && digit_value(source_[i]) < base;
    };
    while (is_one(at) || (at < source_.size() && source_[at] == '_' && is_one(at + 1))) ++at;
    return at;
  }

  // The end of a float that begins at at_, or at_ when the number is none: `1.x` is 1, then .x.
  std::size_t float_end() const {
    if (at_ > 0 && source_[at_ - 1] == '.') return at_;
    std::size_t end = digits_end(at_, 10);
    bool is_float = false;
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      end = digits_end(end + 1, 10);
      is_float = true;
    }
    if (end < source_.size() && (source_[end] | 0x20) == 'e') {
      std::size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-'))
        ++exponent;
      if (exponent < source_.size() && is_digit(source_[exponent])) return digits_end(exponent, 10);
    }
    return is_float ? end : at_;
  }

  void number() {
    if (const std::size_t end = float_end(); end > at_) {
      std::string digits = source_.substr(at_, end - at_);
      std::erase(digits, '_');
      double d = 0;
      const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), d);
      if (read.ec == std::errc::result_out_of_range) {
        const bool tiny =
            digits.find("e-") != std::string::npos || digits.find("E-") != std::string::npos;
        d = tiny ? 0.0 : std::numeric_limits<double>::infinity();
      }
      add(Token::Kind::kNumber, digits, Value(d));
      return advance_to(end);
    }
    int base = 10;
    std::size_t begin = at_;
    if (source_[at_] == '0' && at_ + 1 < source_.size()) {
      const char c = static_cast<char>(source_[at_ + 1] | 0x20);
      const int prefixed = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
      const std::size_t digits = at_ + 2 + (at_ + 2 < source_.size() && source_[at_ + 2] == '_');
      if (prefixed != 10 && digits < source_.size() && digit_value(source_[digits]) < prefixed) {
        base = prefixed;
        begin = digits;
      }
    }
    const std::size_t end =
        base == 10 && source_[at_] == '0' ? zeros_end() : digits_end(begin, base);
    add(Token::Kind::kNumber, source_.substr(at_, end - at_), Value(integer(begin, end, base)));
    advance_to(end);
  }

  // A decimal that begins with 0 is only zeros: jinja2 reads 012 as 0, then 12.
  std::size_t zeros_end() const {
    std::size_t at = at_;
    while (at < source_.size() &&
           (source_[at] == '0' || (source_[at] == '_' && starts("0", at + 1 - at_))))
      ++at;
    return at;
  }

  Int integer(std::size_t begin, std::size_t end, int base) const {
    Int value = 0;
    for (std::size_t i = begin; i < end; ++i) {
      if (source_[i] == '_') continue;
      if (__builtin_mul_overflow(value, Int{base}, &value) ||
          __builtin_add_overflow(value, Int{digit_value(source_[i])}, &value)) {
        error("integer literal with more than 127 bits");
      }
    }
    return value;
  }

  void string(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size())
      error(fmt::format("unexpected character {}", quoted(std::string(1, quote))));
    add(Token::Kind::kString, unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    advance_to(end + 1);
  }

  std::string unescape(std::string_view s) const {
    std::string out;
    for (std::size_t i = 0; i < s.size();) {
      if (s[i] != '\\') {
        out += s[i++];
        continue;
      }
      i = escape(s, i + 1, out);
    }
    return out;
  }

  // One escape whose letter is at `at`; returns the offset after it.
  std::size_t escape(std::string_view s, std::size_t at, std::string& out) const {
    static constexpr std::string_view kLetters = "\\'\"abfnrtv\n";
    static constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
    const char c = s[at];
    if (const std::size_t which = kLetters.find(c); which != std::string_view::npos) {
      if (c != '\n') out += kMeanings[which];
      return at + 1;
    }
    if (c == 'x') return hex(s, at + 1, 2, out);
    if (c == 'u') return hex(s, at + 1, 4, out);
    if (c == 'U') return hex(s, at + 1, 8, out);
    if (c == 'N') {
      throw Failure{.code = ErrorCode::kUnsupported,
                    .message = "\\N{…} in a string is not supported",
                    .line = line_};
    }
    if (c >= '0' && c <= '7') {
      char32_t value = 0;
      std::size_t end = at;
      while (end < s.size() && end < at + 3 && s[end] >= '0' && s[end] <= '7') {
        value = value * 8 + static_cast<char32_t>(s[end++] - '0');
      }
      append_utf8(out, value);
      return end;
    }
    out += '\\';  // Python keeps an escape that it does not know
    return at;
  }

  std::size_t hex(std::string_view s, std::size_t at, std::size_t digits, std::string& out) const {
    char32_t value = 0;
    for (std::size_t i = at; i < at + digits; ++i) {
      if (i >= s.size() || digit_value(s[i]) >= 16)
        error(fmt::format("a \\ escape wants {} hex digits", digits));
      value = value * 16 + static_cast<char32_t>(digit_value(s[i]));
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      error(fmt::format("U+{:04X} in a string is not a character", static_cast<unsigned>(value)));
    }
    append_utf8(out, value);
    return at + digits;
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace lacuna::jinja
