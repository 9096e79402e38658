// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <map>

#include "text/split_pattern.h"

namespace lacuna {
namespace {

constexpr int kMaxSymbols = 256;

// Splits every group of `label` that has code points both in and out of the set: those in it move
// to a new label. `count` is the number of code points per label.
void refine(const CodePointSet& set, std::vector<std::uint32_t>& label,
            std::vector<std::uint32_t>& count) {
  std::map<std::uint32_t, std::uint32_t> moved;
  for (const CodePointRange& r : set.ranges()) {
    for (char32_t c = r.first; c <= r.last; ++c) {
      const auto [to, is_new] =
          moved.try_emplace(label[c], static_cast<std::uint32_t>(count.size()));
      if (is_new) count.push_back(0);
      --count[label[c]];
      ++count[to->second];
      label[c] = to->second;
    }
  }
}

int used(const std::vector<std::uint32_t>& count) {
  int n = 0;
  for (std::uint32_t c : count) n += c > 0;
  return n;
}

}  // namespace

Result<SymbolTable> SymbolTable::build(const std::vector<CodePointSet>& sets) {
  std::vector<std::uint32_t> label(kLastCodePoint + 1, 0);
  std::vector<std::uint32_t> count = {kLastCodePoint + 1};
  for (const CodePointSet& set : sets) {
    // A set and what it leaves out split the groups alike; the smaller one is less to walk.
    const bool large = set.size() > kLastCodePoint / 2;
    refine(large ? set.inverted() : set, label, count);
    if (used(count) > kMaxSymbols) {
      return Error{ErrorCode::kUnsupported,
                   fmt::format("tells more than {} kinds of characters apart", kMaxSymbols)};
    }
  }

  SymbolTable table;
  std::map<std::uint32_t, std::uint8_t> symbol_of;
  std::map<std::array<std::uint8_t, 256>, std::uint16_t> page_index;
  for (std::size_t p = 0; p < table.page_of_.size(); ++p) {
    std::array<std::uint8_t, 256> page;
    for (std::size_t i = 0; i < page.size(); ++i) {
      const auto next = static_cast<std::uint8_t>(symbol_of.size());
      const auto [symbol, is_new] = symbol_of.try_emplace(label[p << 8 | i], next);
      if (is_new) table.examples_.push_back(static_cast<char32_t>(p << 8 | i));
      page[i] = symbol->second;
    }
    const auto next = static_cast<std::uint16_t>(table.pages_.size());
    const auto [at, is_new] = page_index.try_emplace(page, next);
    if (is_new) table.pages_.push_back(page);
    table.page_of_[p] = at->second;
  }
  return table;
}

}  // namespace lacuna
