#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that includes point down only. Prints each one that does not and exits with 1.

Usage: tools/check_layers.py [REPOSITORY]
"""
import pathlib
import re
import sys

# Bottom up: a folder may use itself and everything before it. ARCHITECTURE.md explains the order.
LAYERS = ["base", "tensor", "checkpoint", "ops", "backend", "text", "model", "decode", "server",
          "apps"]
# The public headers belong to the layer that implements them.
DOOR = {"result.h": "base", "version.h": "base", "counters.h": "base", "trace.h": "base", "sampling.h": "model",
        "engine.h": "model", "session.h": "model"}
# Files that belong to no program may also use what tests share.
TEST_FILE = re.compile(r"_(test|bench|fuzz)\.cc$")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def layer_of(path):
    """The layer of a path as an #include writes it; None when it has none."""
    folder, slash, name = path.partition("/")
    if folder == "lacuna":
        return DOOR.get(name)
    return folder if slash and folder in LAYERS else None


def violations(root):
    sources = [(root / "src", ""), (root, "apps/"), (root / "include", "lacuna/")]
    for base, prefix in sources:
        for file in sorted((base / prefix).rglob("*")):
            if file.suffix not in {".h", ".cc", ".cu", ".cuh", ".mm"}:
                continue
            own = layer_of(file.relative_to(base).as_posix())
            name = file.relative_to(root)
            if own is None:
                yield f"{name}: in no layer that tools/check_layers.py knows"
                continue
            for target in INCLUDE.findall(file.read_text(encoding="utf-8")):
                if target.startswith(("tests/", "bench/")) and TEST_FILE.search(file.name):
                    continue
                layer = layer_of(target) if "/" in target else own
                if layer is None:
                    yield f'{name}: "{target}" is in no layer'
                elif LAYERS.index(layer) > LAYERS.index(own):
                    yield f'{name}: {own} may not use "{target}" of {layer}, a higher layer'


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    found = list(violations(root))
    print("\n".join(found) if found else "layers: every include points down")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
