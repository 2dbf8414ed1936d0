#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_dump.py - what `bsrun --dump` writes, judged by NumPy and nothing of ours.

    check_dump.py BSRUN            runs every method x mask x ranks x dtype and checks its dump (the ctest)
    check_dump.py --dir DIR DTYPE  checks one dump that exists (DTYPE: of the run: bf16, f16 or f32)

Checked: Y = X W^T + b in fp64 within T3's bound (docs/gates.md); each rank's columns are those of its mask;
each partial is the product over them; the partials, added in rank order in f32 and rounded once, are Y bit
for bit; every rank has the same Y; X, W and bias are the same bytes for every number of ranks. Exit 77: no NumPy.
"""
import hashlib
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("skipped: this Python has no NumPy (scripts/setup --dev installs it; BS_TEST_PYTHON names another)")
    sys.exit(77)

U = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
TINY = {"f32": 2.0**-149, "f16": 2.0**-24, "bf16": 2.0**-133}  # one subnormal step
B, N, K = 9, 101, 77  # nothing divides anything


def round_to(dtype, f32):
    """f32 -> dtype, nearest even, as f64."""
    if dtype == "f16":
        return f32.astype(np.float16).astype(np.float64)
    if dtype == "bf16":
        bits = f32.view(np.uint32).astype(np.uint64)
        bits = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16
        return bits.astype(np.uint32).view(np.float32).astype(np.float64)
    return f32.astype(np.float64)


def load(folder, name):
    path = os.path.join(folder, name + ".npy")
    return np.load(path, allow_pickle=False) if os.path.exists(path) else None


def bound(dtype, x, w, bias, y, partials):
    """T3 of docs/gates.md: output rounding, roundings of partials and partial sums, accumulation."""
    magnitude = np.abs(x) @ np.abs(w).T + np.abs(bias)
    out = U[dtype] * np.abs(y) + TINY[dtype] / 2 + 4 * np.sqrt(x.shape[1] + 1) * U["f32"] * magnitude
    if len(partials) > 1:
        sums = np.cumsum(partials, axis=0)[1:]
        if dtype == "f32":
            sums = sums[:-1]  # the last sum's rounding is the output's
        stored = np.abs(partials).sum(axis=0) + np.abs(sums).sum(axis=0)
        out += (1 + U[dtype]) * (U["f32"] * stored + TINY["f32"] * len(partials))
    return out


def check(folder, dtype, ranks, expected_columns, splits_rows):
    """Every check of one dump; returns the list of what is wrong."""
    wrong = []
    x, w = load(folder, "x").astype(np.float64), load(folder, "w").astype(np.float64)
    bias = load(folder, "bias")
    bias = np.zeros((1, w.shape[0])) if bias is None else bias.astype(np.float64).reshape(1, -1)
    if not bias.any():
        wrong.append("the bias is zero: it could be lost without notice")
    truth = x @ w.T + bias
    columns = [load(folder, f"columns_rank{r}").reshape(-1) for r in range(ranks)]
    ys = [load(folder, f"y_rank{r}") for r in range(ranks)]
    parts = [load(folder, f"partial_rank{r}") for r in range(ranks)]
    for r in range(ranks):
        if expected_columns is not None and not np.array_equal(columns[r], expected_columns(r)):
            wrong.append(f"rank {r} owns columns {columns[r][:8]}..., not {expected_columns(r)[:8]}...")
        if not np.array_equal(ys[r], ys[0]):
            wrong.append(f"rank {r}'s Y is not rank 0's")
    exact = []
    if not splits_rows and ranks > 1:
        owned = np.sort(np.concatenate(columns))
        if not np.array_equal(owned, np.arange(x.shape[1])):
            wrong.append("the ranks' columns are not each column once")
        for r, cols in enumerate(columns):
            exact.append(x[:, cols] @ w[:, cols].T + (bias if r == 0 else 0))
    limit = bound(dtype, x, w, bias, truth, np.array(exact))
    ratio = np.abs(ys[0].astype(np.float64) - truth) / limit
    if not (ratio <= 1).all():
        wrong.append(f"Y is off by {np.nanmax(ratio):.3g} of its bound at {np.unravel_index(np.argmax(ratio), ratio.shape)}")
    if ranks > 1 and any(p is None for p in parts):
        return wrong + ["a rank's partial is missing"], 0.0
    for r, part in enumerate(exact):
        cols = columns[r]
        magnitude = np.abs(x[:, cols]) @ np.abs(w[:, cols]).T + (np.abs(bias) if r == 0 else 0)
        allowed = U["f32"] * np.abs(part) + 4 * np.sqrt(len(cols) + 1) * U["f32"] * magnitude + TINY["f32"]
        off = np.abs(parts[r].astype(np.float64) - part) / allowed
        if not (off <= 1).all():
            wrong.append(f"rank {r}'s partial is off by {np.nanmax(off):.3g} of its bound")
    if exact:
        total = parts[0].astype(np.float32)
        for part in parts[1:]:
            total = (total + part.astype(np.float32)).astype(np.float32)
        if not np.array_equal(round_to(dtype, total), ys[0].astype(np.float64)):
            wrong.append("the partials added in rank order and rounded once are not Y, bit for bit")
    elif ranks > 1:
        if not np.array_equal(np.concatenate(parts, axis=1), ys[0].astype(np.float64)):
            wrong.append("the ranks' own features side by side are not Y")
    return wrong, float(np.max(ratio))


def pattern_columns(pattern, ranks):
    """complement_a_b: rank r keeps pattern r mod 2, slice r div 2 of its columns; larger slices first."""
    def columns(r):
        if ranks == 1:
            return np.arange(K)
        mine = np.array([k for k in range(K) if (pattern[k % 4] == "1") == (r % 2 == 0)])
        return np.array_split(mine, ranks // 2)[r // 2]
    return columns


def shares_columns(shares):
    """uneven: floor(K s / sum), the columns left over one each to the largest fractions, ties to the lower rank."""
    counts = [K * s // sum(shares) for s in shares]
    order = sorted(range(len(shares)), key=lambda r: (-(K * shares[r] % sum(shares)), r))
    for r in order[: K - sum(counts)]:
        counts[r] += 1
    starts = np.concatenate([[0], np.cumsum(counts)])
    return lambda r: np.arange(starts[r], starts[r + 1])


def runs(ranks):
    return lambda r: np.array_split(np.arange(K), ranks)[r]


def cases():
    """(method, ranks, extra options, columns of a rank or None, splits rows)"""
    yield "dense", 1, [], None, True
    for ranks in (1, 2, 3, 4):
        yield "column_parallel", ranks, [], lambda r: np.arange(K), True
        yield "row_parallel", ranks, [], runs(ranks), False
        shares = [1, 3, 2, 5][:ranks]
        uneven = ["--mask", "uneven", "--set", "mask.shares=" + str(shares)]
        yield "row_parallel", ranks, uneven, shares_columns(shares), False
        for method in ("blockshock", "masked_split"):
            yield method, ranks, ["--mask", "interleave"], lambda r, p=ranks: np.arange(r, K, p), False
            yield method, ranks, ["--mask", "contiguous"], runs(ranks), False
            yield method, ranks, uneven, shares_columns(shares), False
            for a, b in (("1100", "0011"), ("1010", "0101"), ("1001", "0110")):
                if ranks == 1 or ranks % 2 == 0:
                    yield method, ranks, ["--mask", f"complement_{a}_{b}"], pattern_columns(a, ranks), False


def control(folder, dtype, ranks):
    """A dump whose W lost one weight, or whose Y has one output of its neighbour, must not pass."""
    for name, change in (("w", lambda a: a.__setitem__((3, 5), 0)), ("y_rank0", lambda a: a.__setitem__((2, 7), a[2, 8]))):
        path = os.path.join(folder, name + ".npy")
        with open(path, "rb") as f:
            kept = f.read()
        array = np.load(path)
        change(array)
        np.save(path, array)
        wrong, _ = check(folder, dtype, ranks, None, False)
        with open(path, "wb") as f:
            f.write(kept)
        if not wrong:
            return [f"a changed {name}.npy passed"]
    return []


def run_all(bsrun):
    failures, runs_done, worst = 0, 0, 0.0
    inputs = {}
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # every file is synced: a disk takes most of the time
    with tempfile.TemporaryDirectory(prefix="bs-dump-", dir=memory) as root:
        for dtype in ("f32", "bf16", "f16"):
            for method, ranks, extra, columns, splits_rows in cases():
                folder = os.path.join(root, str(runs_done))
                sizes = {"model.dtype": dtype, "model.N": N, "model.K": K, "model.B": B, "method.bias": "true",
                         "phase.warmup_iters": 0, "phase.timed_iters": 1, "phase.integer_gate": "false",
                         "phase.fault_gate": "false"}
                command = [bsrun, "--plugin", "cpu", "--method", method, "-P", str(ranks), "--phase", "0", "-q",
                           "--to", folder, "--out", os.path.join(root, "out"), *extra]
                for key, value in sizes.items():
                    command += ["--set", f"{key}={value}"]
                done = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=600)
                if done.returncode != 0:
                    wrong = [f"exit {done.returncode}: {done.stderr.strip()}"]
                else:
                    wrong, ratio = check(folder, dtype, ranks, columns, splits_rows)
                    worst = max(worst, ratio)
                    if method == "row_parallel" and ranks == 2 and not wrong:
                        wrong = control(folder, dtype, ranks)
                    for name in ("x", "w", "bias"):
                        with open(os.path.join(folder, name + ".npy"), "rb") as f:
                            digest = hashlib.sha256(f.read()).hexdigest()
                        if inputs.setdefault((dtype, name), digest) != digest:
                            wrong.append(f"{name}.npy is not the same bytes as in the first run")
                runs_done += 1
                if wrong:
                    failures += 1
                    print(f"{method} -P {ranks} {' '.join(extra)} {dtype}: " + "; ".join(wrong))
    print(f"{runs_done} dumps, {failures} wrong; the worst output was at {worst:.3f} of its bound")
    return 1 if failures or runs_done < 150 else 0


def main(argv):
    if len(argv) == 4 and argv[1] == "--dir":
        ranks = sum(name.startswith("y_rank") for name in os.listdir(argv[2]))
        first = load(argv[2], "partial_rank0")
        splits_rows = first is None or first.shape != load(argv[2], "y_rank0").shape
        wrong, worst = check(argv[2], argv[3], ranks, None, splits_rows)
        print("; ".join(wrong) if wrong else f"right: the worst output is at {worst:.3f} of its bound")
        return 1 if wrong else 0
    if len(argv) != 2:
        print(__doc__)
        return 2
    return run_all(os.path.abspath(argv[1]))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
