#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/graph/cases/models.txt: whole exports of PyTorch (the presets of tools/bs-export, two narrow layers) as text.

  model_cases.py FILE       needs what tools/bs-export needs, and onnxruntime, which computes what is expected

A weight is written as {@SEED SCALE OFFSET}: its elements are OFFSET + SCALE * k / 128, where k are the upper eight bits, as a
signed number, of splitmix64 of (SEED << 32) + the element's number; tests/graph/random_text.h makes the same numbers."""
import argparse
import importlib.machinery
import importlib.util
import pathlib
import re
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from node_tests import joined, text_case

HERE = pathlib.Path(__file__).resolve().parent
# Preset, opset, symbols, and the batch where it is not the usual one (generators 1, others 2); one case each.
MODELS = [("gpt2", 23, False), ("gpt2", 20, False), ("qwen3", 23, False), ("qwen3", 20, False), ("bert", 23, True), ("bert", 20, False),
          ("llama", 23, False), ("t5-encoder", 23, False), ("vit", 23, False), ("block-naive-toy", 23, False), ("mlp-4x128", 23, False),
          ("gpt2-last", 23, False), ("gpt2", 23, False, 2), ("gpt2", 20, False, 2), ("qwen3", 23, False, 2), ("qwen3", 20, False, 2),
          ("llama", 23, False, 2), ("llama", 20, False, 2)]  # fmt: skip


def numbers(seed, count):
    with np.errstate(over="ignore"):
        z = (np.uint64(seed) << np.uint64(32)) + np.arange(count, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(56)).astype(np.uint8).view(np.int8).astype(np.float64) / 128


def is_weight(array, weights):
    return any(array.size == w.size and (np.array_equal(array.ravel(), w.ravel()) or np.array_equal(array.T.ravel(), w.ravel())) for w in weights)


def randomise(model, module):
    """Gives every weight numbers of the generator; {name: its text}."""
    weights = [w.detach().numpy() for w in module.parameters()]
    texts = {}
    for seed, tensor in enumerate(model.graph.initializer, 1):
        array = numpy_helper.to_array(tensor)
        if array.dtype != np.float32 or array.size < 8 or not is_weight(array, weights):
            continue
        norm = array.ndim == 1 and abs(array.mean() - 1) < 0.5
        scale, offset = (0.25, 1) if norm else (0.5 if array.size < 10000 else 0.25, 0)
        array = (offset + scale * numbers(seed, array.size)).astype(np.float32).reshape(array.shape)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        texts[tensor.name] = f"{{@{seed} {scale:g} {offset}}}"
    return texts


def strip(graph):
    """Leaves what a run needs."""
    del graph.value_info[:], graph.metadata_props[:]
    graph.doc_string = ""
    for node in graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for port in list(graph.input) + list(graph.output):
        del port.metadata_props[:]
        port.doc_string = ""
    for tensor in graph.initializer:
        del tensor.metadata_props[:]


def last_token(module):
    """The logits of the last token alone, as those write who generate."""
    import torch

    class Last(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.all = module

        def forward(self, input_ids):
            return self.all(input_ids)[:, -1]

    return Last().eval()


def case(tool, preset, opset, dynamic, batch=None):
    kind, preset, last = preset, preset.removesuffix("-last"), preset.endswith("-last")
    options = argparse.Namespace(model=preset, opset=opset, dynamic=dynamic, layers=2, tiny=True, mask=False, seed=3, inline=True)
    made = tool.PRESETS[preset][0](options)
    if last:
        made.module = last_token(made.module)
    inputs = made.make(batch or 2, 5)
    if not batch and not dynamic and "tokens" in str(made.axes) and preset in ("gpt2", "qwen3", "llama"):
        inputs = made.make(1, 6)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.onnx"
        tool.export_onnx(made, options, {"": inputs}, path)
        model = onnx.load(path)
    texts = randomise(model, made.module)
    for i, (key, array) in enumerate(inputs.items()):
        if array.dtype == np.float32:
            inputs[key] = numbers(1000 + i, array.size).astype(np.float32).reshape(array.shape)
            texts[f"in{i}"] = f"{{@{1000 + i} 1 0}}"
    del model.metadata_props[:], model.functions[:]
    strip(model.graph)
    if dynamic:  # the cases of text are run without sizes of symbols
        for port in model.graph.input:
            for dim, size in zip(port.type.tensor_type.shape.dim, inputs[port.name].shape):
                dim.dim_value = size
    model.graph.name = "g"
    onnx.checker.check_model(model)
    outputs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, inputs)
    largest = max(float(np.abs(out).max()) for out in outputs)
    tensors = [[numpy_helper.from_array(np.ascontiguousarray(a), "") for a in part] for part in (inputs.values(), outputs)]
    name = f"{kind}_{opset}{'_dynamic' if dynamic else ''}{f'_batch{batch}' if batch else ''}".replace("-", "_")
    text = text_case(name, model, *tensors, 0, 1e-4 * largest)
    for weight, random in texts.items():
        text, found = re.subn(r"(\"?" + re.escape(weight) + r"\"? = )\s*\{[^}]*\}", lambda hit, r=random: hit[1] + r, text, count=1)
        assert found == 1, weight
    print(f"{name}: {len(model.graph.node)} nodes, {len(texts)} weights, {len(text)} bytes", file=sys.stderr)
    return text


def main():
    loader = importlib.machinery.SourceFileLoader("bs_export", str(HERE.parent.parent / "tools" / "bs-export"))
    tool = importlib.util.module_from_spec(importlib.util.spec_from_loader("bs_export", loader))
    loader.exec_module(tool)
    tool.quiet()
    pathlib.Path(sys.argv[1]).write_text(joined(case(tool, *row) for row in MODELS), encoding="utf-8")


if __name__ == "__main__":
    main()
