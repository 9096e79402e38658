#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the virtual environment build/rivals with the engines we are measured against. llama.cpp is
# compiled here, for this processor, from the source package of llama-cpp-python; that takes about
# ten minutes of one core. A second run does nothing.
#
# Usage: bench/rivals/setup.sh [--mlx]      --mlx adds mlx-lm with MLX's CPU back end
#        JOBS=N                             parallel compilations (default: all cores)
set -euo pipefail
here=$(cd "${0%/*}" && pwd)
cd "$here/../.."
venv=build/rivals

fail() { echo "setup: $*" >&2 && exit 1; }

mlx=0
case ${1:-} in
  '') ;;
  --mlx) mlx=1 ;;
  *) fail "option \"$1\", want --mlx or none" ;;
esac
for tool in python3 cmake g++; do
  command -v "$tool" >/dev/null || fail "$tool is missing; tools/setup.sh run installs the build tools"
done
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  fail "$(python3 --version), want Python 3.11 or later"
python3 -c 'import ensurepip' 2>/dev/null ||
  fail "python3-venv is missing; apt-get install python3-venv"

[[ -x $venv/bin/python ]] || python3 -m venv "$venv"
g++ -std=c++20 -O3 -march=native -pthread "$here/probe.cc" -o "$venv/probe"

# The wheel of the package index would be built for any x86-64: never use it.
# GGML_NATIVE compiles for the processor at hand; repacking of 4-bit weights is llama.cpp's default.
CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)} \
  CMAKE_ARGS="-DGGML_NATIVE=ON -DGGML_CPU_REPACK=ON -DLLAVA_BUILD=OFF -DLLAMA_OPENSSL=OFF" \
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-binary llama-cpp-python \
  -r "$here/requirements.txt" || fail "pip could not install $here/requirements.txt"
if ((mlx)); then
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements-mlx.txt" ||
    fail "pip could not install $here/requirements-mlx.txt"
fi

# Loading it shows that it was built for this machine; the list must say REPACK = 1.
"$venv/bin/python" - <<'PY' || fail "llama.cpp was built, but does not load"
import llama_cpp
print("setup: llama-cpp-python", llama_cpp.__version__)
print("setup:", llama_cpp.llama_print_system_info().decode())
PY
