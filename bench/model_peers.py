#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times `bsrun model bench` and ONNX Runtime on the same model, inputs, cores and numbers of threads, in turns.

  bench/model_peers.py BUILD_DIR DIR[@NAME=N,...]... [--threads 1,2] [--rounds 7] [--seconds 1] [--allow-fallback] [-o md|json]

  tools/bs-export minilm out/minilm                       # its tokens are a symbol: @ gives them a size
  tools/bs-export gpt2 out/gpt2-s128 --tokens 128
  tools/bs-export block-sdpa-toy out/block-sdpa-toy
  bench/model_peers.py build/release out/minilm@batch=1,tokens=128 out/gpt2-s128 out/block-sdpa-toy

DIR is a folder of tools/bs-export (model.onnx, vectors.txt); its first case gives the inputs, --case another. Behind @ are sizes of
symbols: the case's inputs are then repeated or cut to them, and inputs of only 0 and 1 (masks) become 1. Needs the Python packages
numpy and onnxruntime; without onnxruntime it says so and times `bsrun model bench` alone. A round is --seconds of each on the same
cores; which goes first changes from round to round. Both have their inputs and outputs bound to memory once, warm up for as long
(ONNX Runtime as long as bsrun did), and take the median of samples of 2 ms or more. The table has the median of the rounds' medians,
and the median and the quartiles of the rounds' ratios. The bar (docs/performance.md): ratio >= 0.8, that is ONNX Runtime's seconds
over ours. Before that the outputs are compared: they may differ by the tolerance of vectors.txt, of the largest number; a model that
differs by more is not timed. Nor is one of which ref serves a node without --allow-fallback, which says so in the row. Exit: 0 timed,
1 one could not run it or the outputs differ, 2 wrong words."""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time


SAMPLES, SHORTEST_SAMPLE, LONGEST_SAMPLE = 200, 2e-3, 0.05  # as lab/model/bench.c


def inputs_of(folder, wanted):
    """{name: file}, {symbol: size} and the tolerance of a case of vectors.txt."""
    files, sizes, case, tolerance = {}, {}, None, 1e-4
    for line in (folder / "vectors.txt").read_text(encoding="utf-8").splitlines():
        word, _, rest = line.partition(" ")
        if word == "case":
            if case is not None and case == wanted:
                break
            case = rest
            wanted = wanted or case
        elif case in (None, wanted) and word == "tolerance":
            tolerance = float(rest)
        elif case == wanted and word == "input":
            file, _, name = rest.partition(" ")
            files[name] = str(folder / file)
        elif case == wanted and word == "dim":
            size, _, name = rest.partition(" ")
            sizes[name] = size
    if not files:
        raise SystemExit(f"model_peers: {folder}/vectors.txt has no case {wanted or ''} with inputs")
    return files, sizes, tolerance


def resized(options, folder, files, sizes, scratch):
    """The files of a case, repeated or cut to other sizes of the model's symbols."""
    import numpy

    bsrun = str(options.build / "bin" / "bsrun")
    done = subprocess.run([bsrun, "model", "info", str(folder / "model.onnx"), "-o", "json"], capture_output=True, text=True, check=False)
    shapes = {port["name"]: port["shape"] for port in json.loads(done.stdout)["inputs"]}
    made = {}
    for name, file in files.items():
        shape = [int(sizes.get(size, -1)) if isinstance(size, str) else size for size in shapes[name]]
        if min(shape, default=1) < 0:
            raise SystemExit(f"model_peers: {folder}: input {name} is {shapes[name]}: give each symbol a size behind @")
        array = numpy.resize(numpy.load(file), shape)
        if array.dtype.kind in "iub" and array.max(initial=0) <= 1:
            array[...] = 1
        made[name] = f"{scratch}/{len(made)}.npy"
        numpy.save(made[name], array)
    return made


class Ours:
    def __init__(self, options, folder, files, sizes, threads):
        self.words = [str(folder / "model.onnx"), "--threads", str(threads), "--backend", options.backend, "-o", "json"]
        for name, file in files.items():
            self.words += ["--input", f"{name}={file}"]
        for name, size in sizes.items():
            self.words += ["--dim", f"{name}={size}"]
        self.bsrun, self.backend, self.on_ref = str(options.build / "bin" / "bsrun"), options.backend, 0
        self.bench = ["--seconds", str(options.seconds), "--out", "off"] + ["--force"] * options.allow_fallback
        self.warm_s = options.seconds

    def model(self, verb, more):
        done = subprocess.run([self.bsrun, "model", verb, *self.words, *more], capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines()
            raise RuntimeError(next((line for line in lines if "error" in line), lines[-1] if lines else f"exit {done.returncode}"))
        return json.loads(done.stdout)

    def outputs(self, names):
        import numpy

        with tempfile.TemporaryDirectory() as scratch:
            self.model("run", ["--to", scratch])
            return [numpy.load(f"{scratch}/{name}.npy") for name in names]

    def round(self):
        answer = self.model("bench", self.bench)
        row = answer["rows"][0]
        self.on_ref = row["fallback_nodes"] if self.backend != "ref" else 0
        self.warm_s = row["first_s"] + row["warm_s"]
        return float(answer["median_s"])


class Runtime:
    """ONNX Runtime, all optimisations, inputs and outputs bound to memory of its own."""

    def __init__(self, folder, files, threads, seconds):
        import numpy
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        settings.log_severity_level = 4
        self.session = onnxruntime.InferenceSession(str(folder / "model.onnx"), settings, providers=["CPUExecutionProvider"])
        self.names, self.seconds = [port.name for port in self.session.get_outputs()], seconds
        feeds = {name: numpy.load(file) for name, file in files.items()}
        self.outputs = self.session.run(self.names, feeds)
        self.ports, self.values = self.session.io_binding(), []
        for name, array in feeds.items():
            self.values.append(onnxruntime.OrtValue.ortvalue_from_numpy(array))
            self.ports.bind_ortvalue_input(name, self.values[-1])
        for name, array in zip(self.names, self.outputs):
            self.values.append(onnxruntime.OrtValue.ortvalue_from_numpy(array.copy()))
            self.ports.bind_ortvalue_output(name, self.values[-1])

    def sample(self, calls):
        start = time.perf_counter()
        for _ in range(calls):
            self.session.run_with_iobinding(self.ports)
        return (time.perf_counter() - start) / calls

    def round(self, warm_s):
        end, each = time.perf_counter() + warm_s, self.sample(1)
        while time.perf_counter() < end:
            each = self.sample(1)
        calls = max(1, round(min(max(self.seconds / SAMPLES, SHORTEST_SAMPLE), LONGEST_SAMPLE) / each))
        times, end = [], time.perf_counter() + self.seconds
        while len(times) < 5 or time.perf_counter() < end:
            times.append(self.sample(calls))
        return statistics.median(times)


def apart(got, wanted):
    """The largest difference of outputs, of the largest number wanted; infinity where one is no number or shapes differ."""
    import numpy

    worst = 0.0
    for ours, theirs in zip(got, wanted):
        if ours.shape != theirs.shape:
            return float("inf")
        ours, theirs = ours.astype(numpy.float64), theirs.astype(numpy.float64)
        if ours.size == 0:
            continue
        off = float(abs(ours - theirs).max()) / (float(abs(theirs).max()) or 1.0)
        worst = max(worst, off if off == off else float("inf"))
    return worst


def compare(options, folder, wanted, threads, scratch):
    """A row: medians of both, ratio and its quartiles; what failed in the place of a number."""
    files, sizes, tolerance = inputs_of(folder, options.case)
    if wanted:
        sizes = dict(sizes, **wanted)
        files = resized(options, folder, files, sizes, scratch)
    row = {"model": folder.name, "case": " ".join(f"{n}={s}" for n, s in sizes.items()) or "fixed", "threads": threads, "why": ""}
    arms = {"ours": Ours(options, folder, files, sizes, threads)}
    try:
        arms["peer"] = Runtime(folder, files, threads, options.seconds)
    except Exception as why:  # not installed, or it cannot load the model: its exceptions have no common base
        row["why"] = f"ONNX Runtime: {str(why).splitlines()[0][:160]}"
    ours = arms["ours"]
    if "peer" in arms:
        try:
            row["apart"] = apart(ours.outputs(arms["peer"].names), arms["peer"].outputs)
        except (RuntimeError, OSError, ValueError, subprocess.TimeoutExpired) as why:
            return dict(row, why=f"bsrun model run: {str(why)[:200]}")
        if not row["apart"] <= tolerance:
            return dict(row, why=f"the outputs differ by {row['apart']:.2g} of the largest, {tolerance:g} is allowed")
    rounds = {name: [] for name in arms}
    for number in range(options.rounds):
        for name in sorted(arms, reverse=number % 2 == 1):
            try:
                rounds[name].append(ours.round() if name == "ours" else arms[name].round(ours.warm_s))
            except (RuntimeError, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as why:
                who = "bsrun model bench" if name == "ours" else "ONNX Runtime"
                row["why"] = f"{who}: {str(why)[:200]}"
                arms = {key: arm for key, arm in arms.items() if key != name}
            time.sleep(0.1)  # threads that wait for work by spinning have gone to sleep
    for name, seconds in rounds.items():
        row[f"{name}_ms"] = statistics.median(seconds) * 1e3 if seconds else None
    if rounds.get("peer") and len(rounds["ours"]) == len(rounds["peer"]):
        ratios = sorted(peer / ours for peer, ours in zip(rounds["peer"], rounds["ours"]))
        row["ratio"] = statistics.median(ratios)
        row["low"], row["high"] = ratios[len(ratios) // 4], ratios[(3 * len(ratios)) // 4]
        row["ratios"] = ratios
    if ours.on_ref:
        row["why"] += f"{'; ' * bool(row['why'])}{ours.on_ref} nodes on ref"
    return row


def folder_word(word):
    """(folder, {symbol: size}) of DIR[@NAME=N,...]."""
    folder, _, sizes = word.partition("@")
    pairs = [size.partition("=") for size in sizes.split(",") if size]
    if not all(name and number.isdecimal() for name, _, number in pairs):
        raise argparse.ArgumentTypeError(f"{word}: not of the form DIR@NAME=N,NAME=N")
    return pathlib.Path(folder), {name: number for name, _, number in pairs}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("folders", type=folder_word, nargs="+")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--case")
    parser.add_argument("--allow-fallback", action="store_true")
    parser.add_argument("-o", "--output", choices=("md", "json"), default="md")
    options = parser.parse_intermixed_args()
    cores, rows = sorted(os.sched_getaffinity(0)), []
    with contextlib.suppress(ImportError):  # before this process is pinned: libraries count the cores when they are loaded
        import onnxruntime

        print(f"model_peers: ONNX Runtime {onnxruntime.__version__}", file=sys.stderr)
    for folder, wanted in options.folders:
        if not (folder / "vectors.txt").exists():
            parser.error(f"{folder} has no vectors.txt: tools/bs-export writes such a folder")
        for threads in (int(word) for word in options.threads.split(",")):
            if threads > len(cores):
                print(f"model_peers: {threads} threads: only {len(cores)} cores", file=sys.stderr)
                continue
            os.sched_setaffinity(0, cores[:threads])
            with tempfile.TemporaryDirectory() as scratch:
                rows.append(compare(options, folder, wanted, threads, scratch))
            os.sched_setaffinity(0, cores)
    if options.output == "json":
        print(json.dumps(rows, indent=1))
    else:
        print("| model | dims | threads | ours, ms | ONNX Runtime, ms | theirs / ours | quartiles | outputs apart | |\n"
              "| --- | --- | --: | --: | --: | --: | --- | --: | --- |")
        for row in rows:
            show = {key: f"{row[key]:.3f}" if row.get(key) is not None else "-" for key in ("ours_ms", "peer_ms", "ratio", "low", "high")}
            print(f"| {row['model']} | {row['case']} | {row['threads']} | {show['ours_ms']} | {show['peer_ms']} | {show['ratio']} "
                  f"| {show['low']} to {show['high']} | {row.get('apart', float('nan')):.1e} | {row['why']} |")
    return 1 if not rows or any(row.get("ratio") is None for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
