#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/graph/cases/near.txt: valid models that look like a pattern of a pass and are another function: a clamp,
a select or a repair in the chain, another axis, a reshape between, an eps in another place, a cast, a mask that widens.

  pass_cases.py FILE       needs the Python package onnx >= 1.23, whose reference computes what is expected

A row is that of lower_cases.py: name, opset, nodes in ONNX's text syntax, inputs, constants."""
import sys

import numpy as np

import lower_cases
from lower_cases import B, F, ints

rng = np.random.default_rng(11)


def f(*shape, scale=1.0):
    return np.round(rng.uniform(-2, 2, shape) * scale, 3).astype(F)


def c(value):
    return np.array(value, F)


def square():
    """4 x 4, so that rows can be taken for columns."""
    return f(4, 4)


INF, NAN = np.float32(np.inf), np.float32(np.nan)
TAIL = np.array([-60, -17, -5, 0, 0.5, 33, 60, 90], F)
X44, W44, LARGE = square(), f(4, 4), f(4, 4, scale=40)
W46 = np.round(np.random.default_rng(12).uniform(-2, 2, (4, 6)), 3).astype(F)
own = np.random.default_rng(13)  # so that f() gives the cases above what it always gave
X234, R44, R46, R28, R4 = (np.round(own.uniform(-2, 2, shape), 3).astype(F) for shape in ((2, 3, 4), (4, 4), (4, 6), (2, 8), (4,)))
SMALL = np.array([-3, -1.5, -0.5, 0, 0.25, 1, 2, 4], F)
WITH_NAN = X44.copy()
WITH_NAN[1, 2] = NAN
WITH_INF = X44.copy()
WITH_INF[2, 1] = INF
Q, K, V = f(2, 3, 4, 4), f(2, 3, 4, 4), f(2, 3, 4, 4)
QKV = {"q": Q, "k": K, "v": V}
BIG = {"q": Q * 9, "k": K * 9, "v": V}
HUGE = np.array([[1.1e19, 1.2e19, -1.1e19, 1e19], [1, 2, 3, 4]], F)  # each square is finite, their sum in f32 is not
HUGE_RMS = (HUGE / np.sqrt(np.mean(HUGE.astype(np.float64) ** 2, -1, keepdims=True) + 1e-5)).astype(F)
KT = "t = Transpose <perm: ints = [0,1,3,2]> (k) s0 = MatMul (q, t) "
GELU = "a = Div (x, root) b = Erf (a) d = Add (b, one) e = Mul (x, d) g = Mul (e, half) "
GELU_C = {"root": c(np.sqrt(2)), "one": c(1), "half": c(0.5)}
MEAN = "m = ReduceMean <keepdims: int = 1> (x, ax) z = Sub (x, m) q = Mul (z, z) v = ReduceMean <keepdims: int = 1> (q, ax) "
LAST = {"ax": ints(-1)}
E1 = "e = Exp (x) d = Add (e, one) "
ONE = {"one": c(1)}


def chain(op, begin, end, n):
    """The op n times: a sum or a product that a form does not follow to its end."""
    names = [begin] + [f"{end}{i}" for i in range(1, n)] + [end]
    return " ".join(f"{b} = {op} ({a})" for a, b in zip(names, names[1:])) + " "


RMS = "q = Mul (x, x) v = ReduceMean <keepdims: int = 1> (q, ax) "
RMS_Z = "q = Mul (z, z) v = ReduceMean <keepdims: int = 1> (q, ax) w = Add (v, eps) r = Sqrt (w) y = Div (z, r)"
SHIFTED = "m = ReduceMax <keepdims: int = 1> (x, ax) d = Sub (x, m) e = Exp (d) "
EPS, G4 = {**LAST, "eps": c(1e-5)}, W46[0, :4]
SOFT = "e = Exp (x) s = ReduceSum <keepdims: int = 1> (e, ax) p = Div (e, s) "
KT3 = "t = Transpose <perm: ints = [0,2,1]> (k) s0 = MatMul (q, t) "
NEG8 = "d1 = Neg (s0) " + " ".join(f"d{i + 1} = Neg (d{i})" for i in range(1, 8)) + " "  # the same again, by more steps than a form looks through
M = np.round(np.random.default_rng(13).uniform(-2, 2, (2, 3, 4, 4)), 3).astype(F)
ALIKE = np.random.default_rng(14).uniform(-0.02, 0.02, (2, 3, 4, 4))  # keys that differ by little
H_SCORES = np.exp((Q @ K.swapaxes(2, 3)).astype(np.float16).astype(np.float64))
H_SOFTMAX = (H_SCORES / H_SCORES.sum(-1, keepdims=True)).astype(np.float16).astype(F)
ONE_QKV3 = {"q": Q[0, :1], "k": K[0, :1], "v": V[0, :1]}
GROUPED = {key: np.round(np.random.default_rng(seed).uniform(-2, 2, shape), 3).astype(F) for key, seed, shape in (("q", 15, (2, 4, 3, 4)), ("k", 16, (2, 2, 2, 3, 4)), ("v", 17, (2, 2, 2, 3, 4)))}
TURNED = "kg = Transpose <perm: ints = [0,2,1,3,4]> (k) vg = Transpose <perm: ints = [0,2,1,3,4]> (v) "
HALVES = "a, b = Split <num_outputs: int = 2, axis: int = -1> (x) "
TURN = "n = Neg (b) t = Concat <axis: int = -1> (n, a) "
ROPE = "u = Mul (x, k) w = Mul (t, s) y = Add (u, w)"
ANGLES = {"k": W44[:, ::-1].copy(), "s": M[0, 0]}
PLACES = {f"i{i}": ints(i) for i in range(7)}

CASES = [
    # a clamp, a select or a repair behind or inside a function
    ("gelu_then_min", 20, GELU + "y = Min (g, hi)", {"x": TAIL}, {**GELU_C, "hi": c(40)}),
    ("gelu_where", 20, GELU + "w = Greater (x, hi) y = Where (w, hi, g)", {"x": TAIL}, {**GELU_C, "hi": c(40)}),
    ("gelu_clamped_inside", 20, "a = Div (x, root) b = Erf (a) d = Max (b, lo) e = Add (d, one) h = Mul (x, e) y = Mul (h, half)", {"x": TAIL}, {**GELU_C, "lo": c(-0.9)}),
    ("gelu_of_another_root", 20, "a = Div (x, root) b = Erf (a) d = Add (b, one) e = Mul (x, d) y = Mul (e, half)", {"x": TAIL}, {**GELU_C, "root": c(1.4143)}),
    ("gelu_tanh_of_another_cube", 20, "p = Pow (x, three) q = Mul (p, k) r = Add (x, q) s = Mul (r, n) t = Tanh (s) u = Add (t, one) w = Mul (x, u) y = Mul (w, half)",
     {"x": np.linspace(-4, 4, 9, dtype=F)}, {**GELU_C, "three": c(3), "k": c(0.0449), "n": c(0.7978845608)}),
    ("silu_then_min", 20, "a = Sigmoid (x) g = Mul (x, a) y = Min (g, hi)", {"x": TAIL}, {"hi": c(40)}),
    ("quick_gelu", 20, "u = Mul (x, k) a = Sigmoid (u) y = Mul (x, a)", {"x": TAIL / 20}, {"k": c(1.702)}),
    ("log_of_clamped_sigmoid", 20, "a = Sigmoid (x) b = Clip (a, lo, hi) y = Log (b)", {"x": TAIL}, {"lo": c(1e-7), "hi": c(1)}),
    ("log_of_one_minus_clamped_sigmoid", 20, "a = Sigmoid (x) b = Clip (a, lo, hi) d = Sub (one, b) y = Log (d)", {"x": TAIL}, {"lo": c(1e-7), "hi": c(0.99), "one": c(1)}),
    ("reciprocal_of_floored_softplus", 20, "a = Softplus (x) b = Max (a, lo) y = Reciprocal (b)", {"x": TAIL}, {"lo": c(1e-7)}),
    ("sigmoid_by_hand_with_a_floor", 20, "n = Neg (x) e = Exp (n) d = Add (e, one) w = Min (d, hi) y = Reciprocal (w)", {"x": TAIL}, {"one": c(1), "hi": c(1e4)}),
    ("softplus_by_hand_capped", 20, "e = Exp (x) d = Add (e, one) w = Min (d, hi) y = Log (w)", {"x": TAIL}, {"one": c(1), "hi": c(1e10)}),
    ("softplus_of_twice", 20, "u = Mul (x, two) e = Exp (u) d = Add (e, one) y = Log (d)", {"x": TAIL / 10}, {"one": c(1), "two": c(2)}),

    ("softplus_of_twice_the_power", 20, "e = Exp (x) u = Mul (e, two) d = Add (u, one) y = Log (d)", {"x": SMALL}, {**ONE, "two": c(2)}),
    ("softplus_of_two_and_the_power", 20, "e = Exp (x) d = Add (e, two) y = Log (d)", {"x": SMALL}, {"two": c(2)}),
    ("softplus_of_the_power_and_more", 20, E1 + "w = Sub (d, x) y = Log (w)", {"x": SMALL}, ONE),
    ("softplus_of_the_power_and_a_deep_term", 20, E1 + chain("Neg", "x", "n", 9) + "w = Sub (d, n) y = Log (w)", {"x": np.abs(SMALL)}, ONE),
    ("sigmoid_by_hand_of_twice", 20, "n = Mul (x, minus) e = Exp (n) d = Add (e, one) y = Reciprocal (d)", {"x": SMALL}, {**ONE, "minus": c(-2)}),
    ("sigmoid_by_hand_of_more", 20, "n = Neg (x) t = Tanh (x) u = Sub (n, t) e = Exp (u) d = Add (e, one) y = Reciprocal (d)", {"x": SMALL}, ONE),
    ("sigmoid_by_hand_of_more_by_a_number", 20, "n = Neg (x) u = Add (n, half) e = Exp (u) d = Add (e, one) y = Reciprocal (d)", {"x": SMALL}, {**ONE, "half": c(0.5)}),
    ("sigmoid_by_hand_with_a_deep_term", 20, "m = Neg (x) " + chain("Neg", "x", "n", 9) + "u = Sub (m, n) e = Exp (u) d = Add (e, one) y = Reciprocal (d)", {"x": SMALL}, ONE),
    ("log_of_one_plus_tanh", 20, "t = Tanh (x) d = Add (t, one) y = Log (d)", {"x": SMALL}, ONE),
    ("twice_sigmoid_by_hand", 20, "n = Neg (x) e = Exp (n) d = Add (e, one) y = Div (two, d)", {"x": SMALL}, {**ONE, "two": c(2)}),
    ("sigmoid_by_hand_over_a_deep_factor", 20, "n = Neg (x) e = Exp (n) d = Add (e, one) s = Reciprocal (d) " + chain("Reciprocal", "x", "r", 8) + "y = Div (s, r)", {"x": SMALL + F(8)}, ONE),
    ("reciprocal_of_negated", 20, "n = Neg (x) y = Reciprocal (n)", {"x": SMALL + F(8)}, {}),
    ("square_times_sigmoid", 20, "a = Sigmoid (x) q = Mul (x, x) y = Mul (q, a)", {"x": SMALL}, {}),
    ("tanh_times_sigmoid", 20, "a = Sigmoid (x) t = Tanh (x) y = Mul (t, a)", {"x": SMALL}, {}),
    # programs that are too large for one map, and numbers that none can hold
    ("seventy_steps", 20, chain("Sin", "x", "y", 70), {"x": SMALL}, {}),
    ("thirteen_inputs", 20, "s2 = Add (x, x2) " + " ".join(f"s{i} = Add (s{i - 1}, x{i})" for i in range(3, 14)) + " y = Mul (s13, x)",
     {"x": SMALL, **{f"x{i}": SMALL * F(i / 7) for i in range(2, 14)}}, {}),
    ("sixteen_numbers_and_one_more", 20, " ".join(f"l{i} = LeakyRelu <alpha: float = {0.5 + i / 64}> ({f'l{i - 1}' if i else 'x'})" for i in range(15)) + " y = Mul (l14, k)", {"x": SMALL * F(100)}, {"k": c(3)}),
    ("number_beyond_2_to_53", 20, "y = Add (x, k)", {"x": ints(1, -2, 3)}, {"k": np.array(2**53 + 1)}),
    ("number_alone", 20, "e = Expand (k, s) z = Neg (e) y = Neg (x)", {"x": X44}, {"k": np.array([3], F), "s": ints(100)}),
    # maps that a view stands between
    ("exp_turned", 20, "e = Exp (x) t = Transpose (e) y = Neg (t)", {"x": X44}, {}),
    ("sum_of_turned_rows_seen_otherwise", 20, "t = Transpose (r) a = Add (x, t) b = Reshape (a, s) y = Exp (b)", {"x": X44, "r": R44}, {"s": ints(2, 8)}),
    # what follows a product
    ("relu6", 20, "m = MatMul (x, w) y = Clip (m, lo, hi)", {"x": LARGE}, {"w": W44, "lo": c(0), "hi": c(6)}),
    ("relu_up_to_31", 20, "m = MatMul (x, w) y = Clip (m, lo, hi)", {"x": LARGE}, {"w": W44, "lo": c(0), "hi": c(31)}),
    ("relu_up_to_100", 20, "m = MatMul (x, w) y = Clip (m, lo, hi)", {"x": LARGE}, {"w": W44, "lo": c(0), "hi": c(100)}),
    ("relu_above_a_little", 20, "m = MatMul (x, w) y = Max (m, lo)", {"x": X44}, {"w": W44, "lo": c(1e-3)}),
    ("residual_clipped", 20, "m = MatMul (x, w) a = Add (m, r) y = Clip (a, lo, hi)", {"x": LARGE, "r": X44}, {"w": W44, "lo": c(-50), "hi": c(50)}),
    ("relu_of_residual", 20, "m = MatMul (x, w) a = Add (m, r) y = Relu (a)", {"x": X44, "r": f(4, 4)}, {"w": W44}),
    ("residual_times_two", 20, "m = MatMul (x, w) t = Mul (r, two) y = Add (m, t)", {"x": X44, "r": f(4, 4)}, {"w": W44, "two": c(2)}),
    ("residual_that_widens", 20, "m = MatMul (x, w) y = Add (m, r)", {"x": f(1, 4), "r": f(4, 4)}, {"w": W44}),
    ("bias_of_columns", 20, "m = MatMul (x, w) y = Add (m, r)", {"x": X44}, {"w": W44, "r": f(4, 1)}),
    ("product_nan_to_zero", 20, "m = MatMul (x, w) n = IsNaN (m) y = Where (n, zero, m)", {"x": WITH_NAN}, {"w": W44, "zero": c(0)}),
    ("product_bias_nan_to_zero", 20, "m = MatMul (x, w) a = Add (m, b) n = IsNaN (a) y = Where (n, zero, a)", {"x": WITH_NAN}, {"w": W44, "b": f(4), "zero": c(0)}),
    ("product_bias_inf_to_zero", 20, "m = MatMul (x, w) a = Add (m, b) n = IsInf (a) y = Where (n, zero, a)", {"x": WITH_INF}, {"w": np.abs(W44), "b": f(4), "zero": c(0)}),
    ("product_of_turned_rows", 20, "m = MatMul (x, w) t = Transpose (m) y = Add (t, b)", {"x": X44}, {"w": W44, "b": f(4)}),

    ("product_and_its_first_row", 20, "m = MatMul (x, w) t = Slice (m, begin, end, begin) y = Add (m, t)", {"x": X44}, {"w": W44, "begin": ints(0), "end": ints(1)}),
    ("product_relu_residual_and_more", 20, "m = MatMul (x, w) a = Relu (m) t = Tanh (m) s = Add (a, r) y = Sub (s, t)", {"x": X44, "r": R44}, {"w": W44}),
    ("product_relu_and_relu_of_residual", 20, "m = MatMul (x, w) a = Relu (m) b = Relu (r) n = Neg (b) y = Sub (a, n)", {"x": X44, "r": R44}, {"w": W44}),
    ("product_relu_residual_and_a_number", 20, "m = MatMul (x, w) a = Relu (m) s = Add (a, r) y = Add (s, half)", {"x": X44, "r": R44}, {"w": W44, "half": c(0.5)}),
    ("product_relu_less_residual", 20, "m = MatMul (x, w) a = Relu (m) y = Sub (a, r)", {"x": X44, "r": R44}, {"w": W44}),
    ("product_twice_relu_and_residual", 20, "m = MatMul (x, w) a = Relu (m) b = Mul (a, two) n = Neg (r) y = Sub (b, n)", {"x": X44, "r": R44}, {"w": W44, "two": c(2)}),
    ("product_relu_residual_and_a_deep_term", 20, "m = MatMul (x, w) a = Relu (m) s = Add (a, r) " + chain("Neg", "r", "n", 9) + "y = Sub (s, n)", {"x": X44, "r": R44}, {"w": W44}),
    ("product_residual_twice", 20, "m = MatMul (x, w) s = Slice (r, begin, end, ax) a = Add (m, s) b = Reshape (a, s28) y = Add (b, r2)", {"x": X44, "r": R46, "r2": R28},
     {"w": W44, "begin": ints(0), "end": ints(4), "ax": ints(1), "s28": ints(2, 8)}),
    ("product_bias_relu_and_residual_seen_otherwise", 20, "m = MatMul (x, w) a = Add (m, b) h = Relu (a) u = Reshape (h, s28) y = Add (u, r2)", {"x": X44, "r2": R28}, {"w": W44, "b": R4, "s28": ints(2, 8)}),
    ("product_and_residual_of_turned_batches", 20, "m = MatMul (x, w) t = Transpose <perm: ints = [1,0,2]> (r) y = Add (m, t)", {"x": X234, "r": X234.transpose(1, 0, 2).copy()}, {"w": W44}),
    ("product_rounded_to_f16_and_bias", 20, "h = Cast <to: int = 10> (x) m = MatMul (h, w) a = Add (m, b) n = Neg (a) y = Cast <to: int = 1> (a) z = Cast <to: int = 1> (n)",
     {"x": np.array([[1, 1], [-1, -1]], F)}, {"w": np.array([[2048, 1], [1, 2]], np.float16), "b": np.array([1, 0.5], np.float16)},
     {"y": np.array([[2048, 3.5], [-2047, -2.5]], F), "z": np.array([[-2048, -3.5], [2047, 2.5]], F)}),
    # sums before normalisations
    ("layer_of_clipped_sum", 20, "a = Add (x, r) s = Clip (a, lo, hi) y = LayerNormalization (s, g)", {"x": LARGE, "r": LARGE[::-1].copy()}, {"lo": c(-50), "hi": c(50), "g": f(4)}),
    ("clipped_sum_is_an_output", 20, "a = Add (x, r) z = Clip (a, lo, hi) y = LayerNormalization (z, g)", {"x": LARGE, "r": LARGE[::-1].copy()}, {"lo": c(-50), "hi": c(50), "g": f(4)}),
    ("layer_of_repaired_sum", 20, "a = Add (x, r) n = IsNaN (a) s = Where (n, zero, a) y = LayerNormalization (s, g)", {"x": WITH_NAN, "r": X44}, {"zero": c(0), "g": f(4)}),
    ("layer_of_weighted_sum", 20, "t = Mul (r, half) s = Add (x, t) y = LayerNormalization (s, g)", {"x": X44, "r": f(4, 4)}, {"half": c(0.5), "g": f(4)}),

    ("layer_of_a_sum_that_is_read_before", 20, "s = Add (x, r) p = ReduceMax <keepdims: int = 1> (s, ax) n = LayerNormalization (s, g) y = Add (n, p)", {"x": X44, "r": R44}, {**LAST, "g": R4}),
    ("layer_of_a_sum_rounded_to_f16", 20, "h = Cast <to: int = 10> (x) s = Add (h, one) n = LayerNormalization (s, g) y = Cast <to: int = 1> (n) z = Cast <to: int = 1> (h)", {"x": np.array([[2048, 2050, 2052, 2054]], F)},
     {"one": np.ones((1, 4), np.float16), "g": np.ones(4, np.float16)}),
    ("largest_of_a_sum", 20, "s = Add (x, r) y = ReduceMax <keepdims: int = 1> (s, ax)", {"x": X44, "r": R44}, LAST),
    # normalisations: axes, shapes, eps, clamps
    ("softmax_of_columns", 20, "e = Exp (x) s = ReduceSum <keepdims: int = 0> (e, ax) y = Div (e, s)", {"x": X44}, LAST),
    ("softmax_of_columns_less_max", 20, "m = ReduceMax <keepdims: int = 0> (x, ax) d = Sub (x, m) e = Exp (d) s = ReduceSum <keepdims: int = 0> (e, ax) y = Div (e, s)", {"x": X44}, LAST),
    ("softmax_max_over_columns", 20, "m = ReduceMax <keepdims: int = 0> (x, ax) d = Sub (x, m) e = Exp (d) s = ReduceSum <keepdims: int = 1> (e, ax) y = Div (e, s)", {"x": X44}, LAST),
    ("softmax_over_axis_0", 20, "e = Exp (x) s = ReduceSum <keepdims: int = 1> (e, ax) y = Div (e, s)", {"x": X44}, {"ax": ints(0)}),
    ("softmax_sum_seen_otherwise", 20, "e = Exp (x) u = Reshape (e, s28) s = ReduceSum <keepdims: int = 1> (u, ax) v = Reshape (s, s211) w = Reshape (e, s224) y = Div (w, v)",
     {"x": f(2, 2, 4)}, {**LAST, "s28": ints(2, 8), "s211": ints(2, 1, 1), "s224": ints(2, 2, 4)}),
    ("softmax_with_a_floor", 20, "e = Exp (x) s = ReduceSum <keepdims: int = 1> (e, ax) t = Max (s, lo) y = Div (e, t)", {"x": X44}, {**LAST, "lo": c(3)}),
    ("softmax_plus_one", 20, "e = Exp (x) s = ReduceSum <keepdims: int = 1> (e, ax) t = Add (s, one) y = Div (e, t)", {"x": X44}, {**LAST, "one": c(1)}),
    ("softmax_of_another_power", 20, "e = Exp (x) s = ReduceSum <keepdims: int = 1> (e, ax) q = Mul (e, e) y = Div (q, s)", {"x": X44}, LAST),
    ("softmax_of_infinity", 20, SOFT + "y = Mul (p, one)", {"x": np.where(X44 > 1.5, INF, X44)}, {**LAST, "one": c(1)}),
    ("softmax_of_large", 20, SOFT + "y = Mul (p, one)", {"x": X44 * 60}, {**LAST, "one": c(1)}),
    ("softmax_to_i32", 20, SOFT + "y = Cast <to: int = 6> (p)", {"x": X44 * 20}, LAST),
    ("softmax_to_bool", 20, SOFT + "y = Cast <to: int = 9> (p)", {"x": X44 * 40}, LAST),
    ("rms_of_columns", 20, "q = Mul (x, x) v = ReduceMean <keepdims: int = 0> (q, ax) w = Add (v, eps) r = Sqrt (w) y = Div (x, r)", {"x": X44}, {**LAST, "eps": c(1e-5)}),
    ("layer_mean_of_columns", 20, "m = ReduceMean <keepdims: int = 0> (x, ax) z = Sub (x, m) q = Mul (z, z) v = ReduceMean <keepdims: int = 1> (q, ax) w = Add (v, eps) r = Sqrt (w) y = Div (z, r)",
     {"x": X44}, {**LAST, "eps": c(1e-5)}),
    ("layer_variance_of_columns", 20, "m = ReduceMean <keepdims: int = 1> (x, ax) z = Sub (x, m) q = Mul (z, z) v = ReduceMean <keepdims: int = 0> (q, ax) w = Add (v, eps) r = Sqrt (w) y = Div (z, r)",
     {"x": X44}, {**LAST, "eps": c(1e-5)}),
    ("layer_eps_behind_the_root", 20, MEAN + "r = Sqrt (v) w = Add (r, eps) y = Div (z, w)", {"x": X44 * F(1e-6)}, {**LAST, "eps": c(1e-6)}),
    ("rms_with_a_floor", 20, RMS + "r = Sqrt (v) w = Max (r, eps) y = Div (x, w)", {"x": X44 * F(1e-6)}, {**LAST, "eps": c(1e-4)}),
    ("rms_of_clipped", 20, "d = Clip (x, lo, hi) q = Mul (d, d) v = ReduceMean <keepdims: int = 1> (q, ax) w = Add (v, eps) r = Sqrt (w) y = Div (x, r)",
     {"x": X44 * 8}, {**LAST, "eps": c(1e-5), "lo": c(-5), "hi": c(5)}),
    ("rms_of_capped_squares", 20, "q0 = Mul (x, x) q = Min (q0, hi) v = ReduceMean <keepdims: int = 1> (q, ax) w = Add (v, eps) r = Sqrt (w) y = Div (x, r)",
     {"x": X44 * 8}, {**LAST, "eps": c(1e-5), "hi": c(17)}),
    ("rms_gamma_then_clip", 20, RMS + "w = Add (v, eps) r = Sqrt (w) n = Div (x, r) a = Mul (n, g) y = Clip (a, lo, hi)", {"x": X44}, {**LAST, "eps": c(1e-5), "g": f(4) * F(1e6), "lo": c(-2e4), "hi": c(2e4)}),
    ("rms_gamma_of_columns", 20, RMS + "w = Add (v, eps) r = Sqrt (w) n = Div (x, r) y = Mul (n, g)", {"x": X44}, {**LAST, "eps": c(1e-5), "g": f(4, 1)}),
    ("rms_cube_root", 20, RMS + "w = Add (v, eps) r = Pow (w, third) y = Div (x, r)", {"x": X44}, {**LAST, "eps": c(1e-5), "third": c(0.25)}),
    ("rms_sum_of_squares", 20, "q = Mul (x, x) v = ReduceSum <keepdims: int = 1> (q, ax) w = Add (v, eps) r = Sqrt (w) y = Div (x, r)", {"x": X44}, {**LAST, "eps": c(1e-5)}),
    ("layer_to_i64", 20, MEAN + "w = Add (v, eps) r = Sqrt (w) n = Div (z, r) y = Cast <to: int = 7> (n)", {"x": X44}, {**LAST, "eps": c(1e-5)}),
    ("rms_rounded_to_f16", 20, RMS + "w = Add (v, eps) r = Sqrt (w) n = Div (x, r) h = Cast <to: int = 10> (n) i = Cast <to: int = 1> (h) y = Mul (i, g)", {"x": X44}, {**LAST, "eps": c(1e-5), "g": f(4)}),
    # one part of a normalisation is another value's, or stands elsewhere
    ("softmax_by_the_largest", 20, SHIFTED + "s = ReduceMax <keepdims: int = 1> (e, ax) y = Div (e, s)", {"x": X44}, LAST),
    ("softmax_by_another_sum", 20, SHIFTED + "h = Exp (x) s = ReduceSum <keepdims: int = 1> (h, ax) y = Div (e, s)", {"x": X44}, LAST),
    ("softmax_by_sums_of_columns", 20, SHIFTED + "s = ReduceSum <keepdims: int = 0> (e, ax) y = Div (e, s)", {"x": X44}, LAST),
    ("softmax_by_a_norm_of_one", 20, SHIFTED + "s = LayerNormalization <axis: int = -1, epsilon: float = 1.0> (e, g, b) y = Div (e, s)", {"x": X44[:, :1].copy()}, {**LAST, "g": W44[0, :1], "b": W44[1, :1]}),
    ("softmax_less_another_largest", 20, "m = ReduceMax <keepdims: int = 1> (z, ax) d = Sub (x, m) e = Exp (d) s = ReduceSum <keepdims: int = 1> (e, ax) y = Div (e, s)", {"x": X44, "z": W44}, LAST),
    ("softmax_less_the_least", 20, "m = ReduceMin <keepdims: int = 1> (x, ax) d = Sub (x, m) e = Exp (d) s = ReduceSum <keepdims: int = 1> (e, ax) y = Div (e, s)", {"x": X44 * 60}, LAST),
    ("softmax_of_twice", 20, "m = ReduceMax <keepdims: int = 1> (x, ax) d = Sub (x, m) t = Mul (d, two) e = Exp (t) s = ReduceSum <keepdims: int = 1> (e, ax) y = Div (e, s)", {"x": X44}, {**LAST, "two": c(2)}),
    ("softmax_of_tanh", 20, "m = ReduceMax <keepdims: int = 1> (x, ax) d = Sub (x, m) e = Tanh (d) s = ReduceSum <keepdims: int = 1> (e, ax) y = Div (e, s)", {"x": X44}, LAST),
    ("softmax_of_a_given_e", 20, "s = ReduceSum <keepdims: int = 1> (x, ax) y = Div (x, s)", {"x": np.abs(X44)}, LAST),
    ("softmax_turned_over", 20, SHIFTED + "s = ReduceSum <keepdims: int = 1> (e, ax) y = Div (s, e)", {"x": X44}, LAST),
    ("softmax_in_other_rows", 20, SHIFTED + "h = Reshape (e, two8) s = ReduceSum <keepdims: int = 1> (h, ax) y = Div (h, s)", {"x": X44}, {**LAST, "two8": ints(2, 8)}),
    ("softmax_and_its_exponent", 20, SHIFTED + "s = ReduceSum <keepdims: int = 1> (e, ax) p = Div (e, s) y = Add (p, e)", {"x": X44}, LAST),
    ("rms_of_twice_the_mean", 20, RMS + "t = Mul (v, two) w = Add (t, eps) r = Sqrt (w) y = Div (x, r)", {"x": X44}, {**EPS, "two": c(2)}),
    ("rms_less_eps", 20, RMS + "w = Sub (v, eps) r = Sqrt (w) y = Div (x, r)", {"x": X44}, {**LAST, "eps": c(0.1)}),
    ("rms_without_eps", 20, RMS + "r = Sqrt (v) y = Div (x, r)", {"x": np.where(np.arange(4)[:, None] == 2, F(0), X44)}, LAST),
    ("rms_and_gamma_under_the_root", 20, RMS + "w = Add (v, eps) u = Add (w, g) r = Sqrt (u) n = Div (x, r) y = Mul (n, g)", {"x": X44}, {**EPS, "g": G4}),
    ("rms_turned_over", 20, RMS + "w = Add (v, eps) r = Sqrt (w) n = Reciprocal (r) y = Div (n, x)", {"x": X44}, EPS),
    ("rms_times_x", 20, RMS + "w = Add (v, eps) r = Sqrt (w) n = Div (x, r) y = Mul (n, x)", {"x": X44}, EPS),
    ("rms_times_the_mean", 20, RMS + "w = Add (v, eps) r = Sqrt (w) n = Div (x, r) y = Mul (n, v)", {"x": X44}, EPS),
    ("rms_plus_the_mean", 20, RMS + "w = Add (v, eps) r = Sqrt (w) n = Div (x, r) y = Add (n, v)", {"x": X44}, EPS),
    ("rms_over_gamma", 20, RMS + "w = Add (v, eps) r = Sqrt (w) n = Div (x, r) y = Div (n, g)", {"x": X44}, {**EPS, "g": G4}),
    ("rms_twice_gamma", 20, RMS + "w = Add (v, eps) r = Sqrt (w) n = Div (x, r) a = Mul (n, g) y = Mul (a, h)", {"x": X44, "h": W44[:1]}, {**EPS, "g": G4}),
    ("rms_exponent_of_gamma", 20, RMS + "w = Add (v, eps) r = Sqrt (w) n = Div (x, r) h = Exp (g) y = Mul (n, h)", {"x": X44, "g": W44[:1]}, EPS),
    ("rms_less_beta", 20, RMS + "w = Add (v, eps) r = Sqrt (w) n = Div (x, r) y = Sub (n, g)", {"x": X44}, {**EPS, "g": G4}),
    ("beta_less_rms", 20, RMS + "w = Add (v, eps) r = Sqrt (w) n = Div (x, r) y = Sub (g, n)", {"x": X44}, {**EPS, "g": G4}),
    ("rms_plus_one", 20, RMS + "w = Add (v, eps) r = Sqrt (w) n = Div (x, r) y = Add (n, one)", {"x": X44}, {**EPS, "one": c(1)}),
    ("rms_times_two", 20, RMS + "w = Add (v, eps) r = Sqrt (w) n = Div (x, r) y = Mul (n, two)", {"x": X44}, {**EPS, "two": c(2)}),
    ("rms_of_another", 20, "q = Mul (z, z) v = ReduceMean <keepdims: int = 1> (q, ax) w = Add (v, eps) r = Sqrt (w) y = Div (x, r)", {"x": X44, "z": W44}, EPS),
    ("rms_of_cubes", 20, "q0 = Mul (x, x) q = Mul (q0, x) v0 = ReduceMean <keepdims: int = 1> (q, ax) v = Abs (v0) w = Add (v, eps) r = Sqrt (w) y = Div (x, r)", {"x": X44}, EPS),
    ("rms_over_all", 20, "q = Mul (x, x) v = ReduceMean <keepdims: int = 1> (q, both) w = Add (v, eps) r = Sqrt (w) y = Div (x, r)", {"x": X44}, {"both": ints(0, 1), "eps": c(1e-5)}),
    ("rms_of_turned_rows", 20, "x = Transpose (z) " + RMS + "w = Add (v, eps) r = Sqrt (w) y = Div (x, r)", {"z": X44}, EPS),
    ("rms_gamma_is_beta", 20, RMS + "w = Add (v, eps) r = Sqrt (w) n = Div (x, r) a = Mul (n, g) y = Add (a, g)", {"x": X44}, {**EPS, "g": G4}),
    ("rms_of_a_row_plus_itself", 20, RMS + "w = Add (v, eps) r = Sqrt (w) n = Div (x, r) y = Add (n, x)", {"x": X44[:1].copy()}, EPS),
    ("rms_of_squares_in_blocks", 20, "q = Mul (x, x) h = Reshape (q, s224) v0 = ReduceMean <keepdims: int = 1> (h, ax) v = Reshape (v0, s41) w = Add (v, eps) r = Sqrt (w) y = Div (x, r)",
     {"x": X44}, {**EPS, "s224": ints(2, 2, 4), "s41": ints(4, 1)}),
    ("rms_of_copies_in_blocks", 20, "d = Expand (x, s234) q = Mul (d, d) h = Reshape (q, s38) v0 = ReduceMean <keepdims: int = 1> (h, ax) v = Reshape (v0, s131) w = Add (v, eps) r = Sqrt (w) y = Div (x, r)",
     {"x": X44[None, :3].copy()}, {**EPS, "s234": ints(2, 3, 4), "s38": ints(3, 8), "s131": ints(1, 3, 1)}),
    ("rms_of_one_number", 20, RMS + "w = Add (v, eps) r = Sqrt (w) u = Div (v, r) y = Mul (x, u)", {"x": X44[:1, :1].copy()}, EPS),
    ("layer_less_the_sum", 20, "m = ReduceSum <keepdims: int = 1> (x, ax) z = Sub (x, m) " + RMS_Z, {"x": X44}, EPS),
    ("layer_plus_the_mean", 20, "m = ReduceMean <keepdims: int = 1> (x, ax) z = Add (x, m) " + RMS_Z, {"x": X44}, EPS),
    ("layer_less_another_mean", 20, "m = ReduceMean <keepdims: int = 1> (u, ax) z = Sub (x, m) " + RMS_Z, {"x": X44, "u": W44}, EPS),
    ("layer_of_means", 20, "m = ReduceMean <keepdims: int = 1> (x, ax) n = Neg (m) z = Expand (n, s44) " + RMS_Z, {"x": X44}, {**EPS, "s44": ints(4, 4)}),
    ("layer_in_other_rows", 20, "m = ReduceMean <keepdims: int = 1> (x, ax) z0 = Sub (x, m) z = Reshape (z0, two8) " + RMS_Z, {"x": X44}, {**EPS, "two8": ints(2, 8)}),
    # attention
    ("scores_clipped", 20, KT + "s = Clip (s0, lo, hi) p = Softmax (s) y = MatMul (p, v)", BIG, {"lo": c(-50), "hi": c(50)}),
    ("scaled_scores_clipped", 20, KT + "s1 = Mul (s0, half) s = Clip (s1, lo, hi) p = Softmax (s) y = MatMul (p, v)", BIG, {"half": c(0.5), "lo": c(-50), "hi": c(50)}),
    ("queries_clipped", 20, "t = Transpose <perm: ints = [0,1,3,2]> (k) u = Clip (q, lo, hi) w = Mul (u, half) s = MatMul (w, t) p = Softmax (s) y = MatMul (p, v)", BIG,
     {"half": c(0.35), "lo": c(-8), "hi": c(8)}),
    ("scores_nan_to_zero", 20, KT + "n = IsNaN (s0) s = Where (n, zero, s0) p = Softmax (s) y = MatMul (p, v)", {**QKV, "q": np.where(Q > 1.8, NAN, Q)}, {"zero": c(0)}),
    ("mask_and_floor", 20, KT + "s1 = Add (s0, m) s = Max (s1, lo) p = Softmax (s) y = MatMul (p, v)", {**QKV, "m": np.array([[-INF] * 4, [0] * 4, [0, -INF, 0, 0], [-INF] * 4], F)}, {"lo": c(np.finfo(F).min)}),
    ("mask_times_two", 20, KT + "n = Mul (m, two) s = Add (s0, n) p = Softmax (s) y = MatMul (p, v)", {**QKV, "m": f(2, 3, 4, 4)}, {"two": c(2)}),
    ("mask_of_bool_and_clip", 20, KT + "s1 = Clip (s0, lo, hi) s = Where (m, s1, least) p = Softmax (s) y = MatMul (p, v)",
     {**BIG, "m": np.array([[True, False, True, True]] * 4)}, {"lo": c(-10), "hi": c(10), "least": c(-np.inf)}),
    ("mask_of_bool_not_least", 20, KT + "s = Where (m, s0, least) p = Softmax (s) y = MatMul (p, v)", {**QKV, "m": np.array([[True, False, True, True]] * 4)}, {"least": c(-1)}),
    ("mask_of_bool_turned", 20, KT + "s = Where (m, least, s0) p = Softmax (s) y = MatMul (p, v)", {**QKV, "m": np.array([[True, False, True, False]] * 4)}, {"least": c(-np.inf)}),
    ("weights_nan_to_seven", 20, KT + "p = Softmax (s0) n = IsNaN (p) w = Where (n, seven, p) y = MatMul (w, v)", {**QKV, "q": np.where(Q > 1.9, NAN, Q)}, {"seven": c(7)}),
    ("weights_nan_to_zero", 20, KT + "p = Softmax (s0) n = IsNaN (p) w = Where (n, zero, p) y = MatMul (w, v)", {**QKV, "q": np.where(Q > 1.6, NAN, Q)}, {"zero": c(0)}),
    ("weights_nan_to_zero_of_values_that_are_none", 20, KT + "p = Softmax (s0) n = IsNaN (p) w = Where (n, zero, p) y = MatMul (w, v)",
     {**QKV, "q": np.where(Q > 1.6, NAN, Q), "v": np.where(V > 1.7, NAN, np.where(V < -1.8, INF, V))}, {"zero": c(0)}),
    ("weights_inf_to_zero", 20, KT + "p = Softmax (s0) n = IsNaN (p) w = Where (n, zero, p) y = MatMul (w, v)", {**QKV, "q": np.where(Q > 1.6, INF, Q), "k": np.abs(K) + F(1)}, {"zero": c(0)}),
    ("masked_weights_nan_to_zero", 20, KT + "s = Add (s0, m) p = Softmax (s) n = IsNaN (p) w = Where (n, zero, p) y = MatMul (w, v)",
     {**QKV, "m": np.array([[-INF] * 4, [0] * 4, [0, -INF, 0, 0], [NAN, 0, 0, 0]], F)}, {"zero": c(0)}),
    ("weights_of_large_scores", 20, KT + "p = Softmax (s0) y = MatMul (p, v)", {"q": Q * F(1e10), "k": K * F(1e10), "v": V}, {}),
    ("rms_of_1e19", 20, RMS + "w = Add (v, eps) r = Sqrt (w) y = Div (x, r)", {"x": HUGE}, {**LAST, "eps": c(1e-5)}, {"y": HUGE_RMS}),
    ("softmax_over_queries", 20, KT + "p = Softmax <axis: int = 2> (s0) y = MatMul (p, v)", QKV, {}),
    ("softmax_over_heads", 20, KT + "p = Softmax <axis: int = 1> (s0) y = MatMul (p, v)", QKV, {}),
    ("one_key_softmax_over_queries", 20, KT + "p = Softmax <axis: int = 2> (s0) y = MatMul (p, v)", {"q": Q, "k": K[:, :, :1], "v": V[:, :, :1]}, {}),
    ("softmax_over_pairs", 20, KT + "r = Reshape (s0, flat) p = Softmax (r) u = Reshape (p, back) y = MatMul (u, v)", QKV, {"flat": ints(2, 3, 16), "back": ints(2, 3, 4, 4)}),
    ("softmax_in_groups", 20, KT + "r = Reshape (s0, flat) p = Softmax (r) u = Reshape (p, back) y = MatMul (u, v)", QKV, {"flat": ints(2, 3, 8, 2), "back": ints(2, 3, 4, 4)}),
    ("softmax_of_turned_scores", 20, KT + "r = Transpose <perm: ints = [0,1,3,2]> (s0) p = Softmax (r) y = MatMul (p, v)", QKV, {}),
    ("mask_widens_batch", 20, KT + "s = Add (s0, m) p = Softmax (s) y = MatMul (p, v)", {"q": Q[:1], "k": K[:1], "v": V[:1], "m": f(2, 3, 4, 4)}, {}),
    ("mask_widens_queries", 20, KT + "s = Add (s0, m) p = Softmax (s) y = MatMul (p, v)", {"q": Q[:, :, :1], "k": K, "v": V, "m": f(4, 4)}, {}),
    ("mask_after_reshape", 20, KT + "r = Reshape (s0, flat) s = Add (r, m) p = Softmax (s) u = Reshape (p, back) y = MatMul (u, v)", {**QKV, "m": f(6, 4, 4)}, {"flat": ints(6, 4, 4), "back": ints(2, 3, 4, 4)}),
    ("mask_of_rank_5", 20, "t = Transpose <perm: ints = [0,1,3,2]> (k) s0 = MatMul (q, t) r = Reshape (s0, five) s = Add (r, m) w = Reshape (s, four) p = Softmax (w) y = MatMul (p, v)",
     {**QKV, "m": f(1, 2, 1, 4, 4)}, {"five": ints(1, 2, 3, 4, 4), "four": ints(2, 3, 4, 4)}),
    ("heads_in_batches", 20, "t = Transpose <perm: ints = [0,2,1]> (k) s0 = MatMul (q, t) r = Reshape (s0, four) s = Add (r, m) w = Reshape (s, three) p = Softmax (w) y = MatMul (p, v)",
     {"q": Q.reshape(6, 4, 4), "k": K.reshape(6, 4, 4), "v": V.reshape(6, 4, 4), "m": f(2, 1, 4, 4)}, {"four": ints(2, 3, 4, 4), "three": ints(6, 4, 4)}),
    ("weights_rounded_to_f16", 20, KT + "p = Softmax (s0) h = Cast <to: int = 10> (p) w = Cast <to: int = 1> (h) y = MatMul (w, v)", QKV, {}),
    # attention: what stands between, next to or below, and where each operand comes from
    ("queries_of_a_maximum", 20, "q4 = ReduceMax <keepdims: int = 0> (q, ax) t = Transpose <perm: ints = [0,1,3,2]> (k) s0 = MatMul (q4, t) p = Softmax (s0) y = MatMul (p, v)",
     {"q": np.stack([Q, Q / 2], -1), "k": K, "v": V}, LAST),
    ("softmax_of_an_input", 20, "p = Softmax (q) y = MatMul (p, v)", {"q": Q, "v": V}, {}),
    ("log_softmax_of_scores", 20, KT + "p = LogSoftmax (s0) y = MatMul (p, v)", QKV, {}),
    ("weights_nan_to_zero_else_twice", 20, KT + "p = Softmax (s0) n = IsNaN (p) d = Mul (p, two) w = Where (n, zero, d) y = MatMul (w, v)", QKV, {"zero": c(0), "two": c(2)}),
    ("weights_below_half_to_zero", 20, KT + "p = Softmax (s0) d = Sub (p, half) r = Sqrt (d) n = IsNaN (r) w = Where (n, zero, p) y = MatMul (w, v)", QKV, {"zero": c(0), "half": c(0.5)}),
    ("weights_inf_alone_to_zero", 20, KT + "p = Softmax (s0) n = IsInf (p) w = Where (n, zero, p) y = MatMul (w, v)", {**QKV, "q": np.where(Q > 1.6, NAN, Q)}, {"zero": c(0)}),
    ("weights_for_more_heads", 20, KT3 + "p = Softmax (s0) e = Expand (p, six) n = IsNaN (e) w = Where (n, zero, e) y = MatMul (w, v)", ONE_QKV3, {"zero": c(0), "six": ints(6, 4, 4)}),
    ("mask_and_scores_negated_often", 20, KT + NEG8 + "a = Add (s0, d8) s = Add (m, a) p = Softmax (s) y = MatMul (p, v)", {**QKV, "m": M}, {}),
    ("scores_and_mask_less_relu", 20, KT + "a = Add (s0, m) r = Relu (s0) s = Sub (a, r) p = Softmax (s) y = MatMul (p, v)", {**QKV, "m": M}, {}),
    ("mask_and_relu_of_scores", 20, KT + "r = Relu (s0) s = Add (m, r) p = Softmax (s) y = MatMul (p, v)", {**QKV, "m": M}, {}),
    ("scores_and_relu_of_mask", 20, KT + "r = Relu (m) s = Add (s0, r) p = Softmax (s) y = MatMul (p, v)", {**QKV, "m": M}, {}),
    ("mask_and_a_large_number", 20, KT + "a = Add (s0, m) s = Add (a, large) p = Softmax (s) y = MatMul (p, v)", {**QKV, "m": M}, {"large": c(1e9)}),
    ("mask_of_bool_to_plus_inf", 20, KT + "s = Where (m, s0, most) p = Softmax (s) y = MatMul (p, v)", {**QKV, "m": np.array([[True, False, True, True]] * 4)}, {"most": c(np.inf)}),
    ("mask_of_what_is_masked", 20, KT + "a = Where (m, s0, zero) g = Greater (a, zero) s = Where (g, s0, least) p = Softmax (s) y = MatMul (p, v)",
     {**QKV, "m": np.array([[True, False, True, True]] * 4)}, {"zero": c(0), "least": c(-np.inf)}),
    ("mask_of_bool_and_relu", 20, KT + "r = Relu (s0) s = Where (m, r, least) p = Softmax (s) y = MatMul (p, v)", {**QKV, "m": np.array([[True, False, True, True]] * 4)}, {"least": c(-np.inf)}),
    ("scores_in_f64", 20, "q8 = Cast <to: int = 11> (q) q9 = Mul (q8, half) k8 = Transpose <perm: ints = [0,1,3,2]> (k) t8 = Cast <to: int = 11> (k8) t = Mul (t8, half) s0 = MatMul (q9, t) s = Cast <to: int = 1> (s0) p = Softmax (s) y = MatMul (p, v)",
     {"q": Q * F(300), "k": (K[:, :, :1] * F(300) + ALIKE).astype(F), "v": V}, {"half": np.array(0.5)}),
    ("queries_expanded_and_halved", 20, "e = Expand (q, four) h = Mul (e, half) t = Transpose <perm: ints = [0,1,3,2]> (k) s = MatMul (h, t) p = Softmax (s) y = MatMul (p, v)",
     {"q": Q[:, :, :1], "k": K, "v": V}, {"four": ints(2, 3, 4, 4), "half": c(0.5)}),
    ("mask_over_other_rows", 20, KT + "r = Reshape (s0, other) s = Add (r, m) p0 = Softmax (s) p = Reshape (p0, four) y = MatMul (p, v)", {**QKV, "m": M[:1, :, :1]}, {"other": ints(1, 3, 8, 4), "four": ints(2, 3, 4, 4)}),
    ("softmax_in_f16", 20, KT + "h = Cast <to: int = 10> (s0) p0 = Softmax (h) p = Cast <to: int = 1> (p0) y = MatMul (p, v)", QKV, {}, {"y": (H_SOFTMAX @ V).astype(F)}),
    ("heads_of_groups_turned", 20, TURNED + "r = Reshape (kg, four) t = Transpose <perm: ints = [0,1,3,2]> (r) u = Reshape (vg, four) s = MatMul (q, t) p = Softmax (s) y = MatMul (p, u)", GROUPED,
     {"four": ints(2, 4, 3, 4)}),
    ("groups_halved_and_repeated", 20, "ke = Expand (k, five) kh = Mul (ke, half) r = Reshape (kh, four) t = Transpose <perm: ints = [0,1,3,2]> (r) ve = Expand (v, five) vh = Mul (ve, half) u = Reshape (vh, four) "
     "s = MatMul (q, t) p = Softmax (s) y = MatMul (p, u)", {"q": GROUPED["q"], "k": GROUPED["k"][:, :, :1], "v": GROUPED["v"][:, :, :1]}, {"five": ints(2, 2, 2, 3, 4), "four": ints(2, 4, 3, 4), "half": c(0.5)}),
    ("groups_in_every_batch", 20, "ke = Expand (k, five) r = Reshape (ke, four) t = Transpose <perm: ints = [0,1,3,2]> (r) ve = Expand (v, five) u = Reshape (ve, four) s = MatMul (q, t) p = Softmax (s) y = MatMul (p, u)",
     {"q": GROUPED["q"].reshape(1, 8, 3, 4), "k": GROUPED["k"][:1, :, :1], "v": GROUPED["v"][:1, :, :1]}, {"five": ints(2, 2, 2, 3, 4), "four": ints(1, 8, 3, 4)}),
    ("scores_of_two_dims", 20, "t = Transpose (k) s = MatMul (q, t) p = Softmax (s) y = MatMul (p, v)", {"q": Q[0, 0], "k": K[0, 0], "v": V[0, 0]}, {}),
    ("scores_seen_with_two_dims", 20, "t = Transpose <perm: ints = [0,2,1]> (k) s0 = MatMul (q, t) r = Reshape (s0, two) s = Add (r, m) p = Softmax (s) y = MatMul (p, v)",
     {"q": Q[0, :1], "k": K[0, :1], "v": V[0, 0], "m": M[0, 0]}, {"two": ints(4, 4)}),
    ("weights_in_a_gemm_with_c", 20, KT + "p4 = Softmax (s0) p = Reshape (p4, two) y = Gemm (p, v, m)", {"q": Q[:1, :1], "k": K[:1, :1], "v": V[0, 0], "m": M[0, 0]}, {"two": ints(4, 4)}),
    ("weights_in_a_gemm_with_alpha", 20, KT + "p4 = Softmax (s0) p = Reshape (p4, two) y = Gemm <alpha: float = 0.5> (p, v)", {"q": Q[:1, :1], "k": K[:1, :1], "v": V[0, 0]}, {"two": ints(4, 4)}),
    ("scores_of_a_gemm_with_c", 20, "s0 = Gemm <transB: int = 1> (q, k, x) r = Reshape (s0, three) s = Add (r, m) p = Softmax (s) y = MatMul (p, v)",
     {"q": Q[0, 0], "k": K[0, 0], "x": X44, "v": V[0, :1], "m": M[0, :1]}, {"three": ints(1, 4, 4)}),
    ("sum_of_weights", 20, KT + "p = Softmax (s0) y = ReduceSum (p, ax)", {"q": Q[:1, :1], "k": K[:1, :1]}, LAST),
    ("weights_times_a_constant", 20, KT + "p = Softmax (s0) y = MatMul (p, w)", {"q": Q[:1, :1], "k": K[:1, :1]}, {"w": W46}),
    ("mask_widens_queries_of_three_dims", 20, KT3 + "s = Add (s0, m) p = Softmax (s) y = MatMul (p, v)", {"q": Q[0], "k": K[0, :1], "v": V[0, :1], "m": M[:, :, :]}, {}),
    ("mask_widens_keys_of_three_dims", 20, KT3 + "s = Add (s0, m) p = Softmax (s) y = MatMul (p, v)", {"q": Q[0, :1], "k": K[0], "v": V[0, :1], "m": M}, {}),
    ("weights_of_five_dims", 20, KT + "p4 = Softmax (s0) p = Reshape (p4, five) y = MatMul (p, v)", {"q": Q, "k": K, "v": V[0, 0]}, {"five": ints(1, 2, 3, 4, 4)}),
    # rotations, products side by side
    ("rope_clipped", 20, "a, b = Split <num_outputs: int = 2, axis: int = -1> (x) n0 = Neg (b) n = Clip (n0, lo, hi) t = Concat <axis: int = -1> (n, a) u = Mul (x, k) w = Mul (t, s) y = Add (u, w)",
     {"x": LARGE}, {"k": f(4, 4), "s": f(4, 4), "lo": c(-20), "hi": c(20)}),
    ("rope_not_negated", 20, "a, b = Split <num_outputs: int = 2, axis: int = -1> (x) t = Concat <axis: int = -1> (b, a) u = Mul (x, k) w = Mul (t, s) y = Add (u, w)", {"x": X44}, {"k": f(4, 4), "s": f(4, 4)}),
    ("rope_of_rows", 20, "a, b = Split <num_outputs: int = 2, axis: int = 0> (x) n = Neg (b) t = Concat <axis: int = 0> (n, a) u = Mul (x, k) w = Mul (t, s) y = Add (u, w)", {"x": X44}, {"k": f(4, 4), "s": f(4, 4)}),
    ("rope_minus", 20, "a, b = Split <num_outputs: int = 2, axis: int = -1> (x) n = Neg (b) t = Concat <axis: int = -1> (n, a) u = Mul (x, k) w = Mul (t, s) y = Sub (u, w)", {"x": X44}, {"k": f(4, 4), "s": f(4, 4)}),
    ("products_of_turned_rows", 20, "t = Transpose (x) m = MatMul (x, w) n = MatMul (t, w) y = Add (m, n)", {"x": X44}, {"w": W44}),
    ("products_with_residuals", 20, "m = MatMul (x, w) a = Add (m, r) n = MatMul (x, v) b = Add (n, q) p = Softmax (a) u = Softmax (b) y = Mul (p, u)", {"x": X44, "r": R44, "q": X44}, {"w": W44, "v": R44}),
    ("products_the_first_with_a_residual", 20, "m = MatMul (x, w) a = Add (m, r) n = MatMul (x, v) p = Softmax (a) u = Softmax (n) y = Mul (p, u)", {"x": X44, "r": R44}, {"w": W44, "v": R44}),
    ("products_the_second_with_a_residual", 20, "m = MatMul (x, w) n = MatMul (x, v) b = Add (n, r) p = Softmax (m) u = Softmax (b) y = Mul (p, u)", {"x": X44, "r": R44}, {"w": W44, "v": R44}),
    ("products_the_first_with_a_bias", 20, "m = MatMul (x, w) a = Add (m, b) n = MatMul (x, v) p = Softmax (a) u = Softmax (n) y = Mul (p, u)", {"x": X44}, {"w": W44, "v": R44, "b": R4}),
    ("products_the_second_with_a_bias", 20, "m = MatMul (x, w) n = MatMul (x, v) a = Add (n, b) p = Softmax (m) u = Softmax (a) y = Mul (p, u)", {"x": X44}, {"w": W44, "v": R44, "b": R4}),
    ("products_the_first_with_an_activation", 20, "m = MatMul (x, w) a = Relu (m) n = MatMul (x, v) p = Softmax (a) u = Softmax (n) y = Mul (p, u)", {"x": X44}, {"w": W44, "v": R44}),
    ("products_the_first_is_an_output", 20, "z = MatMul (x, w) n = MatMul (x, v) y = Neg (n)", {"x": X44}, {"w": W44, "v": R44}),
    ("products_the_second_is_an_output", 20, "n = MatMul (x, v) z = MatMul (x, w) u = Softmax (z) p = Softmax (n) y = Mul (p, u)", {"x": X44}, {"w": W44, "v": R44}),
    ("products_the_first_in_a_concat", 20, "m = MatMul (x, w) t = Softmax (r) a = Concat <axis: int = 0> (m, t) n = MatMul (x, v) y = Softmax (a) z = Neg (n)", {"x": X44, "r": R44}, {"w": W44, "v": R44}),
    ("products_of_one_column_seen_as_a_row", 20, "m = MatMul (x, w) r = Reshape (m, row) p = Softmax (r) n = MatMul (x, u) y = Neg (p) z = Neg (n)", {"x": X44}, {"w": W46[:, :1], "u": W46[:, 1:2], "row": ints(1, 4)}),
    ("products_the_first_in_a_wider_view", 20, "m = MatMul (x, w) r = Reshape (m, flat) s = Slice (r, begin, end) t = Reshape (s, two) u = Slice (t, begin, six, ax) n = MatMul (x, v) y = Neg (u) z = Neg (n)",
     {"x": X44}, {"w": W46, "v": R46, "flat": ints(24), "begin": ints(0), "end": ints(18), "two": ints(2, 9), "six": ints(6), "ax": ints(1)}),
    ("products_the_second_in_a_wider_view", 20, "n = MatMul (x, v) m = MatMul (x, w) r = Reshape (m, flat) s = Slice (r, begin, end) t = Reshape (s, two) u = Slice (t, begin, six, ax) y = Neg (u) z = Neg (n)",
     {"x": X44}, {"w": W46, "v": R46, "flat": ints(24), "begin": ints(0), "end": ints(18), "two": ints(2, 9), "six": ints(6), "ax": ints(1)}),
    # rows of a product that are not whole rows at equal distances, or not the only ones that are read
    ("rows_across_rows", 20, "m = MatMul (x, w) r = Reshape (m, flat) s = Slice (r, begin, end) t = Reshape (s, two) y = Neg (t)", {"x": X44}, {"w": W46, "flat": ints(24), "begin": ints(3), "end": ints(15), "two": ints(2, 6)}),
    ("rows_of_a_wider_view", 20, "m = MatMul (x, w) r = Reshape (m, flat) s = Slice (r, begin, end) t = Reshape (s, two) u = Slice (t, begin, six, ax) y = Neg (u)",
     {"x": X44}, {"w": W46, "flat": ints(24), "begin": ints(0), "end": ints(18), "two": ints(2, 9), "six": ints(6), "ax": ints(1)}),
    ("one_row_many_times", 20, "m = MatMul (x, w) s = Slice (m, begin, end, ax) t = Expand (s, three) y = Neg (t)", {"x": X44}, {"w": W46, "begin": ints(1), "end": ints(2), "ax": ints(0), "three": ints(3, 6)}),
    ("two_rows_apart", 20, "m = MatMul (x, w) s = Slice (m, begin, end, ax) t = Slice (m, second, last, ax) y = Sub (s, t)",
     {"x": X44}, {"w": W46, "begin": ints(0), "end": ints(1), "second": ints(2), "last": ints(3), "ax": ints(0)}),
    ("a_product_and_its_row", 20, "m = MatMul (x, w) s = Slice (m, begin, end, ax) y = Sub (m, s)", {"x": X44}, {"w": W46, "begin": ints(0), "end": ints(1), "ax": ints(0)}),
    ("columns_of_a_product", 20, "m = MatMul (x, w) s = Slice (m, begin, end, ax) y = Neg (s)", {"x": X44}, {"w": W46, "begin": ints(0), "end": ints(3), "ax": ints(1)}),
    ("columns_as_rows", 20, "m = MatMul (x, w) t = Transpose (m) s = Slice (t, begin, end, ax) y = Neg (s)", {"x": X44}, {"w": W44, "begin": ints(0), "end": ints(1), "ax": ints(0)}),
    ("row_of_a_residual", 20, "m = MatMul (x, w) t = Add (m, r) s = Slice (t, begin, end, ax) y = Neg (s)", {"x": X44, "r": f(4, 6)}, {"w": W46, "begin": ints(3), "end": ints(4), "ax": ints(0)}),

    ("two_of_three_tokens", 20, "m = MatMul (x, w) s = Slice (m, begin, end, ax) y = Neg (s)", {"x": X234}, {"w": W46, "begin": ints(0), "end": ints(2), "ax": ints(1)}),
    ("one_row_many_times_for_rows", 20, "m = MatMul (x, w) s = Slice (m, begin, end, ax) t = Expand (s, three) y = Softmax (t)", {"x": X44}, {"w": W46, "begin": ints(1), "end": ints(2), "ax": ints(0), "three": ints(3, 6)}),
    ("a_product_that_is_an_output_and_its_row", 20, "z = MatMul (x, w) s = Slice (z, begin, end, ax) y = Neg (s)", {"x": X44}, {"w": W46, "begin": ints(1), "end": ints(2), "ax": ints(0)}),
    ("one_element_of_a_product", 20, "m = MatMul (x, w) s = Slice (m, begin, end, ax) q = Squeeze (s) y = Neg (q)", {"x": X44}, {"w": W46[:, :1], "begin": ints(2), "end": ints(3), "ax": ints(0)}),
    ("row_behind_a_product_in_a_concat", 20, "m = MatMul (x, w) t = Softmax (r) a = Concat <axis: int = 0> (m, t) s = Slice (a, begin, end, ax) y = Neg (s)", {"x": X44, "r": R46}, {"w": W46, "begin": ints(5), "end": ints(7), "ax": ints(0)}),
    ("row_of_a_running_sum", 20, "k = CumSum (x, zero) s = Slice (k, begin, end, ax) y = Neg (s)", {"x": X44}, {"zero": np.array(0), "begin": ints(2), "end": ints(3), "ax": ints(0)}),
    # rotations: another value, other halves, other rows, another sum
    ("rope_of_another_value", 20, "a, b = Split <num_outputs: int = 2, axis: int = -1> (z) " + TURN + ROPE, {"x": X44, "z": W44}, ANGLES),
    ("rope_of_softmax", 20, HALVES + "n = Softmax (b) t = Concat <axis: int = -1> (n, a) " + ROPE, {"x": X44}, ANGLES),
    ("rope_with_a_half_in_place", 20, HALVES + "n = Neg (a) t = Concat <axis: int = -1> (n, b) " + ROPE, {"x": X44}, ANGLES),
    ("rope_of_one_column", 20, "a = Slice (x, i0, i2, i1) b1 = Slice (x, i2, i3, i1) b = Expand (b1, wide) " + TURN + ROPE, {"x": X44}, {**ANGLES, **PLACES, "wide": ints(4, 2)}),
    ("rope_of_five", 20, "a = Slice (x, i0, i3, i1) b = Slice (x, i2, i4, i1) " + TURN + ROPE, {"x": W46[:, :5]}, {"k": W46[:, 1:], "s": W46[::-1, :5].copy(), **PLACES}),
    ("rope_of_rounded_halves", 20, HALVES + "bh = Cast <to: int = 10> (b) n = Neg (bh) ah = Cast <to: int = 10> (a) th = Concat <axis: int = -1> (n, ah) t = Cast <to: int = 1> (th) " + ROPE, {"x": X44}, ANGLES),
    ("rope_of_other_rows", 20, "a0, b0 = Split <num_outputs: int = 2, axis: int = -1> (z) n = Neg (b0) a1 = Reshape (a0, flat) a = Reshape (a1, rows) t0 = Concat <axis: int = -1> (n, a) "
     "t = Slice (t0, i2, i6, i0) x = Slice (z, i0, i4, i0) " + ROPE, {"z": W46.T.copy()}, {**ANGLES, **PLACES, "flat": ints(12), "rows": ints(6, 2)}),
    ("rope_of_the_first_row", 20, "x0 = Slice (x, i0, i1, i0) a, b = Split <num_outputs: int = 2, axis: int = -1> (x0) " + TURN + ROPE, {"x": X44}, {**ANGLES, **PLACES}),
    ("rope_beside_the_first_row", 20, "x = Slice (z, i0, i1, i0) a, b = Split <num_outputs: int = 2, axis: int = -1> (z) " + TURN + ROPE, {"z": X44}, {**ANGLES, **PLACES}),
    ("rope_less_a_product_negated_often", 20, HALVES + TURN + "s0 = Mul (x, k) w = Mul (t, s) g = Add (s0, w) " + NEG8 + "y = Sub (g, d8)", {"x": X44}, ANGLES),
    ("rope_less_relu", 20, HALVES + TURN + "u = Mul (x, k) w = Mul (t, s) g = Add (u, w) r = Relu (x) y = Sub (g, r)", {"x": X44}, ANGLES),
    ("rope_and_one", 20, HALVES + TURN + "u = Mul (x, k) w = Mul (t, s) g = Add (u, w) y = Add (g, one)", {"x": X44}, {**ANGLES, "one": c(1)}),
    ("rope_with_a_square", 20, HALVES + TURN + "u = Mul (x, k) e1 = Mul (u, one) e2 = Mul (e1, one) e3 = Mul (e2, one) e4 = Mul (e3, one) e5 = Mul (e4, one) e6 = Mul (e5, one) e7 = Mul (e6, one) "
     "e8 = Mul (e7, one) f = Mul (u, e8) w = Mul (t, s) y = Add (f, w)", {"x": X44}, {**ANGLES, "one": c(1)}),
    ("rope_by_exp", 20, HALVES + TURN + "u = Mul (x, k) e = Exp (x) f = Div (u, e) w = Mul (t, s) y = Add (f, w)", {"x": X44}, ANGLES),
    ("rope_of_a_negative_angle", 20, HALVES + TURN + "h = Neg (k) u = Mul (x, h) w = Mul (t, s) y = Add (u, w)", {"x": X44, "k": W44}, {"s": ANGLES["s"]}),
    ("rope_by_a_square", 20, HALVES + TURN + "h = Mul (k, k) u = Mul (x, h) w = Mul (t, s) y = Add (u, w)", {"x": X44, "k": W44}, {"s": ANGLES["s"]}),
    ("rope_of_relu", 20, HALVES + TURN + "r = Relu (x) u = Mul (r, k) w = Mul (t, s) y = Add (u, w)", {"x": X44}, ANGLES),
    ("rope_of_both_alone", 20, HALVES + TURN + "u = Mul (x, t) w = Mul (k, s) y = Add (u, w)", {"x": X44, "k": W44, "s": X44[::-1].copy()}, {}),
    ("two_products_of_inputs", 20, "u = Mul (a, b) w = Mul (d, e) y = Add (u, w)", {"a": X44, "b": W44, "d": X44[::-1].copy(), "e": W44[::-1].copy()}, {}),
    # copies into another order, or into a part, that are not of all of a value
    ("first_row_of_a_map", 20, "e = Exp (x) r = Slice (e, i0, i1, i0) y = Concat <axis: int = 0> (r, z)", {"x": X44, "z": X44[:1]}, PLACES),
    ("windows_that_overlap", 20, "e = Exp (x) y = Conv <strides: ints = [3]> (e, w)", {"x": W46[:2, :4].reshape(1, 1, 8)}, {"w": W46[2:3, :4].reshape(1, 1, 4)}),
    ("heads_of_an_input", 20, "t = Transpose (x) r = Reshape (t, flat) y = Neg (r)", {"x": X44}, {"flat": ints(16)}),
    ("a_number_of_a_row", 20, "g = Gather (x, i) u = Unsqueeze (g, i0) y = Concat <axis: int = 0> (u, x)", {"x": X44[0], "i": np.array(2, np.int64)}, {"i0": ints(0)}),
]  # fmt: skip


if __name__ == "__main__":
    lower_cases.write(sys.argv[1], CASES)
