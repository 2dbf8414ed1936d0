#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes ONNX's own node tests as files for tests/graph/run_nodes.c, and runs ONNX Runtime on the same files.

  node_tests.py write DIR [--ops Add,MatMul | --all]   needs the Python package onnx >= 1.23
  node_tests.py ort DIR                                needs onnxruntime; writes DIR/ort.txt
  node_tests.py text FILE LIST                         writes the small cases of LIST as one text file (tests/graph/cases)

The runtime binds static shapes, so an input that decides a shape (Reshape's shape, Slice's starts, ..) is written as an
initializer of the model instead of a fed input (SHAPE_INPUTS below); ONNX Runtime is given the same files.

DIR gets a folder a case (model.onnx, input_I.pb, output_I.pb: TensorProto files) and cases.txt, a line a case:
name, operator, core, other or expanded, rtol, atol, number of inputs, number of outputs. A case is "core" when all its
inputs and outputs are tensors of f32, i64, i32, i8, u8 or bool. An "expanded" case is another one of an operator with its
function body in the operator's place. DIR must lie outside of the tree: generated files are
not tracked. The package onnx has no such files since 1.23: it builds the cases in memory.
"""
import argparse
import pathlib
import re
import sys
import warnings

# The operators of transformer exports that the graph runtime claims (docs/models.md).
OPS = """MatMul Gemm Add Sub Mul Div Pow Sqrt Reciprocal Neg Abs Exp Log Erf Tanh Sigmoid Relu Gelu Swish SwiGLU Softmax LogSoftmax
LayerNormalization RMSNormalization GroupNormalization Attention RotaryEmbedding LinearAttention FlexAttention TensorScatter Gather
GatherElements GatherND ScatterND ScatterElements Reshape Transpose Squeeze Unsqueeze Flatten Expand Tile Slice Split Concat Pad Shape
Size Range Constant ConstantOfShape Identity Cast CastLike Where Equal Less LessOrEqual Greater GreaterOrEqual And Or Not Min Max Clip
ReduceSum ReduceMean ReduceMax ReduceMin ReduceSumSquare ReduceL2 CumSum Trilu Einsum TopK ArgMax OneHot Cos Sin Mod IsNaN
QuantizeLinear DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearMatMul ConvInteger QLinearConv Mean Softplus HardSwish Mish Dropout If Loop Scan Conv
NonZero MaxPool AveragePool GlobalAveragePool GlobalMaxPool BatchNormalization DepthToSpace SpaceToDepth PRelu Selu Celu
ThresholdedRelu Softsign Tan Shrink Resize Upsample ConvTranspose GridSample AffineGrid RoiAlign DeformConv MaxUnpool Col2Im LpPool
GlobalLpPool LRN EyeLike CenterCropPad Scatter BitwiseAnd BitwiseOr BitwiseXor BitwiseNot""".split()
OPS += "Acos Acosh Asin Asinh Atan Atanh Cosh Sinh DFT STFT BlackmanWindow HammingWindow HannWindow GRU LSTM RNN".split()
# Inputs that decide a shape, by operator.
SHAPE_INPUTS = {
    "DFT": [1, 2], "STFT": [1, 3], "BlackmanWindow": [0], "HammingWindow": [0], "HannWindow": [0],
    "Reshape": [1], "Expand": [1], "Tile": [1], "Slice": [1, 2, 3, 4], "Pad": [1, 3], "Squeeze": [1], "Unsqueeze": [1], "Split": [1],
    "ConstantOfShape": [0], "Range": [0, 1, 2], "OneHot": [1], "TopK": [1], "CumSum": [1], "Loop": [0, 1], "Dropout": [1, 2], "NonZero": [0], "Resize": [1, 2, 3], "Upsample": [1], "AffineGrid": [1], "MaxUnpool": [2], "Col2Im": [1, 2], "CenterCropPad": [1],
    "ReduceSum": [1], "ReduceMean": [1], "ReduceMax": [1], "ReduceMin": [1], "ReduceSumSquare": [1], "ReduceL2": [1],
}  # fmt: skip
# TensorProto's numbers of f32, u8, i8, i32, i64, bool.
CORE = {1, 2, 3, 6, 7, 9}


def kinds(model):
    """The element types of a model's ports; of one that is no tensor, the name of its kind."""
    out = set()
    for port in list(model.graph.input) + list(model.graph.output):
        kind = port.type.WhichOneof("value")
        out.add(port.type.tensor_type.elem_type if kind == "tensor_type" else kind)
    return out


def as_tensor(array, name):
    """A TensorProto of an array; None for a value that is no tensor."""
    from onnx import numpy_helper

    if array is None or isinstance(array, (list, tuple, dict)):
        return None
    if hasattr(array, "SerializeToString"):
        return array
    return numpy_helper.from_array(array, name)


def fixed_case(case, node):
    """The model with the inputs of `node` that decide shapes as initializers, the tensors that are fed, those expected."""
    import onnx

    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    inputs, outputs = case.data_sets[0]
    fixed = {node.input[i] for i in SHAPE_INPUTS.get(node.op_type, []) if i < len(node.input)}
    fed = []
    for port, array in zip(list(model.graph.input), inputs):
        tensor = as_tensor(array, port.name)
        if port.name in fixed and tensor is not None:
            model.graph.input.remove(port)
            model.graph.initializer.append(tensor)
            model.ir_version = max(model.ir_version, 4)
        else:
            fed.append(tensor)
    return model, fed, [as_tensor(array, port.name) for port, array in zip(model.graph.output, outputs)]


def write_case(folder, case, node):
    """Writes one case; returns how many inputs are fed and how many outputs are expected."""
    model, inputs, outputs = fixed_case(case, node)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    for prefix, tensors in (("input", inputs), ("output", outputs)):
        for i, tensor in enumerate(tensors):
            if tensor is not None:
                (folder / f"{prefix}_{i}.pb").write_bytes(tensor.SerializeToString())
    return len(inputs), len(outputs)


def write(args):
    from onnx.backend.test.loader import load_model_tests

    wanted = None if args.all else set(args.ops.split(",") if args.ops else OPS)
    cases = load_model_tests(kind="node")
    nodes = {case.name: case.model.graph.node[0] for case in cases}
    lines = []
    for case in cases:
        base, _, expanded = case.name.partition("_expanded")
        node = nodes.get(base, case.model.graph.node[0])
        if wanted is not None and node.op_type not in wanted:
            continue
        kind = "expanded" if case.name != base else "core" if kinds(case.model) <= CORE else "other"
        n_in, n_out = write_case(args.dir / case.name, case, node)
        lines.append(f"{case.name} {node.op_type} {kind} {case.rtol:g} {case.atol:g} {n_in} {n_out}")
    lines.sort(key=lambda line: line.split()[0])
    (args.dir / "cases.txt").write_text("\n".join(lines) + "\n")
    core, expanded = (sum(line.split()[2] == kind for line in lines) for kind in ("core", "expanded"))
    print(f"wrote {len(lines)} cases, {core} of them in core dtypes and {expanded} expanded, to {args.dir}")
    return 0 if lines else 1


def literal(tensor, name):
    """A tensor in ONNX's text syntax."""
    from onnx import TensorProto, numpy_helper

    array = numpy_helper.to_array(tensor)
    kind = TensorProto.DataType.Name(tensor.data_type).lower()
    dims = "[" + ",".join(str(dim) for dim in array.shape) + "]" if array.ndim else ""
    if array.dtype == bool:
        array = array.astype(int)
    digits = {"float": "%.9g", "double": "%.17g"}.get(kind, "%d")
    return f"{kind}{dims} {name} = {{{', '.join(digits % value for value in array.reshape(-1).tolist())}}}"


def text_case(name, model, inputs, outputs, rtol, atol, issue=None):
    """One case of tests/graph/cases: the model, the fed and the expected tensors, or what the refusal says."""
    from onnx import printer

    model_text = re.sub(r",\s*producer_name: \"[^\"]*\"", "", printer.to_text(model)).strip()
    model_text = re.sub(r"\A<\n(.*?)\n>\n", lambda head: "<" + " ".join(head[1].split()) + ">\n", model_text, flags=re.S)
    lines = [f"== {name} {rtol:g} {atol:g}", model_text]
    lines += ["-- " + literal(tensor, f"in{i}") for i, tensor in enumerate(inputs)]
    lines += ["-- " + literal(tensor, f"out{i}") for i, tensor in enumerate(outputs)]
    if issue:
        lines.append("-- issue " + issue)
    return "\n".join(lines) + "\n"


def joined(cases):
    """The text of these cases: a case whose head is that of the case before it has none."""
    texts, head = [], None
    for case in cases:
        name, first, rest = case.split("\n", 2)
        texts.append(f"{name}\n{rest}" if first == head else case)
        head = first
    return "".join(texts)


def text(args):
    from onnx.backend.test.loader import load_model_tests

    cases, listed = [], set(args.list.read_text().split())
    for case in load_model_tests(kind="node"):
        if case.name not in listed or "_expanded" in case.name or not kinds(case.model) <= CORE:
            continue
        model, inputs, outputs = fixed_case(case, case.model.graph.node[0])
        if all(tensor is not None for tensor in inputs + outputs):
            one = text_case(case.name, model, inputs, outputs, case.rtol, case.atol)
            if len(one) <= args.most:
                cases.append(one)
    args.file.write_text(joined(sorted(cases)))
    print(f"wrote {len(cases)} cases, {args.file.stat().st_size} bytes")
    return 0


def ort_passes(folder, n_in, n_out, rtol, atol):
    """Whether ONNX Runtime gives the expected outputs of one case."""
    import numpy
    import onnx
    import onnxruntime
    from onnx import numpy_helper

    def tensors(prefix, n):
        return [numpy_helper.to_array(onnx.load_tensor(folder / f"{prefix}_{i}.pb")) for i in range(n)]

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    results = session.run(None, dict(zip([port.name for port in session.get_inputs()], tensors("input", n_in))))
    for result, expected in zip(results, tensors("output", n_out)):
        if result.dtype != expected.dtype or result.shape != expected.shape:
            return False
        numpy.testing.assert_allclose(result, expected, rtol=rtol, atol=atol)
    return len(results) == n_out


def ort(args):
    passed = []
    for line in (args.dir / "cases.txt").read_text().splitlines():
        name, _, core, rtol, atol, n_in, n_out = line.split()
        try:
            if ort_passes(args.dir / name, int(n_in), int(n_out), float(rtol), float(atol)):
                passed.append((name, core))
        except Exception:  # noqa: BLE001 - each of the many ways in which a case can be refused counts as not passed
            pass
    (args.dir / "ort.txt").write_text("".join(f"{name} {core}\n" for name, core in passed))
    print(f"ONNX Runtime passes {len(passed)} cases")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("write")
    one.add_argument("dir", type=pathlib.Path)
    one.add_argument("--ops", help="operators, by commas (default: those that the runtime claims)")
    one.add_argument("--all", action="store_true", help="every operator")
    two = commands.add_parser("ort")
    two.add_argument("dir", type=pathlib.Path)
    three = commands.add_parser("text")
    three.add_argument("file", type=pathlib.Path)
    three.add_argument("list", type=pathlib.Path)
    three.add_argument("--most", type=int, default=1100, help="bytes of a case")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    return {"write": write, "ort": ort, "text": text}[args.command](args)


if __name__ == "__main__":
    sys.exit(main())
