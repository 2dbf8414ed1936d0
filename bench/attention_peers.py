#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times attention of the cpu plugin (bench_graph_ops) and PyTorch's scaled_dot_product_attention in turns, on the same numbers, cores
and numbers of threads.

  bench/attention_peers.py BUILD_DIR [SHAPE...] [--threads 1,2] [--dtypes f32,bf16,f16] [--masks full,causal] [--rounds 9] [--seconds 0.3]
                           [-o md|json]

A SHAPE is b2h8s512d64, or small (b1h8s128d64), mission (b2h8s512d64) or long (b2h8s2048d64); by default b1h12s512d64. Needs numpy and
torch. A round is 15 samples of each over --seconds, an untimed call before each; which goes first changes from round to
round. The outputs are compared (1e-5 of the largest in f32, 1e-2 in 16 bits). The table has the median of the rounds' medians, and the median and the quartiles of the rounds' ratios, PyTorch's
seconds over ours. Exit: 0 timed, 1 one could not run or the outputs differ, 2 wrong words."""
import argparse
import itertools
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time


SAMPLES = 15
NAMED = {"small": "b1h8s128d64", "mission": "b2h8s512d64", "long": "b2h8s2048d64"}


class Case:
    def __init__(self, shape, dtype, mask, threads):
        found = re.fullmatch(r"b(\d+)h(\d+)s(\d+)d(\d+)", NAMED.get(shape, shape))
        if found is None:
            raise SystemExit(f"attention_peers: no shape {shape}: {', '.join(NAMED)} or b2h8s512d64")
        self.sizes, self.shape = [int(word) for word in found.groups()], found.group()
        self.dtype, self.causal, self.threads = dtype, mask == "causal", threads


class Ours:
    def __init__(self, options, case):
        batches, heads, rows, width = (str(size) for size in case.sizes)
        self.command = [str(options.build / "bench" / "bench_graph_ops"), "--op", "attention_causal" if case.causal else "attention",
                        "--threads", str(case.threads), "--batches", batches, "--heads", heads, "--rows", rows, "--width", width,
                        "--dtype", case.dtype, "--pairs", str(SAMPLES), "--batch", str(options.seconds / SAMPLES), "-o", "json"]  # fmt: skip

    def round(self, *more):
        done = subprocess.run([*self.command, *more], capture_output=True, text=True, timeout=600, check=True)
        return json.loads(done.stdout)["ours_s"]

    def output(self):
        import numpy

        with tempfile.TemporaryDirectory() as scratch:
            self.round("--save", f"{scratch}/y")
            return numpy.fromfile(f"{scratch}/y", dtype=numpy.float32)


class Torch:
    def __init__(self, options, case):
        import numpy
        import torch

        torch.set_num_threads(case.threads)
        self.seconds, self.causal = options.seconds, case.causal
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[case.dtype]
        i = numpy.arange(math.prod(case.sizes), dtype=numpy.int64)
        numbers = [((i * 7919 + k * 104729) % 2003 / 1001.0 - 1.0).astype(numpy.float32).reshape(case.sizes) for k in range(3)]
        self.qkv = [torch.from_numpy(part).to(dtype) for part in numbers]

    def call(self):
        import torch

        with torch.inference_mode():
            return torch.nn.functional.scaled_dot_product_attention(*self.qkv, is_causal=self.causal)

    def round(self):
        times = []
        for _ in range(SAMPLES):
            self.call()
            calls, start, taken = 0, time.perf_counter(), 0.0
            while taken < self.seconds / SAMPLES:
                self.call()
                calls, taken = calls + 1, time.perf_counter() - start
            times.append(taken / calls)
        return statistics.median(times)


def compare(options, case):
    arms = {"ours": Ours(options, case), "torch": Torch(options, case)}
    theirs = arms["torch"].call().float().numpy().flatten()
    apart = float(abs(arms["ours"].output() - theirs).max() / abs(theirs).max())
    if not apart <= (1e-5 if case.dtype == "f32" else 1e-2):
        raise SystemExit(f"attention_peers: {case.shape} {case.dtype}: the outputs differ by {apart:.2g} of the largest")
    rounds = {name: [] for name in arms}
    for number in range(options.rounds):
        for name in sorted(arms, reverse=number % 2 == 1):
            rounds[name].append(arms[name].round())
            time.sleep(0.1)  # threads that wait for work by spinning have gone to sleep
    ratios = sorted(peer / ours for peer, ours in zip(rounds["torch"], rounds["ours"]))
    row = {"shape": f"{case.shape}:{case.dtype}:{'causal' if case.causal else 'full'}", "threads": case.threads, "ratios": ratios}
    row["ours_ms"], row["torch_ms"] = (statistics.median(rounds[name]) * 1e3 for name in ("ours", "torch"))
    row["ratio"], row["low"], row["high"] = statistics.median(ratios), ratios[len(ratios) // 4], ratios[(3 * len(ratios)) // 4]
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("shapes", nargs="*", default=["b1h12s512d64"])
    for name, most in (("threads", "1,2"), ("dtypes", "f32"), ("masks", "full,causal")):
        parser.add_argument(f"--{name}", default=most)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("-o", "--output", choices=("md", "json"), default="md")
    options, cores, rows = parser.parse_args(), sorted(os.sched_getaffinity(0)), []
    import torch  # before this process is pinned: its threads and their number come from the cores that it sees when it is loaded

    print(f"attention_peers: PyTorch {torch.__version__}", file=sys.stderr)
    for threads in (int(word) for word in options.threads.split(",")):
        if threads > len(cores):
            print(f"attention_peers: {threads} threads: only {len(cores)} cores", file=sys.stderr)
            continue
        os.sched_setaffinity(0, cores[:threads])
        words = itertools.product(options.shapes, options.dtypes.split(","), options.masks.split(","))
        rows += [compare(options, Case(*word, threads)) for word in words]
        os.sched_setaffinity(0, cores)
    if options.output == "json":
        print(json.dumps(rows, indent=1))
        return 0 if rows else 1
    print("| shape | threads | ours, ms | PyTorch, ms | theirs / ours | quartiles |\n| --- | --: | --: | --: | --: | --- |")
    for r in rows:
        print(f"| {r['shape']} | {r['threads']} | {r['ours_ms']:.3f} | {r['torch_ms']:.3f} | {r['ratio']:.3f} "
              f"| {r['low']:.3f} to {r['high']:.3f} |")
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
