#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a GGUF file of a known model's sizes with random weights: what bench/parts_models.py times.

  bench/make_gguf.py gpt2|qwen3-0.6b Q8_0|Q4_0|F16 OUT.gguf

Needs the Python packages numpy and gguf. Every matrix has the type, the table of embeddings too, which is the head as well. Vectors
and the table of positions are F32, as llama.cpp's converter writes them. There is no vocabulary: prompts are token ids."""
import sys

import gguf
import numpy

SIZES = {"gpt2": {"arch": "gpt2", "layers": 12, "width": 768, "inner": 3072, "heads": 12, "vocabulary": 50257, "context": 1024},
         "qwen3-0.6b": {"arch": "qwen3", "layers": 28, "width": 1024, "inner": 3072, "heads": 16, "groups": 8, "head": 128,
                        "vocabulary": 151936, "context": 4096}}
NOISE = numpy.random.default_rng(1).standard_normal((1 << 22) + 4096, dtype=numpy.float32) * numpy.float32(0.02)


def numbers(rows, cols, seed):
    """A matrix of one block of noise, whose rows begin at places of their own."""
    places = numpy.random.default_rng(seed).integers(0, NOISE.size - cols, rows)
    return NOISE[places[:, None] + numpy.arange(cols)[None, :]]


class Writer:
    def __init__(self, path, size, kind):
        self.file = gguf.GGUFWriter(path, size["arch"])
        self.kind, self.count = gguf.GGMLQuantizationType[kind], 0

    def matrix(self, name, rows, cols, kind=None):
        kind, self.count = kind or self.kind, self.count + 1
        data = gguf.quants.quantize(numbers(rows, cols, self.count), kind)
        self.file.add_tensor(name, data, raw_dtype=kind)

    def vector(self, name, n, value):
        self.file.add_tensor(name, numpy.full(n, value, dtype=numpy.float32))


def gpt2(w, size):
    width, inner = size["width"], size["inner"]
    w.matrix("position_embd.weight", size["context"], width, gguf.GGMLQuantizationType.F32)
    for layer in range(size["layers"]):
        block = f"blk.{layer}."
        for norm in ("attn_norm", "ffn_norm"):
            w.vector(f"{block}{norm}.weight", width, 1)
            w.vector(f"{block}{norm}.bias", width, 0.01)
        for name, rows, cols in (("attn_qkv", 3 * width, width), ("attn_output", width, width), ("ffn_up", inner, width),
                                 ("ffn_down", width, inner)):
            w.matrix(f"{block}{name}.weight", rows, cols)
            w.vector(f"{block}{name}.bias", rows, 0.01)
    w.vector("output_norm.bias", width, 0.01)


def qwen3(w, size):
    width, inner, head = size["width"], size["inner"], size["head"]
    for layer in range(size["layers"]):
        block = f"blk.{layer}."
        for name, n in (("attn_norm", width), ("ffn_norm", width), ("attn_q_norm", head), ("attn_k_norm", head)):
            w.vector(f"{block}{name}.weight", n, 1)
        for name, rows, cols in (("attn_q", size["heads"] * head, width), ("attn_k", size["groups"] * head, width),
                                 ("attn_v", size["groups"] * head, width), ("attn_output", width, size["heads"] * head),
                                 ("ffn_gate", inner, width), ("ffn_up", inner, width), ("ffn_down", width, inner)):
            w.matrix(f"{block}{name}.weight", rows, cols)


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in SIZES or sys.argv[2] not in gguf.GGMLQuantizationType.__members__:
        print(__doc__, file=sys.stderr)
        return 2
    size = SIZES[sys.argv[1]]
    w = Writer(sys.argv[3], size, sys.argv[2])
    f = w.file
    f.add_context_length(size["context"])
    f.add_embedding_length(size["width"])
    f.add_block_count(size["layers"])
    f.add_feed_forward_length(size["inner"])
    f.add_head_count(size["heads"])
    f.add_vocab_size(size["vocabulary"])
    f.add_tokenizer_model("no_vocab")
    w.matrix("token_embd.weight", size["vocabulary"], size["width"])
    w.vector("output_norm.weight", size["width"], 1)
    if size["arch"] == "gpt2":
        f.add_layer_norm_eps(1e-5)
        gpt2(w, size)
    else:
        f.add_head_count_kv(size["groups"])
        f.add_key_length(size["head"])
        f.add_value_length(size["head"])
        f.add_layer_norm_rms_eps(1e-6)
        f.add_rope_freq_base(1e6)
        qwen3(w, size)
    f.write_header_to_file()
    f.write_kv_data_to_file()
    f.write_tensors_to_file()
    f.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
