# SPDX-License-Identifier: Apache-2.0
# Every target sets up what it needs, system packages included. `make help` lists them.
MODEL ?= models/tiny-nemotron-h/mlx-4bit
ARGS ?= --model $(MODEL) -p "What is a compiler?"
FUZZ_SECONDS ?= 60
JOBS ?= $(shell nproc)

ifneq ($(shell command -v ccache 2>/dev/null),)
export CMAKE_CXX_COMPILER_LAUNCHER ?= ccache
export CCACHE_SLOPPINESS ?= pch_defines,time_macros  # or it keeps nothing that uses precompiled headers
endif

SOURCES = $(shell find apps include src tests -name '*.h' -o -name '*.cc')
BUILD = cmake --build build/$(1) --parallel $(JOBS)
TEST = ctest --preset $(1) --parallel $(JOBS)
OP_TESTS = $(basename $(notdir $(wildcard src/ops/*/*_test.cc)))
space := $(subst ,, )

.PHONY: run test bench fuzz tsan clang neon format tidy clean help
.DEFAULT_GOAL := help

run: build/.setup-run ## build, then answer a question with the bundled model: make run ARGS='-p "Hi"'
	@test -f build/release/build.ninja || cmake --preset release -DLACUNA_TESTS=OFF >&2
	@$(call BUILD,release) --target lacuna >&2
	@build/release/lacuna run $(ARGS)

test: build/.setup-test ## build and run the tests, again under ASan and UBSan, and the ops' on NEON
	cmake --preset release
	$(call BUILD,release)
	$(call TEST,release)
	cmake --preset asan
	$(call BUILD,asan)
	$(call TEST,asan)
ifeq ($(shell uname -m),x86_64)
	@$(MAKE) --no-print-directory neon
endif

bench: build/.setup-test ## run the benches of all ops
	cmake --preset release -DLACUNA_BENCH=ON
	$(call BUILD,release)
	@find build/release -name '*_bench' -type f -executable | sort | while read -r bench; do \
	  echo "== $$bench" && "$$bench" || exit; done

fuzz: export ASAN_SYMBOLIZER_PATH = /usr/bin/llvm-symbolizer-19
fuzz: build/.setup-fuzz ## run every fuzz target for FUZZ_SECONDS each
	cmake --preset fuzz
	$(call BUILD,fuzz)
	@find build/fuzz -name '*_fuzz' -type f -executable | sort | while read -r fuzz; do \
	  corpus=build/fuzz/corpus/$$(basename $$fuzz) && mkdir -p $$corpus && echo "== $$fuzz" && \
	  "$$fuzz" -max_total_time=$(FUZZ_SECONDS) -timeout=20 -artifact_prefix=$$corpus- $$corpus || exit; done

tsan clang: build/.setup-clang ## the tests under the thread sanitizer; the tests built by clang
	cmake --preset $@
	$(call BUILD,$@)
	$(call TEST,$@)

neon: build/.setup-neon ## the ops' tests for 64-bit Arm, cross-compiled and run under qemu
	cmake --preset neon
	$(call BUILD,neon) --target $(OP_TESTS)
	$(call TEST,neon) -R '^($(subst $(space),|,$(OP_TESTS)))$$|_bound_test$$'

format: build/.setup-format ## clang-format every source in place
	clang-format-19 -i $(SOURCES)

tidy: build/.setup-tidy ## clang-tidy over every source
	cmake --preset release
	run-clang-tidy-19 -quiet -j $(JOBS) -p build/release '/(src|apps|tests)/.*\.cc$$'

clean: ## remove everything that was built
	rm -rf build

help: ## this list
	@sed -nE 's/^([a-z ]+):[^#]*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

build/.setup-%: tools/setup.sh
	@tools/setup.sh $*
	@mkdir -p build && touch $@
