#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a GGUF file with the shape of a Nemotron-H checkpoint and random 4-bit weights.

Usage: make_gguf.py MODEL_DIR OUT.gguf [--seed 1]

MODEL_DIR needs a config.json only. Matrices become Q4_0 (18 bytes for 32 weights, which is the
4.5 bits a weight of MLX's 4-bit affine), everything small F32: llama.cpp's K-quants want rows in
multiples of 256, which this family's widths are not. Codes are uniform under one scale a tensor, so
no float model is ever made; no more than one tensor is in memory. A draft head is left out.
"""
import argparse
import json
import math
import pathlib
import sys
from dataclasses import dataclass

ARCH = "nemotron_h_moe"
Q4_BLOCK, Q4_BLOCK_BYTES = 32, 18
# Standard deviation of a uniform code of 16 values: a weight's is the tensor's scale times this.
CODE_SPREAD = math.sqrt((16 * 16 - 1) / 12)
WORDS = {"mamba": "M", "linear_attention": "M", "attention": "*", "full_attention": "*", "moe": "E"}


class BadConfig(Exception):
    """One line that names the field, what was found and what was wanted."""


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple  # slowest axis first, as numpy has it
    deviation: float  # Q4_0: standard deviation of a weight; F32: half the width of the range
    center: float | None = None  # F32 around this value; None: Q4_0

    @property
    def weights(self):
        return math.prod(self.shape)

    @property
    def bytes(self):
        return self.weights * 4 if self.center is not None else (
            self.weights // Q4_BLOCK * Q4_BLOCK_BYTES)


@dataclass(frozen=True)
class Shape:
    """What a config.json says of a model, as far as its size and speed go."""
    layers: str  # one letter a layer: M Mamba-2, * attention, E mixture of experts
    vocabulary: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    ssm_heads: int
    ssm_head_dim: int
    ssm_state: int
    ssm_groups: int
    conv: int
    experts: int
    experts_used: int
    neurons: int
    shared_neurons: int
    router_groups: int
    router_groups_used: int
    norm_weights: bool
    routed_scale: float
    epsilon: float
    context: int

    @property
    def inner(self):
        return self.ssm_heads * self.ssm_head_dim

    @property
    def conv_channels(self):
        return self.inner + 2 * self.ssm_groups * self.ssm_state


def read_shape(config):
    """The Shape of a parsed config.json. Raises BadConfig."""

    def field(*names, default=None):
        for name in names:
            value = config.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
                raise BadConfig(f"config.json: {name}: {value!r}, wanted a number above 0")
            return value
        if default is None:
            raise BadConfig(f"config.json: {names[0]}: missing")
        return default

    if config.get("model_type") != "nemotron_h":
        raise BadConfig(f"config.json: model_type: {config.get('model_type')!r}, wanted 'nemotron_h'")
    layers = config.get("hybrid_override_pattern")
    if layers is None:
        layers = "".join(WORDS.get(word, "?") for word in config.get("layers_block_type") or [])
    if not layers or set(layers) - set("M*E"):
        raise BadConfig(f"config.json: hybrid_override_pattern: {layers!r}, wanted letters M, * and E")
    for name, wanted in (("moe_latent_size", None), ("tie_word_embeddings", False)):
        if config.get(name, wanted) != wanted:
            raise BadConfig(f"config.json: {name}: {config[name]!r}, wanted {wanted!r}")
    shape = Shape(
        layers=layers, vocabulary=field("vocab_size"), width=field("hidden_size"),
        heads=field("num_attention_heads"),
        kv_heads=field("num_key_value_heads", default=config.get("num_attention_heads")),
        head_dim=field("head_dim", "attention_head_dim", default=128),
        ssm_heads=field("mamba_num_heads"), ssm_head_dim=field("mamba_head_dim", default=64),
        ssm_state=field("ssm_state_size", default=128),
        ssm_groups=field("n_groups", "mamba_n_groups", default=8),
        conv=field("conv_kernel", "mamba_d_conv", default=4),
        experts=field("n_routed_experts"), experts_used=field("num_experts_per_tok"),
        neurons=field("moe_intermediate_size"),
        shared_neurons=field("moe_shared_expert_intermediate_size"),
        router_groups=field("n_group", default=1), router_groups_used=field("topk_group", default=1),
        norm_weights=bool(config.get("norm_topk_prob", True)),
        routed_scale=float(field("routed_scaling_factor", default=1.0)),
        epsilon=float(field("layer_norm_epsilon", "norm_eps", default=1e-5)),
        context=field("max_position_embeddings", default=262144))
    for name, size in (("hidden_size", shape.width), ("moe_intermediate_size", shape.neurons),
                       ("moe_shared_expert_intermediate_size", shape.shared_neurons),
                       ("heads times head_dim", shape.heads * shape.head_dim),
                       ("mamba heads times mamba_head_dim", shape.inner)):
        if size % Q4_BLOCK:
            raise BadConfig(f"config.json: {name}: {size}, wanted a multiple of {Q4_BLOCK} for Q4_0")
    return shape


def unit(inputs):
    """The deviation that keeps the size of a sum over `inputs` terms."""
    return 1 / math.sqrt(inputs)


# What a block adds is small beside the token's embedding, so hidden states stay distinct and the
# router's choices spread over the experts.
OUT = 0.1


def mamba_tensors(s, block):
    return [
        Tensor(f"{block}.ssm_in.weight", (s.inner + s.conv_channels + s.ssm_heads, s.width),
               unit(s.width)),
        Tensor(f"{block}.ssm_conv1d.weight", (s.conv_channels, s.conv), 0.5, 0),
        Tensor(f"{block}.ssm_conv1d.bias", (s.conv_channels,), 0.05, 0),
        Tensor(f"{block}.ssm_dt.bias", (s.ssm_heads,), 1, -3),
        Tensor(f"{block}.ssm_a", (s.ssm_heads, 1), 3, -4),  # below 0: a state that decays
        Tensor(f"{block}.ssm_d", (s.ssm_heads, 1), 0.1, 1),
        Tensor(f"{block}.ssm_norm.weight", (s.ssm_groups, s.inner // s.ssm_groups), 0.1, 1),
        Tensor(f"{block}.ssm_out.weight", (s.width, s.inner), OUT * unit(s.inner)),
    ]


def attention_tensors(s, block):
    rows, kv_rows = s.heads * s.head_dim, s.kv_heads * s.head_dim
    return [
        Tensor(f"{block}.attn_q.weight", (rows, s.width), unit(s.width)),
        Tensor(f"{block}.attn_k.weight", (kv_rows, s.width), unit(s.width)),
        Tensor(f"{block}.attn_v.weight", (kv_rows, s.width), unit(s.width)),
        Tensor(f"{block}.attn_output.weight", (s.width, rows), OUT * unit(rows)),
    ]


def moe_tensors(s, block):
    return [
        Tensor(f"{block}.ffn_gate_inp.weight", (s.experts, s.width), math.sqrt(3) * unit(s.width), 0),
        Tensor(f"{block}.exp_probs_b.bias", (s.experts,), 0.01, 0),
        Tensor(f"{block}.ffn_up_exps.weight", (s.experts, s.neurons, s.width), unit(s.width)),
        Tensor(f"{block}.ffn_down_exps.weight", (s.experts, s.width, s.neurons),
               OUT * unit(s.neurons)),
        Tensor(f"{block}.ffn_up_shexp.weight", (s.shared_neurons, s.width), unit(s.width)),
        Tensor(f"{block}.ffn_down_shexp.weight", (s.width, s.shared_neurons),
               OUT * unit(s.shared_neurons)),
    ]


LAYER_TENSORS = {"M": mamba_tensors, "*": attention_tensors, "E": moe_tensors}


def tensors_of(s):
    """All tensors of the file, in its order."""
    tensors = [
        Tensor("token_embd.weight", (s.vocabulary, s.width), 1),
        Tensor("output_norm.weight", (s.width,), 0.1, 1),
        Tensor("output.weight", (s.vocabulary, s.width), unit(s.width)),
    ]
    for i, letter in enumerate(s.layers):
        tensors.append(Tensor(f"blk.{i}.attn_norm.weight", (s.width,), 0.1, 1))
        tensors += LAYER_TENSORS[letter](s, f"blk.{i}")
    return tensors


def bytes_per_token(s):
    """Weight bytes that a dense engine reads to decode one token."""
    total = 0
    for t in tensors_of(s):
        if t.name == "token_embd.weight":
            total += t.bytes // s.vocabulary
        elif t.name.endswith("_exps.weight"):
            total += t.bytes // s.experts * s.experts_used
        else:
            total += t.bytes
    return total


def metadata(s, name):
    """(method of GGUFWriter, key, value) of everything llama.cpp asks for."""
    numbers = {
        "block_count": len(s.layers), "context_length": s.context, "embedding_length": s.width,
        "attention.head_count": s.heads, "attention.key_length": s.head_dim,
        "attention.value_length": s.head_dim, "rope.dimension_count": s.head_dim,
        "expert_count": s.experts, "expert_used_count": s.experts_used,
        "expert_group_count": s.router_groups, "expert_group_used_count": s.router_groups_used,
        "expert_feed_forward_length": s.neurons,
        "expert_shared_feed_forward_length": s.shared_neurons, "expert_shared_count": 1,
        "ssm.conv_kernel": s.conv, "ssm.inner_size": s.inner, "ssm.state_size": s.ssm_state,
        "ssm.time_step_rank": s.ssm_heads, "ssm.group_count": s.ssm_groups,
        "vocab_size": s.vocabulary,
    }
    yield "add_string", "general.name", name
    yield "add_uint32", "general.file_type", 2  # mostly Q4_0
    for key, value in numbers.items():
        yield "add_uint32", f"{ARCH}.{key}", value
    # A layer's kind is read from these two: both 0 is a Mamba layer.
    yield "add_array", f"{ARCH}.feed_forward_length", [s.neurons * (c == "E") for c in s.layers]
    yield "add_array", f"{ARCH}.attention.head_count_kv", [s.kv_heads * (c == "*") for c in s.layers]
    yield "add_float32", f"{ARCH}.attention.layer_norm_rms_epsilon", s.epsilon
    yield "add_float32", f"{ARCH}.attention.layer_norm_epsilon", s.epsilon
    yield "add_bool", f"{ARCH}.expert_weights_norm", s.norm_weights
    yield "add_float32", f"{ARCH}.expert_weights_scale", s.routed_scale
    yield "add_string", "tokenizer.ggml.model", "none"


def random_q4(np, random, weights, deviation):
    """Blocks of Q4_0 as bytes [weights / 32, 18]: a half-precision scale, then 32 random codes."""
    blocks = np.empty((weights // Q4_BLOCK, Q4_BLOCK_BYTES), np.uint8)
    blocks[:, :2] = np.array([deviation / CODE_SPREAD], "<f2").view(np.uint8)
    for start in range(0, len(blocks), 1 << 20):
        part = blocks[start:start + (1 << 20), 2:]
        part[:] = np.frombuffer(random.bytes(part.size), np.uint8).reshape(part.shape)
    return blocks


def random_tensor(np, random, t):
    if t.center is None:
        return random_q4(np, random, t.weights, t.deviation)
    spread = random.random(t.shape, np.float32) * 2 - 1
    return (spread * np.float32(t.deviation) + np.float32(t.center)).astype(np.float32)


def write(s, out, name, seed):
    import gguf
    import numpy as np
    random = np.random.Generator(np.random.SFC64(seed))
    writer = gguf.GGUFWriter(out, ARCH)
    for method, key, value in metadata(s, name):
        getattr(writer, method)(key, value)
    tensors = tensors_of(s)
    for t in tensors:
        if t.center is None:
            row_bytes = t.shape[-1] // Q4_BLOCK * Q4_BLOCK_BYTES
            writer.add_tensor_info(t.name, (*t.shape[:-1], row_bytes), np.dtype(np.uint8), t.bytes,
                                   gguf.GGMLQuantizationType.Q4_0)
        else:
            writer.add_tensor_info(t.name, t.shape, np.dtype(np.float32), t.bytes)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for t in tensors:
        writer.write_tensor_data(random_tensor(np, random, t))
    writer.close()
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model_dir", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    try:
        config = json.loads((args.model_dir / "config.json").read_text(encoding="utf-8"))
        shape = read_shape(config)
    except (OSError, ValueError, BadConfig) as error:
        sys.exit(f"make_gguf: {error}")
    partial = args.out.with_name(args.out.name + ".part")
    tensors = write(shape, partial, f"random {shape.layers} x{shape.experts}", args.seed)
    partial.rename(args.out)
    print(f"{args.out}: {len(tensors)} tensors, {sum(t.weights for t in tensors) / 1e9:.3f} G "
          f"weights, "
          f"{args.out.stat().st_size / 1e9:.2f} GB, {bytes_per_token(shape) / 1e6:.1f} MB a token")


if __name__ == "__main__":
    main()
