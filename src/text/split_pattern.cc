// SPDX-License-Identifier: Apache-2.0
#include "text/split_pattern.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "text/utf8.h"

namespace lacuna {
namespace {

constexpr std::size_t kMaxPatternBytes = 16384;
constexpr std::size_t kMaxSets = 512;
constexpr std::size_t kMaxGroupDepth = 100;
constexpr int kMaxRepeat = 1000;
constexpr std::size_t kMaxShownBytes = 40;  // of the pattern, in an error

bool is_ascii_letter(char32_t c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }
bool is_ascii_alnum(char32_t c) { return is_ascii_letter(c) || (c >= '0' && c <= '9'); }

// The characters equal to `c` when case is ignored: two ASCII letters have a third form elsewhere.
CodePointSet case_variants(char32_t c) {
  CodePointSet set(c);
  if (!is_ascii_letter(c)) return set;
  set.add(c ^ 0x20, c ^ 0x20);
  if ((c | 0x20) == 's') set.add(0x17F, 0x17F);    // long s
  if ((c | 0x20) == 'k') set.add(0x212A, 0x212A);  // Kelvin sign
  return set;
}

// Characters that have no other case, so that ignoring case changes nothing for them.
bool is_caseless(char32_t c) {
  using enum GeneralCategory;
  switch (general_category(c)) {
    case kNd:
    case kPc:
    case kPd:
    case kPs:
    case kPe:
    case kPi:
    case kPf:
    case kPo:
    case kSm:
    case kSc:
    case kSk:
    case kZs:
    case kZl:
    case kZp:
    case kCc:
      return true;
    default:
      return false;
  }
}

// Oniguruma lets two ASCII letters match one ligature when case is ignored ("ss" and U+00DF).
bool folds_to_one(char32_t a, char32_t b) {
  const char pair[] = {static_cast<char>(a | 0x20), static_cast<char>(b | 0x20)};
  const std::string_view both(pair, 2);
  return a < 0x80 && b < 0x80 &&
         (both == "ss" || both == "ff" || both == "fi" || both == "fl" || both == "st");
}

// Reads a pattern by recursive descent. The first thing it cannot take ends it, in error_.
class PatternReader {
 public:
  explicit PatternReader(std::string_view pattern) : pattern_(pattern) {}
  Result<SplitPattern> run();

 private:
  using Kind = PatternNode::Kind;

  PatternNode alternatives(std::size_t depth);
  PatternNode sequence(std::size_t depth);
  PatternNode atom(std::size_t depth);
  PatternNode group(std::size_t depth);
  PatternNode group_body(std::size_t depth, std::size_t from);
  PatternNode line_begin();
  PatternNode line_end();
  PatternNode quantified(PatternNode child);
  bool interval(int& min, int& max);
  PatternNode escape();
  PatternNode char_class();
  bool class_item(CodePointSet& set);
  void range_end(CodePointSet& set, char32_t first, std::size_t from);

  std::optional<CodePointSet> class_escape();  // after the backslash: \s, \d, \p{…}
  std::optional<char32_t> char_escape();       // after the backslash: \n, \x41, \u0041, \.
  std::optional<CodePointSet> property(bool negated);
  std::optional<char32_t> hex_digits(int count);

  PatternNode set_node(const CodePointSet& set);
  PatternNode literal(char32_t c);

  bool at_end() const { return pos_ >= pattern_.size(); }
  char peek() const { return at_end() ? '\0' : pattern_[pos_]; }
  bool take(std::string_view text) {
    if (!pattern_.substr(pos_).starts_with(text)) return false;
    pos_ += text.size();
    return true;
  }
  char32_t take_char() {
    const Utf8Char c = utf8_at(pattern_, pos_);
    pos_ += c.length;
    return c.code;
  }
  void fail(ErrorCode code, std::string_view what, std::size_t from) {
    if (error_) return;
    const std::size_t length = std::min(std::max(pos_, from + 1) - from, kMaxShownBytes);
    std::string seen = repair_utf8(pattern_.substr(std::min(from, pattern_.size()), length));
    std::replace_if(seen.begin(), seen.end(), [](char c) { return c >= 0 && c < ' '; }, ' ');
    error_ = Error{code, fmt::format("\"{}\" at byte {}: {}", seen, from, what)};
  }
  void unsupported(std::string_view what, std::size_t from) {
    fail(ErrorCode::kUnsupported, what, from);
  }
  void corrupt(std::string_view what, std::size_t from) { fail(ErrorCode::kCorrupt, what, from); }

  std::string_view pattern_;
  std::size_t pos_ = 0;
  std::vector<CodePointSet> sets_;
  std::optional<char32_t> last_literal_;  // the literal just before, where case is ignored
  bool ignore_case_ = false;
  std::optional<Error> error_;
};

PatternNode PatternReader::set_node(const CodePointSet& set) {
  const auto at = std::find(sets_.begin(), sets_.end(), set);
  const int index = static_cast<int>(at - sets_.begin());
  if (at == sets_.end() && sets_.size() == kMaxSets) {
    unsupported(fmt::format("more than {} different classes and literals", kMaxSets), pos_ - 1);
  } else if (at == sets_.end()) {
    sets_.push_back(set);
  }
  return {.kind = Kind::kSet, .set = index};
}

PatternNode PatternReader::literal(char32_t c) {
  if (!ignore_case_) {
    last_literal_.reset();
    return set_node(CodePointSet(c));
  }
  if (!is_ascii_letter(c) && !is_caseless(c)) {
    unsupported("a letter outside ASCII where case is ignored", pos_ - 1);
  }
  if (last_literal_ && folds_to_one(*last_literal_, c)) {
    unsupported("letters that also match a ligature where case is ignored", pos_ - 1);
  }
  last_literal_ = c;
  return set_node(case_variants(c));
}

PatternNode PatternReader::alternatives(std::size_t depth) {
  PatternNode node{.kind = Kind::kAlternatives};
  do {
    last_literal_.reset();
    node.children.push_back(sequence(depth));
  } while (!error_ && take("|"));
  return node;
}

PatternNode PatternReader::sequence(std::size_t depth) {
  PatternNode node{.kind = Kind::kSequence};
  while (!error_ && !at_end() && peek() != '|' && peek() != ')') {
    node.children.push_back(quantified(atom(depth)));
  }
  return node;
}

PatternNode PatternReader::atom(std::size_t depth) {
  switch (peek()) {
    case '(':
      return group(depth);
    case '[':
      return char_class();
    case '\\':
      return escape();
    case '^':
      return line_begin();
    case '$':
      return line_end();
    case '*':
    case '+':
    case '?':
      corrupt("nothing to repeat", pos_);
      return {};
    case '{': {
      const std::size_t from = pos_;
      int min = 0, max = 0;
      if (interval(min, max)) corrupt("nothing to repeat", from);
      break;  // anything else in braces is plain text
    }
    case '.':
      ++pos_;
      last_literal_.reset();
      return set_node(CodePointSet(U'\n').inverted());
    default:
      break;
  }
  return literal(take_char());
}

// After a newline as well as at the beginning, but not after one that ends the text.
PatternNode PatternReader::line_begin() {
  ++pos_;
  PatternNode end{.kind = Kind::kLookahead, .children = {{.kind = Kind::kEnd}}, .negated = true};
  PatternNode after{.kind = Kind::kLookbehind, .children = {set_node(CodePointSet(U'\n'))}};
  PatternNode inner{.kind = Kind::kSequence, .children = {std::move(end), std::move(after)}};
  return {.kind = Kind::kAlternatives, .children = {{.kind = Kind::kBegin}, std::move(inner)}};
}

// Before any newline as well as at the end.
PatternNode PatternReader::line_end() {
  ++pos_;
  PatternNode either{.kind = Kind::kAlternatives,
                     .children = {{.kind = Kind::kEnd}, set_node(CodePointSet(U'\n'))}};
  return {.kind = Kind::kLookahead, .children = {std::move(either)}};
}

// What stands between the group's head and its bracket, which is taken too.
PatternNode PatternReader::group_body(std::size_t depth, std::size_t from) {
  if (depth == kMaxGroupDepth) unsupported("groups nested too deeply", from);
  if (error_) return {};
  PatternNode body = alternatives(depth + 1);
  if (!error_ && !take(")")) corrupt("a group that is not closed", from);
  return body;
}

PatternNode PatternReader::group(std::size_t depth) {
  const std::size_t from = pos_++;
  if (!take("?") || take(":")) return group_body(depth, from);
  if (take(">")) return {.kind = Kind::kAtomic, .children = {group_body(depth, from)}};
  if (from == 0 && take("i)")) {
    ignore_case_ = true;  // to the end; elsewhere it would also regroup the alternatives
    return {};
  }
  if (const bool on = take("i:"); on || take("-i:")) {
    const bool outside = std::exchange(ignore_case_, on);
    PatternNode body = group_body(depth, from);
    ignore_case_ = outside;
    return body;
  }
  for (std::string_view look : {"=", "!", "<=", "<!"}) {
    if (!take(look)) continue;
    return {.kind = look.size() == 2 ? Kind::kLookbehind : Kind::kLookahead,
            .children = {group_body(depth, from)},
            .negated = look.back() == '!'};
  }
  unsupported("this kind of group is not supported", from);
  return {};
}

// The repetition that may follow an atom: ? after it for lazy, + for possessive.
PatternNode PatternReader::quantified(PatternNode child) {
  if (error_) return child;
  const std::size_t from = pos_;
  int min = 0, max = PatternNode::kUnlimited;
  const bool is_interval = peek() == '{';
  if (is_interval) {
    if (!interval(min, max)) return child;
  } else if (take("?")) {
    max = 1;
  } else if (take("+")) {
    min = 1;
  } else if (!take("*")) {
    return child;
  }
  if (child.kind == Kind::kLookahead || child.kind == Kind::kLookbehind ||
      child.kind == Kind::kBegin || child.kind == Kind::kEnd) {
    unsupported("a repetition of what takes no text", from);
  }
  last_literal_.reset();
  PatternNode repeat{.kind = Kind::kRepeat, .children = {std::move(child)}, .min = min, .max = max};
  if (take("?")) {
    if (is_interval && min == max) unsupported("a lazy exact count", from);
    repeat.lazy = true;
  } else if (take("+")) {
    // Oniguruma reads a{1,3}+ as (?:a{1,3})+, not as possessive.
    repeat = is_interval ? PatternNode{.kind = Kind::kRepeat,
                                       .children = {std::move(repeat)},
                                       .min = 1,
                                       .max = PatternNode::kUnlimited}
                         : PatternNode{.kind = Kind::kAtomic, .children = {std::move(repeat)}};
  }
  if (peek() == '*' || peek() == '+' || peek() == '?' || (peek() == '{' && interval(min, max))) {
    unsupported("a repeated repetition", from);
  }
  return repeat;
}

// Takes {n}, {n,}, {,m} or {n,m}. False, and nothing taken, when the brace begins none of them.
bool PatternReader::interval(int& min, int& max) {
  const std::size_t from = pos_++;
  const auto number = [&]() -> std::optional<int> {
    std::optional<int> n;
    while (peek() >= '0' && peek() <= '9') {
      n = std::min(n.value_or(0) * 10 + (pattern_[pos_++] - '0'), kMaxRepeat + 1);
    }
    return n;
  };
  const std::optional<int> low = number();
  const bool comma = take(",");
  const std::optional<int> high = comma ? number() : low;
  if (!take("}") || (!low && !high)) {
    pos_ = from;
    return false;
  }
  min = low.value_or(0);
  max = high.value_or(PatternNode::kUnlimited);
  if (min > kMaxRepeat || (high && max > kMaxRepeat)) {
    unsupported(fmt::format("a count above {}", kMaxRepeat), from);
  } else if (min > max) {
    unsupported("a range that ends before it begins", from);
  }
  return true;
}

std::optional<char32_t> PatternReader::hex_digits(int count) {
  char32_t value = 0;
  for (int i = 0; i < count; ++i) {
    const char32_t c = static_cast<unsigned char>(peek());
    if (c >= '0' && c <= '9') {
      value = value << 4 | (c - '0');
    } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
      value = value << 4 | ((c | 0x20) - 'a' + 10);
    } else {
      return std::nullopt;
    }
    ++pos_;
  }
  return value;
}

std::optional<char32_t> PatternReader::char_escape() {
  const std::size_t from = pos_ - 1;
  if (at_end()) {
    corrupt("the pattern ends after a backslash", from);
    return std::nullopt;
  }
  const char32_t c = take_char();
  switch (c) {
    case 'n':
      return U'\n';
    case 'r':
      return U'\r';
    case 't':
      return U'\t';
    case 'f':
      return U'\f';
    case 'v':
      return U'\v';
    case 'a':
      return U'\a';
    case 'e':
      return U'\x1B';
    default:
      break;
  }
  if (c == 'x' && take("{")) {
    char32_t value = 0;
    int digits = 0;
    for (std::optional<char32_t> d; (d = hex_digits(1)); ++digits) value = value << 4 | *d;
    if (take("}") && digits >= 1 && digits <= 6 && value <= kLastCodePoint) return value;
  } else if (c == 'x') {
    const std::optional<char32_t> value = hex_digits(2);
    if (value && *value < 0x80) return value;
  } else if (c == 'u') {
    if (const std::optional<char32_t> value = hex_digits(4)) return value;
  } else if (c < 0x80 && c > 0x20 && !is_ascii_alnum(c)) {
    return c;
  }
  unsupported("this escape is not supported", from);
  return std::nullopt;
}

std::optional<CodePointSet> PatternReader::property(bool negated) {
  const std::size_t from = pos_ - 2;
  const std::size_t close = pattern_.find('}', pos_);
  if (!take("{") || close == std::string_view::npos) {
    unsupported("want a name in braces", from);
    return std::nullopt;
  }
  negated ^= take("^");
  const std::string_view name = pattern_.substr(pos_, close - pos_);
  pos_ = close + 1;
  std::optional<CodePointSet> set = general_category_set(name);
  if (!set) {
    unsupported("not a general category such as L or Lu", from);
    return std::nullopt;
  }
  return negated ? set->inverted() : set;
}

std::optional<CodePointSet> PatternReader::class_escape() {
  switch (peek()) {
    case 's':
      ++pos_;
      return CodePointSet(space_ranges());
    case 'S':
      ++pos_;
      return CodePointSet(space_ranges()).inverted();
    case 'd':
      ++pos_;
      return general_category_set("Nd");
    case 'D':
      ++pos_;
      return general_category_set("Nd")->inverted();
    case 'p':
      ++pos_;
      return property(false);
    case 'P':
      ++pos_;
      return property(true);
    default:
      return std::nullopt;
  }
}

PatternNode PatternReader::escape() {
  ++pos_;
  if (take("A")) return {.kind = Kind::kBegin};
  if (take("z")) return {.kind = Kind::kEnd};
  if (const std::optional<CodePointSet> set = class_escape()) {
    last_literal_.reset();
    return set_node(*set);
  }
  if (error_) return {};
  const std::optional<char32_t> c = char_escape();
  return c ? literal(*c) : PatternNode{};
}

// The rest of "a" or "a-z" after its first character.
void PatternReader::range_end(CodePointSet& set, char32_t first, std::size_t from) {
  const auto dash = [&] { return peek() == '-' && !pattern_.substr(pos_).starts_with("-]"); };
  std::optional<char32_t> last = first;
  if (dash() && take("-")) {
    if (at_end()) return corrupt("a class without its closing bracket", from);
    if (peek() == '[') return unsupported("a class inside a class", from);
    last = take("\\") ? char_escape() : std::optional<char32_t>(take_char());
    if (!last) return;
    if (first > *last) return corrupt("a range that ends before it begins", from);
    if (dash()) return unsupported("a dash after a range", from);
  }
  set.add(first, *last);
  if (!ignore_case_) return;
  if (*last >= 0x80 && (first != *last || !is_caseless(first))) {
    return unsupported("letters outside ASCII where case is ignored", from);
  }
  for (char32_t c = first; c <= *last; ++c) set.add(case_variants(c));
}

// One member of a class: a character, a range or an escape. False at the closing bracket.
bool PatternReader::class_item(CodePointSet& set) {
  const std::size_t from = pos_;
  if (at_end()) return corrupt("a class without its closing bracket", from), false;
  if (take("]")) return false;
  if (peek() == '[' || pattern_.substr(pos_).starts_with("&&")) {
    return unsupported("a class inside a class", from), false;
  }
  if (!take("\\")) {
    range_end(set, take_char(), from);
  } else if (const std::optional<CodePointSet> escaped = class_escape()) {
    const char kind = pattern_[from + 1];
    set.add(*escaped);
    if (ignore_case_ && kind != 's' && kind != 'd') {
      unsupported("a property in a class where case is ignored", from);
    } else if (peek() == '-' && !pattern_.substr(pos_).starts_with("-]")) {
      unsupported("a range that begins with a class", from);
    }
  } else if (!error_) {
    if (const std::optional<char32_t> c = char_escape()) range_end(set, *c, from);
  }
  return !error_;
}

PatternNode PatternReader::char_class() {
  const std::size_t from = pos_++;
  const bool negated = take("^");
  if (peek() == ']') unsupported("a class that begins with its closing bracket", from);
  CodePointSet set;
  while (!error_ && class_item(set)) {
  }
  if (error_) return {};
  last_literal_.reset();
  return set_node(negated ? set.inverted() : set);
}

Result<SplitPattern> PatternReader::run() {
  if (pattern_.size() > kMaxPatternBytes) {
    return Error{ErrorCode::kUnsupported, fmt::format("{} bytes long, at most {} are supported",
                                                      pattern_.size(), kMaxPatternBytes)};
  }
  if (!is_utf8(pattern_)) return Error{ErrorCode::kCorrupt, "not UTF-8"};
  SplitPattern result{alternatives(0), {}};
  if (!error_ && !at_end()) corrupt("no group is open", pos_);
  if (error_) return *error_;
  result.sets = std::move(sets_);
  return result;
}

}  // namespace

Result<SplitPattern> parse_pattern(std::string_view pattern) {
  return PatternReader(pattern).run();
}

}  // namespace lacuna
