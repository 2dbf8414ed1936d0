#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/graph/cases/signal.txt: recurrent layers, Fourier transforms and inverse functions.

  signal_cases.py FILE     needs the Python package onnx >= 1.23

A row is that of lower_cases.py. What is expected of recurrent layers is computed here, because onnx.reference knows one
direction alone and no lengths of rows."""
import sys

import numpy as np

import lower_cases
from lower_cases import D, F, I, ints

rng = np.random.default_rng(21)
EDGES = np.array([0, -0.0, 1e-6, -1e-3, 0.3, -0.5, 0.999, 1, -1, 1.5, 7, -80, 1e10, np.inf, -np.inf, np.nan], F)


def f(*shape):
    return np.round(rng.uniform(-1, 1, shape), 3).astype(F)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_step(x, h, c, r, b, p, linear):
    i, o, g, n = np.split(x + h @ r.T + b, 4, -1)
    i, g = i + p[0] * c, g + p[2] * c
    c = sigmoid(g) * c + sigmoid(i) * np.tanh(n)
    return sigmoid(o + p[1] * c) * np.tanh(c), c


def gru_step(x, h, c, r, b, p, linear):
    n = h.shape[1]
    z, q = np.split(sigmoid(x[:, : 2 * n] + h @ r[: 2 * n].T + b[: 2 * n]), 2, -1)
    if linear:
        g = np.tanh(x[:, 2 * n :] + q * (h @ r[2 * n :].T + b[2 * n :]))
    else:
        g = np.tanh(x[:, 2 * n :] + (q * h) @ r[2 * n :].T + b[2 * n :])
    return (1 - z) * g + z * h, c


def rnn_step(x, h, c, r, b, p, linear):
    return np.tanh(x + h @ r.T + b), c


def layer(op, direction="forward", bias=True, lengths=None, start=False, peepholes=False, linear=0, layout=0, fixed=True, relu=False):
    """A case of a layer over 5 steps, 3 rows, 4 numbers, a state of 2. What is given as a constant: the weights, or nothing."""
    gates, step = {"LSTM": (4, lstm_step), "GRU": (3, gru_step), "RNN": (1, rnn_step)}[op]
    T, B, N, H, ways = 5, 3, 4, 2, 2 if direction == "bidirectional" else 1
    x, w, r = f(T, B, N), f(ways, gates * H, N), f(ways, gates * H, H)
    b = f(ways, 2 * gates * H) if bias else np.zeros((ways, 2 * gates * H), F)
    h0, c0 = (f(ways, B, H), f(ways, B, H)) if start else (np.zeros((ways, B, H), F), np.zeros((ways, B, H), F))
    p = f(ways, 3 * H) if peepholes else np.zeros((ways, 3 * H), F)
    n = np.array(lengths if lengths is not None else [T] * B)
    y = np.zeros((T, ways, B, H), D)
    ends = []
    for d in range(ways):
        h, c = h0[d].astype(D), c0[d].astype(D)
        gx = x.astype(D) @ w[d].T.astype(D) + b[d, : gates * H]
        turned = direction == "reverse" or d == 1
        for t in range(T)[:: -1 if turned else 1]:
            new_h, new_c = step(gx[t], h, c, r[d].astype(D), b[d, gates * H :], p[d].reshape(3, H), linear)
            there = (t < n)[:, None]
            h, c = np.where(there, new_h, h), np.where(there, new_c, c)
            y[t, d] = np.where(there, h, 0)
        ends.append((h, c))
    named = {"w": w, "r": r} | ({"b": b} if bias else {}) | ({"p": p} if peepholes else {})
    fed = {"x": x} | ({"n": n.astype(I)} if lengths is not None else {}) | ({"h": h0} | ({"c": c0} if op == "LSTM" else {}) if start else {})
    state = np.stack([e[0] for e in ends])
    if layout:
        fed = {key: value.swapaxes(0, 1) if key in "xhc" else value for key, value in fed.items()}
        y, state = y.transpose(2, 0, 1, 3), state.swapaxes(0, 1)
    inputs = ["x", "w", "r", "b" if bias else "", "n" if lengths is not None else "", "h" if start else "", "c" if start and op == "LSTM" else "", "p" if peepholes else ""]
    attrs = [f"hidden_size: int = {H}", f'direction: string = "{direction}"'] + ([f"linear_before_reset: int = {linear}"] if linear else []) + ([f"layout: int = {layout}"] if layout else [])
    args = ", ".join(inputs[: (8 if op == "LSTM" else 6)]).rstrip(", ")
    name = "_".join([op.lower(), direction, *(["bias"] if bias else []), *(["lengths"] if lengths else []), *(["start"] if start else []), *(["peepholes"] if peepholes else []),
                     *(["linear"] if linear else []), *(["layout"] if layout else []), *([] if fixed else ["fed"])])  # fmt: skip
    expected = {"y": y.astype(F), "z": state.astype(F)}
    return (name, 14, f"y, z = {op} <{', '.join(attrs)}> ({args})", fed | ({} if fixed else named), named if fixed else {}, expected)


def transforms():
    real, half, pair = f(2, 7), f(2, 5, 3), f(2, 6, 2)
    def as_pairs(z):
        return np.stack([z.real, z.imag], -1).astype(F)
    z = pair[..., 0] + 1j * pair[..., 1]
    yield ("dft_real_one_sided", 20, "y = DFT <onesided: int = 1> (x, , a)", {"x": real[..., None]}, {"a": np.array(1)}, {"y": as_pairs(np.fft.rfft(real))})
    yield ("dft_first_axis", 17, "y = DFT <axis: int = 0> (x)", {"x": half}, {}, "neither 1 nor 2")
    yield ("dft_middle_axis_padded", 17, "y = DFT <axis: int = 1> (x, n)", {"x": half[..., :, None]}, {"n": np.array(8)}, {"y": as_pairs(np.fft.fft(half, 8, axis=1))})
    yield ("dft_cropped", 20, "y = DFT (x, n, a)", {"x": half[..., :, None]}, {"n": np.array(3), "a": np.array(-3)}, {"y": as_pairs(np.fft.fft(half, 3, axis=1))})
    yield ("dft_inverse", 17, "y = DFT <axis: int = 1, inverse: int = 1> (x)", {"x": pair}, {}, {"y": as_pairs(np.fft.ifft(z))})
    for n in (10, 11):
        yield (f"dft_inverse_one_sided_{n}", 20, "y = DFT <inverse: int = 1, onesided: int = 1> (x, n, a)", {"x": pair}, {"n": np.array(n), "a": np.array(-2)},
               {"y": np.fft.irfft(z, n).astype(F)[..., None]})  # fmt: skip
    yield ("dft_inverse_one_sided_short", 20, "y = DFT <inverse: int = 1, onesided: int = 1> (x, n, a)", {"x": pair}, {"n": np.array(6), "a": np.array(1)},
           {"y": np.fft.irfft(z, 6).astype(F)[..., None]})  # fmt: skip
    signal, window = f(2, 20), f(6)
    frames = np.stack([signal[:, i : i + 6] for i in range(0, 15, 4)], 1)
    yield ("stft_window", 17, "y = STFT (x, s, w)", {"x": signal[..., None]}, {"s": np.array(4), "w": window}, {"y": as_pairs(np.fft.rfft(frames * window))})
    yield ("stft_length", 17, "y = STFT <onesided: int = 0> (x, s, , n)", {"x": signal}, {"s": np.array(4), "n": np.array(6)}, {"y": as_pairs(np.fft.fft(frames))})
    yield ("hann_window_times", 17, "w = HannWindow (n) y = Mul (x, w)", {"x": window}, {"n": np.array(6)})
    yield ("hamming_window_times", 17, "w = HammingWindow <periodic: int = 0> (n) y = Mul (x, w)", {"x": window}, {"n": np.array(6)})
    yield ("blackman_window_times", 17, "w = BlackmanWindow <output_datatype: int = 1> (n) y = Mul (x, w)", {"x": window}, {"n": np.array(6)})


def functions():
    with np.errstate(all="ignore"):
        for op, of in (("Acos", np.arccos), ("Acosh", np.arccosh), ("Asin", np.arcsin), ("Asinh", np.arcsinh), ("Atan", np.arctan), ("Atanh", np.arctanh), ("Cosh", np.cosh), ("Sinh", np.sinh)):
            yield (op.lower(), 9, f"y = {op} (x)", {"x": EDGES}, {}, {"y": of(EDGES.astype(D)).astype(F)})
            some = np.linspace(1, 3, 7) if op == "Acosh" else np.linspace(-0.9, 0.9, 8)
            yield (op.lower() + "_f64", 9, f"y = {op} (x)", {"x": some}, {}, {"y": of(some)})


CASES = [
    layer("LSTM"), layer("LSTM", bias=False, start=True), layer("LSTM", "reverse", peepholes=True), layer("LSTM", "bidirectional", start=True, fixed=False),
    layer("LSTM", "bidirectional", lengths=[5, 2, 0], start=True), layer("LSTM", layout=1, start=True), layer("LSTM", lengths=[5, 2, 1], peepholes=True),
    layer("GRU", linear=1), layer("GRU", "bidirectional", start=True), layer("GRU", "reverse", lengths=[1, 5, 3], linear=1), layer("GRU", bias=False, fixed=False), layer("GRU", layout=1),
    layer("RNN"), layer("RNN", "bidirectional", lengths=[5, 5, 4], start=True), layer("RNN", layout=1, bias=False),
    ("lstm_clip", 14, "y, z = LSTM <hidden_size: int = 2, clip: float = 3.0> (x, w, r)", {"x": f(5, 3, 4)}, {"w": f(1, 8, 4), "r": f(1, 8, 2)}, "clip"),
    ("rnn_softsign", 14, 'y, z = RNN <hidden_size: int = 2, activations: strings = ["Softsign"]> (x, w, r)', {"x": f(5, 3, 4)}, {"w": f(1, 2, 4), "r": f(1, 2, 2)}, "Sigmoid, Tanh or Relu"),
    ("gru_short_bias", 14, "y, z = GRU <hidden_size: int = 2> (x, w, r, b)", {"x": f(5, 3, 4)}, {"w": f(1, 6, 4), "r": f(1, 6, 2), "b": f(1, 6)}, "do not fit"),
    *transforms(), *functions(),
]  # fmt: skip

if __name__ == "__main__":
    lower_cases.write(sys.argv[1], CASES)
