#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks Hugging Face `tokenizers` which characters its classes hold, and writes them as a C++ table.

Every code point is put to the library itself, so the table agrees with what a tokenizer.json was
trained with, whatever Unicode version either side carries. Four questions, because the library has
three sources of Unicode data:

  \\p{Lu} and the other general categories, \\s   the regex engine of Split and ByteLevel
  Digits                                         the numeric test of the Digits pre-tokenizer
  single_word, lstrip, rstrip                    the word and space tests around added tokens

    pip install tokenizers==0.23.3
    python tools/make_unicode_ranges.py            # rewrites src/text/unicode_ranges.cc
    python tools/make_unicode_ranges.py --check    # compares, exit status 1 when it differs
"""

import argparse
import pathlib
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

TABLE = pathlib.Path(__file__).resolve().parent.parent / "src" / "text" / "unicode_ranges.cc"
# The order of enum GeneralCategory in unicode_ranges.h.
CATEGORIES = (
    "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn"
).split()
SURROGATES = range(0xD800, 0xE000)  # no text holds them
CODE_POINTS = [c for c in range(0x110000) if c not in SURROGATES]


def regex_members(pattern):
    """The code points that a one-character pattern matches."""
    keep = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    found = set()
    for piece, _ in keep.pre_tokenize_str("".join(map(chr, CODE_POINTS))):
        found.update(map(ord, piece))
    return found


def numeric_members():
    digits = pre_tokenizers.Digits(individual_digits=True)
    return {c for c in CODE_POINTS if c != 0x61 and len(digits.pre_tokenize_str("a" + chr(c) + "a")) == 3}


def beside_added_token(token, before):
    """Per code point, the token's offsets in the text where the code point stands beside it."""
    probe = Tokenizer(models.BPE())
    probe.add_tokens([token])
    offsets = {}
    for begin in range(0, len(CODE_POINTS), 50000):
        part = [c for c in CODE_POINTS[begin : begin + 50000] if chr(c) != token.content]
        texts = [chr(c) + token.content if before else token.content + chr(c) for c in part]
        for c, encoding in zip(part, probe.encode_batch(texts)):
            offsets[c] = encoding.offsets[0] if encoding.ids else None
    return offsets


def word_members():
    before = beside_added_token(AddedToken("X", single_word=True, normalized=False), True)
    after = beside_added_token(AddedToken("X", single_word=True, normalized=False), False)
    words = {c for c, at in before.items() if at is None}
    assert words == {c for c, at in after.items() if at is None}, "the two sides of single_word differ"
    return words | {ord("X")}


def strip_members():
    before = beside_added_token(AddedToken("X", lstrip=True, normalized=False), True)
    after = beside_added_token(AddedToken("X", rstrip=True, normalized=False), False)
    left = {c for c, at in before.items() if at == (0, 2)}
    assert left == {c for c, at in after.items() if at == (0, 2)}, "lstrip and rstrip differ"
    return left


def category_runs():
    category = {c: "Cs" for c in SURROGATES}
    for name in CATEGORIES:
        for c in regex_members(r"\p{%s}" % name):
            assert c not in category, f"U+{c:04X} is both {category[c]} and {name}"
            category[c] = name
    assert len(category) == 0x110000, "some code points have no category"
    runs = []
    for c in range(0x110000):
        if c == 0 or category[c] != category[c - 1]:
            runs.append((c, category[c]))
    return runs


def ranges(members):
    result = []
    for c in sorted(members):
        if result and result[-1][1] == c - 1:
            result[-1][1] = c
        else:
            result.append([c, c])
    return result


def lines_of(items, width=98):
    lines, line = [], "   "
    for item in items:
        if len(line) + 1 + len(item) > width:
            lines.append(line)
            line = "   "
        line += " " + item
    return "\n".join(lines + [line])


def range_table(name, members):
    body = lines_of("{0x%X, 0x%X}," % tuple(r) for r in ranges(members))
    return f"constexpr CodePointRange {name}[] = {{\n{body}\n}};\n"


def table():
    space = regex_members(r"\s")
    assert space == strip_members(), "the regex engine and lstrip disagree about spaces"
    runs = category_runs()
    body = lines_of("0x%X," % (first << 8 | CATEGORIES.index(name)) for first, name in runs)
    return f"""// SPDX-License-Identifier: Apache-2.0
// Made by tools/make_unicode_ranges.py from Hugging Face tokenizers {tokenizers.__version__}; do not edit.
#include "text/unicode_ranges.h"

// clang-format off
namespace lacuna {{
namespace {{

// First code point of a run times 256, plus its GeneralCategory.
constexpr std::uint32_t kCategoryRuns[] = {{
{body}
}};

{range_table("kSpaces", space)}
{range_table("kNumeric", numeric_members())}
{range_table("kWord", word_members())}
}}  // namespace

std::span<const std::uint32_t> category_runs() {{ return kCategoryRuns; }}
std::span<const CodePointRange> space_ranges() {{ return kSpaces; }}
std::span<const CodePointRange> numeric_ranges() {{ return kNumeric; }}
std::span<const CodePointRange> word_ranges() {{ return kWord; }}

}}  // namespace lacuna
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    arguments = parser.parse_args()
    text = table()
    if not arguments.check:
        TABLE.write_text(text)
        return 0
    if TABLE.read_text() == text:
        print(f"{TABLE.name} agrees with tokenizers {tokenizers.__version__} on all code points")
        return 0
    print(f"{TABLE.name} differs from tokenizers {tokenizers.__version__}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
