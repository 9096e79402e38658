// SPDX-License-Identifier: Apache-2.0
// Which characters belong to which class, exactly as Hugging Face `tokenizers` sees them.
//
// The data is made by tools/make_unicode_ranges.py, which puts every code point to that library.
// Ranges are sorted, disjoint and never touch; both ends are included.
#pragma once

#include <cstdint>
#include <span>

namespace lacuna {

struct CodePointRange {
  char32_t first;
  char32_t last;
};

// In the order of kCategoryRuns and of CATEGORIES in the tool. Surrogates are kCs.
enum class GeneralCategory : std::uint8_t {
  // clang-format off
  kLu, kLl, kLt, kLm, kLo, kMn, kMc, kMe, kNd, kNl, kNo, kPc, kPd, kPs, kPe, kPi, kPf, kPo,
  kSm, kSc, kSk, kSo, kZs, kZl, kZp, kCc, kCf, kCs, kCo, kCn,
  // clang-format on
};

// All of Unicode as runs of one category: first code point times 256, plus the category.
std::span<const std::uint32_t> category_runs();
std::span<const CodePointRange> space_ranges();    // \s, and what lstrip and rstrip take
std::span<const CodePointRange> numeric_ranges();  // what the Digits pre-tokenizer splits off
std::span<const CodePointRange> word_ranges();     // the letters that single_word looks for

}  // namespace lacuna
