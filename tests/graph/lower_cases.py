#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/graph/cases/lower.txt: cases of our own for the lowering of ONNX operators: old and new forms of an
operator, broadcasting, negative axes, absent optionals, composed programs, and what must be refused.

  lower_cases.py FILE       needs the Python package onnx >= 1.23, whose reference computes what is expected

A row: name, opset, nodes in ONNX's text syntax, inputs, constants; where the reference cannot compute it also the
results, for a refusal what the message says. runtime_cases.py has those of the tools of ONNX Runtime and of bytes."""
import pathlib
import re
import sys

import numpy as np
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from node_tests import joined, text_case
from runtime_cases import (B, D, F, I, L, U, bytes_by_a_constant, bytes_of_operators, contrib, gelu, ints, layer_norm, softmax,
                           stays_quantised)

rng = np.random.default_rng(7)


def f(*shape):
    """Random f32 with few digits."""
    return np.round(rng.uniform(-2, 2, shape), 3).astype(F)


X23, X34, X234 = f(2, 3), f(3, 4), f(2, 3, 4)


def untaken(taken):
    """Branches whose index is out of range unless they are taken: their other branch is."""
    c, i = np.array(taken), np.array(2 if taken else 7, L)
    name = "taken" if taken else "not_taken"
    rows = (("gather", "a = Gather (x, i)", X34[2]), ("gather_constant", "a = Gather (x, n)", None), ("gather_folded", "k = Gather (t, n) a = Add (k, r)", None),
            ("gather_nd", "a = GatherND (x, p)", X34[2]),
            ("gather_elements", "q = GatherElements (x, e) a = Squeeze (q, n0)", X34[[2, 2, 2, 2], np.arange(4)]),
            ("scatter_nd", "s = ScatterND (x, b, u) a = Gather (s, n2)", np.ones(4, F)),
            ("scatter_elements", "s = ScatterElements (x, e, u) a = Gather (s, n2)", np.ones(4, F)),
            ("nested", """a = If (d) <then_branch = t2 () => (float[4] a2) { a2 = Gather (x, i) }, else_branch = e2 () => (float[4] b2) { b2 = Gather (x, j) }>""", X34[2]),
            ("nested_else", """a = If (j0) <then_branch = t2 () => (float[4] a2) { a2 = Gather (x, j) }, else_branch = e2 () => (float[4] b2) { b2 = Gather (x, i) }>""", X34[2]))
    for kind, nodes, result in rows:
        if taken and result is None:
            continue
        inputs = {"c": c, "x": X34, "i": i, "p": i.reshape(1), "b": i.reshape(1, 1), "e": np.full((1, 4), i, L), "u": np.ones((1, 4), F), "d": np.array(True),
                  "j": np.array(50, L), "j0": np.array(False)}
        constants = {"n": np.array(9, L), "t": X34[:, :1], "r": np.zeros(4, F), "n0": ints(0), "n2": np.array(2, L)}
        used = {key: value for key, value in inputs.items() if key in ("c", "x") or re.search(rf"\b{key}\b *[,)]", nodes)}
        kept = {key: value for key, value in constants.items() if re.search(rf"\b{key}\b *[,)]", nodes)}
        yield (f"if_{kind}_{name}", 16, f"y = If (c) <then_branch = t () => (float[4] a) {{ {nodes} }}, else_branch = e () => (float[4] b) {{ b = ReduceMax <keepdims: int = 0, axes: ints = [0]> (x) }}>",
               used, kept, {"y": result if taken else X34.max(0)})


CASES = [
    # elementwise: dtypes, broadcasting, edges
    ("add_rows", 14, "y = Add (x, w)", {"x": X234, "w": f(4)}, {}),
    ("add_both_ways", 14, "y = Add (x, w)", {"x": f(3, 1), "w": f(1, 4)}, {}),
    ("sub_scalar_constant", 14, "y = Sub (x, w)", {"x": X23}, {"w": np.array(1.5, F)}),
    ("mul_f64", 14, "y = Mul (x, w)", {"x": X23.astype(D), "w": X23.astype(D)}, {}),
    ("div_i64_truncates", 14, "y = Div (x, w)", {"x": ints(7, -7, 7, -7), "w": ints(2, 2, -2, -2)}, {}),
    ("add_i64_beyond_f64", 14, "y = Add (x, w)", {"x": ints(2**62 + 1, 2**53 + 1), "w": ints(1, 2)}, {}),
    ("mean_of_ten", 13, "y = Mean (x,x,x,x,x,x,x,x,x,w)", {"x": X23, "w": X23 * 11}, {}),
    ("min_with_nan", 13, "y = Min (x, w)", {"x": np.array([1, np.nan, 3], F), "w": np.array([2, 2, np.nan], F)}, {}),
    ("max_broadcast", 13, "y = Max (x, w, v)", {"x": X34, "w": f(4), "v": f(3, 1)}, {}),
    ("pow_square", 15, "y = Pow (x, w)", {"x": X23}, {"w": np.array(2, F)}),
    ("pow_i64_f32_base", 15, "y = Pow (x, w)", {"x": X23}, {"w": ints(3)}),
    ("clip_lower_only", 13, "y = Clip (x, low)", {"x": X23}, {"low": np.array(-0.5, F)}),
    ("clip_upper_only", 13, "y = Clip (x, , high)", {"x": X23}, {"high": np.array(0.5, F)}),
    ("clip_none", 13, "y = Clip (x)", {"x": X23}, {}),
    ("gelu_erf", 20, "y = Gelu (x)", {"x": X23 * 2}, {}),
    ("gelu_tanh", 20, 'y = Gelu <approximate: string = "tanh"> (x)', {"x": X23 * 2}, {}),
    ("gelu_by_hand", 13, "a = Div (x, root) b = Erf (a) c = Add (b, one) d = Mul (x, c) y = Mul (d, half)", {"x": X23},
     {"root": np.array(np.sqrt(2), F), "one": np.array(1, F), "half": np.array(0.5, F)}),
    ("silu_by_hand", 13, "a = Sigmoid (x) y = Mul (x, a)", {"x": X23 * 3}, {}),
    ("relu_i32", 14, "y = Relu (x)", {"x": np.array([-3, 0, 4], I)}, {}),
    ("leaky_relu", 16, "y = LeakyRelu <alpha: float = 0.1> (x)", {"x": X23}, {}),
    ("elu", 22, "y = Elu <alpha: float = 1.5> (x)", {"x": X23}, {}),
    ("hard_sigmoid", 22, "y = HardSigmoid (x)", {"x": X23 * 3}, {}),
    ("round_to_even", 22, "y = Round (x)", {"x": np.array([0.5, 1.5, -2.5, 2.4], F)}, {}),
    ("add_empty", 14, "y = Add (x, w)", {"x": np.zeros((0, 3), F), "w": f(3)}, {}),
    # comparisons, logic, conversion
    ("greater_beside_nan", 13, "y = Greater (x, w)", {"x": np.array([1, np.nan, 3], F), "w": np.array([0, 0, np.nan], F)}, {}),
    ("less_or_equal_i64", 16, "y = LessOrEqual (x, w)", {"x": ints(2**60, 2**60 + 1), "w": ints(2**60, 2**60)}, {}),
    ("equal_bool", 19, "y = Equal (x, w)", {"x": np.array([True, False, True]), "w": np.array([True, True, False])}, {}),
    ("where_broadcast", 16, "y = Where (c, x, w)", {"c": np.array([[True], [False]]), "x": f(3), "w": np.array(9, F)}, {}),
    ("cast_to_i32", 19, "y = Cast <to: int = 6> (x)", {"x": np.array([1.9, -1.9, 0.5, -7], F)}, {}),
    ("cast_to_bool", 19, "y = Cast <to: int = 9> (x)", {"x": np.array([0, -0.0, 0.25, np.nan], F)}, {}),
    ("cast_i64_to_f32", 13, "y = Cast <to: int = 1> (x)", {"x": ints(1, -5, 2**24 + 1)}, {}),
    ("cast_bool_to_f32", 13, "y = Cast <to: int = 1> (x)", {"x": np.array([True, False])}, {}),
    ("cast_i64_to_u8", 13, "y = Cast <to: int = 2> (x)", {"x": ints(1, 255, 256, -1)}, {}),
    ("is_inf_positive", 20, "y = IsInf <detect_negative: int = 0> (x)", {"x": np.array([np.inf, -np.inf, 1], F)}, {}),
    ("isnan_where", 20, "a = IsNaN (x) y = Where (a, z, x)", {"x": np.array([1, np.nan], F)}, {"z": np.array(0, F)}),
    # views
    ("reshape_minus_one", 13, "y = Reshape (x, s)", {"x": X234}, {"s": ints(0, -1)}),
    ("reshape_of_transposed", 13, "a = Transpose <perm: ints = [1,0]> (x) y = Reshape (a, s)", {"x": X23}, {"s": ints(6)}),
    ("transpose_default", 13, "y = Transpose (x)", {"x": X234}, {}),
    ("transpose_twice", 13, "a = Transpose <perm: ints = [2,0,1]> (x) y = Transpose <perm: ints = [1,2,0]> (a)", {"x": X234}, {}),
    ("squeeze_all", 13, "y = Squeeze (x)", {"x": f(1, 3, 1)}, {}),
    ("unsqueeze_negative", 13, "y = Unsqueeze (x, a)", {"x": X23}, {"a": ints(-1, 0)}),
    ("expand_keeps", 13, "y = Expand (x, s)", {"x": f(3, 1)}, {"s": ints(2, 1, 4)}),
    ("slice_reversed", 13, "y = Slice (x, s, e, a, t)", {"x": X34}, {"s": ints(-1), "e": ints(-100), "a": ints(1), "t": ints(-2)}),
    ("slice_least_step", 13, "y = Slice (x, s, e, a, t)", {"x": X34}, {"s": ints(2**63 - 1), "e": ints(-(2**63)), "a": ints(1), "t": ints(-(2**63))},
     {"y": X34[:, 3:]}),
    ("slice_far_ends", 13, "y = Slice (x, s, e)", {"x": X34}, {"s": ints(1, -3), "e": ints(2**62, -1)}),
    ("slice_of_nothing", 13, "a = Slice (x, s, e) b = Neg (a) y = Concat <axis: int = 0> (b, a)", {"x": np.zeros((3, 0), F)}, {"s": ints(1), "e": ints(3)}),
    ("slice_of_slice", 13, "a = Slice (x, s, e, one, t) y = Slice (a, s, e, one, t)", {"x": f(2, 9)},
     {"s": ints(1), "e": ints(9), "one": ints(1), "t": ints(2)}),
    ("split_by_input", 13, "y, z = Split <axis: int = 1> (x, s)", {"x": X34}, {"s": ints(1, 3)}),
    ("split_equal_13", 13, "y, z = Split <axis: int = -1> (x)", {"x": X34}, {}),
    ("split_uneven_18", 18, "y, z = Split <axis: int = 0, num_outputs: int = 2> (x)", {"x": X34}, {}),
    ("flatten_negative", 13, "y = Flatten <axis: int = -1> (x)", {"x": X234}, {}),
    ("dropout_mask", 13, "y, z = Dropout (x)", {"x": X23}, {}),
    ("identity_as_output", 16, "y = Identity (x) z = Neg (x)", {"x": X23}, {}),
    ("shape_arithmetic", 15, "a = Shape (x) b = Gather (a, zero) c = Unsqueeze (b, zero1) d = Concat <axis: int = 0> (c, minus) y = Reshape (x, d)",
     {"x": X234}, {"zero": np.array(0, L), "zero1": ints(0), "minus": ints(-1)}),
    ("constant_of_shape_default", 13, "a = Shape (x) z = ConstantOfShape (a) y = Add (x, z)", {"x": X23}, {}),
    ("constant_forms", 13, "a = Constant <value_float: float = 2.5> () b = Constant <value_ints: ints = [6]> () c = Mul (x, a) y = Reshape (c, b)", {"x": X23}, {}),
    # joins and values by index
    ("concat_three", 13, "y = Concat <axis: int = -1> (x, w, x)", {"x": X23, "w": f(2, 1)}, {}),
    ("concat_with_empty", 13, "y = Concat <axis: int = 0> (x, w)", {"x": X23, "w": np.zeros((0, 3), F)}, {}),
    ("concat_of_views", 13, "a, b = Split <axis: int = -1> (x) c = Neg (b) y = Concat <axis: int = -1> (c, a)", {"x": f(2, 6)}, {}),
    ("pad_negative", 13, "y = Pad (x, p, v)", {"x": X34}, {"p": ints(1, -1, 0, 2), "v": np.array(7, F)},
     {"y": np.pad(X34[:, 1:], ((1, 0), (0, 2)), constant_values=7)}),
    ("pad_edge", 13, 'y = Pad <mode: string = "edge"> (x, p)', {"x": X23}, {"p": ints(0, 2, 1, 0)}),
    ("pad_reflect", 13, 'y = Pad <mode: string = "reflect"> (x, p)', {"x": f(3, 4)}, {"p": ints(2, 1, 0, 3)}),
    ("pad_bool", 13, "y = Pad (x, p)", {"x": np.array([[True], [True]])}, {"p": ints(0, 1, 1, 0)}),
    ("tile_2d", 13, "y = Tile (x, r)", {"x": X23}, {"r": ints(2, 3)}),
    ("tile_none", 13, "y = Tile (x, r)", {"x": X23}, {"r": ints(0, 1)}),
    ("range_down", 11, "r = Range (s, l, d) y = Add (x, r)", {"x": ints(1)}, {"s": np.array(5, L), "l": np.array(-4, L), "d": np.array(-3, L)}),
    ("range_empty", 11, "r = Range (s, l, d) y = Add (x, r)", {"x": ints(1)}, {"s": np.array(5, L), "l": np.array(5, L), "d": np.array(1, L)}),
    ("trilu_lower_k", 14, "y = Trilu <upper: int = 0> (x, k)", {"x": X34}, {"k": np.array(-1, L)}),
    ("trilu_computed_k", 14, "y = Trilu (x, k)", {"x": X34, "k": np.array(1, L)}, {}),
    ("trilu_bool", 14, "y = Trilu (x)", {"x": np.ones((3, 3), B)}, {}),
    ("one_hot_axis_0", 11, "y = OneHot <axis: int = 0> (x, d, v)", {"x": ints(0, -1, 5), "v": np.array([2, 5], F)}, {"d": np.array(3, L)}),
    # reductions
    ("reduce_mean_axes_attribute", 13, "y = ReduceMean <axes: ints = [-1], keepdims: int = 0> (x)", {"x": X234}, {}),
    ("reduce_mean_axes_input", 18, "y = ReduceMean (x, a)", {"x": X234}, {"a": ints(0, 2)}),
    ("reduce_sum_noop", 13, "y = ReduceSum <noop_with_empty_axes: int = 1> (x)", {"x": X23}, {}),
    ("reduce_sum_all", 13, "y = ReduceSum <keepdims: int = 0> (x)", {"x": X23}, {}),
    ("reduce_mean_i32", 18, "y = ReduceMean <keepdims: int = 0> (x, a)", {"x": np.array([[1, 2, 6], [-7, 0, 0]], I)}, {"a": ints(1)}),
    ("reduce_max_i64", 18, "y = ReduceMax (x, a)", {"x": ints(2**60, 2**60 + 1)}, {"a": ints(0)}),
    ("reduce_prod", 18, "y = ReduceProd (x, a)", {"x": X23}, {"a": ints(0)}),
    ("reduce_l1", 18, "y = ReduceL1 (x, a)", {"x": X23}, {"a": ints(1)}),
    ("reduce_l2_noop", 18, "y = ReduceL2 <noop_with_empty_axes: int = 1> (x)", {"x": X23}, {}),
    ("reduce_log_sum_exp", 18, "y = ReduceLogSumExp (x, a)", {"x": X23 * 50}, {"a": ints(1)}),
    ("argmax_last", 13, "y = ArgMax <axis: int = 1, keepdims: int = 0, select_last_index: int = 1> (x)", {"x": np.array([[1, 3, 3], [2, 2, 2]], F)}, {}),
    ("argmin_negative_axis", 13, "y = ArgMin <axis: int = -2> (x)", {"x": X34}, {}),
    ("cumsum_exclusive_reverse", 14, "y = CumSum <exclusive: int = 1, reverse: int = 1> (x, a)", {"x": X34}, {"a": np.array(-1, I)}),
    ("cumsum_i64", 14, "y = CumSum (x, a)", {"x": ints(1, 1, 0, 1)}, {"a": np.array(0, L)}),
    # norms
    ("softmax_middle_axis", 13, "y = Softmax <axis: int = 1> (x)", {"x": X234}, {}),
    ("log_softmax_large", 13, "y = LogSoftmax (x)", {"x": X23 * 20}, {}),
    ("layer_norm_no_bias", 17, "y = LayerNormalization (x, g)", {"x": X34, "g": f(4)}, {}),
    ("layer_norm_scalar_scale", 17, "y = LayerNormalization (x, g, b)", {"x": X34, "g": f(1), "b": f(4)}, {}),
    ("layer_norm_of_transposed", 17, "a = Transpose (x) y = LayerNormalization (a, g)", {"x": X34, "g": f(3)}, {}),
    ("rms_norm_broadcast", 23, "y = RMSNormalization <axis: int = 1> (x, g)", {"x": X234, "g": f(4)}, {}),
    # products
    ("matmul_weight", 13, "y = MatMul (x, w)", {"x": X234}, {"w": f(4, 5)}),
    ("matmul_weight_vector", 13, "y = MatMul (x, w)", {"x": f(4)}, {"w": f(4, 5)}),
    ("matmul_constant_vector", 13, "y = MatMul (x, w)", {"x": X34}, {"w": f(4)}),
    ("matmul_transposed_weight", 13, "a = Transpose (w) y = MatMul (x, a)", {"x": X34}, {"w": f(5, 4)}),
    ("matmul_broadcast_batch", 13, "y = MatMul (x, w)", {"x": f(2, 1, 3, 4), "w": f(3, 4, 2)}, {}),
    ("matmul_i32", 13, "y = MatMul (x, w)", {"x": np.array([[1, 2], [3, 4]], I), "w": np.array([[5, 6], [7, 8]], I)}, {}),
    ("matmul_constant_left", 13, "y = MatMul (w, x)", {"x": X34}, {"w": f(2, 3)}),
    ("gemm_weight_bias", 13, "y = Gemm <transB: int = 1> (x, w, b)", {"x": X34}, {"w": f(5, 4), "b": f(5)}),
    ("gemm_weight_matrix_bias", 13, "y = Gemm (x, w, b)", {"x": X34}, {"w": f(4, 5), "b": f(3, 1)}),
    ("gemm_weight_alpha_beta", 13, "y = Gemm <alpha: float = 0.5, beta: float = 2.0> (x, w, b)", {"x": X34}, {"w": f(4, 5), "b": f(5)}),
    ("gemm_activations", 13, "y = Gemm <alpha: float = 0.5, beta: float = 0.25, transA: int = 1> (x, w, b)", {"x": f(4, 3), "w": f(4, 5), "b": f(3, 1)}, {}),
    ("einsum_batched", 12, 'y = Einsum <equation: string = "bij, bjk -> bik"> (x, w)', {"x": X234, "w": f(2, 4, 2)}, {}),
    ("einsum_heads", 12, 'y = Einsum <equation: string = "bqhd,bkhd->bhqk"> (x, w)', {"x": f(1, 2, 3, 4), "w": f(1, 3, 3, 4)}, {}),
    ("einsum_three", 12, 'y = Einsum <equation: string = "ij,jk,kl->il"> (x, w, v)', {"x": X23, "w": X34, "v": f(4, 2)}, {}),
    ("einsum_dots", 12, 'y = Einsum <equation: string = "...i,...i->..."> (x, w)', {"x": X234, "w": f(3, 4)}, {}),
    ("einsum_trace", 12, 'y = Einsum <equation: string = "ii"> (x)', {"x": f(3, 3)}, {}),
    ("einsum_outer", 12, 'y = Einsum <equation: string = "i,j"> (x, w)', {"x": f(3), "w": f(2)}, {}),
    # convolutions
    ("conv_patches", 11, "y = Conv <kernel_shape: ints = [2,2], strides: ints = [2,2]> (x, w, b)", {"x": f(1, 2, 4, 4)}, {"w": f(3, 2, 2, 2), "b": f(3)}),
    ("conv_depthwise", 11, "y = Conv <group: int = 2, pads: ints = [1,1,1,1]> (x, w, b)", {"x": f(1, 2, 3, 3)}, {"w": f(4, 1, 3, 3), "b": f(4)}),
    ("conv_1d_dilated", 11, "y = Conv <dilations: ints = [2], pads: ints = [2,0]> (x, w)", {"x": f(2, 2, 6), "w": f(3, 2, 2)}, {}),
    ("conv_same_upper", 22, 'y = Conv <auto_pad: string = "SAME_UPPER", strides: ints = [2,2]> (x, w)', {"x": f(1, 1, 4, 5)}, {"w": f(1, 1, 3, 3)}),
    # attention
    ("attention_gqa_causal", 23, "y = Attention <is_causal: int = 1> (q, k, v)", {"q": f(1, 4, 3, 2), "k": f(1, 2, 3, 2), "v": f(1, 2, 3, 2)}, {}),
    ("attention_bool_mask_1d", 24, "y = Attention (q, k, v, m)", {"q": f(1, 1, 2, 4), "k": f(1, 1, 3, 4), "v": f(1, 1, 3, 4), "m": np.array([[True, False, True]])}, {}),
    ("attention_scale_one", 23, "y = Attention <scale: float = 1.0> (q, k, v)", {"q": f(1, 2, 2, 4), "k": f(1, 2, 3, 4), "v": f(1, 2, 3, 4)}, {}),
    ("attention_past_longer_window", 25, "y = Attention <is_causal: int = 1, left_window_size: int = 1> (q, k, v, , pk, pv)",
     {"q": f(1, 1, 2, 2), "k": f(1, 1, 1, 2), "v": f(1, 1, 1, 2), "pk": f(1, 1, 3, 2), "pv": f(1, 1, 3, 2)}, {}),
    ("attention_nonpad_window", 25, "y = Attention <left_window_size: int = 1, right_window_size: int = 0> (q, k, v, , , , n)",
     {"q": f(2, 1, 2, 2), "k": f(2, 1, 4, 2), "v": f(2, 1, 4, 2), "n": ints(4, 3)}, {}),
    ("rotary_flat", 23, "y = RotaryEmbedding <num_heads: int = 2> (x, c, s)", {"x": f(1, 2, 8), "c": f(1, 2, 2), "s": f(1, 2, 2)}, {}),
    ("rotary_partial_interleaved", 23, "y = RotaryEmbedding <interleaved: int = 1, rotary_embedding_dim: int = 2> (x, c, s, p)",
     {"x": f(1, 2, 2, 4), "p": np.array([[1, 0]], L)}, {"c": f(3, 1), "s": f(3, 1)}),
    ("sdpa_by_hand", 18, "a = Transpose <perm: ints = [0,2,1]> (k) s = MatMul (q, a) t = Mul (s, c) u = Add (t, m) p = Softmax (u) y = MatMul (p, v)",
     {"q": f(2, 3, 4), "k": f(2, 3, 4), "v": f(2, 3, 4)}, {"c": np.array(0.5, F), "m": np.triu(np.full((3, 3), -1e9), 1).astype(F)}),
    # places
    ("gather_scalar_index", 13, "y = Gather <axis: int = 1> (x, i)", {"x": X34, "i": np.array(-1, L)}, {}),
    ("gather_2d_i32", 13, "y = Gather (x, i)", {"x": X34, "i": np.array([[0, 2], [1, 1]], I)}, {}),
    ("gather_constant_table", 13, "y = Gather (w, i)", {"i": ints(1, 0)}, {"w": X34}),
    ("gather_elements_axis_1", 13, "y = GatherElements <axis: int = -1> (x, i)", {"x": X23, "i": np.array([[0, -1], [1, 1]], L)}, {},
     {"y": np.take_along_axis(X23, np.array([[0, 2], [1, 1]]), 1)}),
    ("gather_nd_batch", 13, "y = GatherND <batch_dims: int = 1> (x, i)", {"x": X234, "i": np.array([[1], [2]], L)}, {}),
    ("scatter_nd_add", 18, 'y = ScatterND <reduction: string = "add"> (x, i, u)', {"x": X23, "i": np.array([[1], [1]], L), "u": f(2, 3)}, {}),
    ("scatter_elements_16", 16, "y = ScatterElements <axis: int = 1> (x, i, u)", {"x": X23, "i": np.array([[2], [0]], L), "u": f(2, 1)}, {}),
    ("tensor_scatter_no_index", 24, "y = TensorScatter (x, u)", {"x": f(2, 4, 2), "u": f(2, 2, 2)}, {}),
    ("topk_smallest", 11, "y, z = TopK <largest: int = 0, axis: int = 0> (x, k)", {"x": X34}, {"k": ints(2)}),
    # quantised
    ("quantize_scalar_no_zero", 13, "y = QuantizeLinear (x, s)", {"x": np.array([-1, 0.5, 1.5, 2.5, 300], F)}, {"s": np.array(1, F)}),
    ("quantize_i8", 13, "y = QuantizeLinear (x, s, z)", {"x": np.array([-300, -1.5, 0.5, 300], F)}, {"s": np.array(1, F), "z": np.array(2, np.int8)}),
    ("quantize_axis", 13, "y = QuantizeLinear <axis: int = 0> (x, s, z)", {"x": X23 * 10}, {"s": np.array([0.5, 2], F), "z": np.array([128, 3], U)}),
    ("dequantize_i32", 19, "y = DequantizeLinear (x, s)", {"x": np.array([100, -7], I)}, {"s": np.array(0.25, F)}),
    ("matmul_integer_no_zero", 13, "y = MatMulInteger (x, w)", {"x": np.array([[1, 2], [255, 4]], U), "w": np.array([[1, -2], [3, 4]], np.int8)}, {}),
    *bytes_by_a_constant(),
    # control
    ("if_computed", 16, """y = If (c) <then_branch = t () => (float[2,3] a) { a = Neg (x) }, else_branch = e () => (float[2,3] b) { b = Abs (x) }>""",
     {"c": np.array(False), "x": X23}, {}),
    ("if_constant", 16, """y = If (c) <then_branch = t () => (float[2,3] a) { a = Neg (x) }, else_branch = e () => (float b) { b = ReduceSum <keepdims: int = 0> (x) }>""",
     {"x": X23}, {"c": np.array(False)}),
    ("loop_of_a_known_length", 16, "y, z = Loop (n, c, x) <body = b (int64 i, bool c, float[2,3] a) => (bool d, float[2,3] e, float[2,3] f) { d = Identity (c) e = Add (a, a) f = Neg (a) }>",
     {"x": X23}, {"n": np.array(3, L), "c": np.array(True)}, {"y": X23 * 8, "z": np.stack([-X23, -2 * X23, -4 * X23])}),
    ("loop_of_no_rounds", 16, "y, z = Loop (n, c, x) <body = b (int64 i, bool c, float[2,3] a) => (bool d, float[2,3] e, float[3] f) { d = Identity (c) e = Add (a, a) f = Gather (a, i) }>",
     {"x": X23}, {"n": np.array(0, L), "c": np.array(True)}, {"y": X23, "z": np.zeros((0, 3), F)}),
    ("loop_not_begun", 16, "y, z = Loop (n, c, x) <body = b (int64 i, bool c, float[2,3] a) => (bool d, float[2,3] e, int64[2] f) { d = Identity (c) e = Add (a, a) f = Shape (a) }>",
     {"x": X23}, {"n": np.array(3, L), "c": np.array(False)}, {"y": X23, "z": np.zeros((0, 2), L)}),
    ("loop_of_no_rounds_bad_index", 16, "y, z = Loop (n, c, x) <body = b (int64 i, bool c, float[2,3] a) => (bool d, float[2,3] e, float[3] f) { d = Identity (c) e = Add (a, a) f = Gather (a, k) }>",
     {"x": X23, "k": np.array(9, L)}, {"n": np.array(0, L), "c": np.array(True)}, {"y": X23, "z": np.zeros((0, 3), F)}),
    ("scan_of_no_rounds", 16, """y, z = Scan <num_scan_inputs: int = 1, scan_input_axes: ints = [1], scan_output_axes: ints = [-1], body = b (float[2] s, float[2] a) => (float[2] t, double[2] f)
      { t = Add (s, a) f = Cast <to: int = 11> (t) }> (w, x)""",
     {"x": np.zeros((2, 0), F), "w": X23[:, 0]}, {}, {"y": X23[:, 0], "z": np.zeros((2, 0), D)}),
    # integer powers: no float holds the exponent
    ("pow_large_odd_i64", 15, "y = Pow (x, w)", {"x": np.array([-1, -1, -1, 1, -2, -0.5], F), "w": ints(2**24 + 1, 2**53 + 1, 2**53 + 2, 2**62 + 1, 3, -3)}, {},
     {"y": np.array([-1, -1, 1, 1, -8, -8], F)}),
    ("pow_large_odd_constant", 15, "y = Pow (x, w)", {"x": np.array([-1, 1, -1], F)}, {"w": ints(2**24 + 1, 2**53 + 1, -(2**53) - 1)}, {"y": np.array([-1, 1, -1], F)}),
    ("pow_i64_edges", 15, "y = Pow (x, w)", {"x": np.array([-0.0, -0.0, -np.inf, -np.inf, np.nan, 0, -np.inf], F), "w": ints(-1, -2, 3, 2, 0, 0, -3)}, {},
     {"y": np.array([-np.inf, np.inf, -np.inf, np.inf, 1, 1, 0], F)}),
    ("pow_f64_i64", 15, "y = Pow (x, w)", {"x": np.array([-1, -1.5], D), "w": ints(2**53 + 1, 3)}, {}, {"y": np.array([-1, -3.375], D)}),
    ("pow_i32", 15, "y = Pow (x, w)", {"x": np.array([-1, 1.5], F), "w": np.array([2**31 - 1, -2], I)}, {}, {"y": np.array([-1, 1 / 2.25], F)}),
    ("einsum_diagonals", 12, 'y = Einsum <equation: string = "iij->ji"> (x)', {"x": np.arange(12, dtype=F).reshape(2, 2, 3)}, {}),
    *[case for taken in (False, True) for case in untaken(taken)],
    ("topk_not_sorted", 11, "y, z = TopK <sorted: int = 0, axis: int = -1> (x, k)", {"x": X34}, {"k": ints(4)}, {"y": -np.sort(-X34, -1), "z": np.argsort(-X34, -1, kind="stable")}),
    ("conv_kernel_shape", 11, "y = Conv <kernel_shape: ints = [2]> (x, w)", {"x": X234[:, :2], "w": X234[:1, :2, :2]}, {}),
]  # fmt: skip

REFUSALS = [
    ("reshape_by_input", 13, "y = Reshape (x, s)", {"x": X23, "s": ints(6)}, {}, "its shape"),
    ("nonzero_of_input", 13, "y = NonZero (x)", {"x": X23}, {}, "takes all rows"),
    ("training_dropout", 13, "y = Dropout (x, r, t)", {"x": X23}, {"r": np.array(0.5, F), "t": np.array(True)}, "random"),
    ("unknown_operator", 13, "y = Hardmax (x)", {"x": X23}, {}, "operator is not supported"),
    ("gelu_of_old_opset", 13, "y = Gelu (x)", {"x": X23}, {}, "version of the operator"),
    ("add_u16", 14, "y = Add (x, x)", {"x": np.array([1, 2], np.uint16)}, {}, "dtype"),
    ("add_dtypes_differ", 14, "y = Add (x, w)", {"x": X23, "w": X23.astype(D)}, {}, "different dtypes"),
    ("matmul_inner_dims", 13, "y = MatMul (x, w)", {"x": X23, "w": X23}, {}, "inner dims differ"),
    ("add_no_broadcast", 14, "y = Add (x, w)", {"x": X23, "w": f(2)}, {}, "broadcast"),
    ("softmax_axis", 13, "y = Softmax <axis: int = 2> (x)", {"x": X23}, {}, "axis"),
    ("seven_dims", 13, "y = Unsqueeze (x, a)", {"x": f(1, 1, 1, 1, 1, 1)}, {"a": ints(0)}, "6 dims"),
    ("split_too_long", 13, "y, z = Split (x, s)", {"x": X23}, {"s": ints(1, 3)}, "longer than the dim"),
    ("cast_to_string", 13, "y = Cast <to: int = 8> (x)", {"x": X23}, {}, "ONNX type 8"),
    ("range_of_inputs", 11, "y = Range (s, s, s)", {"s": np.array(1, L)}, {}, "its start"),
    ("if_shapes_differ", 16, """y = If (c) <then_branch = t () => (float[2,3] a) { a = Neg (x) }, else_branch = e () => (float b) { b = ReduceSum <keepdims: int = 0> (x) }>""",
     {"c": np.array(False), "x": X23}, {}, "branches of different shapes"),
    ("einsum_i8", 12, 'y = Einsum <equation: string = "ij,ij->i"> (x, x)', {"x": np.ones((2, 3), np.int8)}, {}, "products of this dtype"),
    ("einsum_stray_dot", 12, 'y = Einsum <equation: string = "i.j->"> (x)', {"x": X23}, {}, "stray dot"),
    ("einsum_operands", 12, 'y = Einsum <equation: string = "ij,->ij"> (x)', {"x": X23}, {}, "number of operands"),
    ("einsum_output_twice", 12, 'y = Einsum <equation: string = "i->ii"> (x)', {"x": X23[0]}, {}, "a letter twice"),
    ("einsum_output_twice_of_two", 12, 'y = Einsum <equation: string = "ij,jk->iik"> (x, w)', {"x": X23, "w": X34}, {}, "a letter twice"),
    ("einsum_dots_twice", 12, 'y = Einsum <equation: string = "...i->...ii"> (x)', {"x": X23}, {}, "a letter twice"),
    ("conv_other_kernel_shape", 11, "y = Conv <kernel_shape: ints = [3]> (x, w)", {"x": X234[:, :2], "w": X234[:1, :2, :2]}, {}, "kernel_shape"),
    ("group_norm_stash_f16", 21, "y = GroupNormalization <num_groups: int = 1, stash_type: int = 10> (x, s, s)", {"x": X234}, {"s": np.ones(3, F)}, "stash_type"),
    ("constant_of_two", 13, "c = Constant <value_int: int = 1, value_float: float = 2.0> () y = Neg (x)", {"x": X23}, {}, "exactly one"),
    ("if_index_taken", 16, """y = If (c) <then_branch = t () => (float[4] a) { a = Gather (x, i) }, else_branch = e () => (float[4] b) { b = Gather (x, j) }>""",
     {"c": np.array(True), "x": X34, "i": np.array(7, L), "j": np.array(0, L)}, {}, "outside of dimension", {"y": X34[0]}),
    ("if_index_taken_else", 16, """y = If (c) <then_branch = t () => (float[4] a) { a = Gather (x, j) }, else_branch = e () => (float[4] b) { b = Gather (x, i) }>""",
     {"c": np.array(False), "x": X34, "i": np.array(-4, L), "j": np.array(0, L)}, {}, "outside of dimension", {"y": X34[0]}),
    ("if_index_taken_nested", 16, """y = If (c) <then_branch = t () => (float[4] a) { a = If (d) <then_branch = t2 () => (float[4] a2) { a2 = Gather (x, j) },
       else_branch = e2 () => (float[4] b2) { b2 = Gather (x, i) }> }, else_branch = e () => (float[4] b) { b = Gather (x, j) }>""",
     {"c": np.array(True), "d": np.array(False), "x": X34, "i": np.array(3, L), "j": np.array(0, L)}, {}, "outside of dimension", {"y": X34[0]}),
    # sizes that no machine has
    ("constant_of_shape_huge", 13, "z = ConstantOfShape (s) y = Neg (z)", {"x": X23}, {"s": ints(2**40, 2**40)}, "too large"),
    ("expand_huge", 13, "z = Expand (x, s) y = Neg (z)", {"x": np.array(1, F)}, {"s": ints(2**31, 2**31)}, "too large"),
    ("range_huge", 13, "y = Range (s, l, d)", {"x": X23}, {"s": np.array(0, L), "l": np.array(2**62, L), "d": np.array(1, L)}, "too large"),
    ("range_of_nan", 13, "y = Range (s, l, d)", {"x": X23}, {"s": np.array(0, F), "l": np.array(np.nan, F), "d": np.array(0, F)}, "delta is 0"),
    ("tile_huge", 13, "y = Tile (x, r)", {"x": X23}, {"r": ints(2**62, 2**61)}, "too large"),
    ("pad_edge_huge", 13, 'y = Pad <mode: string = "edge"> (x, p)', {"x": X23}, {"p": ints(0, 2**31, 0, 2**31)}, "beyond 2^24"),
    ("pad_constant_huge", 13, "y = Pad (x, p)", {"x": X23}, {"p": ints(0, 2**62, 0, 2**62)}, "too large"),
    ("pad_cuts_too_much", 13, "y = Pad (x, p)", {"x": X23}, {"p": ints(0, -(2**63), 0, 0)}, "more than there is"),
    ("one_hot_huge", 13, "y = OneHot (i, n, v)", {"i": ints(1)}, {"n": np.array(2**60, L), "v": np.array([0, 1], F)}, "too large"),
    ("reshape_huge", 14, "y = Reshape (x, s)", {"x": X23}, {"s": ints(2**62, 2**62, 4)}, "too large"),
    ("loop_of_many_rounds", 16, "y = Loop (n, , x) <body = b (int64 i, bool c, float[2,3] a) => (bool d, float[2,3] e) { d = Identity (c) e = Neg (a) }>",
     {"x": X23}, {"n": np.array(2**40, L)}, "1024 rounds"),
    ("loops_in_loops", 16, """y = Loop (n, , x) <body = b (int64 i, bool c, float[2,3] a) => (bool d, float[2,3] e) { d = Identity (c)
      e = Loop (n, , a) <body = b2 (int64 j, bool c2, float[2,3] a2) => (bool d2, float[2,3] e2) { d2 = Identity (c2) e2 = Neg (a2) }> }>""",
     {"x": X23}, {"n": np.array(1000, L)}, "8192 rounds"),
]  # fmt: skip


P = f(2, 3, 5, 6)
V = [f(3), f(3), f(3), np.abs(f(3)) + F(0.1)]
ROWS = softmax(X234.reshape(2, 12), 1).reshape(2, 3, 4)
T = f(2, 2, 3)
G, H, W53 = f(4), f(4), f(5, 3)


def spread_sum(x, w, step):
    """The transposed convolution along one place, stride 1: each element adds its kernel."""
    y = np.zeros((x.shape[0], w.shape[1], x.shape[2] + step * (w.shape[2] - 1)), F)
    for k in range(w.shape[2]):
        y[:, :, step * k : step * k + x.shape[2]] += np.einsum("nci,cm->nmi", x, w[:, :, k])
    return y


# weights of the three rows of 6 rows made of 3, halves of a pixel
W6 = np.array([[1, 0.75, 0.25, 0, 0, 0], [0, 0.25, 0.75, 0.75, 0.25, 0], [0, 0, 0, 0.25, 0.75, 1]], F)[:, None, :, None]
POOLING = [
    # files of opsets 7 to 12: lists that are attributes, softmax over all dims from the axis on
    ("softmax_of_old_opset", 11, "y = Softmax (x)", {"x": X234}, {}, {"y": ROWS}),
    ("softmax_of_old_opset_all", 9, "y = Softmax <axis: int = 0> (x)", {"x": X234}, {}, {"y": softmax(X234.reshape(1, 24), 1).reshape(2, 3, 4)}),
    ("softmax_of_old_opset_none", 9, "y = Softmax <axis: int = 3> (x)", {"x": X234}, {}, {"y": np.ones((2, 3, 4), F)}),
    ("log_softmax_of_old_opset", 12, "y = LogSoftmax <axis: int = -2> (x)", {"x": X234}, {}, {"y": np.log(softmax(X234.reshape(2, 12), 1)).reshape(2, 3, 4)}),
    ("clip_of_old_opset", 9, "y = Clip <min: float = 0.0, max: float = 0.5> (x)", {"x": X23}, {}, {"y": np.clip(X23, 0, F(0.5))}),
    ("clip_of_old_opset_below", 6, "y = Clip <max: float = 0.25> (x)", {"x": X23}, {}, {"y": np.minimum(X23, F(0.25))}),
    ("slice_of_old_opset", 9, "y = Slice <axes: ints = [1,2], starts: ints = [1,-3], ends: ints = [9,-1]> (x)", {"x": X234}, {}, {"y": X234[:, 1:, 1:3]}),
    ("slice_of_old_opset_first", 1, "y = Slice <starts: ints = [1], ends: ints = [2]> (x)", {"x": X234}, {}, {"y": X234[1:]}),
    ("pad_of_old_opset", 9, "y = Pad <pads: ints = [0,1,1,0], value: float = 2.5> (x)", {"x": X23}, {}, {"y": np.pad(X23, ((0, 1), (1, 0)), constant_values=2.5)}),
    ("topk_of_old_opset", 9, "y, z = TopK <k: int = 2> (x)", {"x": X23}, {}, {"y": -np.sort(-X23, 1)[:, :2], "z": np.argsort(-X23, 1)[:, :2]}),
    ("topk_of_opset_10", 10, "y, z = TopK (x, k)", {"x": X23}, {"k": ints(1)}, {"y": -np.sort(-X23, 1)[:, :1], "z": np.argsort(-X23, 1)[:, :1]}),
    ("pow_of_old_opset", 7, "y = Pow (x, e)", {"x": np.abs(X23)}, {"e": np.array(0.5, F)}, {"y": np.sqrt(np.abs(X23))}),
    ("conv_of_old_opset_pads", 9, "y = Conv <pads: ints = [1,1]> (x, w)", {"x": X234}, {"w": np.ones((1, 3, 3), F)},
     {"y": sum(np.pad(X234.sum(1), ((0, 0), (1, 1)))[:, i : i + 4] for i in range(3))[:, None]}),
    # pooling and normalisation by channels
    ("max_pool_pads_ceil", 12, "y = MaxPool <kernel_shape: ints = [3,2], pads: ints = [1,0,1,1], strides: ints = [2,2], ceil_mode: int = 1> (x)", {"x": P - 3}, {}),
    ("max_pool_1d_dilated", 10, "y = MaxPool <kernel_shape: ints = [2], dilations: ints = [2]> (x)", {"x": X234}, {}),
    ("max_pool_u8", 12, "y = MaxPool <kernel_shape: ints = [2], pads: ints = [1,1]> (x)", {"x": np.array([[[3, 0, 9]]], U)}, {}, {"y": np.array([[[3, 3, 9, 9]]], U)}),
    ("max_pool_i8", 12, "y = MaxPool <kernel_shape: ints = [2], pads: ints = [1,1]> (x)", {"x": np.array([[[-3, -9]]], np.int8)}, {}, {"y": np.array([[[-3, -3, -9]]], np.int8)}),
    ("average_pool_pads", 7, "y = AveragePool <kernel_shape: ints = [3,3], pads: ints = [1,1,1,1]> (x)", {"x": P}, {}),
    ("average_pool_count_pads", 11, "y = AveragePool <kernel_shape: ints = [3,3], pads: ints = [1,1,1,1], count_include_pad: int = 1> (x)", {"x": P}, {}),
    ("average_pool_ceil", 19, "y = AveragePool <kernel_shape: ints = [2], strides: ints = [2], ceil_mode: int = 1> (x)", {"x": X234[:, :, :3]}, {},
     {"y": np.stack([X234[:, :, :2].mean(2), X234[:, :, 2]], 2)}),
    ("average_pool_ceil_pads", 19, "y = AveragePool <kernel_shape: ints = [3], strides: ints = [2], pads: ints = [1,1], ceil_mode: int = 1, count_include_pad: int = 1> (x)", {"x": X234}, {},
     {"y": np.stack([X234[:, :, :2].sum(2) / 3, X234[:, :, 1:].sum(2) / 3, X234[:, :, 3] / 2], 2)}),
    ("average_pool_same", 7, 'y = AveragePool <auto_pad: string = "SAME_UPPER", kernel_shape: ints = [2,2], strides: ints = [2,2]> (x)', {"x": P[:1, :1, :3, :3]}, {},
     {"y": np.array([[P[0, 0, :2, :2].mean(), P[0, 0, :2, 2].mean()], [P[0, 0, 2, :2].mean(), P[0, 0, 2, 2]]], F)[None, None]}),
    ("global_average_pool", 9, "y = GlobalAveragePool (x)", {"x": P}, {}),
    ("global_max_pool_1d", 9, "y = GlobalMaxPool (x)", {"x": X234}, {}, {"y": X234.max(2, keepdims=True)}),
    ("batch_norm", 9, "y = BatchNormalization <epsilon: float = 0.01> (x, s, b, m, v)", {"x": P}, dict(zip("sbmv", V)),
     {"y": (P - V[2][:, None, None]) * (V[0] / np.sqrt(V[3] + F(0.01)))[:, None, None] + V[1][:, None, None]}),
    ("batch_norm_rows", 15, "y = BatchNormalization (x, s, b, m, v)", {"x": X23}, dict(zip("sbmv", V))),
    ("depth_to_space_crd", 11, 'y = DepthToSpace <blocksize: int = 2, mode: string = "CRD"> (x)', {"x": f(1, 8, 2, 3)}, {}),
    ("space_to_depth", 13, "y = SpaceToDepth <blocksize: int = 2> (x)", {"x": P[:, :, :4]}, {}),
    ("prelu_of_channels", 9, "y = PRelu (x, s)", {"x": P[:1]}, {"s": f(3, 1, 1)}),
    ("resize_of_opset_10", 10, "y = Resize (x, s)", {"x": X23}, {"s": np.array([2, 1.5], F)}, {"y": X23[[0, 0, 1, 1]][:, [0, 0, 1, 2]]}),
    ("upsample", 9, 'y = Upsample <mode: string = "nearest"> (x, s)', {"x": X23}, {"s": np.array([1, 2], F)}, {"y": X23.repeat(2, 1)}),
    ("resize_axes_sizes", 18, 'y = Resize <axes: ints = [1], mode: string = "linear"> (x, , , n)', {"x": X234}, {"n": ints(6)}, {"y": X234[:, 0:1] * W6[0] + X234[:, 1:2] * W6[1] + X234[:, 2:3] * W6[2]}),
    ("resize_u8", 13, "y = Resize (x, , s)", {"x": np.array([[1, 200]], U)}, {"s": np.array([1, 2], F)}, {"y": np.array([[1, 1, 200, 200]], U)}),
    ("resize_u8_linear", 13, 'y = Resize <mode: string = "linear"> (x, , s)', {"x": np.array([[1, 200]], U)}, {"s": np.array([1, 2], F)}, "integers"),
    ("resize_huge", 13, "y = Resize (x, , s)", {"x": X23}, {"s": np.array([1, 1e9], F)}, "too large"),
    ("conv_transpose_1d", 11, "y = ConvTranspose <strides: ints = [2], pads: ints = [1,0], output_padding: ints = [1]> (x, w, b)", {"x": X234[:, :2]}, {"w": T, "b": f(2)}),
    ("conv_transpose_groups", 11, "y = ConvTranspose <group: int = 2, dilations: ints = [2]> (x, w)", {"x": X234[:, :2]}, {"w": T},
     {"y": np.concatenate([spread_sum(X234[:, i : i + 1], T[i : i + 1], 2) for i in range(2)], 1)}),
    ("conv_transpose_cut", 11, "y = ConvTranspose <output_shape: ints = [3]> (x, w)", {"x": X234[:, :2]}, {"w": T}, {"y": spread_sum(X234[:, :2], T, 1)[:, :, 2:5]}),
    ("conv_transpose_channels", 11, "y = ConvTranspose (x, w)", {"x": X234}, {"w": T}, "channels"),
    # what ONNX Runtime's optimiser writes
    ("contrib_gelu", 17, "y = com.microsoft.Gelu (x)", {"x": X23}, {}, {"y": gelu(X23)}),
    ("contrib_bias_gelu", 17, "y = com.microsoft.BiasGelu (x, b)", {"x": X234}, {"b": G}, {"y": gelu(X234 + G)}),
    ("contrib_fast_gelu", 17, "y = com.microsoft.FastGelu (x, b)", {"x": X234}, {"b": G},
     {"y": ((X234 + G) * (1 + np.tanh(np.sqrt(2 / np.pi) * ((X234 + G) + 0.044715 * (X234 + G) ** 3))) / 2).astype(F)}),
    ("contrib_quick_gelu", 17, "y = com.microsoft.QuickGelu <alpha: float = 1.5> (x)", {"x": X23}, {}, {"y": (X23 / (1 + np.exp(-1.5 * X23))).astype(F)}),
    ("contrib_matmul", 17, "y = com.microsoft.FusedMatMul <alpha: float = 0.5, transA: int = 1, transB: int = 1> (x, w)", {"x": X234}, {"w": W53}, {"y": 0.5 * X234.transpose(0, 2, 1) @ W53.T}),
    ("contrib_conv_sum", 17, 'y = com.microsoft.FusedConv <activation: string = "Relu"> (x, w, , z)', {"x": X234, "z": X234[:, :1]}, {"w": np.ones((1, 3, 1), F)},
     {"y": np.maximum(X234.sum(1, keepdims=True) + X234[:, :1], 0)}),
    ("contrib_conv_alone", 17, "y = com.microsoft.FusedConv (x, w)", {"x": X234}, {"w": np.ones((1, 3, 1), F)}, {"y": X234.sum(1, keepdims=True)}),
    ("contrib_skip_norm", 17, "y, , , z = com.microsoft.SkipLayerNormalization <epsilon: float = 0.01> (x, s, g, h, b)", {"x": X234, "s": -X234[:, ::-1]}, {"g": G, "h": H, "b": G},
     {"y": (layer_norm(X234 - X234[:, ::-1] + G, 0.01) * G + H).astype(F), "z": X234 - X234[:, ::-1] + G}),
    ("contrib_skip_rms", 14, "y = com.microsoft.SkipSimplifiedLayerNormalization (x, x, g)", {"x": X234}, {"g": G},
     {"y": (2 * X234 / np.sqrt(((2 * X234) ** 2).mean(-1, keepdims=True) + 1e-12) * G).astype(F)}),
    ("layer_norm_of_old_opset", 14, "y = LayerNormalization (x, g, h)", {"x": X234}, {"g": G, "h": H}, {"y": (layer_norm(X234, 1e-5) * G + H).astype(F)}),
    ("simplified_layer_norm", 14, "y = SimplifiedLayerNormalization (x, g)", {"x": X234}, {"g": G},
     {"y": (X234 / np.sqrt((X234**2).mean(-1, keepdims=True) + 1e-5) * G).astype(F)}),
    ("contrib_batches_turned", 17, "y = com.microsoft.FusedMatMul <transBatchA: int = 1> (x, w)", {"x": X234}, {"w": f(4, 3)}, "transBatchA"),
    ("contrib_conv_clip", 17, 'y = com.microsoft.FusedConv <activation: string = "Clip", activation_params: floats = [0.0, 1.5]> (x, w)', {"x": X234}, {"w": np.ones((1, 3, 1), F)},
     {"y": np.clip(X234.sum(1, keepdims=True), 0, F(1.5))}),
    ("contrib_conv_unknown", 17, 'y = com.microsoft.FusedConv <activation: string = "Elu"> (x, w)', {"x": X234}, {"w": np.ones((1, 3, 1), F)}, "activation"),
    ("contrib_norm_mean", 17, "y, z = com.microsoft.SkipLayerNormalization (x, x, g)", {"x": X234}, {"g": G}, "mean"),
    ("contrib_unknown", 17, "y = com.microsoft.Inverse (x)", {"x": X34}, {}, "this operator of the domain com.microsoft"),
    # what a review found
    ("matmul_i64_beyond_i32", 13, "y = MatMul (x, w)", {"x": np.array([[3]], L), "w": np.array([[2**32 - 1]], L)}, {}),
    ("matmul_i64_below_i32", 13, "y = MatMul (x, w)", {"x": np.array([[-(2**32)]], L), "w": np.array([[5, -(2**31) - 1]], L)}, {}),
    ("matmul_i32_by_constant", 13, "y = MatMul (x, w)", {"x": np.array([[3, -70000]], I)}, {"w": np.array([[2], [30000]], I)}),
    ("average_pool_hostile", 12, "y = AveragePool <kernel_shape: ints = [2147483647], pads: ints = [2147483646,2147483646]> (x)", {"x": X234[:0]}, {}, "windows"),
    ("batch_norm_of_one_channel", 15, "y = BatchNormalization (x, s, b, m, v)", {"x": G}, {k: a[:1] for k, a in zip("sbmv", V)},
     {"y": (G - V[2][0]) * (V[0][0] / np.sqrt(V[3][0] + F(1e-5))) + V[1][0]}),
    ("resize_of_opset_10_smaller", 10, "y = Resize (x, s)", {"x": np.arange(5, dtype=F)}, {"s": np.array([0.7], F)}, {"y": np.array([0, 2, 3], F)}),
    ("shrink_of_i32", 9, "y = Shrink (x)", {"x": np.array([1], I)}, {}, "integers"),
    ("space_to_depth_huge", 13, "y = SpaceToDepth <blocksize: int = 2147483647> (x)", {"x": np.zeros((1, 9, 0, 0), F)}, {}, "blocksize"),
    ("max_pool_4d", 12, "y = MaxPool <kernel_shape: ints = [1,1,1,1]> (x)", {"x": f(1, 1, 2, 2, 2, 1)}, {}, "three places"),
    ("max_pool_kernel_shape", 12, "y = MaxPool <kernel_shape: ints = [2,2]> (x)", {"x": X234}, {}, "kernel_shape"),
    ("batch_norm_of_training", 15, "y = BatchNormalization <training_mode: int = 1> (x, s, b, m, v)", {"x": P}, dict(zip("sbmv", V)),
     {"y": (layer_norm(P.swapaxes(0, 1).reshape(3, -1), 1e-5) * V[0][:, None] + V[1][:, None]).reshape(3, 2, 5, 6).swapaxes(0, 1).astype(F)}),
    ("batch_norm_of_old_training", 9, "y, m2, z = BatchNormalization <momentum: float = 0.75> (x, s, b, m, v)", {"x": P}, dict(zip("sbmv", V)),
     {"y": (layer_norm(P.swapaxes(0, 1).reshape(3, -1), 1e-5) * V[0][:, None] + V[1][:, None]).reshape(3, 2, 5, 6).swapaxes(0, 1).astype(F),
      "z": (F(0.75) * V[3] + F(0.25) * P.var((0, 2, 3))).astype(F)}),
    ("batch_norm_of_two_channels", 15, "y = BatchNormalization (x, s, b, m, v)", {"x": X34}, dict(zip("sbmv", V)), "channels"),
    ("depth_to_space_uneven", 11, "y = DepthToSpace <blocksize: int = 2> (x)", {"x": P}, {}, "blocksize"),
    ("slice_without_starts", 10, "y = Slice <starts: ints = [1], ends: ints = [2]> (x)", {"x": X23}, {}, "Slice"),
]  # fmt: skip


def as_pairs(z):
    return np.stack([z.real, z.imag], -1).astype(F)


def pictures():
    """Windows over three places, and pictures read at computed places."""
    r = np.random.default_rng(33)

    def f(*shape):
        return np.round(r.uniform(-2, 2, shape), 3).astype(F)

    P, V3, K3 = f(2, 3, 5, 6), f(2, 2, 2, 3, 3), f(3, 2, 2, 2, 2)
    GRID = np.round(r.uniform(-1.6, 1.6, (2, 2, 3, 2)), 2).astype(F)
    ROIS = np.array([[0, 1, 9, 8], [4, -3, 6, 12.5]], F)
    yield from (
    ("resize_antialias", 18, 'y = Resize <mode: string = "linear", antialias: int = 1> (x, , s)', {"x": X34}, {"s": np.array([1, 0.5], F)}, {"y": X34 @ np.array([[4, 0], [3, 1], [1, 3], [0, 4]], F) / 8}),
    ("resize_corners_of_scales", 13, 'y = Resize <mode: string = "linear", coordinate_transformation_mode: string = "align_corners"> (x, , s)', {"x": X34}, {"s": np.array([1, 0.6], F)},
     {"y": X34[:, [0, 3]]}),
    ("resize_crop", 13, 'y = Resize <mode: string = "linear", coordinate_transformation_mode: string = "tf_crop_and_resize", extrapolation_value: float = 9.0> (x, r, , n)', {"x": X34},
     {"r": np.array([0, -1 / 3, 1, 1], F), "n": ints(3, 3)}, {"y": np.stack([np.full(3, 9, F), X34[:, 1], X34[:, 3]], 1)}),
    ("resize_crop_of_scales", 13, 'y = Resize <mode: string = "linear", coordinate_transformation_mode: string = "tf_crop_and_resize"> (x, r, s)', {"x": X34},
     {"r": np.array([0, 0, 1, 1 / 3], F), "s": np.array([1, 0.75], F)}, {"y": np.stack([X34[:, 0], (X34[:, 0] + X34[:, 1]) / 2, X34[:, 1]], 1)}),
    ("resize_not_larger", 18, 'y = Resize <keep_aspect_ratio_policy: string = "not_larger"> (x, , , n)', {"x": X23}, {"n": ints(4, 9)}, {"y": X23.repeat(2, 0).repeat(2, 1)}),
    ("upsample_of_opset_7", 7, 'y = Upsample <scales: floats = [1.0, 2.0]> (x)', {"x": X23}, {}, {"y": X23.repeat(2, 1)}),
    ("max_pool_indices", 12, "y, z = MaxPool <kernel_shape: ints = [3,2], pads: ints = [1,0,1,1], strides: ints = [2,2]> (x)", {"x": P}, {}),
    ("max_pool_indices_3d", 12, "y, z = MaxPool <kernel_shape: ints = [1,1,1]> (x)", {"x": V3}, {}, "Indices"),
    ("max_pool_3d", 12, "y = MaxPool <kernel_shape: ints = [2,2,1], pads: ints = [1,0,0,0,0,0], strides: ints = [1,2,1]> (x)", {"x": V3}, {}),
    ("average_pool_3d", 11, "y = AveragePool <kernel_shape: ints = [2,2,2], pads: ints = [1,0,0,0,0,0], count_include_pad: int = 1> (x)", {"x": V3}, {},
     {"y": sum(np.pad(V3, ((0, 0), (0, 0), (1, 0), (0, 0), (0, 0)))[:, :, i : i + 2, j : j + 2, k : k + 2] for i in (0, 1) for j in (0, 1) for k in (0, 1)) / 8}),
    ("conv_3d", 11, "y = Conv <pads: ints = [1,0,0,0,1,0], strides: ints = [2,1,1], dilations: ints = [1,1,2]> (x, w, b)", {"x": V3}, {"w": K3, "b": f(3)}),
    ("conv_3d_groups", 11, "y = Conv <group: int = 2> (x, w)", {"x": V3}, {"w": f(4, 1, 2, 1, 2)}),
    ("conv_transpose_3d", 11, "y = ConvTranspose <strides: ints = [2,1,1]> (x, w)", {"x": V3}, {"w": np.ones((2, 1, 2, 1, 1), F)}, {"y": V3.sum(1, keepdims=True).repeat(2, 2)}),
    # pictures at computed places
    ("grid_sample_outside", 20, 'y = GridSample (x, g)', {"x": P[:, :, :3, :4], "g": GRID}, {}),
    ("grid_sample_mirrors", 20, 'y = GridSample <mode: string = "cubic", padding_mode: string = "reflection"> (x, g)', {"x": P[:, :, :3, :4], "g": GRID}, {}),
    ("grid_sample_corners", 20, 'y = GridSample <mode: string = "nearest", padding_mode: string = "border", align_corners: int = 1> (x, g)', {"x": P[:, :, :3, :4], "g": GRID}, {}),
    ("grid_sample_3d", 20, "y = GridSample (x, g)", {"x": V3[:1], "g": np.round(rng.uniform(-1.2, 1.2, (1, 2, 1, 2, 3)), 2).astype(F)}, {}),
    ("grid_sample_beyond_inf", 20, "y = GridSample (x, g)", {"x": np.array([[[[np.inf, 2]]]], F), "g": np.array([[[[-2.5, 0], [1.2, 0]]]], F)}, {}),
    ("affine_grid", 20, "y = AffineGrid (t, n)", {"t": f(2, 2, 3)}, {"n": ints(2, 1, 2, 3)}),
    ("roi_align", 16, "y = RoiAlign <output_height: int = 2, output_width: int = 3, sampling_ratio: int = 2, spatial_scale: float = 0.5> (x, r, i)", {"x": P, "r": ROIS, "i": ints(0, 1)}, {}),
    ("roi_align_samples_by_size", 16, "y = RoiAlign (x, r, i)", {"x": P, "r": ROIS, "i": ints(0, 1)}, {}, "sampling_ratio 0"),
    ("deform_conv", 19, "y = DeformConv <pads: ints = [0,1,0,0]> (x, w, o, b, m)", {"x": P[:1, :2, :3, :3], "o": f(1, 8, 2, 3), "m": f(1, 4, 2, 3)}, {"w": f(2, 2, 2, 2), "b": f(2)}),
    ("max_unpool", 11, "y = MaxUnpool <kernel_shape: ints = [2], strides: ints = [2]> (x, i)", {"x": X23[None], "i": np.array([[[1, 2, 5], [6, 9, 10]]], L)}, {}),
    ("col2im", 18, "y = Col2Im <pads: ints = [0,1,0,1], strides: ints = [1,2]> (x, n, k)", {"x": f(1, 8, 6)}, {"n": ints(3, 4), "k": ints(2, 2)}),
    ("lp_pool", 18, "y = LpPool <kernel_shape: ints = [2,2], p: int = 3> (x)", {"x": P[:1]}, {}),
    ("lrn", 13, "y = LRN <size: int = 3, alpha: float = 0.1> (x)", {"x": P}, {},
     {"y": P / (1 + F(0.1 / 3) * sum(np.pad(P, ((0, 0), (1, 1), (0, 0), (0, 0)))[:, i : i + 3] ** 2 for i in range(3))) ** F(0.75)}),
    ("dft_one_side", 20, "y = DFT <onesided: int = 1> (x, n, a)", {"x": P[0, :, :, :, None]}, {"n": np.array(4, L), "a": np.array(1, L)}),
    ("dft_inverse", 17, "y = DFT <axis: int = 0, inverse: int = 1> (x)", {"x": P[0, 0, :, :2]}, {}, {"y": as_pairs(np.fft.ifft(P[0, 0, :, 0] + 1j * P[0, 0, :, 1]))}),
    ("eye_like", 9, "y = EyeLike <k: int = -1, dtype: int = 7> (x)", {"x": X34}, {}, {"y": np.eye(3, 4, -1, dtype=L)}),
    ("center_crop_pad", 18, "y = CenterCropPad (x, n)", {"x": X34}, {"n": ints(5, 1)}, {"y": np.pad(X34[:, 1:2], ((1, 1), (0, 0)))}),
    ("bitwise", 18, "a = BitwiseAnd (x, y) b = BitwiseNot (x) z = BitwiseXor (a, b)", {"x": np.array([12, -7], I), "y": np.array([10, 3], I)}, {}),
    ("scatter_of_opset_10", 10, "y = Scatter <axis: int = 1> (x, i, u)", {"x": X23, "i": ints(2, 0).reshape(2, 1), "u": np.array([[8], [9]], F)}, {}, {"y": np.array([[*X23[0, :2], 8], [9, *X23[1, 1:]]], F)}),
    )


def sequences():
    """Sequences of tensors, and tensors of more than six dims between two reshapes."""
    r = np.random.default_rng(61)

    def some(*shape):
        return np.round(r.uniform(-2, 2, shape), 3).astype(F)

    x, w = some(2, 5), some(2, 3)
    three = "s = SequenceConstruct (x, w, x)"
    yield ("sequence_at", 11, f"{three} y = SequenceAt (s, i) z = SequenceLength (s)", {"x": x, "w": w}, {"i": np.array(-2, L)})
    yield ("sequence_insert", 11, "e = SequenceEmpty () s = SequenceInsert (e, x) t = SequenceInsert (s, w, i) u = SequenceErase (t, j) y = ConcatFromSequence <axis: int = 1> (t) z = SequenceAt (u, i)",
           {"x": x, "w": w}, {"i": np.array(0, L), "j": np.array(1, I)})
    yield ("sequence_erase_last", 11, f"{three} t = SequenceErase (s) y = ConcatFromSequence <axis: int = -1> (t)", {"x": x, "w": w}, {})
    yield ("sequence_stack", 11, "s = SequenceConstruct (x, x) y = ConcatFromSequence <axis: int = 1, new_axis: int = 1> (s)", {"x": x}, {})
    yield ("sequence_of_one", 11, "s = SequenceConstruct (x) y = ConcatFromSequence <axis: int = -1, new_axis: int = 1> (s)", {"x": x}, {})
    yield ("sequence_split", 11, "s = SplitToSequence <axis: int = 1> (x, n) y = SequenceAt (s, i) z = SequenceLength (s)", {"x": x}, {"n": np.array(2, L), "i": np.array(2, L)})
    yield ("sequence_split_lengths", 11, "s = SplitToSequence <axis: int = -1> (x, n) y = SequenceAt (s, i)", {"x": x}, {"n": ints(1, 4), "i": np.array(-1, L)})
    yield ("sequence_split_ones", 11, "s = SplitToSequence <axis: int = 1, keepdims: int = 0> (x) y = SequenceAt (s, i)", {"x": x}, {"i": np.array(3, L)})
    yield ("sequence_of_a_loop", 16, "e = SequenceEmpty () s = Loop (n, c, e) <body = b (i, k, a) => (m, t) { m = Identity (k) g = Gather (x, i) t = SequenceInsert (a, g) }> "
           "u = Identity (s) y = ConcatFromSequence <axis: int = 0, new_axis: int = 1> (u)", {"x": x}, {"n": np.array(2, L), "c": np.array(True)}, {"y": x})
    yield ("sequence_beyond", 11, f"{three} y = SequenceAt (s, i)", {"x": x, "w": w}, {"i": np.array(3, L)}, "its position is beyond the sequence")
    yield ("sequence_differs", 11, f"{three} y = ConcatFromSequence <axis: int = 0> (s)", {"x": x, "w": w}, {}, "its parts differ in a dim that is not joined")
    yield ("sequence_as_a_tensor", 11, f"{three} y = Relu (s)", {"x": x, "w": w}, {}, "its input 0 is a sequence")
    yield ("sequence_as_an_output", 11, f"{three} y = Identity (s)", {"x": x, "w": w}, {}, "it is a sequence, or has more than 6 dims")
    yield ("sequence_by_a_condition", 16, "y = If (c) <then_branch = t () => (a) { a = SequenceConstruct (x) }, else_branch = e () => (b) { b = SequenceConstruct (x, x) }>",
           {"x": x, "c": np.array(True)}, {}, "a branch or body gives a sequence")
    p = some(2, 4, 6, 8, 3)
    window = {"n": ints(2, 2, 2, 3, 2, 4, 2, 3), "m": ints(-1, 12, 3)}
    yield ("deep_windows", 13, "a = Reshape (x, n) t = Transpose <perm: ints = [0,1,3,5,2,4,6,7]> (a) y = Reshape (t, m) z = Shape (t)", {"x": p}, window)
    yield ("deep_all_turned", 13, "a = Reshape (x, n) t = Transpose (a) u = Transpose <perm: ints = [7,3,1,5,0,4,6,2]> (t) y = Reshape (u, m)", {"x": p}, window)
    yield ("deep_of_a_view", 13, "q = Transpose <perm: ints = [1,0,3,2,4]> (x) a = Reshape (q, n) t = Transpose <perm: ints = [6,4,2,0,7,5,3,1]> (a) y = Reshape (t, m)", {"x": p},
           {"n": ints(2, 2, 2, 4, 2, 3, 2, 3), "m": ints(36, 32)})
    yield ("deep_ones", 13, "a = Unsqueeze (x, n) t = Transpose <perm: ints = [6,1,2,0,4,3,5]> (a) u = Squeeze (t) y = Relu (u)", {"x": p}, {"n": ints(1, 3)})
    yield ("deep_sum", 13, "a = Reshape (x, n) b = Reshape (w, k) c = Add (a, b) d = Mul (e, c) t = Transpose <perm: ints = [7,6,5,4,3,2,1,0]> (d) y = Reshape (t, m)",
           {"x": p, "w": some(2, 2, 4)}, {**window, "k": ints(2, 2, 1, 1, 1, 4, 1, 1), "e": np.array(0.5, F)})
    yield ("deep_sum_of_turned", 13, "a = Reshape (x, n) t = Transpose <perm: ints = [0,1,3,2,4,5,7,6]> (a) b = Reshape (w, k) c = Sub (b, t) y = Reshape (c, m)",
           {"x": p, "w": some(3, 2)}, {**window, "k": ints(1, 1, 3, 1, 1, 1, 1, 2)})
    yield ("deep_zero_keeps", 13, "a = Reshape (x, n) y = Reshape (a, k)", {"x": p}, {"n": window["n"], "k": ints(0, 0, 6, -1)})
    yield ("deep_product", 13, "a = Reshape (x, n) y = MatMul (a, a)", {"x": p}, window, "its input 0 has 8 dims, at most 6 are supported")
    yield ("deep_output", 13, "y = Reshape (x, n)", {"x": p}, window, "it is a sequence, or has more than 6 dims")
    yield ("deep_apart", 13, "a = Reshape (x, n) b = Reshape (w, k) c = Add (a, b) y = Reshape (c, m)", {"x": p, "w": some(32)},
           {**window, "n": ints(2, 2, 2, 3, 2, 2, 4, 3), "k": ints(2, 1, 2, 1, 2, 1, 4, 1)}, "more than 6 dims that cannot be joined")
    yield ("deep_wrong_size", 13, "a = Reshape (x, n) y = Reshape (a, m)", {"x": p}, {**window, "m": ints(5, 5)}, "a reshape changes the number of elements")
    yield ("no_updates", 16, "u = Expand (e, n) y = ScatterND (d, i, u)", {"x": x}, {"e": np.zeros(1, L), "n": ints(0, 5), "d": np.arange(10, dtype=L).reshape(2, 5), "i": np.zeros((0, 1), L)})


def typed(name, array):
    kind = {F: "float", D: "double", I: "int32", L: "int64", U: "uint8", np.int8: "int8", np.float16: "float16", np.uint16: "uint16", np.bool_: "bool"}[array.dtype.type]
    return f"{kind}[{','.join(map(str, array.shape))}] {name}" if array.ndim else f"{kind} {name}"


def model_of(name, opset, nodes, inputs, constants, outputs):
    ports = ", ".join(typed(key, value) for key, value in inputs.items())
    results = ", ".join(typed(key, value) for key, value in outputs.items())
    contrib = ', "com.microsoft" : 1' if "com.microsoft" in nodes else ""
    text = f'<ir_version: 10, opset_import: ["" : {opset}{contrib}]> {name} ({ports}) => ({results}) {{ {nodes} }}'
    model = parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), key) for key, value in constants.items())
    return model


def write(path, cases):
    """Writes the cases with the results that the reference gives."""
    texts = []
    for name, opset, nodes, inputs, constants, *more in cases:
        issue = [text for text in more if isinstance(text, str)]
        known = [results for results in more if isinstance(results, dict)]
        names = [key for key in ("y", "z") if f"{key} = " in nodes or f"{key}, z = " in nodes or f", {key} = " in nodes]
        outputs = {key: np.zeros(1, F) for key in names}
        if not issue:
            model = model_of(name, opset, nodes, inputs, constants, outputs)
            try:
                results = ReferenceEvaluator(model).run(names, {k: np.asarray(value) for k, value in inputs.items()})
            except Exception as error:
                if not known:
                    raise SystemExit(f"{name}: {error!r}: the case needs its results beside it") from error
            outputs = known[0] if known else {key: np.asarray(value) for key, value in zip(names, results)}
        elif known:  # it is refused in the run
            outputs = known[0]
        model = model_of(name, opset, nodes, inputs, constants, outputs)
        fed = [numpy_helper.from_array(np.asarray(value), key) for key, value in inputs.items()]
        wanted = [] if issue and not known else [numpy_helper.from_array(value, key) for key, value in outputs.items()]
        texts.append(text_case(name, model, fed, wanted, 1e-5, 1e-6, *issue))
    pathlib.Path(path).write_text(joined(texts))
    print(f"wrote {len(texts)} cases")


if __name__ == "__main__":
    write(sys.argv[1], CASES + REFUSALS + POOLING + [*pictures(), *contrib(), *stays_quantised(), *bytes_of_operators(), *sequences()])
