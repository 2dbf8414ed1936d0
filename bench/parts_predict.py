# SPDX-License-Identifier: MIT
"""Part of bench/run about predictions: phase 1's own, beside what it measured."""
import os
import tempfile

from common import heading, table

MOST = 0.15
SETS = (("dense", 1, "f32"), ("dense", 1, "bf16"), ("row_parallel", 2, "f32"), ("blockshock", 2, "f32"))


def record(bench, scratch, method, ranks, dtype, size, tokens):
    """The method's row of a phase 1."""
    pairs = bench.count(20, 5)
    settings = (f"model.N={size}", f"model.K={size}", f"model.B={tokens}", f"model.dtype={dtype}", f"phase.pairs_min={pairs}",
                f"phase.pairs_max={pairs}")
    rows = bench.phase1(method, ranks, settings, before=("env", "XDG_CACHE_HOME=" + os.path.join(scratch, "cache")))
    return next(row for row in rows if row["arm"] == "method")


def predict(bench):
    heading("Predicted beside measured")
    rows, sizes = [], bench.count((2048, 4096, 8192), (256,))
    print("The machine's constants are measured in each run (an empty cache: XDG_CACHE_HOME in $SCRATCH).\n")
    with tempfile.TemporaryDirectory() as scratch:
        most = max(bench.threads(1, 2))
        for method, ranks, dtype in (chosen for chosen in SETS if chosen[1] <= most):
            for size in sizes:
                for tokens in bench.count((1, 16, 64, 256), (16,)):
                    r = record(bench, scratch, method, ranks, dtype, size, tokens)
                    if r["predicted_ms"] is None:
                        raise ValueError(f"no prediction for {method}, {dtype}, N = K = {size}, B = {tokens}")
                    off = r["predicted_ms"] / r["median_ms"] - 1
                    rows.append((r["method"], dtype, ranks, r["threads_per_rank"], size, tokens, f"{r['median_ms']:.3f}",
                                 f"{r['predicted_ms']:.3f}", f"{r['bound_ms']:.3f}", r["limit"], f"{off * 100:+.0f} %"))
                    bench.goal(f"predicted / measured - 1, {r['method']}, P = {ranks}, N = K = {size}, B = {tokens}, {dtype}",
                               "within 15 %", f"{off * 100:+.1f} %", abs(off) <= MOST)
    table(("method", "dtype", "ranks", "threads a rank", "N = K", "B", "measured ms", "predicted ms", "bound ms", "limit",
           "off by"), rows)
