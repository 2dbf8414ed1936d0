# SPDX-License-Identifier: MIT
"""Parts of bench/run that are about the whole: layers, host cost, all_reduce, memory, start, build."""
import json
import os
import statistics
import subprocess
import tempfile
import time

import peers
from common import ROOT, heading, interval, note, show, table, us


LAYERS = {"blockshock": "method=blockshock mask=%s P=2", "row_parallel": "method=row_parallel P=2", "dense": "method=dense P=1"}
PHASE_OF = {"forward": ("--phase", "time"), "backward": ("--phase", "backward"), "sgd": ("--phase", "train"),
            "adamw": ("--phase", "train", "--set", "phase.optimizer=adamw")}


def ratios(bench, work, tokens, mask, impl):
    """Of one layer on two ranks of a thread: the time of each method over that of another, by `bsrun compare`; dense is on one rank."""
    size = bench.count(4096, 256)
    shape = ["--n", str(size), "--k", str(size), "--dtype", "f32", *PHASE_OF[work], "--threads", "1", "--set", f"model.B={tokens}",
             "--set", "method.bias=false", "--plugin", "cpu", "--set", f"plugins.cpu.matmul={impl}", "--seconds", str(bench.count(20, 0.1))]
    for of, to in (("blockshock", "row_parallel"), ("dense", "blockshock"), ("dense", "row_parallel")):
        sides = [LAYERS[method] % mask if "%s" in LAYERS[method] else LAYERS[method] for method in (of, to)]
        command = [bench.path("bin", "bsrun"), "compare", sides[0], sides[1], *shape, "--out", "off", "-q", "-o", "json"]
        first, second = json.loads(bench.run(command))
        yield {"of": of, "to": to, "ratio": second["speedup"], "low": second["speedup_low"], "high": second["speedup_high"], "pairs": second["pairs"],
               "of_s": first["measured_ms"] * 1e-3, "to_s": second["measured_ms"] * 1e-3, "shape": f"P = 2, N = K = {size}, B = {tokens}, f32"}


def ratio_cells(r):
    return f"{r['of']} / {r['to']}", interval(r), r["pairs"], us(r["of_s"]), us(r["to_s"])


def layer(bench):
    heading("A layer: blockshock, row_parallel, dense")
    rows = []
    for mask, impl in [(mask, impl) for mask in ("complement_1100_0011", "complement_1010_0101")
                       for impl in (("packed", "dnnl") if bench.has_onednn() else ("packed",))]:
        for r in ratios(bench, "forward", 64, mask, impl):
            rows.append((mask, impl, *ratio_cells(r)))
            shape = f"{r['shape']}, {mask}, {impl}"
            if r["of"] == "dense":
                bench.goal(f"dense on one thread / {r['to']}, {shape}", ">= 1.9", f"{r['ratio']:.3f}", r["ratio"] >= 1.9)
            else:
                bench.goal(f"blockshock / row_parallel, time, {shape}", "<= 1.02", f"{r['ratio']:.3f}", r["ratio"] <= 1.02)
    table(("mask", "kernels", "time of / time of", "median ratio [95 %]", "pairs", "us", "us"), rows)


def train(bench):
    heading("Backward and train step: blockshock, row_parallel, dense on one thread")
    rows = []
    for work, name, tokens, least in (("backward", "backward", 64, None), ("sgd", "step of SGD", 256, 1.85), ("adamw", "step of AdamW", 64, 1.7)):
        for r in ratios(bench, work, tokens, "complement_1100_0011", "packed"):
            rows.append((f"{name}, B = {tokens}", *ratio_cells(r)))
            shape = f"{work}, {r['shape']}"
            if r["of"] != "dense" and work == "backward":
                bench.goal(f"blockshock / row_parallel, {shape}", "<= 1.02", f"{r['ratio']:.3f}", r["ratio"] <= 1.02)
            elif r["of"] == "dense" and least is not None:
                bench.goal(f"dense on one thread / {r['to']}, {shape}", f">= {least}", f"{r['ratio']:.3f}", r["ratio"] >= least)
    table(("work", "time of / time of", "median ratio [95 %]", "pairs", "us", "us"), rows)


def host(bench):
    heading("Host cost of a forward")
    command = [bench.path("bench", "bench_host"), "--pairs", str(bench.count(200, 5)), "--calls",
               str(bench.count(5000, 50)), "-o", "json"]
    rows = []
    for r in bench.json_lines(command):
        rows.append((r["method"], r["ranks"], r["impl"], us(r["forward_s"]), us(r["bare_s"]), us(r["cost_s"]),
                     us(r["cost_p90_s"])))
        bench.goal(f"host cost, {r['method']}, P = {r['ranks']}, N = K = {r['n']}, B = {r['b']}", "<= 2 us",
                   f"{us(r['cost_s'])} us", r["cost_s"] <= 2e-6)
    table(("method", "ranks", "kernel", "forward us", "kernel and collective us", "cost us", "p90 us"), rows)


def exchange(bench, found, sizes, rounds):
    """{(peer name, size): [seconds]}: rounds in turn, forwards and backwards."""
    seconds = {}
    for turn in range(rounds):
        for peer in found if turn % 2 == 0 else reversed(found):
            note(f"all_reduce, round {turn + 1} of {rounds}: {peer.name}")
            pairs = [(size, max(5, iters // bench.count(1, 20))) for size, iters in sizes[peer.name]]
            for (size, _), took in zip(pairs, peer.run(pairs)):
                seconds.setdefault((peer.name, size), []).append(took)
    return seconds


def allreduce(bench):
    heading("all_reduce, two ranks")
    command = [bench.path("bin", "bsrun"), "coll", "bench", "-P", "2", "--coll", "all_reduce", "-q", "-o", "jsonl"]
    rows = []
    for r in bench.json_lines([*command, "--size", "4:16Mi*4"]):
        median = r["time_us"] * 1e-6
        if r["bytes"] == 4:
            bench.goal("all_reduce of 4 bytes, 2 ranks", "<= 0.5 us", f"{us(median)} us", median <= 0.5e-6)
        rows.append((r["bytes"], us(median), us(r["p90_us"] * 1e-6), f"{r['algbw_GBps']:.2f}"))
    table(("bytes", "median us", "p90 us", "GB/s"), rows)
    print("\nIn turn with the peers:\n")
    found, absent = [peers.Ours("threads", "", command)], {}
    for name, find in (("Open MPI", bench.peers.open_mpi), ("gloo", bench.peers.gloo)):
        try:
            found.append(find())
        except peers.Absent as why:
            absent[name] = why
    sizes = {"threads": ((4, 100000), (1 << 20, 2000)), "Open MPI": ((4, 100000), (1 << 20, 500)),
             "gloo": ((4, 2000), (1 << 20, 100))}
    for peer in found:
        for command in peer.commands(sizes[peer.name]):
            show(command)
    compare(bench, found, exchange(bench, found, sizes, bench.count(7, 2)))
    for name, why in absent.items():
        print(f"\n{name} was not compared: {why}.")


def compare(bench, found, seconds):
    rows = []
    for size, least in ((4, {}), (1 << 20, {"Open MPI": 4.0, "gloo": 15.0})):
        ours = seconds[("threads", size)]
        for peer in found:
            took = seconds[(peer.name, size)]
            ratios = [theirs / mine for theirs, mine in zip(took, ours)]
            ratio = statistics.median(ratios)
            rows.append((size, peer.name, peer.version, us(statistics.median(took)),
                         f"{ratio:.2f} [{min(ratios):.2f}, {max(ratios):.2f}]", len(took)))
            if peer.name in least:
                bench.goal(f"all_reduce of 1 MiB, {peer.name} / threads", f">= {least[peer.name]:.0f}", f"{ratio:.1f}",
                           ratio >= least[peer.name])
    table(("bytes", "library", "version", "us a call", "time / threads' [least, most]", "rounds"), rows)


def memory(bench):
    heading("Tracked memory of a run")
    size, tokens, ranks = bench.count(4096, 512), 64, 2
    settings = (f"model.N={size}", f"model.B={tokens}", "model.dtype=f32", "phase.pairs_min=5", "phase.pairs_max=5", "phase.pairs_seconds=0.1")
    peak = bench.phase1("blockshock", ranks, settings)[0]["memory_peak_bytes"]
    least = size * size * 4 + ranks * (tokens * size + tokens * size) * 4
    table(("tracked peak, bytes", "halves of W + X + Y, all ranks", "ratio"), [(peak, least, f"{peak / least:.3f}")])
    bench.goal(f"tracked memory, blockshock, P = 2, N = K = {size}, B = {tokens}, f32", "<= 1.10", f"{peak / least:.3f}",
               peak <= 1.10 * least)


def process_times(command, times):
    """Seconds from start to end of a process, output thrown away."""
    taken = []
    with open(os.devnull, "wb") as null:
        actions = [(os.POSIX_SPAWN_DUP2, null.fileno(), 1)]
        for _ in range(times):
            start = time.perf_counter()
            child = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
            status = os.waitpid(child, 0)[1]
            taken.append(time.perf_counter() - start)
            if status != 0:
                raise RuntimeError(f"{' '.join(command)} gave {os.waitstatus_to_exitcode(status)}")
    return taken


def start(bench):
    heading("Starting bsrun")
    rows = []
    for words, limit in ((["plugins", "list"], 0.020), (["--help"], 0.010)):
        command = [bench.path("bin", "bsrun")] + words
        show(command)
        taken = process_times(command, bench.count(30, 5))
        median = statistics.median(taken)
        name = "bsrun " + " ".join(words)
        rows.append((name, f"{min(taken) * 1e3:.2f}", f"{median * 1e3:.2f}", len(taken)))
        bench.goal(name, f"<= {limit * 1e3:.0f} ms", f"{median * 1e3:.1f} ms", median <= limit)
    table(("command", "least ms", "median ms", "runs"), rows)


def build(bench):
    heading("Building the tree")
    cores = sorted(os.sched_getaffinity(0))[:2]
    environment = dict(os.environ, CCACHE_DISABLE="1")
    if bench.quick:
        print("Not with --quick.")
        return
    with tempfile.TemporaryDirectory() as folder:
        def on_two_cores():
            os.sched_setaffinity(0, cores)
        begin = time.perf_counter()
        more = {"cwd": ROOT, "env": environment, "preexec_fn": on_two_cores}
        bench.run(["cmake", "--preset", "release", "-B", folder], **more)
        bench.run(["cmake", "--build", folder, "-j", "2"], **more)
        took = time.perf_counter() - begin
    table(("what", "cores", "s"), [("configure and build, tests and benchmarks included", len(cores), f"{took:.0f}")])
    bench.goal("building the tree on 2 cores", "<= 180 s", f"{took:.0f} s", took <= 180)
