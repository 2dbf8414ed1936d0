#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times `bsrun model bench` and ONNX Runtime on the same model, inputs, cores and numbers of threads, in turns.

  bench/model_peers.py BUILD_DIR DIR... [--threads 1,2] [--rounds 7] [--seconds 1] [-o md|json]

DIR is a folder of tools/bs-export (model.onnx, vectors.txt); its first case gives the inputs, --case another. Needs the Python
packages numpy and onnxruntime; without onnxruntime it says so and times `bsrun model bench` alone. A round is one second of each;
which goes first changes from round to round. The table has the median of the rounds' medians and the quartiles of their ratio.
The bar (docs/performance.md): ratio >= 0.8, that is ONNX Runtime's seconds over ours. Exit: 0 timed, 1 one could not run it."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time


def inputs_of(folder, wanted):
    """{name: file} and {symbol: size} of a case of vectors.txt."""
    files, sizes, case = {}, {}, None
    for line in (folder / "vectors.txt").read_text(encoding="utf-8").splitlines():
        word, _, rest = line.partition(" ")
        if word == "case":
            if case is not None and case == wanted:
                break
            case = rest
            wanted = wanted or case
        elif case == wanted and word == "input":
            file, _, name = rest.partition(" ")
            files[name] = str(folder / file)
        elif case == wanted and word == "dim":
            size, _, name = rest.partition(" ")
            sizes[name] = size
    if not files:
        raise SystemExit(f"model_peers: {folder}/vectors.txt has no case {wanted or ''} with inputs")
    return files, sizes


class Ours:
    def __init__(self, build, folder, files, sizes, threads, seconds, backend):
        self.command = [str(build / "bin" / "bsrun"), "model", "bench", str(folder / "model.onnx"), "--threads", str(threads),
                        "--backend", backend, "--seconds", str(seconds), "-o", "json"]  # fmt: skip
        for name, file in files.items():
            self.command += ["--input", f"{name}={file}"]
        for name, size in sizes.items():
            self.command += ["--dim", f"{name}={size}"]

    def round(self):
        done = subprocess.run(self.command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines()
            raise RuntimeError(next((line for line in lines if "error" in line), lines[-1] if lines else f"exit {done.returncode}"))
        return float(json.loads(done.stdout)["median_s"])


class Runtime:
    """ONNX Runtime, all optimisations, warm."""

    def __init__(self, folder, files, threads, seconds):
        import numpy
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        settings.log_severity_level = 4
        self.session = onnxruntime.InferenceSession(str(folder / "model.onnx"), settings, providers=["CPUExecutionProvider"])
        self.feeds = {name: numpy.load(file) for name, file in files.items()}
        self.seconds = seconds
        for _ in range(3):
            self.session.run(None, self.feeds)

    def round(self):
        times, end = [], time.perf_counter() + self.seconds
        self.session.run(None, self.feeds)
        while not times or time.perf_counter() < end:
            start = time.perf_counter()
            self.session.run(None, self.feeds)
            times.append(time.perf_counter() - start)
        return statistics.median(times)


def compare(options, folder, threads):
    """A row: medians of both, ratio and its quartiles; what failed in the place of a number."""
    files, sizes = inputs_of(folder, options.case)
    row = {"model": folder.name, "case": " ".join(f"{n}={s}" for n, s in sizes.items()) or "fixed", "threads": threads, "why": ""}
    arms = {"ours": Ours(options.build, folder, files, sizes, threads, options.seconds, options.backend)}
    try:
        arms["peer"] = Runtime(folder, files, threads, options.seconds)
    except Exception as why:  # not installed, or it cannot load the model: its exceptions have no common base
        row["why"] = f"ONNX Runtime: {str(why).splitlines()[0][:160]}"
    rounds = {name: [] for name in arms}
    for number in range(options.rounds):
        for name in sorted(arms, reverse=number % 2 == 1):
            try:
                rounds[name].append(arms[name].round())
            except (RuntimeError, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as why:
                row["why"] = f"bsrun model bench: {str(why)[:160]}"
                arms = {key: arm for key, arm in arms.items() if key != name}
            time.sleep(0.1)  # threads that wait for work by spinning have gone to sleep
    for name, seconds in rounds.items():
        row[f"{name}_ms"] = statistics.median(seconds) * 1e3 if seconds else None
    if rounds.get("peer") and len(rounds["ours"]) == len(rounds["peer"]):
        ratios = sorted(peer / ours for peer, ours in zip(rounds["peer"], rounds["ours"]))
        row["ratio"] = statistics.median(ratios)
        row["low"], row["high"] = ratios[len(ratios) // 4], ratios[(3 * len(ratios)) // 4]
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("folders", type=pathlib.Path, nargs="+")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--case")
    parser.add_argument("-o", "--output", choices=("md", "json"), default="md")
    options = parser.parse_intermixed_args()
    cores, rows = sorted(os.sched_getaffinity(0)), []
    for folder in options.folders:
        for threads in (int(word) for word in options.threads.split(",")):
            if threads > len(cores):
                print(f"model_peers: {threads} threads: only {len(cores)} cores", file=sys.stderr)
                continue
            os.sched_setaffinity(0, cores[:threads])
            rows.append(compare(options, folder, threads))
            os.sched_setaffinity(0, cores)
    if options.output == "json":
        print(json.dumps(rows, indent=1))
    else:
        print("| model | dims | threads | ours, ms | ONNX Runtime, ms | theirs / ours | quartiles | |\n| --- | --- | --: | --: | --: | --: | --- | --- |")
        for row in rows:
            show = {key: f"{row[key]:.3f}" if row.get(key) is not None else "-" for key in ("ours_ms", "peer_ms", "ratio", "low", "high")}
            print(f"| {row['model']} | {row['case']} | {row['threads']} | {show['ours_ms']} | {show['peer_ms']} | {show['ratio']} "
                  f"| {show['low']} to {show['high']} | {row['why']} |")
    return 1 if not rows or any(row.get("ratio") is None for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
