# SPDX-License-Identifier: MIT
"""Parts of bench/run about one product: matmul, decode, half, grid. `bsrun bench matmul` times all arms in the same pairs; foreign
libraries are the plugins of bench/peers."""
import os
import re

import peers
from common import cpu_flags, heading, interval, note, plural, table, us

BLAS = ("onednn", "onednn_any", "openblas", "blis")  # those that must never be faster
NAMES = {"onednn": "oneDNN", "onednn_any": "oneDNN, W as it likes", "openblas": "OpenBLAS", "blis": "BLIS", "torch": "PyTorch",
         "dnnl": "plugin, dnnl", "f32": "plugin, f32"}
PROVIDERS = {"auto": "cpu", "dnnl": "cpu:dnnl", "f32": "cpu@f32", "onednn": "onednn", "onednn_any": "onednn{weights=any}",
             "openblas": "openblas", "blis": "blis"}
SIZES = (384, 768, 1536, 3072, 4096, 11008)
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
ENDED = (0, 5, 14)  # exit codes that leave rows: all went well, a provider does not serve a shape, ours is slower than another
CLEARLY = 0.98  # of the time of the other one: bsrun asks for 2 % as well


def joined(values):
    return ",".join(str(value) for value in values)


class Product:
    """bsrun bench matmul with the arms that can be had. Rows have their arms by name."""

    def __init__(self, bench, arms, providers=PROVIDERS):
        self.bench, self.arms, self.providers, self.absent, self.versions = bench, [], providers, {}, {}
        self.more, self.torch = ["--plugin", "cpu"], "off"
        for arm in arms:
            try:
                self.add(arm)
            except peers.Absent as why:
                self.absent[NAMES[arm]] = str(why)

    def add(self, arm):
        provider, found = self.providers.get(arm, arm).split("{")[0].split("@")[0], self.bench.peers
        if arm == "torch":
            self.torch = found.python()
            return
        if provider in ("openblas", "blis"):
            file = found.openblas() if provider == "openblas" else found.blis()
            self.open(provider, ["--set", f"plugins.{provider}.library={file}"] if os.path.isabs(file) else [])
        elif provider == "onednn":
            self.open(provider, [])
        elif provider == "cpu:dnnl" and not self.bench.has_onednn():
            raise peers.Absent("built without oneDNN")
        self.arms.append(arm)

    def open(self, peer, settings):
        file = self.bench.path("bench", "peers", f"bs_{peer}.so")
        if not os.path.exists(file):
            raise peers.Absent("built without oneDNN")
        if file not in self.more:
            self.more += ["--plugin", file, *settings]

    def bench_matmul(self, words, threads, isa, dtype, providers, torch, options):
        """Rows of one command."""
        command = [self.bench.path("bin", "bsrun"), "bench", "matmul", *words, "--dtype", dtype, "--threads", str(threads), "--with", f"isa={isa}",
                   *self.more, "--provider", ",".join(providers), "--torch", torch, "--with", "seeds=1", *options, "--out", "off", "-q", "-o", "jsonl"]
        return self.bench.json_lines(command, good=ENDED, env=self.bench.peers.environment(isa, threads))

    def rows(self, n, k, b, threads, isa, dtype="f32", options=()):
        for rows in n:
            words = ["--n", str(rows), "--k", joined(k), "--b", joined(b)]
            if self.bench.measured and self.arms[0] == "auto":
                shapes = self.faster([(rows, cols, tokens) for cols in k for tokens in b], threads, isa, dtype)
                for subject, some in shapes.items():
                    yield from self.rows_of([f"n{x}k{y}b{z}" for x, y, z in some], subject, threads, isa, dtype, options)
            else:
                yield from self.rows_of(words, self.providers[self.arms[0]], threads, isa, dtype, options)

    def faster(self, shapes, threads, isa, dtype):
        """Which of the plugin's implementations serves which shapes, by a few calls."""
        out = {"cpu:packed": [], "cpu:dnnl": []}
        if not self.bench.has_onednn():
            return {"cpu:packed": shapes}
        words = [f"n{n}k{k}b{b}" for n, k, b in shapes]
        told = self.bench_matmul(words, threads, isa, dtype, out, "off", ["--seconds", "0.1", "--with", "pairs=5", "--samples", "3", "--warmup", "0"])
        seconds = [row["p50_us"] for row in told]
        for at, shape in enumerate(shapes):
            packed, dnnl = seconds[2 * at:2 * at + 2]
            out["cpu:dnnl" if dnnl is not None and dnnl < CLEARLY * packed else "cpu:packed"].append(shape)
        return {subject: some for subject, some in out.items() if some}

    def rows_of(self, words, subject, threads, isa, dtype, options):
        """Of each shape its arms."""
        providers = [subject] + [self.providers[arm] for arm in self.arms[1:]]
        row = None
        for told in self.bench_matmul(words, threads, isa, dtype, providers, self.torch, options):
            if told["place"] == 0:
                if row is not None:
                    yield row
                row = shape_row(told, isa)
            name = "torch" if told["provider"] == "torch" else self.arms[told["place"]]
            self.take(row, name, told)
        if row is not None:
            yield row

    def take(self, row, name, told):
        """An arm of a row, or why there is none."""
        if told["failed_stage"] not in ("", "performance", "evidence") or told["p50_us"] is None:
            self.absent[NAMES.get(name, name)] = f"{told['problem']}: {told['cause']}"
            return
        seconds = told["p50_us"] * 1e-6
        arm = row["arms"][name] = {"seconds": seconds, "gflops": told["gflops"], "way": told["provider"]}
        if told["of_subject"] is not None:
            arm.update(ratio=told["of_subject"], low=told["of_subject_low"], high=told["of_subject_high"], word=told["of_subject_word"])
        if told["place"] == 0:
            row["fma"], row["read"] = told["fma_us"] / told["p50_us"], told["bytes_us"] / told["p50_us"]
        elif not told["provider"].startswith("cpu"):
            self.versions.setdefault(f"{name} {told['build_id']}", set()).add(row["isa"])

    def say(self):
        """After the tables: versions, with the instructions they were seen with, and who was missing."""
        seen = [f"{text} ({', '.join(sorted(isas))})" for text, isas in sorted(self.versions.items())]
        print("\nVersions, and the instructions allowed: " + "; ".join(seen) + ".")
        for name, why in self.absent.items():
            print(f"\n{name} was not compared: {why}.")


def shape_row(told, isa):
    sizes = [int(size) for size in re.findall(r"[nkb](\d+)", told["shape"].split()[-1])]
    return {"isa": isa, "dtype": told["dtype"], "threads": told["threads"], "n": sizes[0], "k": sizes[1], "b": sizes[2], "arms": {}}


def sampling(bench, seconds):
    if bench.quick:
        return ["--with", "pairs=6", "--seconds", "0.05", "--samples", "5", "--warmup", "1"]
    return ["--seconds", str(seconds)]


def subject(row):
    return row["arms"]["auto"]


def share(row, name, digits=3):
    arm = row["arms"].get(name)
    return interval(arm, digits) if arm else ""


def cells(row, shown):
    """Of one shape: ours, its shares of the limits, then each peer's time over ours."""
    ours = subject(row)
    first = (row["isa"], row["dtype"], row["threads"], row["b"], ours["way"], us(ours["seconds"]),
             f"{ours['gflops']:.1f}", f"{row['fma']:.3f}", f"{row['read']:.3f}")
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
    product, rows, size = Product(bench, ("auto", *shown)), [], size_of(bench)
    for isa in bench.isas:
        for threads in bench.threads(1, 2):
            rows += product.rows(size, size, bench.count((16, 64, 256), (16, 64)), threads, isa, options=sampling(bench, 25))
    for row in rows:
        arms = row["arms"]
        if row["b"] >= 64:
            at_least(bench, row, "share of the FMA limit", {"ratio": row["fma"]}, 0.85)
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
    product, rows, size = Product(bench, ("auto", *shown)), [], size_of(bench)
    for isa in bench.count(bench.isas, bench.isas[:1]):
        for threads in bench.threads(*bench.count((1, 2), (2,))):
            rows += product.rows(size, size, bench.count(range(1, 9), (1, 3)), threads, isa, options=sampling(bench, 6))
    for row in rows:
        which = max("fma", "read", key=row.get)
        at_least(bench, row, f"share of the lower limit ({which})", {"ratio": row[which]}, 0.85)
    product_table(rows, shown)
    product.say()


def native(dtype, isa, flags):
    """Has the processor products of this dtype that may be used?"""
    wanted = {"bf16": {"avx512_bf16", "amx_bf16"}, "f16": {"avx512_fp16", "amx_fp16"}}[dtype]
    return isa != "avx2" and bool(wanted & flags)


def half(bench):
    heading("bf16 and f16")
    shown = ("f32", "onednn", "torch")
    product, rows, size, flags = Product(bench, ("auto", *shown)), [], size_of(bench), cpu_flags()
    for dtype in ("bf16", "f16"):
        for isa in bench.count(bench.isas, bench.isas[-1:]):
            for threads in bench.threads(*bench.count((1, 2), (2,))):
                rows += product.rows(size, size, bench.count((1, 16, 64, 256), (1, 16)), threads, isa, dtype, sampling(bench, 12))
    for row in rows:
        arms, own = row["arms"], native(row["dtype"], row["isa"], flags)
        at_least(bench, row, "speed relative to our own f32", arms.get("f32"), 1.6 if row["b"] == 1 else 0.85)
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
    product = Product(bench, ("auto", *BLAS))
    options = sampling(bench, 0.3) + ([] if bench.quick else ["--with", "pairs=6", "--with", "slowest=10", "--samples", "3", "--warmup", "0"])
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
