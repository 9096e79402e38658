#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails when an object compiled for one instruction set defines a weak symbol: the linker keeps one
# copy of such a symbol for the whole program, and it could be the one with AVX-512 in it.
#
# Usage: tools/check_isa_symbols.sh BUILD_FOLDER      $NM: the nm to use, for cross builds
set -euo pipefail
build=${1:?usage: tools/check_isa_symbols.sh BUILD_FOLDER}

mapfile -t objects < <(find "$build" -name '*.o' | grep -E '[_/](avx2|avx512[a-z0-9_]*|neon)\.cc\.o$' | sort)
if ((${#objects[@]} == 0)); then
  echo "isa symbols: no object for an instruction set under $build; is it built?" >&2
  exit 1
fi

# W, V and u are nm's letters for weak and unique definitions. DW.ref.* only points at the
# exception handler, so any copy of it will do.
found=0
for object in "${objects[@]}"; do
  symbols=$("${NM:-nm}" --demangle --defined-only "$object")
  while read -r _ kind name; do
    [[ $kind == [WVu] && $name != DW.ref.* ]] || continue
    echo "$object: weak symbol $name; keep templates and inline functions out of this file" >&2
    found=1
  done <<<"$symbols"
done
if ((found == 0)); then echo "isa symbols: ${#objects[@]} objects, none weak"; fi
exit $found
