#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares our tokenizer with Hugging Face `tokenizers` and records the answers for the tests.

Every text goes through both, for the bundled tokenizer.json and for variants of it with other
pre-tokenizers, added tokens and model settings. With --record, a sample of texts with Hugging Face's
ids and the variants themselves are written to tests/data/tokenizer/, where tokenizer_golden_test
reads them.

    pip install tokenizers==0.23.3
    cmake --build build --target tokenizer_dump
    python tools/record_tokenizer.py --dump build/src/text/tokenizer_dump            # compare
    python tools/record_tokenizer.py --dump build/src/text/tokenizer_dump --record   # and record
"""

import argparse
import copy
import itertools
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

import tokenizers

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASE = ROOT / "models" / "tiny-nemotron-h" / "mlx-4bit" / "tokenizer.json"
DATA = ROOT / "tests" / "data" / "tokenizer"

# The two patterns in circulation for Nemotron's vocabulary, and those of other families.
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ONE_DIGIT = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
WORDS_AND_MARKS = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def byte_level(prefix_space=False, use_regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": True, "use_regex": use_regex}


def digits(individual):
    return {"type": "Digits", "individual_digits": individual}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def added(id, content, **flags):
    token = dict(id=id, content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
    return {**token, **flags}


ADDED = [
    added(8192, "<think>"),
    added(8193, "xyzzy", single_word=True),
    added(8194, "<left>", lstrip=True, special=True),
    added(8195, "<right>", rstrip=True, special=True),
    added(8196, "<both>", lstrip=True, rstrip=True, normalized=True),
    added(8197, "<thinking>", normalized=True),
    added(8198, "im_start"),
    added(8199, "｜日本｜", special=True),
    added(8200, "im_", normalized=True, single_word=True),
]

# Small enough to be kept in the repository as changes to the base file.
VARIANTS = {
    "bundled": {},
    "tekken": {"pre_tokenizer": sequence(split(TEKKEN), byte_level())},
    "llama3": {"pre_tokenizer": sequence(split(LLAMA3), byte_level()), "ignore_merges": True},
    "one_digit": {"pre_tokenizer": sequence(split(ONE_DIGIT), byte_level())},
    "cl100k": {"pre_tokenizer": sequence(split(CL100K), byte_level())},
    "gpt2": {"pre_tokenizer": byte_level(use_regex=True)},
    "gpt2_prefix": {"pre_tokenizer": byte_level(prefix_space=True, use_regex=True)},
    "plain_bytes": {"pre_tokenizer": byte_level()},
    "digits_words": {
        "pre_tokenizer": sequence(
            split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(WORDS_AND_MARKS), byte_level()
        )
    },
    "digits_single": {"pre_tokenizer": sequence(split(" ", "MergedWithNext", kind="String"), digits(True), byte_level(use_regex=True))},
    "digits_runs": {"pre_tokenizer": sequence(digits(False), split(r"\s+", "MergedWithPrevious"), byte_level(True))},
    "removed": {"pre_tokenizer": sequence(split(r"\s+", "Removed"), byte_level())},
    "inverted": {"pre_tokenizer": sequence(split(r"\p{L}+|\p{M}", "Removed", invert=True), byte_level())},
    "contiguous": {"pre_tokenizer": sequence(split(r"\p{P}", "Contiguous"), split("a*", "MergedWithNext"), byte_level())},
    "lines": {"pre_tokenizer": sequence(split(r"^.*?[^\p{Ll}\p{C}]$|(?<=\d)(?!\D)"), byte_level())},
    "added": {"added_tokens": ADDED},
}


def variant_json(changes):
    data = json.loads(BASE.read_text())
    for key, value in copy.deepcopy(changes).items():
        if key == "added_tokens":
            data[key] += value
        elif key == "ignore_merges":
            data["model"][key] = value
        else:
            data[key] = value
    return json.dumps(data, ensure_ascii=False)


# Texts

SCRIPTS = {
    "latin": (0x41, 0x24F), "greek": (0x370, 0x3FF), "cyrillic": (0x400, 0x52F), "armenian": (0x531, 0x58F),
    "hebrew": (0x591, 0x5F4), "arabic": (0x600, 0x6FF), "devanagari": (0x900, 0x97F), "bengali": (0x980, 0x9FF),
    "tamil": (0xB82, 0xBFA), "thai": (0xE01, 0xE5B), "tibetan": (0xF00, 0xFDA), "georgian": (0x10A0, 0x10FF),
    "hangul jamo": (0x1100, 0x11FF), "ethiopic": (0x1200, 0x139F), "cherokee": (0x13A0, 0x13FF),
    "punctuation": (0x2000, 0x206F), "letterlike": (0x2100, 0x218F), "arrows": (0x2190, 0x2BFF),
    "kana": (0x3041, 0x30FF), "cjk": (0x4E00, 0x9FFF), "hangul": (0xAC00, 0xD7A3), "ligatures": (0xFB00, 0xFB4F),
    "full width": (0xFF01, 0xFFEE), "emoji": (0x1F300, 0x1FAFF), "math letters": (0x1D400, 0x1D7FF),
    "cjk b": (0x20000, 0x2A6DF), "tags": (0xE0000, 0xE01EF), "private": (0xE000, 0xF8FF), "controls": (0, 0xFF),
}
SPACES = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u2003", "\u3000", "\u2028", "\u0085", "\u200b", "\v", "\f", "   \n  "]
CONTRACTIONS = ["'s", "'S", "'t", "'re", "'RE", "'ve", "'m", "'ll", "'LL", "'d", "\u2019s", "'\u017f", "'data'", "''ll"]
SPECIALS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|pad|>", "<think>", "<thinking>", "<left>", "<right>",
            "<both>", "xyzzy", "xyzzyé", "_xyzzy", "日xyzzy", "｜日本｜", "im_start", "im_", "<|im_", "_end|>"]
EMOJI = ["🦙", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇨🇿🇯🇵", "❤️", "👍🏽", "1️⃣", "e\u0301", "ก็", "각", "नि"]
CODE = ["if (x<=0)\n\treturn;\n\n", "}\n\n//", ");\n//", "<function=", "</parameter>", "getElementById", "a_b1->c[42]++;",
        "0x1F", "3.14159e-10", "1314151", "/* … */", "\\n\\t", "#!/bin/sh\n", "{{%- if -%}}", "=> {}", "::std", "$€£¥₿"]


def characters(rng, low, high):
    text = ""
    for _ in range(rng.randint(1, 12)):
        c = rng.randint(low, high)
        text += chr(c) if not 0xD800 <= c < 0xE000 else "\ufffd"
    return text


def fragment(rng, words):
    kind = rng.randrange(12)
    if kind < 3:
        return rng.choice(words)
    if kind < 5:
        return characters(rng, *rng.choice(list(SCRIPTS.values())))
    if kind == 5:
        return characters(rng, 0, 0x10FFFF)
    if kind == 6:
        return str(rng.randrange(10 ** rng.randint(1, 12)))
    if kind == 7:
        return rng.choice(SPECIALS)
    if kind == 8:
        return rng.choice(EMOJI)
    if kind == 9:
        return rng.choice(CODE)
    if kind == 10:
        return rng.choice(words) + rng.choice(CONTRACTIONS)
    raw = bytes(rng.randrange(256) for _ in range(rng.randint(1, 6)))
    return raw.decode("utf-8", "replace")


def generated(rng, words):
    text = ""
    for _ in range(rng.randint(1, 10)):
        text += fragment(rng, words)
        if rng.random() < 0.7:
            text += rng.choice(SPACES) if rng.random() < 0.5 else " "
    return text.replace("\0", "\1")  # NUL separates texts on the way to tokenizer_dump


def texts(count):
    rng = random.Random(20261130)
    result = [""]
    words = []
    for name in ("val_prose.txt", "val_code.txt"):
        content = (ROOT / "models" / name).read_text()
        result += content.splitlines(keepends=True)
        result += [content[i : i + 4000] for i in range(0, len(content), 4000)]
        words += content.split()
    # Every character three times: between letters, between spaces, beside its neighbours. Of the
    # private and unassigned ones (by this Python's Unicode) a part will do.
    points = [c for c in range(1, 0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Co", "Cs") or c % 61 == 0]
    points = [c for c in points if not 0xD800 <= c < 0xE000]
    for begin in range(0, len(points), 64):
        block = points[begin : begin + 64]
        result.append("".join("a" + chr(c) + "b" for c in block))
        result.append("".join(" " + chr(c) + "  " for c in block))
        result.append("".join(map(chr, block)))
    result += [c * n for c in ("a", "A", " ", "\n", "=", "é", "日", "1", " \n", "ab", "🦙", "'s") for n in (2, 3, 7, 100, 3000)]
    while len(result) < count:
        result.append(generated(rng, words))
    return result


def ours(dump, json_text, inputs, mode=None):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(json_text)
        file.flush()
        data = b"".join(t.encode() + b"\0" for t in inputs)
        arguments = [dump, file.name] + ([mode] if mode else [])
        return subprocess.run(arguments, input=data, stdout=subprocess.PIPE, check=True).stdout


def compare(dump, name, changes, inputs, plain):
    json_text = variant_json(changes)
    reference = tokenizers.Tokenizer.from_str(json_text)
    reference.encode_special_tokens = plain
    want = [e.ids for e in reference.encode_batch_fast(inputs, add_special_tokens=False)]
    lines = ours(dump, json_text, inputs, "plain" if plain else None).decode().split("\n")[:-1]
    got = [[int(i) for i in line.split()] for line in lines]
    label = name + (" (plain)" if plain else "")
    differing = [i for i in range(len(inputs)) if i >= len(got) or want[i] != got[i]]
    for i in differing[:5]:
        print(f"{label}: {inputs[i]!r}\n  want {want[i]}\n  got  {got[i] if i < len(got) else None}")
    mismatched = len(differing)
    if not plain:
        decoded = ours(dump, json_text, [" ".join(map(str, ids)) for ids in want], "decode").split(b"\0")[:-1]
        texts_back = reference.decode_batch(want, skip_special_tokens=True)
        wrong = [i for i in range(len(inputs)) if decoded[i].decode("utf-8", "replace") != texts_back[i]]
        for i in wrong[:5]:
            print(f"{label}: decode {want[i]}\n  want {texts_back[i]!r}\n  got  {decoded[i]!r}")
        mismatched += len(wrong)
    print(f"{label}: {len(inputs)} texts, {sum(map(len, want))} tokens, {mismatched} differ", flush=True)
    return want, mismatched


def fingerprint(ids):
    """FNV-1a of the ids, in hexadecimal: what tokenizer_golden_test computes too."""
    value = 2166136261
    for id in ids:
        for byte in id.to_bytes(4, "little"):
            value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return f"{value:08x}"


# The bytes at the borders of UTF-8's rules.
UTF8_BYTES = [0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1,
              0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF]


def invalid_utf8():
    """FNV-1a over what Python's decoder makes of every string of one to four such bytes."""
    value = 2166136261
    for length in range(1, 5):
        for raw in itertools.product(UTF8_BYTES, repeat=length):
            for byte in bytes(raw).decode("utf-8", "replace").encode() + b"\xff":
                value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return {"bytes": UTF8_BYTES, "fingerprint": f"{value:08x}"}


def sample(inputs, rng):
    """Short texts of every kind: held-out lines, single characters in context, generated ones."""
    short = [t for t in inputs if 0 < len(t) < 120]
    with_specials = [t for t in short if any(s in t for s in SPECIALS)]
    return [""] + rng.sample(short, 1100) + rng.sample(with_specials, 400)


def record(results, inputs):
    """Texts, and per variant its changes, a fingerprint of the ids a text, and the first ids in full."""
    DATA.mkdir(parents=True, exist_ok=True)
    chosen = sample(inputs, random.Random(1))
    index = {t: i for i, t in enumerate(inputs)}
    variants = {}
    for (name, plain), want in results.items():
        ids = [want[index[t]] for t in chosen]
        variants[name + ("/plain" if plain else "")] = {
            "changes": VARIANTS[name],
            "fingerprints": "".join(map(fingerprint, ids)),
            "first_ids": ids[:20],
        }
    recording = {
        "made_by": f"tools/record_tokenizer.py, tokenizers {tokenizers.__version__}",
        "invalid_utf8": invalid_utf8(),
        "texts": chosen,
        "variants": variants,
    }
    text = json.dumps(recording, ensure_ascii=False, separators=(",", ":"))
    (DATA / "hugging_face.json").write_text(text + "\n")
    print(f"recorded {len(chosen)} texts, {len(variants)} variants, {len(text.encode())} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dump", required=True, help="the tokenizer_dump binary")
    parser.add_argument("--texts", type=int, default=100000, help="how many texts (default 100000)")
    parser.add_argument("--only", help="one variant")
    parser.add_argument("--record", action="store_true", help="write tests/data/tokenizer/")
    arguments = parser.parse_args()

    inputs = texts(arguments.texts)
    results, mismatched = {}, 0
    for name, changes in VARIANTS.items():
        if arguments.only and name != arguments.only:
            continue
        for plain in (False, True) if name in ("bundled", "added") else (False,):
            want, wrong = compare(arguments.dump, name, changes, inputs, plain)
            results[name, plain] = want
            mismatched += wrong
    if arguments.record and mismatched == 0:
        record(results, inputs)
    return 1 if mismatched else 0


if __name__ == "__main__":
    sys.exit(main())
