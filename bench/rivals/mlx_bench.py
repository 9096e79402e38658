#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mlx-lm on the CPU, on the same checkpoint; prints llama-bench's JSON rows.

Usage: mlx_bench.py MODEL_DIR [-p 512] [-n 32] [-d 0] [-r 1] [--dtype float32]

Prompts and tokens go through mlx-lm's own generate_step (prompts in steps of 512, greedy). Token ids
are random, which costs a dense engine nothing. MLX chooses its own threads. Activations, scales and
biases are float32 unless told otherwise: a checkpoint's bfloat16 runs in scalar loops there and is
several times slower, and a rival is measured at its best. Runs in the environment that
`setup.sh --mlx` makes.
"""
import argparse
import importlib.metadata
import json
import pathlib
import random
import statistics
import sys
import time

import mlx.core as mx

mx.set_default_device(mx.cpu)  # before mlx-lm takes its stream from the default device
from mlx_lm.generate import generate_step, generation_stream  # noqa: E402
from mlx_lm.models.cache import make_prompt_cache  # noqa: E402
from mlx_lm.utils import load_model  # noqa: E402

STEP = 512


class Timer:
    def __init__(self, model, vocabulary):
        self.model = model
        self.vocabulary = vocabulary
        self.random = random.Random(1)

    def passes(self, n_prompt, n_more, cache):
        """Reads n_prompt tokens, then n_more greedy ones one by one; waits for the last."""
        prompt = mx.array([self.random.randrange(self.vocabulary) for _ in range(n_prompt)])
        for _token, _logprobs in generate_step(prompt, self.model, max_tokens=n_more,
                                               prompt_cache=cache, prefill_step_size=STEP):
            pass
        mx.synchronize(generation_stream)

    def sample(self, n_prompt, n_gen, depth):
        cache = make_prompt_cache(self.model)
        if depth:
            self.passes(depth, 0, cache)
        start = time.perf_counter_ns()
        if n_prompt:
            self.passes(n_prompt, 0, cache)
        else:
            self.passes(1, n_gen - 1, cache)
        return time.perf_counter_ns() - start


def row(timer, args, n_prompt, n_gen, depth):
    timer.sample(n_prompt, min(n_gen, 1), depth)  # warm-up
    samples = [timer.sample(n_prompt, n_gen, depth) for _ in range(args.repetitions)]
    rates = [(n_prompt + n_gen) / (ns / 1e9) for ns in samples]
    return {
        "engine": f"mlx-lm {importlib.metadata.version('mlx-lm')} in {args.dtype}",
        "n_prompt": n_prompt, "n_gen": n_gen, "n_depth": depth,
        "avg_ns": int(statistics.fmean(samples)), "avg_ts": statistics.fmean(rates),
        "samples_ns": samples, "samples_ts": rates,
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
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    args = parser.parse_args()
    if not (args.model / "config.json").is_file():
        sys.exit(f"mlx_bench: {args.model}: no config.json there")
    model, config = load_model(args.model)
    model.set_dtype(getattr(mx, args.dtype))
    mx.eval(model.parameters())
    timer = Timer(model, config["vocab_size"])
    rows = []
    for depth in args.depth:
        if args.prompt > 0:
            rows.append(row(timer, args, args.prompt, 0, depth))
        if args.gen > 0:
            rows.append(row(timer, args, 0, args.gen, depth))
    json.dump(rows, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
