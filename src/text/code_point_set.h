// SPDX-License-Identifier: Apache-2.0
// A set of Unicode code points, kept as sorted ranges.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "text/unicode_ranges.h"

namespace lacuna {

inline constexpr char32_t kLastCodePoint = 0x10FFFF;

class CodePointSet {
 public:
  CodePointSet() = default;
  explicit CodePointSet(char32_t only) { add(only, only); }
  explicit CodePointSet(std::span<const CodePointRange> ranges);

  void add(char32_t first, char32_t last);  // both included, first <= last <= kLastCodePoint
  void add(const CodePointSet& other);

  CodePointSet inverted() const;  // every code point that is not in this one
  bool contains(char32_t c) const;
  std::size_t size() const;  // code points, not ranges
  std::span<const CodePointRange> ranges() const { return ranges_; }
  bool operator==(const CodePointSet& other) const;

 private:
  std::vector<CodePointRange> ranges_;  // sorted, disjoint, not touching
};

// The set of a general category ("Lu") or a group of them ("L"); nullopt for any other name.
std::optional<CodePointSet> general_category_set(std::string_view name);
GeneralCategory general_category(char32_t c);

}  // namespace lacuna
