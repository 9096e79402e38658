// SPDX-License-Identifier: Apache-2.0
#include "text/jinja_unicode.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "text/jinja_text.h"

namespace lacuna::jinja {
namespace {

struct Range {
  char32_t first, last;
};
// Every step-th character from first to last maps to itself plus delta.
struct CaseRun {
  char32_t first, last;
  int step, delta;
};
struct CaseSpecial {
  char32_t from;
  char32_t to[3];  // ends with 0 when shorter
};

#include "text/jinja_unicode_tables.inc"

struct CaseTable {
  std::span<const CaseRun> runs;
  std::span<const CaseSpecial> specials;
};

CaseTable table(Case to) {
  switch (to) {
    case Case::kLower:
      return {kLower, kLowerSpecial};
    case Case::kUpper:
      return {kUpper, kUpperSpecial};
    case Case::kTitle:
      break;
  }
  return {kTitle, kTitleSpecial};
}

}  // namespace

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  const auto* after = std::upper_bound(std::begin(kUnprintable), std::end(kUnprintable), c,
                                       [](char32_t x, const Range& r) { return x < r.first; });
  return after == std::begin(kUnprintable) || std::prev(after)->last < c;
}

void append_case(std::string& out, char32_t c, Case to) {
  if (c < 0x80) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool lower = c >= 'a' && c <= 'z';
    if (to == Case::kLower ? upper : lower) c ^= 0x20;
    out.push_back(static_cast<char>(c));
    return;
  }
  const CaseTable cases = table(to);
  for (const CaseSpecial& s : cases.specials) {
    if (s.from != c) continue;
    for (const char32_t x : s.to) {
      if (x != 0) append_utf8(out, x);
    }
    return;
  }
  // Runs with a step of 2 interleave, so the one that covers c need not be the last that begins
  // before it; the whole table is a few hundred entries and case changes are rare.
  for (const CaseRun& r : cases.runs) {
    if (c < r.first || c > r.last || (c - r.first) % static_cast<unsigned>(r.step) != 0) continue;
    return append_utf8(out, static_cast<char32_t>(static_cast<int>(c) + r.delta));
  }
  append_utf8(out, c);
}

}  // namespace lacuna::jinja
