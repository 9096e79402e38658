// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/json.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lacuna {
namespace {

using Json = nlohmann::ordered_json;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
// ASCII that stands for itself inside a string.
bool is_plain(char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; }
bool is_continuation(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

// Bytes of the UTF-8 character at `at`; 0 when the bytes are not one (overlong forms and surrogates
// included).
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto b0 = static_cast<unsigned char>(text[at]);
  if (b0 < 0x80) return 1;
  const std::size_t length = b0 >= 0xF0 ? 4 : b0 >= 0xE0 ? 3 : 2;
  if (b0 < 0xC2 || b0 > 0xF4) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_continuation(text, at + i)) return 0;
  }
  const auto b1 = static_cast<unsigned char>(text[at + 1]);
  if ((b0 == 0xE0 && b1 < 0xA0) || (b0 == 0xED && b1 > 0x9F)) return 0;
  if ((b0 == 0xF0 && b1 < 0x90) || (b0 == 0xF4 && b1 > 0x8F)) return 0;
  return length;
}

void append_utf8(std::string& out, std::uint32_t c) {
  const auto byte = [&out](std::uint32_t b) { out.push_back(static_cast<char>(b)); };
  if (c < 0x80) return byte(c);
  if (c < 0x800) {
    byte(0xC0 | (c >> 6));
  } else {
    if (c < 0x10000) {
      byte(0xE0 | (c >> 12));
    } else {
      byte(0xF0 | (c >> 18));
      byte(0x80 | ((c >> 12) & 0x3F));
    }
    byte(0x80 | ((c >> 6) & 0x3F));
  }
  byte(0x80 | (c & 0x3F));
}

// Recursive descent; each level of nesting is one call of value().
class Parser {
 public:
  Parser(std::string_view text, const std::string& name, const JsonOptions& options)
      : text_(text), name_(name), options_(options) {}

  Result<Json> document() {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;
    LAC_TRY(Json value, this->value());
    skip_space();
    if (at_ < text_.size()) return wanted("the end of the file");
    return value;
  }

 private:
  Result<Json> value() {
    skip_space();
    if (at_ >= text_.size()) return wanted("a value");
    switch (text_[at_]) {
      case '{':
        return object();
      case '[':
        return array();
      case '"':
        return string_value();
      case 't':
        return word("true", true);
      case 'f':
        return word("false", false);
      case 'n':
        return word("null", nullptr);
      default:
        return number();
    }
  }

  Result<Json> object() {
    if (++depth_ > options_.max_depth) return too_deep();
    Json::object_t members;
    std::unordered_map<std::string, std::size_t> places;
    ++at_;
    skip_space();
    if (peek() != '}') {
      do {
        skip_space();
        const std::size_t key_at = at_;
        if (peek() != '"') return wanted("a key in quotes");
        LAC_TRY(std::string key, string());
        path_.push_back({text_.substr(key_at + 1, at_ - key_at - 2), 0});
        const auto [place, is_new] = places.emplace(key, members.size());
        if (!is_new && options_.refuse_duplicates) return fail(key_at, "the key is there twice");
        skip_space();
        if (!take(':')) return wanted("':'");
        LAC_TRY(Json member, value());
        // Straight into the vector below ordered_map: its own insert looks at every earlier key.
        if (is_new) {
          members.emplace_back(std::move(key), std::move(member));
        } else {
          (members.begin() + static_cast<std::ptrdiff_t>(place->second))->second =
              std::move(member);
        }
        path_.pop_back();
        skip_space();
      } while (take(','));
    }
    if (!take('}')) return wanted("',' or '}'");
    --depth_;
    return Json(std::move(members));
  }

  Result<Json> array() {
    if (++depth_ > options_.max_depth) return too_deep();
    Json::array_t items;
    ++at_;
    skip_space();
    if (peek() != ']') {
      do {
        path_.push_back({{}, items.size()});
        LAC_TRY(Json item, value());
        items.push_back(std::move(item));
        path_.pop_back();
        skip_space();
      } while (take(','));
    }
    if (!take(']')) return wanted("',' or ']'");
    --depth_;
    return Json(std::move(items));
  }

  Result<Json> string_value() {
    LAC_TRY(std::string text, string());
    return Json(std::move(text));
  }

  Result<std::string> string() {
    const std::size_t begin = at_++;
    std::string out;
    while (true) {
      const std::size_t plain = at_;
      while (at_ < text_.size() && is_plain(text_[at_])) ++at_;
      out.append(text_, plain, at_ - plain);
      if (at_ >= text_.size()) return fail(begin, "the string does not end");
      const char c = text_[at_];
      if (c == '"') break;
      if (static_cast<unsigned char>(c) < 0x20) {
        return fail(at_, "a control character inside a string");
      }
      if (c == '\\') {
        LAC_TRY_VOID(escape(out));
        continue;
      }
      const std::size_t length = utf8_length(text_, at_);
      if (length == 0) return fail(at_, "bytes that are not UTF-8");
      out.append(text_, at_, length);
      at_ += length;
    }
    ++at_;
    return out;
  }

  Result<void> escape(std::string& out) {
    const std::size_t begin = at_++;
    constexpr std::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    const auto letter = kLetters.find(peek());
    if (letter != std::string_view::npos) {
      out.push_back(kMeanings[letter]);
      ++at_;
      return {};
    }
    if (!take('u')) return fail(begin, "an unknown escape");
    std::uint32_t c = 0;
    if (!hex4(c)) return fail(begin, "\\u wants four hexadecimal digits");
    if (c >= 0xD800 && c < 0xE000) {
      std::uint32_t low = 0;
      const bool paired = c < 0xDC00 && take('\\') && take('u') && hex4(low);
      if (!paired || low < 0xDC00 || low > 0xDFFF) return fail(begin, "half a surrogate pair");
      c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    }
    append_utf8(out, c);
    return {};
  }

  bool hex4(std::uint32_t& out) {
    const auto digits = text_.substr(at_, 4);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), out, 16);
    at_ += 4;
    return digits.size() == 4 && error == std::errc() && end == digits.data() + 4;
  }

  Result<Json> word(std::string_view word, Json meaning) {
    if (!text_.substr(at_).starts_with(word)) return wanted("a value");
    at_ += word.size();
    return meaning;
  }

  Result<Json> number() {
    const std::size_t begin = at_;
    const bool minus = take('-');
    if (options_.bare_numbers && (peek() == 'I' || (peek() == 'N' && !minus))) {
      const double infinity = std::numeric_limits<double>::infinity();
      if (peek() == 'I') return word("Infinity", minus ? -infinity : infinity);
      return word("NaN", std::numeric_limits<double>::quiet_NaN());
    }
    const bool leading_zero = peek() == '0';
    const std::size_t whole = digits();
    if (whole == 0) {
      at_ = begin;
      return wanted("a value");
    }
    if (leading_zero && whole > 1) return fail(begin, "a number with a leading zero");
    bool integer = true;
    if (take('.')) {
      integer = false;
      if (digits() == 0) return wanted("a digit after the point");
    }
    if (peek() == 'e' || peek() == 'E') {
      integer = false;
      ++at_;
      if (!take('+')) take('-');
      if (digits() == 0) return wanted("a digit of the exponent");
    }
    return number_value(begin, integer);
  }

  Result<Json> number_value(std::size_t begin, bool integer) {
    const char* first = text_.data() + begin;
    const char* last = text_.data() + at_;
    std::int64_t i = 0;
    if (integer && std::from_chars(first, last, i).ec == std::errc()) return Json(i);
    std::uint64_t u = 0;
    if (integer && std::from_chars(first, last, u).ec == std::errc()) return Json(u);
    double d = 0;
    if (std::from_chars(first, last, d).ec != std::errc()) {
      return fail(begin, "a number outside the range of a double");
    }
    return Json(d);
  }

  std::size_t digits() {
    const std::size_t begin = at_;
    while (is_digit(peek())) ++at_;
    return at_ - begin;
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void skip_space() {
    while (peek() == ' ' || peek() == '\n' || peek() == '\r' || peek() == '\t') ++at_;
  }

  Error too_deep() const {
    return fail(at_, fmt::format("nested deeper than {} levels", options_.max_depth));
  }
  Error wanted(const char* what) const {
    if (at_ >= text_.size()) return fail(at_, fmt::format("wanted {}, found the end", what));
    return fail(at_, fmt::format("wanted {}, found '{}'", what, printable(text_.substr(at_, 1))));
  }
  Error fail(std::size_t at, const std::string& what) const {
    const std::string_view before = text_.substr(0, std::min(at, text_.size()));
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0: the first line
    return {ErrorCode::kCorrupt, fmt::format("{}:{}:{}: {}{}", name_, line,
                                             before.size() - line_begin + 1, path_text(), what)};
  }

  // "time_step_limit[1]: "; of a long path the last steps.
  std::string path_text() const {
    constexpr std::size_t kSteps = 4;
    std::string out = path_.size() > kSteps ? ".." : "";
    for (std::size_t i = path_.size() - std::min(path_.size(), kSteps); i < path_.size(); ++i) {
      if (path_[i].key.data() == nullptr) {
        out += fmt::format("[{}]", path_[i].index);
      } else {
        out += fmt::format("{}{}", out.empty() ? "" : ".", printable(path_[i].key));
      }
    }
    return out.empty() ? out : out + ": ";
  }

  std::string_view text_;
  const std::string& name_;
  const JsonOptions& options_;
  std::size_t at_ = 0;
  int depth_ = 0;
  // The way down to the value being read.
  struct Step {
    std::string_view key;  // as the text has it, without quotes; null for an array item
    std::size_t index;
  };
  std::vector<Step> path_;
};

}  // namespace

Result<nlohmann::ordered_json> parse_json(std::string_view text, const std::string& name,
                                          const JsonOptions& options) {
  return Parser(text, name, options).document();
}

std::string printable(std::string_view text, std::size_t max_bytes) {
  std::string out;
  std::size_t at = 0;
  while (at < text.size() && out.size() < max_bytes) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const std::size_t length = utf8_length(text, at);
    if (length == 0 || byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
      ++at;
      continue;
    }
    if (byte == '"' || byte == '\\') out.push_back('\\');
    out.append(text, at, length);
    at += length;
  }
  return at < text.size() ? out + "..." : out;
}

std::string printable_json(const nlohmann::ordered_json& value, std::size_t max_bytes) {
  if (value.is_string()) {
    return fmt::format("\"{}\"",
                       printable(std::string_view(value.get_ref<const std::string&>()), max_bytes));
  }
  return printable(std::string_view(value.dump(-1, ' ', false, Json::error_handler_t::replace)),
                   max_bytes);
}

}  // namespace lacuna
