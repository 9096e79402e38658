#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the scripts that need no rival: fake engines, and the sizes of the file that is written.

Usage: python3 bench/rivals/compare_test.py
"""
import contextlib
import io
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import compare  # noqa: E402
import make_gguf  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TINY = ROOT / "models/tiny-nemotron-h/mlx-4bit"

# The full-size model's numbers, from which the sizes below follow.
FULL = {
    "model_type": "nemotron_h", "vocab_size": 131072, "hidden_size": 2688,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "mamba_num_heads": 64,
    "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4,
    "n_routed_experts": 128, "num_experts_per_tok": 6, "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712, "routed_scaling_factor": 2.5,
}


def tiny_config():
    return json.loads((TINY / "config.json").read_text(encoding="utf-8"))


class Sizes(unittest.TestCase):
    def test_full_shape(self):
        shape = make_gguf.read_shape(FULL)
        tensors = make_gguf.tensors_of(shape)
        self.assertAlmostEqual(sum(t.weights for t in tensors) / 1e9, 31.6, delta=0.1)
        self.assertAlmostEqual(sum(t.bytes for t in tensors) / 1e9, 17.8, delta=0.1)
        # 23 Mamba, 6 attention, 23 MoE layers and the head, at 18 bytes for 32 weights
        mamba, attention = (2688 * 10304 + 4096 * 2688), 2 * 2688 * (4096 + 256)
        moe = 2 * 2688 * (6 * 1856 + 3712)
        q4 = (23 * mamba + 6 * attention + 23 * moe + 131072 * 2688) / 32 * 18
        router = 23 * 128 * 2688 * 4
        got = make_gguf.bytes_per_token(shape)
        self.assertGreater(got, q4 + router)  # the rest: convolutions, norms, one embedding row
        self.assertLess(got, (q4 + router) * 1.005)

    def test_names_and_sizes_fit_the_format(self):
        for config in (FULL, tiny_config()):
            tensors = make_gguf.tensors_of(make_gguf.read_shape(config))
            self.assertEqual(len({t.name for t in tensors}), len(tensors))
            for t in tensors:
                self.assertLess(len(t.name), 64, t.name)
                if t.center is None:
                    self.assertEqual(t.shape[-1] % 32, 0, t.name)
                    self.assertEqual(t.shape[-2] % 8, 0, f"{t.name} would not be repacked")

    def test_metadata_says_each_layers_kind(self):
        shape = make_gguf.read_shape(tiny_config())
        values = {key: value for _, key, value in make_gguf.metadata(shape, "x")}
        ff = values["nemotron_h_moe.feed_forward_length"]
        kv = values["nemotron_h_moe.attention.head_count_kv"]
        kinds = "".join("E" if f else "*" if k else "M" for f, k in zip(ff, kv))
        self.assertEqual(kinds, tiny_config()["hybrid_override_pattern"])
        self.assertEqual(values["nemotron_h_moe.block_count"], len(kinds))

    def test_layer_words_are_the_same_as_letters(self):
        words = {k: v for k, v in FULL.items() if k != "hybrid_override_pattern"}
        names = {"M": "mamba", "*": "attention", "E": "moe"}
        words["layers_block_type"] = [names[c] for c in FULL["hybrid_override_pattern"]]
        self.assertEqual(make_gguf.read_shape(words), make_gguf.read_shape(FULL))

    def test_bad_configs_are_refused_by_name(self):
        for field, value in (("hidden_size", None), ("hidden_size", "2688"), ("hidden_size", -1),
                             ("hidden_size", True), ("hidden_size", 2700), ("vocab_size", 0),
                             ("vocab_size", math.nan), ("hybrid_override_pattern", "M-E"),
                             ("hybrid_override_pattern", ""), ("model_type", "llama"),
                             ("moe_intermediate_size", 100), ("moe_latent_size", 512),
                             ("tie_word_embeddings", True)):
            with self.subTest(field=field, value=value):
                with self.assertRaises(make_gguf.BadConfig) as caught:
                    make_gguf.read_shape(FULL | {field: value})
                self.assertIn(field, str(caught.exception))
                self.assertNotIn("\n", str(caught.exception))


class Fakes:
    """A folder with a fake lacuna, a fake probe and a fake Python that answers for the rivals.

    Each writes a line to the log when it runs.
    """

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.log = self.folder / "log"
        self.log.touch()
        (self.folder / "bin").mkdir()
        shape = make_gguf.read_shape(tiny_config())
        tensors = make_gguf.tensors_of(shape)
        self.weights = sum(t.weights for t in tensors)
        self.size = sum(t.bytes for t in tensors)
        self.set_probe("echo 20.0")
        self.set_lacuna(self.rows([("sparse", 40, 300, 5_000_000), ("dense", 30, 200, 7_000_000)]))
        self.set_rival([self.row(512, 0, 100), self.row(0, 32, 20)])

    @staticmethod
    def row(n_prompt, n_gen, rate, **more):
        return {"n_prompt": n_prompt, "n_gen": n_gen, "n_depth": 0, "avg_ts": rate} | more

    def rows(self, kinds):
        made = []
        for experts, decode, prefill, size in kinds:
            more = {"experts": experts, "bytes_per_token": size}
            made += [self.row(512, 0, prefill, **more), self.row(0, 32, decode, **more)]
        return made

    def script(self, name, body):
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def set_probe(self, body):
        self.script("probe", f'echo probe >> "{self.log}"\n{body}')

    def set_lacuna(self, rows, before=""):
        text = rows if isinstance(rows, str) else json.dumps(rows)
        self.lacuna = self.script(
            "lacuna", f'[ "$1" = --version ] && echo "lacuna 0" && exit\necho "lacuna $*" >> '
            f'"{self.log}"\n{before}\ncat <<"END"\n{text}\nEND')

    def set_rival(self, rows, weights=None, size=None):
        about = {"engine": "rival 1", "model_n_params": weights or self.weights,
                 "model_size": size or self.size}
        text = json.dumps([about | r for r in rows])
        self.script("bin/python",
                    f'echo "$(basename "$1") $2" >> "{self.log}"\ncat <<"END"\n{text}\nEND')

    def compare(self, *more):
        args = compare.parse([str(TINY), "--lacuna", str(self.lacuna), "--rivals", str(self.folder),
                              "--llama", "x.gguf", "--threads", "2",
                              "--others", "1000", *more])
        with contextlib.redirect_stderr(io.StringIO()):
            return compare.compare(args)

    def ran(self):
        return [line.split()[0] for line in self.log.read_text(encoding="utf-8").splitlines()]


class Compare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.fakes = Fakes(folder.name)

    def summary(self, *more):
        result = json.loads(self.fakes.compare("-o", "json", *more))
        return {(r["test"], r["engine"]): r for r in result["summary"]}, result

    def test_order_of_a_run(self):
        self.fakes.compare("--rounds", "2")
        one, two = ["probe", "lacuna", "probe", "llama_bench.py", "probe"], [
            "probe", "llama_bench.py", "probe", "lacuna", "probe"]
        self.assertEqual(self.fakes.ran(), one + two)

    def test_flags_reach_lacuna(self):
        self.fakes.compare("--rounds", "1", "--gen", "64", "--depth", "0", "2048")
        line = self.fakes.log.read_text(encoding="utf-8").splitlines()[1]
        self.assertEqual(line.split()[1:], ["bench", str(TINY), "--draft", "off", "-p", "512", "-n", "64", "-r", "1",
                                            "-d", "0,2048", "-t", "2", "-o", "json"])

    def test_numbers(self):
        rows, result = self.summary("--rounds", "3")
        decode = rows["tg32", "llama.cpp"]
        self.assertEqual(decode["tok_s"], {"median": 20, "min": 20, "max": 20})
        self.assertEqual(decode["sparse_over_it"]["median"], 2)
        self.assertEqual(decode["dense_over_it"]["median"], 1.5)
        self.assertEqual(rows["pp512", "llama.cpp"]["sparse_over_it"]["median"], 3)
        self.assertEqual(rows["tg32", "lacuna dense"]["sparse_over_it"]["median"], 40 / 30)
        self.assertNotIn("dense_over_it", rows["tg32", "lacuna sparse"])
        # 40 tokens of 5 MB a second are 0.2 GB/s of 20
        self.assertAlmostEqual(rows["tg32", "lacuna sparse"]["of_probe"]["median"], 0.01)
        self.assertNotIn("of_probe", rows["pp512", "lacuna sparse"])
        self.assertGreater(decode["max_rss_bytes"], 100_000)
        self.assertEqual(len(result["samples"]), 3 * 6)

    def test_ratio_is_taken_within_a_round(self):
        def sample(number, engine, rate):
            return compare.Sample(number, engine, "tg32", rate, 20.0, None, 1, 0.0, {})

        # The machine halves in the second round and both halve with it: the ratio stays.
        samples = [sample(0, compare.SPARSE, 40), sample(0, compare.LLAMA, 20),
                   sample(1, compare.SPARSE, 20), sample(1, compare.LLAMA, 10),
                   sample(2, compare.SPARSE, 50), sample(2, compare.LLAMA, 10),
                   sample(3, compare.LLAMA, 10)]
        self.assertEqual(compare.ratios(samples, "tg32", compare.SPARSE, compare.LLAMA), [2, 2, 5])

    def test_disturbed_rounds_are_done_again(self):
        for busy, kept, tried, most in (((0, 0), 2, 2, 0), ((0, 0.2, 9, 0.1), 2, 4, 0.1),
                                        ((9, 9, 9, 9, 9, 0), 1, 6, 0)):
            with self.subTest(busy=busy):
                left = list(busy)
                got = compare.undisturbed(2, 0.1, lambda number: (number, left.pop(0)),
                                          lambda line: None)
                self.assertEqual(got, (list(range(kept)), tried, most))
        with self.assertRaisesRegex(compare.Failed, "busy in all 6 rounds: others used up to 0.30"):
            compare.undisturbed(2, 0.1, lambda number: (number, 0.3), lambda line: None)

    def test_a_disturbed_round_ends_early(self):
        with self.assertRaisesRegex(compare.Failed, "busy in all 3 rounds"):
            self.fakes.compare("--rounds", "1", "--others", "-1")
        self.assertEqual(self.fakes.ran(), ["probe", "lacuna", "probe"] * 3)

    def test_lacunas_own_word_on_memory_leaves_out_its_probe(self):
        self.fakes.set_lacuna([self.fakes.row(0, 32, 40, experts="sparse", peak_rss=123)])
        rows, _ = self.summary("--rounds", "1")
        self.assertEqual(rows["tg32", "lacuna sparse"]["max_rss_bytes"], 123)

    def test_others_are_what_is_left_of_the_busy_time(self):
        class Others(compare.Others):
            busy_seconds = staticmethod(lambda: next(clock))

        clock = iter([100.0, 104.0])
        others = Others()
        others.start -= 2.0  # 2 seconds ago; 4 of busy time since, 1.95 of them our own
        self.assertAlmostEqual(others.cores(1.95), 1.0, delta=0.05)
        self.assertLessEqual(compare.Others().cores(1e9), 0)

    def test_a_busy_machine_is_noticed(self):
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
            try:
                _, _, busy = compare.run(["sleep", "1"])
            finally:
                other.kill()
        self.assertGreater(busy, 0.3)

    def test_probe_stands_beside_its_own_engine(self):
        count = self.fakes.folder / "count"
        self.fakes.set_probe(f'echo x >> "{count}"\necho "$(wc -l < "{count}")"')
        rows, _ = self.summary("--rounds", "1")
        self.assertEqual(rows["tg32", "lacuna sparse"]["probe_gb_s"]["median"], 1.5)
        self.assertEqual(rows["tg32", "llama.cpp"]["probe_gb_s"]["median"], 2.5)

    def test_bytes_of_a_token_come_from_the_shape(self):
        rows, _ = self.summary("--rounds", "1")
        expected = make_gguf.bytes_per_token(make_gguf.read_shape(tiny_config()))
        self.assertEqual(rows["tg32", "llama.cpp"]["bytes_per_token"], expected)
        self.fakes.set_rival([self.fakes.row(0, 32, 20)], size=1)  # another quantisation
        rows, _ = self.summary("--rounds", "1")
        self.assertNotIn("bytes_per_token", rows["tg32", "llama.cpp"])

    def test_mlx_is_compared_and_its_bytes_stay_unknown(self):
        rows, _ = self.summary("--rounds", "1", "--mlx")
        self.assertNotIn("of_probe", rows["tg32", "mlx-lm"])
        self.assertEqual(rows["tg32", "mlx-lm"]["sparse_over_it"]["median"], 2)

    def test_markdown(self):
        text = self.fakes.compare("--rounds", "1")
        table = [line for line in text.splitlines() if line.startswith("|")]
        self.assertEqual(len(table), 2 + 6)
        self.assertEqual({line.count("|") for line in table}, {10})
        self.assertIn("2.00 (2.00–2.00)", text)
        self.assertIn("0 more thrown away; in those that count other processes used up to", text)

    def test_failures_are_one_line(self):
        self.fakes.set_rival([self.fakes.row(0, 32, 20)], weights=7)
        self.expect_failure("the GGUF file has 7 weights, wanted the")
        self.fakes.set_probe("echo fast")
        self.expect_failure("'fast', wanted GB/s")
        self.fakes.set_probe("echo boom >&2; exit 3")
        self.expect_failure("exit code 3: boom")
        self.fakes.set_probe("kill -9 $$")
        self.expect_failure("signal 9")
        self.fakes.set_probe("echo 20")
        for rows in ("", "[", "{}", "[]", "[1]", "null", '[{"n_gen": 1, "avg_ts": 1}]x',
                     '[{"n_prompt": 1, "n_gen": 0}]', '[{"n_prompt": 1, "n_gen": 0, "avg_ts": 0}]',
                     '[{"n_prompt": 1, "n_gen": 0, "avg_ts": NaN}]'):
            with self.subTest(rows=rows):
                self.fakes.set_lacuna(rows)
                self.expect_failure("lacuna: ")
        self.fakes.set_lacuna([self.fakes.row(0, 32, 20, experts="both")])
        self.expect_failure("'both', wanted 'sparse' or 'dense'")

    def test_what_is_missing_is_named(self):
        (self.fakes.folder / "probe").unlink()
        self.expect_failure("probe: missing; bench/rivals/setup.sh makes it")
        self.fakes.set_probe("echo 20")
        self.fakes.lacuna = self.fakes.folder / "nothing"
        self.expect_failure("nothing: No such file")
        args = compare.parse([str(TINY), "--rivals", str(self.fakes.folder)])
        with self.assertRaisesRegex(compare.Failed, "no rival"):
            compare.compare(args)

    def expect_failure(self, part):
        with self.assertRaises(compare.Failed) as caught:
            self.fakes.compare("--rounds", "1")
        self.assertIn(part, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
