// SPDX-License-Identifier: Apache-2.0
#include "text/code_point_set.h"

#include <algorithm>
#include <array>

namespace lacuna {
namespace {

constexpr std::array<std::string_view, 30> kCategoryNames = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

}  // namespace

CodePointSet::CodePointSet(std::span<const CodePointRange> ranges) {
  for (const CodePointRange& r : ranges) add(r.first, r.last);
}

void CodePointSet::add(char32_t first, char32_t last) {
  // The ranges that overlap or touch [first, last] become one with it.
  const auto begin = std::partition_point(
      ranges_.begin(), ranges_.end(), [&](const CodePointRange& r) { return r.last + 1 < first; });
  const auto end = std::partition_point(
      begin, ranges_.end(), [&](const CodePointRange& r) { return r.first <= last + 1; });
  if (begin != end) {
    first = std::min(first, begin->first);
    last = std::max(last, std::prev(end)->last);
  }
  ranges_.insert(ranges_.erase(begin, end), {first, last});
}

void CodePointSet::add(const CodePointSet& other) {
  for (const CodePointRange& r : other.ranges_) add(r.first, r.last);
}

CodePointSet CodePointSet::inverted() const {
  CodePointSet result;
  char32_t next = 0;
  for (const CodePointRange& r : ranges_) {
    if (r.first > next) result.ranges_.push_back({next, r.first - 1});
    next = r.last + 1;
  }
  if (next <= kLastCodePoint) result.ranges_.push_back({next, kLastCodePoint});
  return result;
}

bool CodePointSet::contains(char32_t c) const {
  const auto r = std::partition_point(ranges_.begin(), ranges_.end(),
                                      [&](const CodePointRange& x) { return x.last < c; });
  return r != ranges_.end() && r->first <= c;
}

std::size_t CodePointSet::size() const {
  std::size_t total = 0;
  for (const CodePointRange& r : ranges_) total += r.last - r.first + 1;
  return total;
}

bool CodePointSet::operator==(const CodePointSet& other) const {
  return std::equal(ranges_.begin(), ranges_.end(), other.ranges_.begin(), other.ranges_.end(),
                    [](const CodePointRange& a, const CodePointRange& b) {
                      return a.first == b.first && a.last == b.last;
                    });
}

std::optional<CodePointSet> general_category_set(std::string_view name) {
  if (name.empty() || name.size() > 2) return std::nullopt;
  const std::span<const std::uint32_t> runs = category_runs();
  CodePointSet result;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!kCategoryNames[runs[i] & 0xFF].starts_with(name)) continue;
    const char32_t last = i + 1 < runs.size() ? (runs[i + 1] >> 8) - 1 : kLastCodePoint;
    result.add(runs[i] >> 8, last);
  }
  if (result.ranges().empty()) return std::nullopt;
  return result;
}

GeneralCategory general_category(char32_t c) {
  const std::span<const std::uint32_t> runs = category_runs();
  const auto after = std::partition_point(runs.begin(), runs.end(),
                                          [&](std::uint32_t run) { return (run >> 8) <= c; });
  return static_cast<GeneralCategory>(*std::prev(after) & 0xFF);
}

}  // namespace lacuna
