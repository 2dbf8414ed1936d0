# SPDX-License-Identifier: MIT
"""Cases that lower_cases.py writes into lower.txt: what the tools of ONNX Runtime write, and operators over bytes and quantised
constants. A row is that of lower_cases.py. The functions that compute what is expected serve both files."""
import math

import numpy as np

F, D, I, L, U, B = np.float32, np.float64, np.int32, np.int64, np.uint8, bool


def ints(*values):
    return np.array(values, L)


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def erf(x):
    return np.vectorize(math.erf)(x)


def gelu(x):
    return (x * (1 + erf(x / np.sqrt(2))) / 2).astype(F)


def layer_norm(x, eps):
    away = x - x.mean(-1, keepdims=True)
    return away / np.sqrt((away**2).mean(-1, keepdims=True) + eps)


def bytes_by_a_constant():
    """Products of bytes whose second matrix is a constant: zero points absent, of one number, of rows, of columns, known or not."""
    r = np.random.default_rng(11)
    for x_type, w_type in ((U, U), (U, np.int8), (np.int8, U), (np.int8, np.int8)):
        def whole(dtype, *shape):
            return r.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)
        name, x, w = f"matmul_integer_{np.dtype(x_type)}_{np.dtype(w_type)}", whole(x_type, 5, 19), whole(w_type, 19, 18)
        usual = np.array(128 if w_type is U else 0, w_type)
        yield (f"{name}_no_zero", 13, "y = MatMulInteger (x, w)", {"x": x}, {"w": w})
        yield (f"{name}_zeros", 13, "y = MatMulInteger (x, w, zx, zw)", {"x": x, "zx": whole(x_type)}, {"w": w, "zw": usual})
        yield (f"{name}_known", 13, "y = MatMulInteger (x, w, zx, zw)", {"x": x}, {"w": w, "zx": whole(x_type), "zw": whole(w_type)})
        rows, columns = whole(x_type, 5), whole(w_type, 18)
        yield (f"{name}_rows", 13, "y = MatMulInteger (x, w, zx, zw)", {"x": x, "zx": rows, "zw": columns}, {"w": w},
               {"y": (x.astype(I) - rows[:, None]) @ (w.astype(I) - columns)})
        yield (f"{name}_batch", 13, "y = MatMulInteger (x, w, zx)", {"x": whole(x_type, 2, 3, 19), "zx": whole(x_type, 1)}, {"w": w})
        scales = {"sx": np.array(0.01, F), "sw": np.array(0.02, F), "sy": np.array(1.5, F), "zy": np.array(3, U)}
        yield (f"{name}_qlinear", 10, "y = QLinearMatMul (x, sx, zx, w, sw, zw, sy, zy)", {"x": x}, {"w": w, "zx": whole(x_type), "zw": whole(w_type), **scales})


def attention_of(q, k, v, more=0.0):
    """Q, K, V [B,H,S,D] as [B,S,H E]; more: added to the scores."""
    y = softmax(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3]) + more, 3) @ v
    return y.swapaxes(1, 2).reshape(y.shape[0], y.shape[2], -1).astype(F)


def contrib():
    """What the tools of ONNX Runtime write for transformers and diffusion models."""
    r = np.random.default_rng(34)

    def f(*shape):
        return np.round(r.uniform(-2, 2, shape), 3).astype(F)

    def heads(x, n=2):
        return x.reshape(*x.shape[:2], n, -1).swapaxes(1, 2)

    x, w, b, past, bias = f(2, 3, 4), f(4, 18), f(18), f(2, 2, 2, 1, 3), f(1, 2, 3, 3)
    mask = np.array([[1, 1, 0], [1, 0, 0]], I)
    all_ = x @ w + b
    q, k, v = heads(all_[..., :6]), heads(all_[..., 6:12]), heads(all_[..., 12:])
    ms = "com.microsoft."
    node = f"{ms}Attention <num_heads: int = 2"
    yield ("contrib_attention", 17, f"y = {node}> (x, w, b)", {"x": x}, {"w": w, "b": b}, {"y": attention_of(q, k, v)})
    yield ("contrib_attention_mask", 17, f"y = {node}, scale: float = 0.5> (x, w, b, m, , a)", {"x": x, "m": mask, "a": bias}, {"w": w, "b": b},
           {"y": attention_of(q * F(0.5 * np.sqrt(3)), k, v, (mask[:, None, None] - 1) * 10000.0 + bias)})
    yield ("contrib_attention_lengths", 17, f"y = {node}, mask_filter_value: float = -5.0> (x, w, b, m)", {"x": x, "m": np.array([2, 1], I)}, {"w": w, "b": b},
           {"y": attention_of(q, k, v, (mask[:, None, None] - 1) * 5.0)})
    keys, values = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    yield ("contrib_attention_past", 17, f"y, z = {node}, unidirectional: int = 1> (x, w, b, , p)", {"x": x, "p": past}, {"w": w, "b": b},
           {"y": attention_of(q, keys, values, np.triu(np.full((3, 4), -np.inf), 2)), "z": np.stack([keys, values])})
    yield ("contrib_attention_mask_shape", 17, f"y = {node}> (x, w, b, m)", {"x": x, "m": np.ones(8, I)}, {"w": w, "b": b}, "a mask of another shape")
    yield ("contrib_attention_rotary", 17, f"y = {node}, do_rotary: int = 1> (x, w, b)", {"x": x}, {"w": w, "b": b}, "do_rotary")
    kv, vv, b16 = f(2, 5, 6), f(2, 5, 4), f(16)
    far = np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]], I)
    six = f(2, 3, 6)
    many = f"{ms}MultiHeadAttention <num_heads: int = 2> "
    yield ("contrib_heads", 17, f"y = {many}(q, k, v, b, m)", {"q": six, "k": kv, "v": vv, "m": far}, {"b": b16},
           {"y": attention_of(heads(six + b16[:6]), heads(kv + b16[6:12]), heads(vv + b16[12:]), (far[:, None, None] - 1) * 10000.0)})
    yield ("contrib_heads_unidirectional", 17, f"y = {ms}MultiHeadAttention <num_heads: int = 2, unidirectional: int = 1> (q, k, v)", {"q": six, "k": kv, "v": vv}, {}, "unidirectional")
    packed = f(2, 3, 2, 3, 4)
    yield ("contrib_heads_packed", 17, f"y = {many}(q)", {"q": packed}, {}, {"y": attention_of(*(packed[:, :, :, i].swapaxes(1, 2) for i in range(3)))})
    words, places, kinds, g, h = f(7, 4), f(5, 4), f(2, 4), f(4), f(4)
    ids, kind = np.array([[1, 6, 3], [0, 2, 2]], I), np.array([[0, 0, 1], [1, 1, 1]], I)
    embedded = words[ids] + places[:3] + kinds[kind]
    yield ("contrib_embed", 17, f"y, z = {ms}EmbedLayerNormalization <epsilon: float = 0.01> (i, s, w, p, t, g, h, m)", {"i": ids, "s": kind, "m": mask},
           {"w": words, "p": places, "t": kinds, "g": g, "h": h}, {"y": (layer_norm(embedded, 0.01) * g + h).astype(F), "z": mask.sum(1, dtype=I)})
    n, row = f(2, 3, 8), f(8)
    yield ("contrib_split_gelu", 17, f"y = {ms}BiasSplitGelu (x, b)", {"x": n}, {"b": row}, {"y": (n + row)[..., :4] * gelu((n + row)[..., 4:])})
    yield ("contrib_bias_add", 17, f"y = {ms}BiasAdd (x, b, s)", {"x": n, "s": n * 2}, {"b": row}, {"y": 3 * n + row})
    p, pg, pb = f(2, 2, 3, 4), f(4), f(4)
    def grouped(t):
        rows = t.transpose(0, 3, 1, 2).reshape(2, 2, 12)
        return layer_norm(rows, 1e-5).reshape(2, 4, 2, 3).transpose(0, 2, 3, 1) * pg + pb
    norm = grouped(p)
    yield ("contrib_group_norm", 17, f"y = {ms}GroupNorm <groups: int = 2, activation: int = 1> (x, g, h)", {"x": p}, {"g": pg, "h": pb}, {"y": (norm / (1 + np.exp(-norm))).astype(F)})
    yield ("contrib_skip_group_norm", 17, f"y, z = {ms}SkipGroupNorm <groups: int = 2, activation: int = 0> (x, g, h, s, b)", {"x": p, "s": pg[None] * np.ones((2, 1), F)}, {"g": pg, "h": pb, "b": pb},
           {"y": grouped(p + pg + pb).astype(F), "z": p + pg + pb})
    a, c = f(3, 4), f(4, 2)
    yield ("contrib_gemm", 17, f'y = {ms}FusedGemm <activation: string = "LeakyRelu", activation_alpha: float = 0.25, alpha: float = 2.0> (a, c)', {"a": a}, {"c": c},
           {"y": np.where(a @ c > 0, 2 * a @ c, F(0.5) * (a @ c)).astype(F)})
    yield ("conv_of_many_channels", 13, "a = Conv (x, w) r = Relu (a) y = Conv <pads: ints = [1,0,0,1]> (r, v, b)", {"x": f(2, 2, 3, 5)},
           {"w": f(17, 2, 1, 1), "v": f(3, 17, 2, 3), "b": f(3)})
    qkv = {"q": f(1, 2, 3, 4), "k": f(1, 2, 5, 4), "v": f(1, 2, 5, 4)}
    scores = "kt = Transpose <perm: ints = [0,1,3,2]> (k) s0 = MatMul (q, kt) "
    apart = {**qkv, "m": f(5, 3, 2)}
    yield ("attention_turned_mask", 23, "t = Transpose (m) y = Attention (q, k, v, t)", apart, {})
    yield ("attention_turned_mask_fused", 20, f"{scores}t = Transpose (m) s = Add (s0, t) p = Softmax (s) y = MatMul (p, v)", apart, {})
    yield ("attention_turned_mask_of_bool", 20, f"{scores}t = Transpose (m) s = Where (t, s0, least) p = Softmax (s) y = MatMul (p, v)",
           {**qkv, "m": np.array([[1, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 1], [0, 0, 1]], B)}, {"least": np.array(-np.inf, F)})
    yield ("dynamic_quantize_zeros", 11, "y, s, z = DynamicQuantizeLinear (x)", {"x": np.zeros((2, 3), F)}, {}, {"y": np.zeros((2, 3), U), "s": np.array(1, F), "z": np.array(0, U)})


def stays_quantised():
    """Products, rows and other readers of constants that are quantised: by axis, blocks and zero points, turned, shared, cast; MatMulNBits and its kin. X is
    large enough that each group and each zero point counts."""
    r = np.random.default_rng(21)

    def whole(dtype, *shape):
        return r.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)

    def scales(*shape):  # with x, such that every sum is exact
        return (r.integers(1, 6, shape) / 64).astype(F)

    def x(*shape):
        return (r.integers(-16, 17, shape) / 8).astype(F)

    A, w, u = x(3, 40), whole(np.int8, 40, 6), whole(U, 40, 6)
    s6, s40, one = scales(6), scales(40), np.array(0.02, F)
    dq = "w = DequantizeLinear"
    yield ("dq_columns", 19, f"{dq} (q, s) y = MatMul (x, w)", {"x": A}, {"q": w, "s": s6})
    yield ("dq_columns_zeros", 19, f"{dq} (q, s, z0) y = MatMul (x, w)", {"x": A}, {"q": u, "s": s6, "z0": whole(U, 6)})
    yield ("dq_one_scale", 19, f"{dq} (q, s, z0) y = MatMul (x, w)", {"x": A}, {"q": u, "s": one, "z0": np.array(131, U)})
    yield ("dq_rows", 19, f"{dq} <axis: int = 0> (q, s) y = MatMul (x, w)", {"x": A}, {"q": w, "s": s40})
    yield ("dq_gemm_rows", 19, f"{dq} <axis: int = 0> (q, s, z0) y = Gemm <transB: int = 1, beta: float = 0.5> (x, w, b)", {"x": A},
           {"q": u.T.copy(), "s": s6, "z0": whole(U, 6), "b": x(6)})
    yield ("dq_turned", 19, f"{dq} <axis: int = 0> (q, s) t = Transpose (w) i = Identity (t) y = MatMul (x, i)", {"x": A}, {"q": w.T.copy(), "s": s6})
    yield ("dq_turned_one_scale", 19, f"{dq} (q, s) t = Transpose (w) y = MatMul (x, t)", {"x": A}, {"q": w.T.copy(), "s": one})
    yield ("dq_square", 19, f"{dq} (q, s) t = Transpose (w) a = MatMul (x, t) y = MatMul (a, w)", {"x": x(2, 16)}, {"q": whole(np.int8, 16, 16), "s": one})
    for name, block, axis in (("blocks", 16, 0), ("short_block", 32, 0), ("odd_block", 20, 0), ("blocks_of_columns", 16, 1)):
        shape = [40, 6]
        shape[axis] = -(-shape[axis] // block)
        zeros, by = whole(U, *shape), scales(*shape)
        wide = [np.repeat(v, block, axis)[:40, :6] for v in (zeros.astype(F), by)]
        yield (f"dq_{name}", 21, f"{dq} <axis: int = {axis}, block_size: int = {block}> (q, s, z0) y = MatMul (x, w)", {"x": A},
               {"q": u, "s": by, "z0": zeros}, {"y": A @ ((u - wide[0]) * wide[1])})
    both = f"{dq} (q, s, z0) y = MatMul (x, w) b = Add (w, o) z = ReduceMax <keepdims: int = 0> (b)"
    yield ("dq_two_readers", 19, both, {"x": A, "o": x(40, 6)}, {"q": u, "s": s6, "z0": whole(U, 6)})
    yield ("dq_shared", 19, f"{dq} (q, s) a = MatMul (x, w) b = MatMul (v, w) y = Concat <axis: int = 0> (a, b)", {"x": A, "v": x(2, 40)}, {"q": w, "s": s6})
    yield ("dq_cast", 19, "h = DequantizeLinear (q, s) w = Cast <to: int = 1> (h) y = MatMul (x, w)", {"x": A}, {"q": w, "s": s6.astype(np.float16)})
    yield ("dq_merged", 19, "w = DequantizeLinear (q, s) v = DequantizeLinear (p, t) a = MatMul (x, w) b = MatMul (x, v) y = Mul (a, b)", {"x": A},
           {"q": w, "s": s6, "p": whole(np.int8, 40, 6), "t": scales(6)})
    yield ("dq_first_matrix", 19, f"{dq} (q, s) y = MatMul (w, x)", {"x": x(6, 4)}, {"q": w, "s": s6})
    yield ("dq_table", 19, f"{dq} <axis: int = 0> (q, s, z0) y = Gather (w, i)", {"i": np.array([[0, 39], [-1, 7]], L)}, {"q": u, "s": s40, "z0": whole(U, 40)})
    yield ("dq_table_of_columns", 19, f"{dq} (q, s) y = Gather (w, i)", {"i": ints(3, -40)}, {"q": w, "s": s6})
    yield ("dq_tied", 19, f"{dq} <axis: int = 0> (q, s) e = Gather (w, i) t = Transpose (w) y = MatMul (e, t)", {"i": ints(3, 11)}, {"q": w, "s": s40})
    qdq = "q0 = QuantizeLinear (x, sx, zx) d = DequantizeLinear (q0, sx, zx) w = DequantizeLinear (q, s, zw)"
    for name, kind, zero in (("u8", U, 117), ("i8", np.int8, -9), ("even", np.int8, 0)):
        acts = {"sx": np.array(0.03, F), "zx": np.array(zero, kind)}
        yield (f"qdq_{name}", 19, f"{qdq} y = MatMul (d, w)", {"x": A}, {"q": w, "s": s6, "zw": np.zeros(6, np.int8), **acts})
        yield (f"qdq_{name}_gemm", 19, f"{qdq} y = Gemm (d, w, b)", {"x": A}, {"q": u, "s": one, "zw": np.array(120, U), "b": x(6), **acts})

    def nbits(name, bits, block, k, n, zeros="", wide=F, **attrs):
        blocks = -(-k // block)
        q = r.integers(0, 1 << bits, (n, blocks * block)).astype(U)
        s = scales(n, blocks).astype(wide)
        z = np.full((n, blocks), 1 << (bits - 1), U) if not zeros else r.integers(0, 1 << bits, (n, blocks)).astype(U)

        def packed(a):
            a = np.pad(a, ((0, 0), (0, a.shape[1] % 2))) if bits == 4 else a
            return a[:, ::2] | a[:, 1::2] << 4 if bits == 4 else a
        wanted = (q.astype(D) - np.repeat(z, block, 1)) * np.repeat(s.astype(D), block, 1)
        fed = {"x": x(3, k).astype(wide)}
        names = {"": "(x, q, s)", "packed": "(x, q, s, z0)", "floats": "(x, q, s, z0)"}[zeros]
        kept = {"q": packed(q).reshape(n, blocks, -1), "s": s.reshape(-1)}
        if zeros:
            kept["z0"] = packed(z).reshape(-1) if zeros == "packed" else z.astype(wide)
        if "g" in attrs:
            kept["g"], names = attrs.pop("g"), "(x, q, s, , g, b)"
            kept["b"] = x(n)
        more = "".join(f", {key}: int = {value}" for key, value in attrs.items())
        y = fed["x"].astype(D) @ wanted[:, :k].T + (kept["b"] if "b" in kept else 0)
        return (f"nbits_{name}", 21, f"y = com.microsoft.MatMulNBits <K: int = {k}, N: int = {n}, bits: int = {bits}, block_size: int = {block}{more}> {names}", fed,
                kept, {"y": y.astype(wide)})
    yield nbits("4", 4, 16, 48, 6)
    yield nbits("4_short", 4, 32, 40, 7)
    yield nbits("4_packed_zeros", 4, 16, 48, 6, "packed")
    yield nbits("4_float_zeros", 4, 32, 64, 9, "floats")
    yield nbits("8_packed_zeros", 8, 16, 48, 6, "packed")
    yield nbits("order", 4, 16, 48, 5, g=(np.arange(48) // 16).astype(I))
    yield (*nbits("other_order", 4, 16, 48, 5, g=(np.arange(48) % 3).astype(I))[:5], "g_idx")
    yield (*nbits("block_of_8", 4, 8, 48, 5)[:5], "blocks")
    yield (*nbits("2", 2, 16, 48, 5)[:5], "bits")
    t, z, s = r.integers(0, 16, (7, 32)).astype(U), r.integers(0, 16, (7, 2)).astype(U), scales(7, 2)
    table = ((t.astype(D) - np.repeat(z, 16, 1)) * np.repeat(s.astype(D), 16, 1)).astype(F)
    yield ("gather_blocks", 21, "y = com.microsoft.GatherBlockQuantized <bits: int = 4, block_size: int = 16> (q, i, s, z0)", {"i": ints(6, 0, 2)},
           {"q": t[:, ::2] | t[:, 1::2] << 4, "s": s, "z0": z[:, ::2] | z[:, 1::2] << 4}, {"y": table[[6, 0, 2]]})


def bytes_of_operators():
    """Operators over bytes: products and convolutions of values that are fed, and what quantize_static of ONNX Runtime writes in its format QOperator."""
    r, S = np.random.default_rng(31), np.int8

    def whole(dtype, *shape):
        return r.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)

    def wide(v, zero):
        return v.astype(L) - np.asarray(zero).astype(L)

    def rounded(v, scale, zero):
        ends = np.iinfo(zero.dtype)
        return np.clip(np.rint(v.astype(F) / F(scale)) + zero, ends.min, ends.max).astype(zero.dtype)

    def conv(v, k, pads, stride, groups=1):  # [N,C,H,W] of integers
        v, m, channels = np.pad(v, ((0, 0), (0, 0), pads[:2], pads[2:])), k.shape[0] // groups, k.shape[1]
        views = np.lib.stride_tricks.sliding_window_view(v, k.shape[2:], (2, 3))[:, :, ::stride, ::stride]
        return np.concatenate([np.einsum("nchwij,mcij->nmhw", views[:, g * channels:(g + 1) * channels], k[g * m:(g + 1) * m]) for g in range(groups)], 1)

    x, w = whole(U, 3, 21), whole(S, 21, 18)
    yield ("integer_values", 13, "y = MatMulInteger (x, w)", {"x": x, "w": w}, {})
    yield ("integer_values_zeros", 13, "y = MatMulInteger (x, w, zx, zw)", {"x": x, "w": w, "zx": whole(U), "zw": whole(S)}, {})
    yield ("integer_values_columns", 13, "y = MatMulInteger (x, w, zx, zw)", {"x": x, "w": w, "zw": whole(S, 18)}, {"zx": whole(U)})
    yield ("integer_values_batch", 13, "y = MatMulInteger (x, w, , zw)", {"x": whole(S, 2, 2, 5), "w": whole(U, 2, 5, 3)}, {"zw": whole(U)})
    yield ("integer_values_of_the_first", 13, "y = MatMulInteger (x, w, zx)", {"w": w}, {"x": x, "zx": whole(U)})
    k, v, zx, zw, b = whole(S, 6, 2, 3, 2), whole(U, 2, 2, 5, 4), whole(U), whole(S, 6), r.integers(-999, 999, 6).astype(I)
    shape = "<pads: ints = [1,0,1,2], strides: ints = [2,2]>"
    zeros = np.zeros(6, S)
    sums = conv(wide(v, zx), wide(k, 0), (1, 1, 0, 2), 2)
    yield ("conv_integer", 10, f"y = ConvInteger {shape} (x, w, zx)", {"x": v}, {"w": k, "zx": zx}, {"y": sums.astype(I)})
    yield ("conv_integer_channels", 10, f"y = ConvInteger {shape} (x, w, zx, zw)", {"x": v}, {"w": k, "zx": zx, "zw": zw},
           {"y": conv(wide(v, zx), wide(k, zw[:, None, None, None]), (1, 1, 0, 2), 2).astype(I)})
    yield ("conv_integer_fed", 10, f"y = ConvInteger {shape} (x, w, zx)", {"x": v, "w": k}, {"zx": zx}, {"y": sums.astype(I)})
    deep = whole(S, 4, 1, 2, 2)
    yield ("conv_integer_groups", 10, "y = ConvInteger <group: int = 2> (x, w, zx, zw)", {"x": v}, {"w": deep, "zx": zx, "zw": zw[:4]},
           {"y": conv(wide(v, zx), wide(deep, zw[:4, None, None, None]), (0, 0, 0, 0), 1, 2).astype(I)})
    scales = (2.0 ** -r.integers(5, 8, 6)).astype(F)
    given = {"w": k, "zx": zx, "sx": np.array(0.5, F), "sw": scales, "zw": zeros, "so": np.array(4, F), "zo": np.array(90, U), "b": b}
    yield ("qlinear_conv", 10, f"y = QLinearConv {shape} (x, sx, zx, w, sw, zw, so, zo, b)", {"x": v}, given,
           {"y": rounded((sums + b[:, None, None]) * (scales * F(0.5))[:, None, None], 4, given["zo"])})
    ms = "y = com.microsoft."
    pair = {"sx": np.array(0.25, F), "zx": np.array(7, U), "sw": np.array(0.5, F), "zw": np.array(200, U), "so": np.array(0.75, F), "zo": np.array(31, U)}
    p, q = whole(U, 2, 3, 4), whole(U, 3, 4)
    for name, of in (("Add", lambda a, c: a + c), ("Mul", lambda a, c: a * c)):
        so = pair["so"] * F(1 if name == "Add" else 40)
        yield (f"qlinear_{name.lower()}", 13, f"{ms}QLinear{name} (x, sx, zx, w, sw, zw, so, zo)", {"x": p, "w": q}, {**pair, "so": so},
               {"y": rounded(of(wide(p, 7) * F(0.25), wide(q, 200) * F(0.5)), so, pair["zo"])})
    f8 = p.astype(S)
    out = {"sx": np.array(0.03, F), "zx": np.array(-5, S), "so": np.array(1 / 256, F), "zo": np.array(-128, S)}
    real = wide(f8, -5) * F(0.03)
    yield ("qlinear_sigmoid", 13, f"{ms}QLinearSigmoid (x, sx, zx, so, zo)", {"x": f8}, out, {"y": rounded(1 / (1 + np.exp(-real)), 1 / 256, out["zo"])})
    yield ("qlinear_leaky", 13, f"{ms}QLinearLeakyRelu <alpha: float = 0.25> (x, sx, zx, so)", {"x": f8}, {**out, "so": np.array(0.02, F)},
           {"y": rounded(np.where(real < 0, real * F(0.25), real), 0.02, np.array(0, S))})
    power = np.exp(real - real.max(-1, keepdims=True))
    yield ("qlinear_softmax", 13, f"{ms}QLinearSoftmax <axis: int = -1, opset: int = 13> (x, sx, zx, so, zo)", {"x": f8}, out,
           {"y": rounded(power / power.sum(-1, keepdims=True), 1 / 256, out["zo"])})
    flat = real.reshape(2, 12)
    power = np.exp(flat - flat.max(-1, keepdims=True))
    yield ("qlinear_softmax_joined", 13, f"{ms}QLinearSoftmax <axis: int = 1, opset: int = 12> (x, sx, zx, so, zo)", {"x": f8}, out,
           {"y": rounded((power / power.sum(-1, keepdims=True)).reshape(2, 3, 4), 1 / 256, out["zo"])})
    yield ("qlinear_concat", 13, f"{ms}QLinearConcat <axis: int = 0> (so, zo, x, sx, zx, w, sw, zw)", {"x": p[0], "w": q}, pair,
           {"y": np.concatenate([rounded(wide(p[0], 7) * F(0.25), 0.75, pair["zo"]), rounded(wide(q, 200) * F(0.5), 0.75, pair["zo"])])})
    for last, axes in ((0, (2, 3)), (1, (1, 2))):
        mean = (wide(v, zx) * F(0.25)).mean(axes, keepdims=True, dtype=F)
        yield (f"qlinear_global_pool_{last}", 13, f"{ms}QLinearGlobalAveragePool <channels_last: int = {last}> (x, sx, zx, so, zo)", {"x": v},
               {**pair, "zx": zx}, {"y": rounded(mean, 0.75, pair["zo"])})
    more = r.integers(-5000, 5000, 18).astype(I)
    whole_sums = wide(x, 7) @ wide(w, 0) + more
    quant = {"w": w.T.copy(), "sx": np.array(0.5, F), "zx": np.array(7, U), "sw": (2.0 ** -r.integers(5, 8, 18)).astype(F), "zw": np.zeros(18, S), "c": more}
    by = quant["sw"] * F(0.5)
    gemm = "QGemm <transB: int = 1, alpha: float = 1> (x, sx, zx, w, sw, zw, c"
    yield ("qgemm_floats", 13, f"{ms}{gemm})", {"x": x}, quant, {"y": (whole_sums * by).astype(F)})
    yield ("qgemm", 13, f"{ms}{gemm}, so, zo)", {"x": x}, {**quant, "so": np.array(8, F), "zo": np.array(99, U)}, {"y": rounded(whole_sums * by, 8, np.array(99, U))})
    yield ("integer_to_float", 13, f"{ms}MatMulIntegerToFloat (x, w, sx, sw, zx, , b)", {"x": x},
           {"w": w, "sx": quant["sx"], "sw": quant["sw"], "zx": quant["zx"], "b": np.ones(18, F)}, {"y": ((whole_sums - more) * by + 1).astype(F)})
