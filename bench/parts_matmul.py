# SPDX-License-Identifier: MIT
"""Parts of bench/run about one product: matmul, decode, half, grid. bench_matmul times all arms in one process."""
import os

import peers
from common import cpu_flags, heading, interval, note, plural, table, us

BLAS = ("onednn", "onednn_any", "openblas", "blis")  # those that must never be faster
NAMES = {"onednn": "oneDNN", "onednn_any": "oneDNN, W as it likes", "openblas": "OpenBLAS", "blis": "BLIS",
         "torch": "PyTorch", "torch:f32": "PyTorch f32", "dnnl": "plugin, dnnl", "auto:f32": "plugin, f32", "tuned:f32": "plugin, f32",
         "onednn:f32": "oneDNN f32"}
SIZES = (384, 768, 1536, 3072, 4096, 11008)
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def joined(values):
    return ",".join(str(value) for value in values)


class Product:
    """bench_matmul with the arms that can be had. Rows have their arms by name, 16-bit and f32 apart."""

    def __init__(self, bench, arms):
        self.bench, self.arms, self.absent, self.versions = bench, [], {}, {}
        self.more, self.environment = [], []
        for arm in arms:
            try:
                self.add(arm)
            except peers.Absent as why:
                self.absent[NAMES[arm]] = str(why)

    def add(self, arm):
        name, found = arm.split(":")[0], self.bench.peers
        if name == "torch":
            self.option("--python", found.python())
        elif name == "openblas":
            self.option("--openblas", found.openblas())
        elif name == "blis":
            self.option("--blis", found.blis())
        elif name == "dnnl" and not self.bench.has_onednn():
            raise peers.Absent("built without oneDNN")
        if found.library_paths:
            self.environment = ["env", "LD_LIBRARY_PATH=" + ":".join(found.library_paths)]
        self.arms.append(arm)

    def option(self, name, value):
        if name not in self.more and os.path.isabs(value):
            self.more += [name, value]

    def rows(self, n, k, b, threads, isa, dtype="f32", options=()):
        command = self.environment + [
            self.bench.path("bench", "bench_matmul"), "--n", joined(n), "--k", joined(k), "--b", joined(b), "--threads",
            str(threads), "--isa", isa, "--dtype", dtype, "--arms", ",".join(self.arms), *self.more, *options, "-o", "json"]
        for row in self.bench.json_lines(command):
            if row["bench"] == "matmul_arms":
                self.learn(row)
                continue
            row["arms"] = {arm["arm"] if arm["dtype"] == dtype else f"{arm['arm']}:{arm['dtype']}": arm
                           for arm in row["arms"]}
            self.absent.update({NAMES[name]: why for name, why in row["absent"].items() if name in NAMES})
            yield row

    def learn(self, row):
        for arm in row["arms"]:
            if "version" in arm:
                self.versions[arm["version"]] = self.versions.get(arm["version"], set()) | {row["isa"]}
            else:
                self.absent[NAMES[arm["arm"]]] = arm["absent"]

    def say(self):
        """After the tables: versions, with the instructions they were seen with, and who was missing."""
        seen = [f"{text} ({', '.join(sorted(isas))})" for text, isas in sorted(self.versions.items())]
        print("\nVersions, and the instructions allowed when they said so: " + "; ".join(seen) + ".")
        for name, why in self.absent.items():
            print(f"\n{name} was not compared: {why}.")


def sampling(bench, pairs, seconds):
    if bench.quick:
        return ["--pairs", "6", "--batch", "0.001", "--warm", "0.005", "--seconds", "0.1"]
    return ["--pairs", str(pairs), "--seconds", str(seconds)]


def subject(row):
    return row["arms"].get("tuned") or row["arms"]["auto"]


def share(row, name, digits=3):
    arm = row["arms"].get(name)
    return interval(arm, digits) if arm else ""


def cells(row, shown):
    """Of one shape: ours, its shares of the limits, then each peer's time over ours."""
    ours = subject(row)
    first = (row["isa"], row["dtype"], row["threads"], row["b"], ours["way"], us(ours["seconds"]),
             f"{ours['gflops']:.1f}", share(row, "fma"), share(row, "read"))
    return first + tuple(share(row, name, 2) or "-" for name in shown)


def product_table(rows, shown):
    table(("may use", "dtype", "threads", "B", "kernel", "us", "GFLOP/s", "of the FMA limit", "of the read limit")
          + tuple(f"{NAMES[name]} / ours" for name in shown), [cells(row, shown) for row in rows])


def named(row):
    """A shape as the goals name it."""
    return (f"N = {row['n']}, K = {row['k']}, B = {row['b']}, {row['dtype']}, {plural(row['threads'], 'thread')}, "
            f"{row['isa']} instructions")


def at_least(bench, row, what, arm, least):
    """A goal about the plugin and an arm, where that arm was there."""
    if arm is not None and "ratio" in arm:
        bench.goal(f"{what}, {named(row)}", f">= {least:g}", f"{arm['ratio']:.3f}", arm["ratio"] >= least)


def size_of(bench):
    return (bench.count(4096, 256),)


def matmul(bench):
    heading("matmul in fp32")
    shown = ("dnnl", *BLAS, "torch")
    product, rows, size = Product(bench, (bench.subject, *shown)), [], size_of(bench)
    for isa in bench.isas:
        for threads in bench.threads(1, 2):
            rows += product.rows(size, size, bench.count((16, 64, 256), (16, 64)), threads, isa, options=sampling(bench, 40, 25))
    for row in rows:
        arms = row["arms"]
        if row["b"] >= 64:
            at_least(bench, row, "share of the FMA limit", arms.get("fma"), 0.85)
        if row["b"] == 64:
            at_least(bench, row, "oneDNN / plugin, time", arms.get("onednn"), 1.2)
        at_least(bench, row, "PyTorch / plugin, time", arms.get("torch"), 1.15 if row["b"] == 256 else 1.4)
        for name in BLAS:
            if name != "onednn" or row["b"] != 64:
                at_least(bench, row, f"{NAMES[name]} / plugin, time", arms.get(name), 1)
    product_table(rows, shown)
    product.say()


def decode(bench):
    heading("Few tokens, fp32")
    shown = (*BLAS, "torch")
    product, rows, size = Product(bench, (bench.subject, *shown)), [], size_of(bench)
    for isa in bench.count(bench.isas, bench.isas[:1]):
        for threads in bench.threads(*bench.count((1, 2), (2,))):
            rows += product.rows(size, size, bench.count(range(1, 9), (1, 3)), threads, isa, options=sampling(bench, 40, 6))
    for row in rows:
        if row["limit"]:
            at_least(bench, row, f"share of the lower limit ({row['limit']['which']})", row["limit"], 0.85)
    product_table(rows, shown)
    product.say()


def native(dtype, isa, flags):
    """Has the processor products of this dtype that may be used?"""
    wanted = {"bf16": {"avx512_bf16", "amx_bf16"}, "f16": {"avx512_fp16", "amx_fp16"}}[dtype]
    return isa != "avx2" and bool(wanted & flags)


def half(bench):
    heading("bf16 and f16")
    own_f32 = f"{bench.subject}:f32"
    shown = (own_f32, "onednn", "torch", "torch:f32")
    product, rows, size, flags = Product(bench, (bench.subject, *shown)), [], size_of(bench), cpu_flags()
    for dtype in ("bf16", "f16"):
        for isa in bench.count(bench.isas, bench.isas[-1:]):
            for threads in bench.threads(*bench.count((1, 2), (2,))):
                rows += product.rows(size, size, bench.count((1, 16, 64, 256), (1, 16)), threads, isa, dtype, sampling(bench, 30, 12))
    for row in rows:
        arms, own = row["arms"], native(row["dtype"], row["isa"], flags)
        if row["b"] == 1:
            at_least(bench, row, "speed relative to our own f32", arms.get(own_f32), 1.6)
        else:
            at_least(bench, row, "speed relative to our own f32", arms.get(own_f32), 0.85)
        if own:
            for name in ("onednn", "torch"):
                at_least(bench, row, f"{NAMES[name]} (its own {row['dtype']} instructions) / plugin, time",
                         arms.get(name), 1)
        elif row["dtype"] == "bf16" and row["b"] > 1:
            at_least(bench, row, "PyTorch / plugin, time", arms.get("torch"), 4)
    product_table(rows, shown)
    for isa in bench.isas:
        for dtype in ("bf16", "f16"):
            has = "has" if native(dtype, isa, flags) else "has no"
            print(f"\nWith {isa} instructions this processor {has} products of {dtype}.")
    product.say()


# ---- the grid ----------------------------------------------------------------------------------------


def shape_of(row):
    return f"{row['n']} x {row['k']}"


def loses(arm):
    """Slower than the peer, with an interval that leaves out 1."""
    return arm["high"] < 1


def condense(rows, shown):
    """For each B and peer: the worst ratio with its shape, and how many shapes lose."""
    out = []
    for tokens in sorted({row["b"] for row in rows}):
        line = [tokens]
        for name in shown:
            here = [(row["arms"][name]["ratio"], row) for row in rows if row["b"] == tokens and name in row["arms"]]
            if not here:
                line.append("-")
                continue
            ratio, worst = min(here, key=lambda pair: pair[0])
            lost = sum(loses(row["arms"][name]) for _, row in here)
            line.append(f"{ratio:.2f} ({shape_of(worst)}), {lost} of {len(here)}")
        out.append(line)
    return out


def losers(rows, shown):
    return [(row["b"], shape_of(row), row["threads"], subject(row)["way"], us(subject(row)["seconds"]), NAMES[name],
             row["arms"][name]["way"], interval(row["arms"][name]))
            for row in rows for name in shown if name in row["arms"] and loses(row["arms"][name])]


def grid(bench):
    heading("The grid: never slower than oneDNN, OpenBLAS, BLIS")
    sizes, tokens = (SIZES, TOKENS) if not bench.quick else (SIZES[:1], (1, 16))
    sizes = bench.grid_sizes or sizes
    total = len(sizes) ** 2 * len(tokens)
    product = Product(bench, (bench.subject, *BLAS))
    options = sampling(bench, 20, 0.3) if bench.quick else ["--pairs", "20", "--batch", "0.002", "--warm", "0.03",
                                                            "--seconds", "0.3"]
    for isa in bench.count(bench.isas, bench.isas[:1]):
        for threads in bench.threads(*bench.count((1, 2), (2,))):
            rows = []
            for row in product.rows(sizes, sizes, tokens, threads, isa, options=options):
                rows.append(row)
                if len(rows) % 30 == 0:
                    note(f"grid, {isa}, {plural(threads, 'thread')}: {len(rows)} of {total} shapes")
            print(f"\n{isa} instructions, {plural(threads, 'thread')}: the worst time over ours of all N x K, and of how "
                  "many shapes the interval lies below 1.")
            table(("B",) + tuple(NAMES[name] for name in BLAS), condense(rows, BLAS))
            lost = losers(rows, BLAS)
            if lost:
                print("\nSlower than a peer:")
                table(("B", "N x K", "threads", "kernel", "us", "peer", "its kernel", "its time / ours [95 %]"), lost)
            judge_grid(bench, rows, isa, threads)
    product.say()


def judge_grid(bench, rows, isa, threads):
    for name in BLAS:
        there = [row["arms"][name] for row in rows if name in row["arms"]]
        count = sum(loses(arm) for arm in there)
        clear = sum(arm["word"] == "SLOWER" for arm in there)
        if there:
            bench.goal(f"shapes of the grid slower than {NAMES[name]}, {plural(threads, 'thread')}, {isa} instructions",
                       "0", f"{count} of {len(there)} ({clear} by more than 1 %)", count == 0)
