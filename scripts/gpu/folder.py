# SPDX-License-Identifier: MIT
"""Folders of models with random weights: GPT-2 and Qwen3, config.json and one safetensors file, by the standard library alone.

  folder.py gpt2|qwen3 whole|small PATH      whole: of the size of GPT-2 (124 M weights) or Qwen3-0.6B, in bf16"""
import json
import math
import os
import random
import struct
import sys

GPT2 = {"model_type": "gpt2", "vocab_size": 512, "n_positions": 256, "n_embd": 128, "n_layer": 2, "n_head": 4, "n_inner": None,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05, "tie_word_embeddings": True}
QWEN3 = {"model_type": "qwen3", "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu", "max_position_embeddings": 256, "rms_norm_eps": 1e-06,
         "rope_theta": 1000000.0, "tie_word_embeddings": True, "attention_bias": False}


def gpt2(c):
    e = c["n_embd"]
    yield "wte.weight", (c["vocab_size"], e)
    yield "wpe.weight", (c["n_positions"], e)
    for i in range(c["n_layer"]):
        h = "h.%d." % i
        for name, shape in (("ln_1.weight", (e,)), ("ln_1.bias", (e,)), ("attn.c_attn.weight", (e, 3 * e)), ("attn.c_attn.bias", (3 * e,)),
                            ("attn.c_proj.weight", (e, e)), ("attn.c_proj.bias", (e,)), ("ln_2.weight", (e,)), ("ln_2.bias", (e,)),
                            ("mlp.c_fc.weight", (e, 4 * e)), ("mlp.c_fc.bias", (4 * e,)), ("mlp.c_proj.weight", (4 * e, e)), ("mlp.c_proj.bias", (e,))):
            yield h + name, shape
    yield "ln_f.weight", (e,)
    yield "ln_f.bias", (e,)


def qwen3(c):
    e, d, f = c["hidden_size"], c["head_dim"], c["intermediate_size"]
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    yield "model.embed_tokens.weight", (c["vocab_size"], e)
    for i in range(c["num_hidden_layers"]):
        h = "model.layers.%d." % i
        for name, shape in (("input_layernorm.weight", (e,)), ("self_attn.q_proj.weight", (q, e)), ("self_attn.k_proj.weight", (kv, e)),
                            ("self_attn.v_proj.weight", (kv, e)), ("self_attn.o_proj.weight", (e, q)), ("self_attn.q_norm.weight", (d,)),
                            ("self_attn.k_norm.weight", (d,)), ("post_attention_layernorm.weight", (e,)), ("mlp.gate_proj.weight", (f, e)),
                            ("mlp.up_proj.weight", (f, e)), ("mlp.down_proj.weight", (e, f))):
            yield h + name, shape
    yield "model.norm.weight", (e,)


SMALL = {"gpt2": (GPT2, gpt2), "qwen3": (QWEN3, qwen3)}
WHOLE = {"gpt2": (dict(GPT2, vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12, torch_dtype="bfloat16"), gpt2),
         "qwen3": (dict(QWEN3, vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
                        num_key_value_heads=8, head_dim=128, max_position_embeddings=40960, torch_dtype="bfloat16"), qwen3)}
# The highest byte of a weight: of either sign, from 2^-7 to 2^-3; of a norm: from 1/2 to 2.
WEIGHT, NORM = bytes((b & 0x80) | (0x3D if b & 1 else 0x3C) for b in range(256)), bytes([0x3F] * 256)


def numbers(rng, count, size, table):
    """Little-endian numbers of random bits, below the sign and the exponent."""
    out = bytearray(count * size)
    for i in range(size):
        part = rng.randbytes(count)
        out[i::size] = part.translate(table) if i == size - 1 else part
    return out


def write(path, config, tensors, seed=1):
    """f32 weights, or those of config's torch_dtype."""
    dtype, size = ("BF16", 2) if config.get("torch_dtype") == "bfloat16" else ("F32", 4)
    rng, header, at, parts = random.Random(seed), {}, 0, []
    for name, shape in tensors(config):
        count = math.prod(shape)
        parts.append((count, NORM if len(shape) == 1 and name.endswith("weight") else WEIGHT))
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size * count]}
        at += size * count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    with open(os.path.join(path, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for count, table in parts:
            f.write(numbers(rng, count, size, table))
    return path


if __name__ == "__main__":
    write(sys.argv[3], *{"whole": WHOLE, "small": SMALL}[sys.argv[2]][sys.argv[1]])
