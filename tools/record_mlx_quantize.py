#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what MLX's quantisers and mlx-lm's converter make of given weights, for the tests.

    pip install mlx==0.32.4 mlx-lm==0.32.2
    python tools/record_mlx_quantize.py cpu       # tests/data/mlx_quantize.safetensors
    python tools/record_mlx_quantize.py convert   # tests/data/mlx_convert.safetensors
    pip install mlx-cuda-13==0.32.4               # on a machine with an NVIDIA GPU
    python tools/record_mlx_quantize.py gpu       # tests/data/mlx_quantize_gpu.safetensors

`cpu` makes rows and quantises them, `gpu` quantises the same ones; the file of `cpu` holds them as "input.DTYPE", both hold
"DTYPE.BITS.GROUP.weight", ".scales" and ".biases". `convert` runs mlx-lm's converter on a small checkpoint whose weights the test makes too (weight()),
with one setting for all modules ("plain/NAME") and with some of their own ("mixed/NAME"); its metadata holds the configs.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import mlx.core as mx
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"
BITS, GROUPS = (2, 3, 4, 5, 6, 8), (32, 64, 128)
DTYPES = {"BF16": mx.bfloat16, "F16": mx.float16, "F32": mx.float32}
WIDTH = 256


def half_steps(rng, bits):
    """Groups whose step is exactly 1 and whose weights lie half way between two codes, or on one."""
    n = 2**bits - 1
    row = rng.integers(0, 2 * n + 1, WIDTH) / 2 - n
    row[::32], row[1::32] = -n, 0
    return row


def rows(dtype):
    rng = np.random.default_rng(7)
    tiny, huge = {"BF16": (1e-39, 1e38), "F16": (6e-8, 3e4), "F32": (1e-42, 1e38)}[dtype]
    signs = rng.integers(0, 2, WIDTH) * 2 - 1
    out = [
        rng.normal(0, 0.02, WIDTH),
        rng.uniform(-1, 1, WIDTH),
        np.zeros(WIDTH),
        signs * 0.0,
        np.full(WIDTH, 0.37),
        np.full(WIDTH, -0.37),
        rng.uniform(0.5, 0.6, WIDTH),  # one sign, far from 0
        rng.uniform(-0.6, -0.5, WIDTH),
        rng.uniform(-0.6, 0, WIDTH),
        rng.normal(0, 3e-8, WIDTH),  # the smallest step
        rng.uniform(-tiny, tiny, WIDTH),  # denormals
        rng.uniform(-huge, huge, WIDTH),
        np.where(np.arange(WIDTH) % 32 == 5, 40.0, rng.normal(0, 0.01, WIDTH)),  # an outlier a group
        np.where(np.arange(WIDTH) % 32 < 16, -8.5, 6.5),  # edge / step of four bits is a half
        signs * 0.25,
    ]
    out += [half_steps(rng, bits) for bits in BITS]
    out += [-half_steps(rng, bits) for bits in BITS]
    return mx.array(np.array(out, dtype=np.float32)).astype(DTYPES[dtype])


def record_quantizer(device):
    mx.set_default_device(mx.cpu)  # for all but what is recorded
    if device == "cpu":
        out = {f"input.{dtype}": rows(dtype) for dtype in DTYPES}
    else:
        out = {n: v for n, v in mx.load(str(DATA / "mlx_quantize.safetensors")).items() if n.startswith("input.")}
    for dtype in DTYPES:
        weights = out[f"input.{dtype}"]
        for group in GROUPS if dtype == "BF16" else (64,):
            for bits in BITS:
                with mx.stream(mx.Device(mx.cpu if device == "cpu" else mx.gpu, 0)):
                    parts = mx.quantize(weights, group_size=group, bits=bits)
                for part, value in zip(("weight", "scales", "biases"), parts):
                    out[f"{dtype}.{bits}.{group}.{part}"] = value
    mx.eval(out)
    if device == "cpu":
        save("mlx_quantize.safetensors", out, {"device": "cpu"})
    else:
        out = {name: value for name, value in out.items() if not name.startswith("input.")}
        save("mlx_quantize_gpu.safetensors", out, {"device": str(mx.device_info(mx.gpu).get("device_name", "gpu"))})


CONFIG = {
    "model_type": "nemotron_h", "vocab_size": 32, "hidden_size": 64, "hybrid_override_pattern": "M*E-",
    "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
    "mamba_num_heads": 4, "mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 8, "conv_kernel": 4,
    "n_routed_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 96, "n_shared_experts": 1,
    "moe_shared_expert_intermediate_size": 128, "routed_scaling_factor": 2.5, "intermediate_size": 64, "n_group": 1,
    "topk_group": 1, "norm_topk_prob": True, "mlp_hidden_act": "relu2", "max_position_embeddings": 128, "eos_token_id": 2,
    "layer_norm_epsilon": 1e-05, "attention_bias": False, "mlp_bias": False, "use_bias": False, "use_conv_bias": True,
    "mamba_proj_bias": False, "tie_word_embeddings": False, "time_step_limit": [0.0, float("inf")],
}


def shapes():
    layer = "backbone.layers.{}.".format
    out = {"backbone.embeddings.weight": [32, 64], "lm_head.weight": [32, 64], "backbone.norm_f.weight": [64]}
    for i in range(4):
        out[layer(i) + "norm.weight"] = [64]
    for name, shape in {"in_proj.weight": [164, 64], "out_proj.weight": [64, 64], "conv1d.weight": [96, 1, 4], "conv1d.bias": [96],
                        "A_log": [4], "D": [4], "dt_bias": [4], "norm.weight": [64]}.items():
        out[layer(0) + "mixer." + name] = shape
    for name, size in {"q": [64, 64], "k": [32, 64], "v": [32, 64], "o": [64, 64]}.items():
        out[f"{layer(1)}mixer.{name}_proj.weight"] = size
    moe = layer(2) + "mixer."
    out |= {moe + "gate.weight": [3, 64], moe + "gate.e_score_correction_bias": [3]}
    for name, size in {"shared_experts": 128, "experts.0": 96, "experts.1": 96, "experts.2": 96}.items():
        out |= {f"{moe}{name}.up_proj.weight": [size, 64], f"{moe}{name}.down_proj.weight": [64, size]}
    out |= {layer(3) + "mixer.up_proj.weight": [64, 64], layer(3) + "mixer.down_proj.weight": [64, 64]}
    return out


def weight(name, shape):
    """Numbers that the test makes as well, out of the name: no weight of the source is recorded."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    x = np.uint64(seed) + np.arange(np.prod(shape), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    top = (x >> np.uint64(48)).astype(np.uint16).view(np.int16)
    values = mx.array((top.astype(np.float32) * np.float32(2.0**-19)).reshape(shape))
    return values if name.endswith("e_score_correction_bias") else values.astype(mx.bfloat16)


def mixed(path, module):
    """What the rule file of the test says."""
    if not hasattr(module, "to_quantized") or path.endswith("shared_experts.up_proj"):
        return False
    if path == "lm_head":
        return {"group_size": 32, "bits": 8}
    return {"group_size": 32, "bits": 6} if ".fc2" in path else True


def record_convert():
    from mlx_lm import convert

    mx.set_default_device(mx.cpu)
    out, metadata = {}, {"config": json.dumps(CONFIG)}
    with tempfile.TemporaryDirectory() as temporary:
        source = pathlib.Path(temporary) / "source"
        shutil.copytree(ROOT / "models" / "tiny-nemotron-h" / "mlx-4bit", source, ignore=shutil.ignore_patterns("*.safetensors*"))
        (source / "config.json").write_text(json.dumps(CONFIG))
        mx.save_safetensors(str(source / "model.safetensors"), {n: weight(n, s) for n, s in shapes().items()})
        for run, options in {"plain": {}, "mixed": {"quant_predicate": mixed}}.items():
            result = source.parent / run
            convert(str(source), str(result), quantize=True, q_group_size=64 if run == "plain" else 32, q_bits=4, **options)
            out |= {f"{run}/{name}": value for name, value in mx.load(str(result / "model.safetensors")).items()}
            metadata[run] = json.dumps(json.loads((result / "config.json").read_text())["quantization"])
            index = json.loads((result / "model.safetensors.index.json").read_text())
            metadata[f"{run}.index"] = json.dumps(index["metadata"])
        save("mlx_convert.safetensors", out, metadata)


def save(name, tensors, metadata):
    path = DATA / name
    mx.save_safetensors(str(path), tensors, {**metadata, "mlx": mx.__version__})
    print(path.relative_to(ROOT), path.stat().st_size, "bytes")


if __name__ == "__main__":
    goal = sys.argv[1] if len(sys.argv) == 2 else ""
    if goal in ("cpu", "gpu"):
        record_quantizer(goal)
    elif goal == "convert":
        record_convert()
    else:
        sys.exit(__doc__)
