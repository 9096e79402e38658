#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the system packages a make target needs: only what is missing, through apt, as root or
# with sudo. On a system without apt it checks that everything is there and otherwise says in one
# line what to install.
#
# Usage: tools/setup.sh run|test|clang|fuzz|tidy|format|neon
set -euo pipefail
cd "${0%/*}/.."

# package:what shows that it is there without the package (a command, or a header when it has a dot)
build=(g++:g++ cmake:cmake ninja-build:ninja pkg-config:pkg-config nlohmann-json3-dev:nlohmann/json.hpp
  libsimdjson-dev:simdjson.h libfmt-dev:fmt/core.h libcli11-dev:CLI/CLI.hpp
  libedit-dev:histedit.h)
gtest=(libgtest-dev:gtest/gtest.h libgmock-dev:gmock/gmock.h)
clang19=(clang-19:clang++-19 libclang-rt-19-dev: llvm-19:llvm-symbolizer-19)
arm64=(g++-aarch64-linux-gnu:aarch64-linux-gnu-g++ qemu-user:qemu-aarch64 libfmt-dev:arm64
  libedit-dev:arm64 libgtest-dev:arm64 libgmock-dev:arm64)

goal=${1:-test}
case $goal in
  run) needed=("${build[@]}") ;;
  test) needed=("${build[@]}" "${gtest[@]}" python3:python3) ;;
  clang) needed=("${build[@]}" "${gtest[@]}" clang:clang++ python3:python3) ;;
  fuzz) needed=("${build[@]}" "${clang19[@]}") ;;
  tidy) needed=("${build[@]}" "${gtest[@]}" clang-tidy-19:clang-tidy-19 python3:python3) ;;
  format) needed=(clang-format-19:clang-format-19) ;;
  neon) needed=("${build[@]}" "${arm64[@]}" python3:python3) ;;
  *) echo "setup: goal \"$goal\", want run, test, clang, fuzz, tidy, format or neon" >&2 && exit 2 ;;
esac

fail() { echo "setup: $*" >&2 && exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# True when package $1 is installed, or when what shows it, $2, is there by another way.
present() {
  local package=$1 sign=$2
  if [[ $sign == arm64 ]]; then package=$1:arm64 sign=; fi
  if have dpkg-query && [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]]; then
    return 0
  fi
  case $sign in
    '') return 1 ;;
    *.*) have g++ && g++ -E -x c++ - <<<"#include <$sign>" >/dev/null 2>&1 ;;
    *) have "$sign" ;;
  esac
}

# True when version $1 is at least $2, both as 1.2.3.
at_least() {
  local a b i
  IFS=. read -ra a <<<"$1"
  IFS=. read -ra b <<<"$2"
  for i in "${!b[@]}"; do
    if ((${a[i]:-0} != b[i])); then
      ((${a[i]:-0} > b[i]))
      return
    fi
  done
}

install() {
  local root=() log
  if ((EUID != 0)); then
    have sudo || fail "not root and no sudo; as root, run: apt-get install $*"
    root=(sudo)
  fi
  echo "setup: installing $*" >&2
  log=$(mktemp)
  # A foreign architecture is only ever needed for packages named so.
  if [[ " $* " == *:arm64\ * ]]; then "${root[@]}" dpkg --add-architecture arm64; fi
  if ! { "${root[@]}" apt-get update -q &&
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"; } \
    >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    fail "apt could not install $* (the whole log: $log)"
  fi
  rm -f "$log"
}

# libsimdjson-dev cannot be installed for two architectures, so its arm64 files go below build/.
unpack_arm64() {
  mkdir -p build/arm64 && cd build/arm64
  apt-get download -qq libsimdjson-dev:arm64 libsimdjson14:arm64 2>/dev/null ||
    fail "apt could not download libsimdjson-dev:arm64"
  for package in *.deb; do dpkg -x "$package" . && rm "$package"; done
}

missing=()
for entry in "${needed[@]}"; do
  package=${entry%%:*} sign=${entry#*:}
  present "$package" "$sign" && continue
  if [[ $sign == arm64 ]]; then package+=:arm64; fi
  missing+=("$package")
done

if ((${#missing[@]})); then
  have apt-get || fail "no apt on this system; please install (Debian's names): ${missing[*]}"
  install "${missing[@]}"
fi

if [[ $goal == neon && ! -e build/arm64/usr/include/simdjson.h ]]; then (unpack_arm64); fi

if [[ $goal != format ]]; then
  read -r _ _ cmake_version _ < <(cmake --version)
  at_least "${cmake_version%%-*}" 3.25 || fail "CMake $cmake_version, want 3.25 or later"
  gcc_version=$(g++ -dumpversion)
  at_least "$gcc_version" 12 || fail "g++ $gcc_version, want 12 or later"
fi
