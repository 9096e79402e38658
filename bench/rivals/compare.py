#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures lacuna beside the engines one would use instead: same shape, same machine, one run.

Usage: compare.py MODEL_DIR [--llama GGUF] [--mlx] [--prompt 512] [--gen 32] [--depth 0 ...]
                  [--rounds 5] [--threads N] [--others 0.1] [--lacuna build/release/lacuna]
                  [--llama-no-mmap] [-o md|json]

A round runs each engine once, as a process of its own, with a read-bandwidth probe before and after
each; every other round goes in the opposite order. A shared machine changes its speed within
seconds, so the ratios are taken round by round, and every rate stands beside the probe of its own
minute. A round in which other processes used the processor is thrown away whole, whatever it
measured, and done again: threads that spin at a barrier lose far more to one busy neighbour than
threads that do not.
Results go to stdout, progress to stderr. Linux only.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import make_gguf

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SPARSE, DENSE, LLAMA, MLX = "lacuna sparse", "lacuna dense", "llama.cpp", "mlx-lm"


# A busy machine may spoil rounds: this many attempts for each round that is wanted.
ATTEMPTS = 3
# The kernel counts in hundredths of a second, and a system breathes.
GRACE_S = 0.05


class Failed(Exception):
    """One line for the user."""


class Others:
    """Cores that processes other than the measured one used since this was made."""

    def __init__(self):
        self.busy, self.start = self.busy_seconds(), time.monotonic()

    @staticmethod
    def busy_seconds():
        """All time not idle, interrupts and time stolen by the host among it."""
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
        return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")

    def cores(self, own_seconds):
        wall = time.monotonic() - self.start
        seconds = self.busy_seconds() - self.busy - own_seconds - GRACE_S
        return max(0.0, seconds) / wall


@dataclass
class Engine:
    name: str
    command: list

    def label(self, row):
        """What one row of this engine's output is listed under."""
        if self.name != "lacuna":
            return self.name
        labels = {"sparse": SPARSE, "dense": DENSE}
        if row.get("experts") not in labels:
            raise Failed(f"lacuna bench: experts: {row.get('experts')!r}, wanted 'sparse' or 'dense'")
        return labels[row["experts"]]


@dataclass
class Sample:
    """One rate of one round."""
    round: int
    engine: str
    test: str
    tok_s: float
    probe_gb_s: float  # mean of the probes before and after
    bytes_per_token: int | None  # weights read for a decoded token; None: a prompt, or not known
    max_rss_bytes: int  # of the whole process; lacuna's own word, which leaves out its probe
    others_cores: float  # most that others used in one process's run of this round
    row: dict  # as the engine printed it

    @property
    def of_probe(self):
        if self.bytes_per_token is None:
            return None
        return self.bytes_per_token * self.tok_s / 1e9 / self.probe_gb_s


def test_name(row):
    """llama-bench's name of a test: pp512, tg32, tg32 @ d4096."""
    name = f"tg{row['n_gen']}" if row["n_gen"] else f"pp{row['n_prompt']}"
    return f"{name} @ d{row['n_depth']}" if row.get("n_depth") else name


def run(command):
    """(stdout, most memory resident in bytes, cores of others) of a command. Raises Failed."""
    others = Others()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        except OSError as error:
            raise Failed(f"{command[0]}: {error.strerror}") from None
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode != 0:
            lines = err.read().decode(errors="replace").strip().splitlines() or ["no message"]
            how = (f"exit code {process.returncode}" if process.returncode > 0
                   else f"signal {-process.returncode}")
            raise Failed(f"{' '.join(command[:3])}: {how}: {lines[-1]}")
        busy = others.cores(usage.ru_utime + usage.ru_stime)
        return out.read().decode(errors="replace"), usage.ru_maxrss * 1024, busy


def run_rows(engine):
    """(rows as printed, memory, cores of others) of one run of an engine. Raises Failed."""
    text, rss, busy = run(engine.command)
    try:
        rows = json.loads(text)
        for row in rows:
            test_name(row)
            if not float(row["avg_ts"]) > 0:
                raise ValueError("avg_ts is not above 0")
    except (ValueError, TypeError, KeyError) as error:
        raise Failed(f"{engine.name}: no rows in llama-bench's JSON: {error!r}") from None
    if not rows:
        raise Failed(f"{engine.name}: printed no row")
    return rows, rss, busy


def run_probe(command):
    """(GB/s, cores of others). Raises Failed."""
    text, _, busy = run(command)
    try:
        return float(text), busy
    except ValueError:
        raise Failed(f"{command[0]}: {text.strip()!r}, wanted GB/s") from None


def undisturbed(rounds, limit, attempt, progress):
    """(results, attempts, most cores of others in them) of `rounds` rounds with at most `limit`.

    attempt(number) gives (result, cores of others). Raises Failed when no round was undisturbed.
    """
    kept, busiest, busiest_kept = [], 0.0, 0.0
    for tried in range(1, ATTEMPTS * rounds + 1):
        result, busy = attempt(len(kept))
        busiest = max(busiest, busy)
        if busy <= limit:
            kept.append(result)
            busiest_kept = max(busiest_kept, busy)
            progress(f"round {len(kept)}/{rounds} done")
        else:
            progress(f"round {len(kept) + 1}/{rounds} thrown away: others used {busy:.2f} cores")
        if len(kept) == rounds:
            break
    if not kept:
        raise Failed(f"the machine was busy in all {tried} rounds: others used up to {busiest:.2f} "
                     f"cores, wanted at most {limit:.2f}; stop them, or raise --others")
    return kept, tried, busiest_kept


def measure_round(engines, probe, number, shape, limit):
    """(samples, cores of others) of one round; it ends early once others used more than `limit`."""
    samples = []
    before, busiest = run_probe(probe)
    for engine in engines if number % 2 == 0 else engines[::-1]:
        rows, rss, busy = run_rows(engine)
        after, probe_busy = run_probe(probe)
        busiest = max(busiest, busy, probe_busy)
        if busiest > limit:
            break
        for row in rows:
            # Bytes of a token make a bandwidth of decode only: a prompt's tokens share them.
            size = row.get("bytes_per_token") if row["n_gen"] else None
            samples.append(Sample(number, engine.label(row), test_name(row), float(row["avg_ts"]),
                                  (before + after) / 2, size, row.get("peak_rss") or rss, busy, row))
        fill_in_bytes(samples, shape)
        before = after
    return samples, busiest


def fill_in_bytes(samples, shape):
    """Bytes of a token of llama.cpp, which does not print them: what the file's shape says.

    mlx-lm's stay unknown, because its scales take the type of its activations. Refuses a GGUF file
    of another shape, because nothing could be compared.
    """
    tensors = make_gguf.tensors_of(shape)
    weights, size = sum(t.weights for t in tensors), sum(t.bytes for t in tensors)
    for s in samples:
        if s.engine == LLAMA:
            found = s.row.get("model_n_params")
            if found != weights:
                raise Failed(f"the GGUF file has {found} weights, wanted the {weights} of "
                             "MODEL_DIR's config.json; bench/rivals/make_gguf.py writes such a file")
            if s.row["n_gen"] and s.row.get("model_size") == size:
                s.bytes_per_token = make_gguf.bytes_per_token(shape)


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratios(samples, test, ours, theirs):
    """Our rate over theirs, of each round that has both."""
    rates = {(s.engine, s.round): s.tok_s for s in samples if s.test == test}
    return [rate / rates[theirs, number] for (engine, number), rate in sorted(rates.items())
            if engine == ours and (theirs, number) in rates]


def summarize(samples):
    """One dict for each test and engine, in the order of measurement, tests together."""
    tests = list(dict.fromkeys(s.test for s in samples))
    order = [e for e in (SPARSE, DENSE, LLAMA, MLX) if any(s.engine == e for s in samples)]
    rows = []
    for test in tests:
        for engine in order:
            own = [s for s in samples if s.test == test and s.engine == engine]
            if not own:
                continue
            row = {"test": test, "engine": engine, "rounds": len(own),
                   "tok_s": spread([s.tok_s for s in own]),
                   "probe_gb_s": spread([s.probe_gb_s for s in own]),
                   "max_rss_bytes": max(s.max_rss_bytes for s in own)}
            if own[0].bytes_per_token is not None:
                row["bytes_per_token"] = statistics.median(s.bytes_per_token for s in own)
                row["of_probe"] = spread([s.of_probe for s in own])
            for name, ours in (("sparse_over_it", SPARSE), ("dense_over_it", DENSE)):
                found = ratios(samples, test, ours, engine)
                if found and ours != engine and not (engine == SPARSE and ours == DENSE):
                    row[name] = spread(found)
            rows.append(row)
    return rows


def disturbance(thrown_away, others_cores):
    """What a report says of other processes."""
    return (f"{thrown_away} more thrown away; in those that count other processes used up to "
            f"{others_cores:.2f} cores")


def markdown(about, rows):
    def cell(value, digits, scale=1.0):
        if value is None:
            return "—"
        return (f"{value['median'] * scale:.{digits}f} "
                f"({value['min'] * scale:.{digits}f}–{value['max'] * scale:.{digits}f})")

    lines = [f"{about['cpu']}, {about['threads']} threads; {about['rounds']} rounds in turn, "
             f"{disturbance(about['thrown_away'], about['others_cores'])}; "
             f"medians (min–max); ratios are taken within a round.  ",
             f"{about['lacuna']}; {'; '.join(about['rivals'])}; model {about['model']}.", "",
             "| test | engine | tok/s | probe GB/s | MB a token | % of probe | lacuna sparse ÷ it "
             "| lacuna dense ÷ it | memory GB |",
             "| --- | --- | --: | --: | --: | --: | --: | --: | --: |"]
    for r in rows:
        mb = f"{r['bytes_per_token'] / 1e6:.1f}" if "bytes_per_token" in r else "—"
        lines.append(
            f"| {r['test']} | {r['engine']} | {cell(r['tok_s'], 2)} | {cell(r['probe_gb_s'], 1)} "
            f"| {mb} | {cell(r.get('of_probe'), 0, 100)} | {cell(r.get('sparse_over_it'), 2)} "
            f"| {cell(r.get('dense_over_it'), 2)} | {r['max_rss_bytes'] / 1e9:.2f} |")
    return "\n".join(lines)


def physical_cores():
    """Cores that this process may use, counting the threads of one core once."""
    cores = set()
    for cpu in os.sched_getaffinity(0):
        path = pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.add(path.read_text(encoding="ascii").strip() if path.exists() else str(cpu))
    return len(cores)


def cpu_model():
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1) if found else "unknown processor"


def lacuna_version(program):
    text, _, _ = run([str(program), "--version"])
    try:
        commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
                                capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return text.strip()
    return f"{text.strip()}, source {commit}"


def engines_of(args):
    """The engines to run, lacuna first."""
    python = args.rivals / "bin" / "python"
    for needed in (python, args.rivals / "probe"):
        if not needed.exists():
            raise Failed(f"{needed}: missing; bench/rivals/setup.sh makes it")
    if not args.llama and not args.mlx:
        raise Failed("no rival: wanted --llama GGUF or --mlx")
    tests = ["-p", str(args.prompt), "-n", str(args.gen), "-r", "1"]
    if args.depth != [0]:
        tests += ["-d", ",".join(map(str, args.depth))]
    threads = ["-t", str(args.threads)]
    engines = [Engine("lacuna", [str(args.lacuna), "bench", str(args.model), "--draft", "off", *tests, *threads,
                                 "-o", "json"])]
    if args.llama:
        engines.append(Engine(LLAMA, [str(python), str(HERE / "llama_bench.py"), str(args.llama),
                                      *tests, *threads,
                                      *(["--no-mmap"] if args.llama_no_mmap else [])]))
    if args.mlx:
        engines.append(Engine(MLX, [str(python), str(HERE / "mlx_bench.py"), str(args.model),
                                    *tests]))
    return engines


def parse(argv):
    def count(least):
        def convert(text):
            value = int(text)
            if value < least:
                raise argparse.ArgumentTypeError(f"{value}, wanted at least {least}")
            return value
        return convert

    parser = argparse.ArgumentParser(prog="compare.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path, metavar="MODEL_DIR")
    parser.add_argument("--llama", type=pathlib.Path, metavar="GGUF")
    parser.add_argument("--llama-no-mmap", action="store_true",
                        help="read the GGUF file instead of mapping it: one copy of repacked weights")
    parser.add_argument("--mlx", action="store_true")
    parser.add_argument("--prompt", type=count(0), default=512)
    parser.add_argument("--gen", type=count(0), default=32)
    parser.add_argument("--depth", type=count(0), nargs="+", default=[0])
    parser.add_argument("--rounds", type=count(1), default=5)
    parser.add_argument("--threads", type=count(1), default=physical_cores())
    parser.add_argument("--others", type=float, default=0.1, metavar="CORES",
                        help="what other processes may use in a round that counts")
    parser.add_argument("--lacuna", type=pathlib.Path, default=ROOT / "build/release/lacuna")
    parser.add_argument("--rivals", type=pathlib.Path, default=ROOT / "build/rivals",
                        help="what setup.sh made")
    parser.add_argument("-o", "--output", choices=("md", "json"), default="md")
    return parser.parse_args(argv)


def say(line):
    print(line, file=sys.stderr, flush=True)


def compare(args):
    """The whole run; what goes to stdout. Raises Failed."""
    engines = engines_of(args)
    try:
        config = json.loads((args.model / "config.json").read_text(encoding="utf-8"))
        shape = make_gguf.read_shape(config)
    except (OSError, ValueError, make_gguf.BadConfig) as error:
        raise Failed(str(error)) from None
    version = lacuna_version(args.lacuna)
    probe = [str(args.rivals / "probe"), str(args.threads)]
    kept, tried, busiest = undisturbed(
        args.rounds, args.others,
        lambda number: measure_round(engines, probe, number, shape, args.others), say)
    samples = [sample for one in kept for sample in one]
    rows = summarize(samples)
    about = {"cpu": cpu_model(), "threads": args.threads, "rounds": len(kept),
             "thrown_away": tried - len(kept), "others_cores": busiest, "lacuna": version,
             "rivals": sorted({s.row["engine"] for s in samples if "engine" in s.row}),
             "model": args.model.name}
    if args.output == "md":
        return markdown(about, rows)
    raw = [{**vars(s), "of_probe": s.of_probe} for s in samples]
    return json.dumps({"about": about, "summary": rows, "samples": raw}, indent=1)


def main():
    try:
        print(compare(parse(sys.argv[1:])))
    except Failed as error:
        sys.exit(f"compare: {error}")


if __name__ == "__main__":
    main()
