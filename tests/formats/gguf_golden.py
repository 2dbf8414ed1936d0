#!/ usr / bin / env python3
#SPDX - License - Identifier : MIT
"""gguf_golden.py [CORPUS] - the numbers of test_gguf.c's table, by the package gguf of PyPI (no test needs it).

Prints for each type the FNV-1a hash of gguf.quants.dequantize of the blocks that test_gguf.c makes. With CORPUS it also writes
the file tests/fuzz/corpus/gguf/pypi, which test_gguf.c reads.
"""
import sys

import gguf
import numpy as np

BLOCKS = 64
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "F16": [0], "BF16": [0], "F32": [2]}


def blocks(name):
    """Bytes of a linear congruential generator; the high byte of each scale is cut, so that it is finite."""
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
    state, out = 1, bytearray()
    for _ in range(BLOCKS * size):
        state = (state * 1664525 + 1013904223) % 2**32
        out.append(state >> 24)
    for first in range(0, len(out), size):
        for place in HALVES[name]:
            out[first + place + 1] &= 0xBB
    return np.frombuffer(bytes(out), np.uint8).reshape(BLOCKS, size)


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def corpus(path):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 1)
    writer.add_float32("llama.rope.freq_base", 10000.0)
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    writer.add_array("tokenizer.ggml.tokens", ["a", "", "\u00e9\u4e2d"])
    writer.add_array("tokenizer.ggml.token_type", [1, -2, 3])
    writer.add_array("tokenizer.ggml.scores", [0.5, -1.0, 0.0])
    writer.add_tensor("norm", np.arange(4, dtype=np.float32))
    ramp = (np.arange(128, dtype=np.float32) - 64).reshape(2, 64)
    for name in ("Q8_0", "Q4_0", "Q4_1", "F16", "BF16"):
        kind = gguf.GGMLQuantizationType[name]
        writer.add_tensor(name.lower(), gguf.quants.quantize(ramp, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


for kind in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K"):
    numbers = gguf.quants.dequantize(blocks(kind), gguf.GGMLQuantizationType[kind])
    assert np.isfinite(numbers).all()
    print(f"{kind:5} 0x{fnv(np.ascontiguousarray(numbers, np.float32).tobytes()):016x}")
if len(sys.argv) > 1:
    corpus(sys.argv[1])
