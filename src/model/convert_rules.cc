// SPDX-License-Identifier: Apache-2.0
#include "model/convert_rules.h"

#include <fmt/core.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "base/mmap.h"
#include "checkpoint/json.h"

namespace lacuna {
namespace {

constexpr std::array kBits = {2, 3, 4, 5, 6, 8};
constexpr std::array kGroups = {32, 64, 128};
constexpr std::size_t kMaxBytes = 1 << 20;

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  line = line.substr(0, line.find('#'));
  constexpr std::string_view kSpace = " \t\r";
  while (true) {
    const std::size_t begin = line.find_first_not_of(kSpace);
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    const std::size_t end = std::min(line.find_first_of(kSpace), line.size());
    words.emplace_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

template <std::size_t N>
std::optional<int> one_of(const std::string& word, const std::array<int, N>& choices) {
  int value = 0;
  const char* end = word.data() + word.size();
  const auto [stop, problem] = std::from_chars(word.data(), end, value);
  const bool known = std::find(choices.begin(), choices.end(), value) != choices.end();
  return problem == std::errc() && stop == end && known ? std::optional(value) : std::nullopt;
}

Result<ConvertRule> parse_rule(const std::vector<std::string>& words, const std::string& where,
                               int default_group) {
  const auto wrong = [&where](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}", where, what)};
  };
  if (words.size() == 1)
    return wrong(
        fmt::format("only the pattern {}, wanted bits or keep after it", printable(words[0])));
  ConvertRule rule{words[0], false, 0, default_group, where};
  if (words[1] == "keep") {
    if (words.size() > 2) return wrong(fmt::format("{} after keep", printable(words[2])));
    rule.keep = true;
    return rule;
  }
  const auto bits = one_of(words[1], kBits);
  if (!bits)
    return wrong(fmt::format("{}, wanted keep or bits: 2, 3, 4, 5, 6 or 8", printable(words[1])));
  rule.bits = *bits;
  if (words.size() == 2) return rule;
  const auto group = one_of(words[2], kGroups);
  if (!group) return wrong(fmt::format("group {}, wanted 32, 64 or 128", printable(words[2])));
  if (words.size() > 3) return wrong(fmt::format("{} after the group", printable(words[3])));
  rule.group = *group;
  return rule;
}

}  // namespace

Result<std::vector<ConvertRule>> parse_convert_rules(std::string_view text, const std::string& name,
                                                     const AffineFormat& defaults) {
  std::vector<ConvertRule> rules;
  for (int line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::vector<std::string> words = words_of(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (words.empty()) continue;
    LAC_TRY(ConvertRule rule, parse_rule(words, fmt::format("{}:{}", name, line), defaults.group));
    rules.push_back(std::move(rule));
  }
  return rules;
}

Result<std::vector<ConvertRule>> read_convert_rules(const std::filesystem::path& path,
                                                    const AffineFormat& defaults) {
  auto text = read_text_file(path, kMaxBytes);
  if (!text) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("--rules: {}", text.error().what)};
  }
  return parse_convert_rules(*text, path.string(), defaults);
}

bool matches(const ConvertRule& rule, const std::string& module) {
  return fnmatch(rule.pattern.c_str(), module.c_str(), 0) == 0;
}

}  // namespace lacuna
