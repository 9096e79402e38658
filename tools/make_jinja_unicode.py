#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/text/jinja_unicode_tables.inc: which characters Python prints in repr() and how it changes case.

    python3 tools/make_jinja_unicode.py

Beside it goes tests/data/templates/unicode_digest.txt, a hash over Python's answers for every character.
"""
import pathlib
import unicodedata

ROOT = pathlib.Path(__file__).resolve().parent.parent

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def unprintable_ranges():
    ranges = []
    for c in range(0x110000):
        if chr(c).isprintable():
            continue
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return ranges


def case_runs(method):
    """Runs (first, last, step, delta) of characters that map to one other character."""
    runs = []
    for c in CODE_POINTS:
        mapped = method(chr(c))
        if len(mapped) != 1 or ord(mapped) == c:
            continue
        delta = ord(mapped) - c
        if runs:
            run = runs[-1]
            gap = c - run[1]
            if run[3] == delta and (gap == run[2] or (run[0] == run[1] and gap <= 2)):
                run[1], run[2] = c, gap
                continue
        runs.append([c, c, 1, delta])
    return runs


def case_specials(method):
    return [(c, method(chr(c))) for c in CODE_POINTS if len(method(chr(c))) > 1]


def digest():
    """64-bit FNV-1a over, for every character, printable as 0 or 1 and the three cases in UTF-8."""
    value = 0xCBF29CE484222325
    for c in CODE_POINTS:
        x = chr(c)
        answer = f"{int(x.isprintable())}{x.lower()}{x.upper()}{x.title()}{int(x.isspace())}"
        for byte in answer.encode():
            value = ((value ^ byte) * 0x100000001B3) % 2**64
    return value


def write_tables(out):
    out.write("// SPDX-License-Identifier: Apache-2.0\n")
    out.write(f"// Written by tools/make_jinja_unicode.py from Unicode {unicodedata.unidata_version}; do not edit.\n")
    out.write("// clang-format off\n")
    out.write("constexpr Range kUnprintable[] = {\n")
    for first, last in unprintable_ranges():
        out.write(f"{{{first:#x},{last:#x}}},\n")
    out.write("};\n")
    for name, method in (("Lower", str.lower), ("Upper", str.upper), ("Title", str.title)):
        out.write(f"constexpr CaseRun k{name}[] = {{\n")
        for first, last, step, delta in case_runs(method):
            out.write(f"{{{first:#x},{last:#x},{step},{delta}}},\n")
        out.write("};\n")
        out.write(f"constexpr CaseSpecial k{name}Special[] = {{\n")
        for c, text in case_specials(method):
            codes = [f"{ord(x):#x}" for x in text] + ["0"] * (3 - len(text))
            out.write(f"{{{c:#x},{{{','.join(codes)}}}}},\n")
        out.write("};\n")
    out.write("// clang-format on\n")


def main():
    with (ROOT / "src/text/jinja_unicode_tables.inc").open("w") as out:
        write_tables(out)
    (ROOT / "tests/data/templates/unicode_digest.txt").write_text(f"{digest():016x}\n")


main()
