#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/graph/cases/counted.txt: NonZero of data. Its rows are gathered, computed and scattered, for masks of no, all and some elements;
what mixes rows is refused, and where a model has another number of rows than its shapes allow, the run fails.

  counted_cases.py FILE     needs the Python package onnx >= 1.23"""
import sys

import lower_cases
import numpy as np
from lower_cases import F, L, f, ints

X, W, BIAS = f(3, 4, 4), f(4, 4), f(4)
SOME = np.array([[1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 0, 1]], bool)
MASKS = {"none": np.zeros((3, 4), bool), "all": np.ones((3, 4), bool), "some": SOME}
PLACES = "n = NonZero (m) t = Transpose <perm: ints = [1,0]> (n) g = GatherND (x, t) "
EACH = {"w": W, "b": BIAS, "a0": ints(0), "a1": ints(1), "n1": ints(-1), "first": ints(1, 1)}
C0 = "s0, s1 = Split <axis: int = 1> (t, first) i = Squeeze (s0, a1) j = Squeeze (s1, a1) "

# a program over x [3,4,4] and m [3,4], and its constants
WHOLE = {
    # y[m] = f(x[m]) by either exporter of PyTorch
    "put_back": (PLACES + "h = Gemm (g, w, b) r = Relu (h) y = ScatterND (x, t, r)", {}),
    "put_elements": (PLACES + """r = Neg (g) u = Unsqueeze (m, n1) e = Expand (u, s) n3 = NonZero (e) t3 = Transpose (n3) v = Reshape (r, n1) q = Shape (t3) q0 = Gather (q, z)
      q1 = Unsqueeze (q0, a0) k = Slice (v, a0, q1, a0) y = ScatterND (x, t3, k)""", {"s": ints(3, 4, 4), "z": np.array(0, L)}),
    "put_by_a_sum": (PLACES + """r = Exp (g) u = Unsqueeze (m, n1) e = Expand (u, s) n3 = NonZero (e) t3 = Transpose (n3) k = Reshape (m, n1) c = Cast <to: int = 7> (k)
      q = ReduceSum (c, a0) p = Concat <axis: int = 0> (q, l) o = Expand (r, p) v = Reshape (o, n1) y = ScatterND (x, t3, v)""", {"s": ints(3, 4, 4), "l": ints(4)}),
    # experts: rows by one coordinate, sums of rows
    "add_rows": (PLACES + C0 + """h = Gather (v, j) r = MatMul (h, w) k = Shape (r) u = Unsqueeze (j, a1) e = Expand (u, k)
      y = ScatterElements <axis: int = 0, reduction: string = "add"> (v, e, r)""", {"v": f(4, 4)}),
    "by_numbers": (PLACES + C0 + """k = Mul (i, f) p = Add (k, j) d = Reshape (x, f4) h = Gather (d, p) q = Shape (p) l = Concat <axis: int = 0> (q, e) r = Reshape (h, l) o = Abs (r)
      y = ScatterND (x, t, o)""", {"f": ints(4), "f4": ints(12, 4), "e": ints(4)}),
    # axes that are not the rows' one
    "normalised": (PLACES + """h = Reshape (g, s) o = Softmax <axis: int = -1> (h) u = Reshape (o, s4) v = LayerNormalization (u, b) q = ReduceMean (v, n1) r = Sub (u, q)
      y = ScatterND (x, t, r)""", {"s": ints(-1, 2, 2), "s4": ints(-1, 4)}),
    "turned": (PLACES + """h = Unsqueeze (g, a0) p = Transpose <perm: ints = [2,0,1]> (h) q = Concat <axis: int = 1> (p, p) c = Slice (q, a0, a1, a1) d = Squeeze (c, a1) e = Transpose (d)
      r, v = Split <axis: int = 1> (e, half) o = Concat <axis: int = 1> (v, r) k = ReduceMax <keepdims: int = 1> (o, n1) l = Sub (o, k) y = ScatterND (x, t, l)""", {"half": ints(2, 2)}),
    "merged": (PLACES + "h = Reshape (g, s) k = Mul (h, c) p = Flatten <axis: int = 2> (k) r = Reshape (p, s4) y = ScatterND (x, t, r)",
               {"s": ints(-1, 2), "c": np.array(2, F), "s4": ints(-1, 4)}),
    "batches": (PLACES + "h = Reshape (g, s) r = MatMul (h, w) q = Reshape (r, s4) y = ScatterND (x, t, q)", {"s": ints(-1, 2, 2), "w": f(2, 2), "s4": ints(0, 4)}),
    # indices from the end, and the last of equal ones
    "from_the_end": (PLACES + "k = Sub (t, d) r = Neg (g) y = ScatterND (x, k, r)", {"d": ints(3, 4)}),
    "elements_from_the_end": (PLACES + C0 + """k = Sub (j, d) u = Unsqueeze (k, a1) q = Shape (g) e = Expand (u, q) y = ScatterElements <axis: int = 0> (v, e, g)""",
                              {"v": f(4, 4), "d": ints(4)}),
    "largest": (PLACES + C0 + """u = Unsqueeze (j, a0) h = Shape (i) o = ConstantOfShape (h) q = Unsqueeze (o, a0) p = Add (q, c)
      y = ScatterElements <axis: int = 1, reduction: string = "max"> (v, u, p)""", {"v": np.array([[-1, 5, -1, 0]], F), "c": np.array(3, F)}),
    "elements_of_rows": (PLACES + C0 + "u = Unsqueeze (j, a0) h = GatherElements <axis: int = 1> (v, u) k = Mul (h, h) y = ScatterElements <axis: int = 1> (v, u, k)", {"v": f(1, 4)}),
    # how many they are is data too
    "their_number": ("n = NonZero (m) q = Shape (n) k = Gather (q, a1) c = Cast <to: int = 1> (k) y = Div (x, c)", {}),
    "their_range": (PLACES + C0 + """q = Shape (i) k = Squeeze (q, a0) r = Range (z, k, o) u = Unsqueeze (r, a1) c = Cast <to: int = 1> (u) h = Add (g, c) y = ScatterND (x, t, h)""",
                    {"z": np.array(0, L), "o": np.array(1, L)}),
    "of_their_shape": (PLACES + """q = Shape (g) s = Shape (q) o = ConstantOfShape <value: tensor = int64[1] {1}> (s) k = Mul (o, n1) e = Equal (q, k) p = Where (e, o, q) h = Expand (c, p)
      r = Add (g, h) y = ScatterND (x, t, r)""", {"c": np.array(0.5, F)}),
    "two_of_one_mask": ("""n = NonZero (m) t = Transpose (n) g = GatherND (x, t) n2 = NonZero (m) t2 = Transpose (n2) h = GatherND (v, t2) r = Add (g, h) y = ScatterND (x, t2, r)""", {"v": f(3, 4, 4)}),
    "of_floats": ("k = Gather <axis: int = 2> (x, z) c = Where (m, k, o) n = NonZero (c) t = Transpose (n) g = GatherND (x, t) r = Neg (g) y = ScatterND (x, t, r)",
                  {"z": np.array(0, L), "o": np.array(-0.0, F)}),
}  # fmt: skip
LAST = PLACES + "r = Reshape (g, s) y = Gather <axis: int = 1> (r, k)"
ENDS = np.array([[0, 1, 0, 1], [1, 0, 1, 0]], bool)
PARTS = "n = NonZero (m) t = Transpose (n) p, q = Split <axis: int = 0> (t, l) o = Add (p, q) y = Gather (x, o)"
ONE = "n = NonZero (m) s = Squeeze (n, a) y = Gather (x, s)"
V, B = f(4, 3), np.array([0, 1, 0, 1], bool)
# shapes that say how many rows there are, or how many groups of them: right, and as the run fails
FIXED = [
    ("last_of_all", LAST, {"x": X, "m": SOME}, {"s": ints(1, -1, 4), "k": np.array(-1, L)}),
    ("second_of_all", LAST, {"x": X, "m": SOME}, {"s": ints(1, -1, 4), "k": np.array(1, L)}),
    ("last_of_each_half", LAST, {"x": X[:2], "m": ENDS}, {"s": ints(2, -1, 4), "k": np.array(-1, L)}),
    ("last_of_each_half_of_one", LAST, {"x": X[:2], "m": np.array([[0, 1, 0, 0], [0, 0, 0, 1]], bool)}, {"s": ints(2, -1, 4), "k": np.array(-1, L)}),
    ("rows_of_a_shape", "n = NonZero (m) r = Gather (x, n) y = Reshape (r, s)", {"x": V, "m": B}, {"s": ints(3, 2)}),
    ("parts", PARTS, {"x": V, "m": np.array([0, 1, 1, 0], bool)}, {"l": ints(1, 1)}),
    ("parts_of_all", PARTS.replace("(p, q)", "(p, p)"), {"x": V, "m": np.ones(4, bool)}, {"l": ints(1, 3)}),
    ("only_one", ONE, {"x": V, "m": np.array([0, 0, 1, 0], bool)}, {"a": ints(1)}),
]  # fmt: skip
SHAPE_IN_A_BRANCH = PLACES + """y = If (c) <then_branch = t () => (int64[1] p) { h = Reshape (g, s) p = Shape <end: int = 1> (h) },
  else_branch = e () => (int64[1] q) { q = Neg (e) }>"""
# longformer: a number of rows that one shape fixes is a size elsewhere
SUM = "c = Cast <to: int = 7> (m) q = ReduceSum (c, a0) k = ReduceMax <keepdims: int = 0> (q) n = NonZero (m) t = Transpose (n) "
SIZE = SUM + """o = SplitToSequence <axis: int = 1, keepdims: int = 0> (t, p) i = SequenceAt (o, z) h = Gather (x, i) r = Reshape (h, s)
  d = Range (z, k, p) e = Gather (r, d) g = Cast <to: int = 1> (q) b = Mul (e, g) v = Softmax <axis: int = 0> (b) y = Concat <axis: int = 0> (v, v)"""
OF_SIZE = {"a0": ints(0), "z": np.array(0, L), "p": np.array(1, L), "s": ints(2, 3)}
FIXED += [
    ("size_of_a_fixed_number", SIZE, {"x": V, "m": B}, OF_SIZE),
    ("sequence_without_dims", "o = SplitToSequence <axis: int = 1, keepdims: int = 0> (x) i = SequenceAt (o, k) y = Neg (i)", {"x": V}, {"k": np.array(-1, L)}, {"y": -V[:, 2]}),
    ("sequence_of_rows", PLACES + "o = SplitToSequence <axis: int = 1, keepdims: int = 0> (g) i = SequenceAt (o, k) j = Unsqueeze (i, a) r = Mul (g, j) y = ScatterND (x, t, r)",
     {"x": X, "m": SOME}, {"k": np.array(2, L), "a": ints(1)}),
    ("nonzero_of_a_wide_constant", "e = Expand (m, s) n = NonZero (e) t = Transpose (n) v = Reshape (x, l) y = ScatterND (z, t, v)", {"x": f(2, 40)},
     {"m": np.array([[True], [True]]), "s": ints(2, 40), "l": ints(-1), "z": np.zeros((2, 40), F)}),
    ("shape_of_halves", PLACES + "h = Reshape (g, s) y = Shape (h)", {"x": X[:2], "m": ENDS}, {"s": ints(2, -1, 4)}),
    ("shape_of_all_five", PLACES + "h = Reshape (g, s) k = Neg (h) y = Shape (k)", {"x": X, "m": SOME}, {"s": ints(5, 4)}),
    ("shape_in_a_branch_not_taken", SHAPE_IN_A_BRANCH, {"x": X, "m": SOME, "c": np.array(False)}, {"s": ints(2, -1, 4), "e": ints(2)}),
    ("scatter_of_nothing", "y = ScatterND (x, i, u)", {"x": V}, {"i": np.zeros((0, 1), L), "u": np.zeros((0, 3), F)}),
]  # fmt: skip
WRONG = [
    ("size_of_another_number", SIZE, {"x": V, "m": np.array([1, 1, 0, 1], bool)}, OF_SIZE, np.zeros((4, 3), F)),
    ("size_that_is_an_output", SUM + "h = Gather (x, n) r = Reshape (h, s) y = Range (z, k, p)", {"x": V, "m": np.ones(4, bool)}, OF_SIZE, np.arange(2)),
    ("last_of_none", LAST, {"x": X, "m": MASKS["none"]}, {"s": ints(1, -1, 4), "k": np.array(-1, L)}, np.zeros((1, 4), F)),
    ("ninth_of_six", LAST, {"x": X, "m": SOME}, {"s": ints(1, -1, 4), "k": np.array(8, L)}, np.zeros((1, 4), F)),
    ("halves_of_five", LAST, {"x": X[:2], "m": np.array([[1, 1, 0, 1], [1, 0, 0, 1]], bool)}, {"s": ints(2, -1, 4), "k": np.array(-1, L)}, np.zeros((2, 4), F)),
    ("rows_of_another_shape", "n = NonZero (m) r = Gather (x, n) y = Reshape (r, s)", {"x": V, "m": np.array([1, 0, 0, 0], bool)}, {"s": ints(3, 2)}, np.zeros((3, 2), F)),
    ("parts_of_three", PARTS, {"x": V, "m": np.array([0, 1, 1, 1], bool)}, {"l": ints(1, 1)}, np.zeros((1, 1, 3), F)),
    ("only_one_of_two", ONE, {"x": V, "m": B}, {"a": ints(1)}, np.zeros((1, 3), F)),
    ("shape_of_halves_of_five", PLACES + "h = Reshape (g, s) y = Shape (h)", {"x": X, "m": SOME}, {"s": ints(2, -1, 4)}, ints(2, 2, 4)),
    ("how_many_halves_of_five", PLACES + "h = Reshape (g, s) y = Shape <end: int = 1> (h)", {"x": X, "m": SOME}, {"s": ints(2, -1, 4)}, ints(2)),
    ("shape_of_another_number", PLACES + "h = Reshape (g, s) k = Neg (h) y = Shape (k)", {"x": X, "m": SOME}, {"s": ints(6, 4)}, ints(6, 4)),
    ("shape_in_a_branch_taken", SHAPE_IN_A_BRANCH, {"x": X, "m": SOME, "c": np.array(True)}, {"s": ints(2, -1, 4), "e": ints(2)}, ints(2)),
    ("beyond_the_base", PLACES + "k = Add (t, d) y = ScatterND (x, k, g)", {"x": X, "m": SOME}, {"d": ints(1, 0)}, X),
]  # fmt: skip
REFUSED = [
    ("rows_are_an_output", "y = NonZero (m)", {}, "takes all rows"),
    ("sum_of_rows", PLACES + "y = ReduceSum (g, k)", {"k": ints(0)}, "along the rows"),
    ("softmax_of_rows", PLACES + "y = Softmax <axis: int = 0> (g)", {}, "along the rows"),
    ("product_of_rows", PLACES + "h = Transpose (g) y = MatMul (h, g)", {}, "another input has such rows"),
    ("product_over_rows", PLACES + "y = MatMul (k, g)", {"k": f(2, 12)}, "sums over the rows"),
    ("rows_behind_rows", PLACES + "h = Concat <axis: int = 0> (g, g) y = Neg (h)", {}, "joins rows"),
    ("rows_and_a_dim", PLACES + "h = Add (g, k) y = ScatterND (x, t, h)", {"k": f(12, 4)}, "a dim of a known size"),
    ("rows_of_two_masks", PLACES + "k = Not (m) n2 = NonZero (k) t2 = Transpose (n2) h = GatherND (x, t2) y = Add (g, h)", {}, "different rows"),
    ("places_of_another", PLACES + "k = Not (m) n2 = NonZero (k) t2 = Transpose (n2) y = ScatterND (x, t2, g)", {}, "different rows"),
    ("several_rows_in_one", PLACES + "h = Reshape (g, s) y = Neg (h)", {"s": ints(-1, 8)}, "several rows into one"),
    ("rows_turned_by_reshape", PLACES + "h = Transpose (g) k = Reshape (h, s) y = Neg (k)", {"s": ints(-1, 4)}, "several rows into one"),
    ("sorted_rows", PLACES + "y, z = TopK <axis: int = 1> (g, k)", {"k": ints(1)}, "what it does with them is not known"),
    ("a_first_part", PLACES + "h = Slice (g, k, e) y = Neg (h)", {"k": ints(1), "e": ints(9)}, "cuts rows off"),
    ("squeeze_of_any", "n = NonZero (m) t = Squeeze (n) y = Neg (t)", {}, "without axes"),
    ("more_than_there_are", "n = NonZero (m) y = Reshape (n, s)", {"s": ints(2, 13)}, "never are"),
    ("shape_of_the_number", "n = NonZero (m) q = Shape (n) k = Mul (q, q) y = ConstantOfShape (k)", {}, "must be known before the run"),
    ("a_known_size_for_rows", PLACES + "h = Expand (g, s) y = Neg (h)", {"s": ints(12, 4)}, "a known size"),
    ("rows_of_a_branch", """c = ReduceMax <keepdims: int = 0> (x) d = Cast <to: int = 9> (c)
      y = If (d) <then_branch = t () => (int64[2,a] p) { p = NonZero (m) }, else_branch = e () => (int64[2,b] q) { q = NonZero (m) }>""", {}, "takes all rows"),
    ("sequence_as_an_output", "y = SplitToSequence (x)", {}, "it is a sequence, or has more than 6 dims"),
    ("sequence_of_pairs", PLACES + "o = SplitToSequence (g, k) y = SequenceAt (o, z)", {"k": np.array(2, L), "z": np.array(0, L)}, "other lengths than 1"),
    ("nonzero_of_rows", PLACES + "y = NonZero (g)", {}, "what it does with them is not known"),
    ("scales_of_known_rows", PLACES + "h = LayerNormalization (g, s) y = ScatterND (x, t, h)", {"s": f(12, 4)}, "a dim of a known size"),
    ("biases_of_known_rows", PLACES + "h = LayerNormalization (g, b, s) y = ScatterND (x, t, h)", {"b": BIAS, "s": f(12, 4)}, "a dim of a known size"),
    ("rms_scales_of_known_rows", PLACES + "h = RMSNormalization (g, s) y = ScatterND (x, t, h)", {"s": f(12, 4)}, "a dim of a known size", 23),
    ("pairs_of_halves", """u = Unsqueeze (m, n1) e = Expand (u, s) n = NonZero (e) t = Transpose (n) g = GatherND (x, t) h = Reshape (g, k) p = Reshape (h, q)
      y = Gather <axis: int = 1> (p, n1)""", {"n1": ints(-1), "s": ints(3, 4, 2), "k": ints(2, -1, 1), "q": ints(2, -1, 2)}, "several rows into one"),
]  # fmt: skip


def cases():
    for name, (nodes, constants) in WHOLE.items():
        for kind, mask in MASKS.items():
            used = {key: value for key, value in (EACH | constants).items() if key in lower_cases.re.findall(r"\w+", nodes)}
            fed = {"x": X, "m": mask} if "x" in lower_cases.re.findall(r"\w+", nodes) else {"m": mask}
            unchanged = [{"y": X}] if kind == "none" and "y = ScatterND (x" in nodes else []  # numpy's reshape has no -1 of nothing
            yield (f"{name}_{kind}", 20, nodes, fed, used, *unchanged)
    for name, nodes, inputs, constants, *known in FIXED:
        yield (name, 20, nodes, inputs, constants, *known)
    for name, nodes, inputs, constants, y in WRONG:
        yield (name, 20, nodes, inputs, constants, "another number of rows", {"y": y})
    for name, nodes, constants, why, *opset in REFUSED:
        yield (name, opset[0] if opset else 20, nodes, {"x": X, "m": SOME}, constants, why)


if __name__ == "__main__":
    lower_cases.write(sys.argv[1], list(cases()))
