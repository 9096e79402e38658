#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests of the checks themselves: each is shown something good and something bad.
# $CXX and $NM name the compiler and the nm that fits it.
set -euo pipefail
root=$(cd "${0%/*}/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# expect NAME STATUS WORDS COMMAND…: the command ends with STATUS, and WORDS are in what it prints.
expect() {
  local name=$1 want=$2 words=$3 got=0 output
  shift 3
  output=$("$@" 2>&1) || got=$?
  if [[ $got == "$want" && $output == *"$words"* ]]; then return; fi
  printf '%s: status %s, want %s; printed, want "%s":\n%s\n' "$name" "$got" "$want" "$words" "$output"
  failures=$((failures + 1))
}

expect_lines() {
  local name=$1 want=$2 got
  got=$(wc -l <"$work/$name")
  if ((got == want)); then return; fi
  echo "$name: $got lines, want $want:" && cat "$work/$name"
  failures=$((failures + 1))
}

# --- tools/check_layers.py
layers() {
  local tree=$work/tree
  rm -rf "$tree" && mkdir -p "$tree"/{src/base,src/model,src/text,apps,include/lacuna}
  mkdir -p "$tree/$(dirname "$1")" && printf '%s\n' "$2" >"$tree/$1"
  "$root/tools/check_layers.py" "$tree"
}
expect downward 0 "points down" layers src/model/a.cc '#include "base/mmap.h"'
expect same_folder 0 "points down" layers src/model/a.cc '#include "model/b.h"'
expect system 0 "points down" layers src/base/a.cc '#include <model/b.h>'
expect commented 0 "points down" layers src/base/a.cc '// #include "model/b.h"'
expect result_is_base 0 "points down" layers src/base/a.cc '#include "lacuna/result.h"'
expect upward 1 'src/base/a.cc: base may not use "model/b.h" of model' \
  layers src/base/a.cc '#include "model/b.h"'
expect upward_door 1 "may not use" layers src/text/a.h '  #  include "lacuna/engine.h"'
expect apps_from_below 1 "may not use" layers src/model/a.cc '#include "apps/options.h"'
expect no_folder 0 "points down" layers apps/a.cc '#include "options.h"'
expect test_support 0 "points down" layers src/base/a_test.cc '#include "tests/support/b.h"'
expect tests_from_code 1 "is in no layer" layers src/base/a.cc '#include "tests/support/b.h"'
expect unknown_target 1 "is in no layer" layers src/base/a.cc '#include "../tests/b.h"'
expect unknown_folder 1 "src/extra/a.cc: in no layer" layers src/extra/a.cc ''
expect unknown_header 1 "in no layer" layers include/lacuna/new.h ''

# --- tools/check_isa_symbols.sh
objects() {
  rm -rf "$work/objects" && mkdir "$work/objects"
  "$CXX" -O0 -c -x c++ -o "$work/objects/$1" - <<<"$2"
  "$root/tools/check_isa_symbols.sh" "$work/objects"
}
weak='inline int twice(int x) { return 2 * x; } int f(int x) { return twice(x); }'
strong='static inline int twice(int x) { return 2 * x; } int f(int x) { return twice(x); }'
undefined='[[gnu::weak]] int maybe(); int f() { return maybe(); }'
expect strong 0 "1 objects, none weak" objects sum_avx2.cc.o "$strong"
expect weak_undefined 0 "none weak" objects sum_avx2.cc.o "$undefined"
expect weak_avx2 1 "weak symbol twice(int)" objects sum_avx2.cc.o "$weak"
expect weak_avx512 1 "weak symbol twice(int)" objects sum_avx512bf16.cc.o "$weak"
expect weak_neon 1 "weak symbol twice(int)" objects sum_neon.cc.o "$weak"
expect weak_local_static 1 "weak symbol" objects sum_avx2.cc.o \
  'inline int& n() { static int v; return v; } int f() { return n(); }'
expect scalar_only 1 "no object" objects sum_scalar.cc.o "$weak"
echo "not an object" >"$work/objects/bad_avx2.cc.o"
expect not_an_object 1 "" "$root/tools/check_isa_symbols.sh" "$work/objects"

# --- tools/setup.sh, on systems made of stand-ins
bash=$(command -v bash)
stand_in() { printf '#!%s\n%s\n' "$bash" "$2" >"$work/bin/$1" && chmod +x "$work/bin/$1"; }
setup() { env -i PATH="$work/bin" "$bash" "$root/tools/setup.sh" "$@"; }
mkdir "$work/bin"
for tool in mktemp rm env tail; do ln -s "$(command -v $tool)" "$work/bin/$tool"; done

expect unknown_goal 2 'goal "everything"' setup everything
setup run >"$work/unknown_system" 2>&1 || true
expect_lines unknown_system 1
expect unknown_system 1 "no apt on this system; please install (Debian's names): g++ cmake" setup run

stand_in dpkg-query 'for package; do :; done
[[ " cmake libfmt-dev g++ " == *" $package "* ]] && echo installed'
stand_in cmake 'echo "cmake version ${CMAKE_VERSION:-3.25.1}"'
stand_in g++ '[[ $1 == -dumpversion ]] && echo 12'
stand_in apt-get "echo \"apt-get \$*\" >>$work/apt"
stand_in sudo "echo sudo >>$work/apt; \"\$@\""
expect installs 0 "installing ninja-build pkg-config" setup run
expect_lines apt $((EUID == 0 ? 2 : 4))
if grep -qE '(g\+\+|cmake|libfmt-dev|gtest)( |$)' "$work/apt"; then
  echo "installs: asked for what is there or not needed:" && cat "$work/apt"
  failures=$((failures + 1))
fi
expect test_needs_more 0 "libgtest-dev libgmock-dev" setup test

stand_in apt-get 'echo "E: no network"; exit 100'
expect apt_fails 1 "E: no network" setup run
stand_in dpkg-query 'echo installed'
expect nothing_missing 0 "" setup test
stand_in cmake 'echo "cmake version 3.18.4"'
expect old_cmake 1 "CMake 3.18.4, want 3.25 or later" setup run
stand_in cmake 'echo "cmake version 4.0.0-rc1"'
expect next_cmake 0 "" setup run
stand_in g++ 'echo 11.4.0'
expect old_compiler 1 "g++ 11.4.0, want 12 or later" setup run

((failures == 0)) && echo "house: all checks see what they should"
exit $((failures > 0))
