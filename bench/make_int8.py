#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Quantises an ONNX model as ONNX Runtime does it: bench/make_int8.py MODEL.onnx OUT.onnx. Weights have 8 bits and a scale a column, activations are
quantised in each run; products alone (its Attention of 8 bits does not load). Needs the Python packages onnx and onnxruntime."""
import sys

from onnxruntime.quantization import QuantType, quantize_dynamic

if __name__ == "__main__":
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    quantize_dynamic(sys.argv[1], sys.argv[2], per_channel=True, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul", "Gemm"])
