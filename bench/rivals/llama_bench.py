#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llama.cpp timed as its own llama-bench does it; prints llama-bench's JSON rows.

Usage: llama_bench.py FILE.gguf [-p 512] [-n 32] [-d 0] [-r 1] [-t THREADS] [--no-repack] [--no-mmap]

Through the C interface that llama-cpp-python binds: one llama_decode for up to 2048 prompt tokens
(512 at a time inside), one for each generated token. Every test has its own context and a warm-up;
generation starts at an empty context or at a depth. Token ids are random, which costs a dense engine
nothing. Runs in the environment that setup.sh makes.
"""
import argparse
import ctypes
import json
import math
import os
import pathlib
import random
import statistics
import sys
import time

import llama_cpp as ll

BATCH, UBATCH = 2048, 512  # llama-bench's defaults


@ll.llama_log_callback
def quiet(_level, _text, _data):
    pass


class Failed(Exception):
    pass


class Context:
    """A context of its own for one test, as llama-bench makes it."""

    def __init__(self, model, size, threads):
        params = ll.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = size, BATCH, UBATCH
        params.n_threads = params.n_threads_batch = threads
        self.ctx = ll.llama_init_from_model(model, params)
        if not self.ctx:
            raise Failed(f"llama.cpp made no context of {size} tokens")
        self.vocabulary = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))
        self.random = random.Random(1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        ll.llama_free(self.ctx)

    def clear(self):
        ll.llama_memory_clear(ll.llama_get_memory(self.ctx), False)

    def decode(self, count):
        tokens = (ll.llama_token * count)(*(self.random.randrange(self.vocabulary)
                                            for _ in range(count)))
        code = ll.llama_decode(self.ctx, ll.llama_batch_get_one(tokens, count))
        if code != 0:
            raise Failed(f"llama_decode of {count} tokens returned {code}")

    def check(self):
        """Numbers that are not finite could take other paths through the kernels."""
        logits = ll.llama_get_logits_ith(self.ctx, -1)
        if not all(map(math.isfinite, logits[:self.vocabulary])):
            raise Failed("llama.cpp computed logits that are not finite")

    def prompt(self, count):
        for start in range(0, count, BATCH):
            self.decode(min(BATCH, count - start))
        ll.llama_synchronize(self.ctx)

    def generate(self, count):
        for _ in range(count):
            self.decode(1)
            ll.llama_synchronize(self.ctx)


def run_test(model, args, n_prompt, n_gen, depth):
    with Context(model, n_prompt + n_gen + depth, args.threads) as context:
        work = (lambda: context.prompt(n_prompt)) if n_prompt else (lambda: context.generate(n_gen))
        context.prompt(n_prompt) if n_prompt else context.generate(1)
        samples = []
        for _ in range(args.repetitions):
            context.clear()
            if depth:
                context.prompt(depth)
            start = time.perf_counter_ns()
            work()
            samples.append(time.perf_counter_ns() - start)
        context.check()
    rates = [(n_prompt + n_gen) / (ns / 1e9) for ns in samples]
    return {
        "model_filename": str(args.model), "n_threads": args.threads, "n_batch": BATCH,
        "n_ubatch": UBATCH, "n_prompt": n_prompt, "n_gen": n_gen, "n_depth": depth,
        "avg_ns": int(statistics.fmean(samples)), "avg_ts": statistics.fmean(rates),
        "samples_ns": samples, "samples_ts": rates,
    }


def load(args):
    ll.llama_log_set(quiet, ctypes.c_void_p(0))
    ll.llama_backend_init()
    params = ll.llama_model_default_params()
    params.use_extra_bufts = not args.no_repack
    params.load_mode = ll.LLAMA_LOAD_MODE_NONE if args.no_mmap else ll.LLAMA_LOAD_MODE_AUTO
    if not args.model.is_file():
        raise Failed(f"{args.model}: no such file")
    model = ll.llama_model_load_from_file(os.fsencode(args.model), params)
    if not model:
        raise Failed(f"{args.model}: llama.cpp does not load it")
    return model


def describe(model):
    text = ctypes.create_string_buffer(256)
    ll.llama_model_desc(model, text, len(text))
    return {
        "engine": f"llama.cpp of llama-cpp-python {ll.__version__}",
        "cpu_features": ll.llama_print_system_info().decode().strip(),
        "model_type": text.value.decode(), "model_size": ll.llama_model_size(model),
        "model_n_params": ll.llama_model_n_params(model),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--gen", type=int, default=32)
    parser.add_argument("-d", "--depth", type=lambda text: [int(d) for d in text.split(",")],
                        default=[0])
    parser.add_argument("-r", "--repetitions", type=int, default=1)
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("--no-repack", action="store_true",
                        help="plain kernels, one copy of the weights")
    parser.add_argument("--no-mmap", action="store_true")
    args = parser.parse_args()
    try:
        model = load(args)
        rows = []
        for depth in args.depth:
            if args.prompt > 0:
                rows.append(run_test(model, args, args.prompt, 0, depth))
            if args.gen > 0:
                rows.append(run_test(model, args, 0, args.gen, depth))
    except Failed as error:
        sys.exit(f"llama_bench: {error}")
    about = describe(model)
    json.dump([about | row for row in rows], sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
