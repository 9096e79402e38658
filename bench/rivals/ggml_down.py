#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The down projections of one MoE layer at decode: ggml's kernels beside lacuna's, in one run.

Usage: ggml_down.py [--rounds 5] [--threads N] [--others 0.1]
                    [--bench build/release/sparse_down_bench] [--plain] [-o md|json]

ggml's side is one token's 6 of 128 experts and the shared expert of the full-size shape, Q4_0, in
the buffer that a model's weights get (repacked where the processor has such kernels). Sixteen layers
are one graph, so that starting it costs little; no weights are read again before those of all other
layers have gone through the caches. Lacuna's side is its own sparse_down_bench. Rounds alternate
between the two, with a bandwidth probe before and after each; a round in which other processes used
the processor is thrown away. Runs in the environment that setup.sh makes.
"""
import argparse
import ctypes
import importlib.util
import json
import pathlib
import re
import statistics
import sys
import time

import numpy as np

import compare
import make_gguf

WIDTH, NEURONS, SHARED, EXPERTS, USED, LAYERS = 2688, 1856, 3712, 128, 6, 16
F32, Q4_0, I32 = 0, 2, 26  # ggml's numbers of its types
CPU_DEVICE = 0
WARM_UP, REPEATS = 3, 15  # graphs
BYTES = WIDTH * (USED * NEURONS + SHARED) // 32 * 18  # weights that one layer reads
OURS = re.compile(r"^decode, live (\d+) %(, all rows)?\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s")


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p),
                ("no_alloc", ctypes.c_bool)]


class Ggml:
    """The few functions of ggml's C interface that this needs; everything else is a pointer."""

    FUNCTIONS = {  # name: (result, arguments): p pointer, i int, l int64, z size_t, s string
        "ggml_tensor_overhead": "z", "ggml_graph_overhead": "z", "ggml_nbytes": "zp",
        "ggml_new_tensor_2d": "ppill", "ggml_new_tensor_3d": "ppilll", "ggml_free": " p",
        "ggml_mul_mat": "pppp", "ggml_mul_mat_id": "ppppp", "ggml_new_graph": "pp",
        "ggml_build_forward_expand": " pp", "ggml_backend_alloc_ctx_tensors_from_buft": "ppp",
        "ggml_backend_tensor_set": " ppzz", "ggml_backend_tensor_get": " ppzz",
        "ggml_backend_graph_compute": "ipp", "ggml_backend_supports_op": "bpp",
        "ggml_backend_buft_name": "sp", "ggml_backend_buffer_free": " p",
        "ggml_backend_cpu_init": "p", "ggml_backend_cpu_set_n_threads": " pi",
        "ggml_backend_cpu_buffer_type": "p", "ggml_backend_dev_by_type": "pi",
        "ggml_backend_dev_backend_reg": "pp", "ggml_backend_reg_get_proc_address": "pps",
    }
    KINDS = {"p": ctypes.c_void_p, "i": ctypes.c_int, "l": ctypes.c_int64, "z": ctypes.c_size_t,
             "s": ctypes.c_char_p, "b": ctypes.c_bool, " ": None}

    def __init__(self):
        spec = importlib.util.find_spec("llama_cpp")
        if spec is None:
            raise compare.Failed("llama_cpp is not installed; bench/rivals/setup.sh does that")
        folder = pathlib.Path(spec.origin).parent / "lib"
        libraries = [ctypes.CDLL(str(folder / f"lib{name}.so"), mode=ctypes.RTLD_GLOBAL)
                     for name in ("ggml-base", "ggml-cpu", "ggml")]
        for name, kinds in self.FUNCTIONS.items():
            found = [getattr(library, name) for library in libraries if hasattr(library, name)]
            if not found:
                raise compare.Failed(f"{folder}: no library has {name}")
            found[0].restype = self.KINDS[kinds[0]]
            found[0].argtypes = [self.KINDS[k] for k in kinds[1:]]
            setattr(self, name.removeprefix("ggml_"), found[0])
        self.quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(
            lambda *_: None)
        libraries[0].ggml_log_set(self.quiet, None)
        self.init = libraries[0].ggml_init
        self.init.restype, self.init.argtypes = ctypes.c_void_p, [InitParams]

    def context(self, tensors):
        size = tensors * self.tensor_overhead() + self.graph_overhead()
        return self.init(InitParams(size, None, True))

    def buffer_types(self):
        """Where a model's weights may go, best first: the CPU's extra buffers, then plain memory."""
        device = self.backend_dev_by_type(CPU_DEVICE)
        address = self.backend_reg_get_proc_address(self.backend_dev_backend_reg(device),
                                                    b"ggml_backend_dev_get_extra_bufts")
        types = []
        if address:
            get = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(address)
            listed = get(device)
            while listed and listed[len(types)]:
                types.append(listed[len(types)])
        return types + [self.backend_cpu_buffer_type()]


class DownLayers:
    """A graph of LAYERS times (6 routed + 1 shared) down projections of one token."""

    def __init__(self, threads, plain):
        self.g = g = Ggml()
        self.backend = g.backend_cpu_init()
        g.backend_cpu_set_n_threads(self.backend, threads)
        self.random = np.random.Generator(np.random.SFC64(1))
        work = g.context(16 * LAYERS)  # activations, results, graph
        types = g.buffer_types()[-1:] if plain else g.buffer_types()
        x = g.new_tensor_3d(work, F32, NEURONS, USED, 1)
        x_shared = g.new_tensor_2d(work, F32, SHARED, 1)
        ids = [g.new_tensor_2d(work, I32, USED, 1) for _ in range(LAYERS)]
        experts, self.placed = self.weights(
            types, lambda c: g.new_tensor_3d(c, Q4_0, NEURONS, WIDTH, EXPERTS),
            lambda w: g.mul_mat_id(work, w, x, ids[0]))
        self.graph = g.new_graph(work)
        self.results = []
        for layer in range(LAYERS):
            shared, _ = self.weights(types, lambda c: g.new_tensor_2d(c, Q4_0, SHARED, WIDTH),
                                     lambda w: g.mul_mat(work, w, x_shared))
            for node in (g.mul_mat_id(work, experts, x, ids[layer]),
                         g.mul_mat(work, shared, x_shared)):
                g.build_forward_expand(self.graph, node)
                self.results.append(node)
        if not g.backend_alloc_ctx_tensors_from_buft(work, g.backend_cpu_buffer_type()):
            raise compare.Failed("ggml: no memory for activations")
        for tensor in (x, x_shared):
            count = g.nbytes(tensor) // 4
            self.set(tensor, self.random.standard_normal(count, np.float32))
        chosen = self.random.permutation(EXPERTS).astype(np.int32)
        for layer, tensor in enumerate(ids):
            self.set(tensor, chosen[layer * USED:(layer + 1) * USED])

    def set(self, tensor, array):
        array = np.ascontiguousarray(array)
        self.g.backend_tensor_set(tensor, array.ctypes.data, 0, array.nbytes)

    def weights(self, types, make, use):
        """(random weights, name) in the first buffer type whose kernels can use them."""
        g = self.g
        for buffer_type in types:
            context = g.context(1)
            tensor = make(context)
            buffer = g.backend_alloc_ctx_tensors_from_buft(context, buffer_type)
            if buffer and g.backend_supports_op(self.backend, use(tensor)):
                count = g.nbytes(tensor) // make_gguf.Q4_BLOCK_BYTES * make_gguf.Q4_BLOCK
                self.set(tensor, make_gguf.random_q4(np, self.random, count, 0.02))
                return tensor, g.backend_buft_name(buffer_type).decode()
            if buffer:
                g.backend_buffer_free(buffer)
            g.free(context)
        raise compare.Failed("ggml: no buffer type takes Q4_0 weights")

    def compute(self):
        status = self.g.backend_graph_compute(self.backend, self.graph)
        if status != 0:
            raise compare.Failed(f"ggml: graph_compute returned {status}")

    def check(self):
        for node in self.results:
            out = np.empty(self.g.nbytes(node) // 4, np.float32)
            self.g.backend_tensor_get(node, out.ctypes.data, 0, out.nbytes)
            if not (np.isfinite(out).all() and np.any(out)):
                raise compare.Failed("ggml: computed zeros or numbers that are not finite")

    def microseconds(self):
        """Median time of one layer."""
        times = []
        for repeat in range(WARM_UP + REPEATS):
            start = time.perf_counter_ns()
            self.compute()
            if repeat >= WARM_UP:
                times.append((time.perf_counter_ns() - start) / 1e3 / LAYERS)
        return statistics.median(times)


def our_rows(text):
    """{(live percent, all rows): median microseconds} of sparse_down_bench's decode rows."""
    found = [m for m in map(OURS.match, text.splitlines()) if m]
    if not found:
        raise compare.Failed("sparse_down_bench: no decode row in its output")
    return {(int(m[1]), m[2] is not None): float(m[4]) for m in found}


def measure_round(layers, probe, ours_command):
    """({"ggml", "ours", "probes"}, cores of others) of one round."""
    before, busy_1 = compare.run_probe(probe)
    others, own = compare.Others(), time.process_time()
    ggml = layers.microseconds()
    busy_2 = others.cores(time.process_time() - own)
    between, busy_3 = compare.run_probe(probe)
    text, _, busy_4 = compare.run(ours_command)
    after, busy_5 = compare.run_probe(probe)
    return ({"ggml": ggml, "ours": our_rows(text),
             "probes": ((before + between) / 2, (between + after) / 2)},
            max(busy_1, busy_2, busy_3, busy_4, busy_5))


def measure(args):
    """(one dict a case: ggml first, then ours by live share; what the report says of the rounds)."""
    layers = DownLayers(args.threads, args.plain)
    layers.compute()
    layers.check()
    probe = [str(args.rivals / "probe"), str(args.threads)]
    ours_command = [str(args.bench), "--threads", str(args.threads), "--rounds", "41"]
    kept, tried, busiest = compare.undisturbed(
        args.rounds, args.others, lambda _: measure_round(layers, probe, ours_command), compare.say)
    ggml = [r["ggml"] for r in kept]
    rows = [{"case": f"ggml Q4_0, {layers.placed}", "us": compare.spread(ggml),
             "probe_gb_s": compare.spread([r["probes"][0] for r in kept]),
             "gb_s": BYTES / statistics.median(ggml) / 1e3}]
    for live, all_rows in kept[0]["ours"]:
        us = [r["ours"][live, all_rows] for r in kept]
        rows.append({"case": f"lacuna, {live} % live" + (", all rows read" if all_rows else ""),
                     "us": compare.spread(us),
                     "probe_gb_s": compare.spread([r["probes"][1] for r in kept]),
                     "ggml_over_it": compare.spread([g / u for g, u in zip(ggml, us)])})
    return rows, {"rounds": len(kept), "thrown_away": tried - len(kept), "others_cores": busiest}


def markdown(rows, about, args):
    def cell(value, digits):
        return "—" if value is None else (f"{value['median']:.{digits}f} "
                                          f"({value['min']:.{digits}f}–{value['max']:.{digits}f})")

    lines = [f"{compare.cpu_model()}, {args.threads} threads; {about['rounds']} rounds in turn, "
             f"{compare.disturbance(about['thrown_away'], about['others_cores'])}; one layer's down "
             "projections (6 routed, 1 shared), one token; medians (min–max).", "",
             "| case | µs | probe GB/s | ggml ÷ it |", "| --- | --: | --: | --: |"]
    for r in rows:
        lines.append(f"| {r['case']} | {cell(r['us'], 0)} | {cell(r['probe_gb_s'], 1)} "
                     f"| {cell(r.get('ggml_over_it'), 2)} |")
    lines.append(f"\nggml reads {BYTES / 1e6:.2f} MB a layer: {rows[0]['gb_s']:.1f} GB/s.")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=compare.physical_cores())
    parser.add_argument("--bench", type=pathlib.Path,
                        default=compare.ROOT / "build/release/sparse_down_bench")
    parser.add_argument("--rivals", type=pathlib.Path, default=compare.ROOT / "build/rivals")
    parser.add_argument("--others", type=float, default=0.1, metavar="CORES",
                        help="what other processes may use in a round that counts")
    parser.add_argument("--plain", action="store_true", help="ggml's kernels for weights as stored")
    parser.add_argument("-o", "--output", choices=("md", "json"), default="md")
    args = parser.parse_args()
    try:
        rows, about = measure(args)
    except compare.Failed as error:
        sys.exit(f"ggml_down: {error}")
    if args.output == "md":
        print(markdown(rows, about, args))
    else:
        print(json.dumps({"about": about, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
