# SPDX-License-Identifier: MIT
"""Parts 2 and 3 of a visit: how fast is it, beside NVIDIA's libraries and PyTorch, and which knobs are the best?"""
import functools
import json
import os
import re
import sys
import tempfile

import folder as folders
import machine
from proofs import HERE, failed_cells, matrix, sdpa, settings, tables
from visit import Step, demand

# Queries and heads: 512 tiles of 128 queries, about four for each multiprocessor. (The host judges more heads for longer than it may take.)
LADDER = (("4Ki", 16), ("512", 128), ("2Ki", 32), ("16Ki", 4))
# Name, dtype, N = K, B, providers; the first one is what the ratios are of. By the plugin: its choice, its implementations, and half
# of the columns of the whole X (docs/kernel-lab.md).
PEERS, HALF, HALF24 = "cuda,cuda:cublaslt,cuda:tiles", "cuda@run,cuda@masked", "cuda@run,cuda"
PRODUCTS = (("beside the peers", "bf16", 8192, 64, PEERS), ("a rank's half", "bf16", 8192, 64, HALF), ("a rank's half, 2:4", "bf16", 8192, 64, HALF24),
            ("limited by memory", "bf16", 8192, 1, "cuda,cuda:cublaslt"), ("limited by arithmetic", "bf16", 8192, 4096, "cuda,cuda:cublaslt"),
            ("a rank's half", "bf16", 16384, 64, HALF), ("limited by memory", "bf16", 8192, 4, "cuda,cuda:cublaslt"),
            ("f32 without TF32", "f32", 8192, 64, "cuda,cuda:cublaslt"))
PRODUCTS_SMALL = (("beside the peers", "bf16", 64, 4, PEERS), ("a rank's half", "bf16", 64, 4, HALF), ("a rank's half, 2:4", "f32", 64, 4, HALF24))
FORWARDS, FORWARDS_SMALL = ((1024, 1), (4096, 1), (4096, 64)), ((64, 4),)  # N = K, B
BENCH = (0, 5, 14)  # slower than another (14), and that an arm does not serve (5), are results too
SOME = ["--with", "seeds=1,pairs=6", "--seconds", "0.05", "--samples", "20", "--torch", "off"]  # figures that mean nothing
OWN = settings("plugins.cuda.cublaslt=off")  # it is slow over its stand-in, where the bound is measured


def compared(must, row, text):
    """A bench's rows as a table; `must` have been timed."""
    row["result"] = told = tables(text)
    row["table"] = []
    for r in told:
        head = "    %-34s %-24s " % (r["problem"], r["provider"].replace(";warp_specialize=off", ""))
        if r["p50_us"] is None:
            row["table"].append(head + r["cause"])
            continue
        first = "%.3f [%.3f, %.3f] of the first's time" % tuple(r["of_subject" + x] for x in ("", "_low", "_high")) if r["of_subject"] is not None else ""
        limit = max(r["copy_us"] or 0, r["fma_us"] or 0)
        row["table"].append(head + "%10.2f us %9.3f TFLOP/s %-48s queued %.2f us, device's limit %.2f us" % (
            r["p50_us"], (r["gflops"] or 0) / 1000, first, r["queued_us"] or 0, limit))
    timed = {r["provider"] for r in told if r["p50_us"] is not None}
    missing = [m for m in must if not any(t.startswith(m) for t in timed)]
    demand(row, timed and not missing, "not timed: %s" % (" ".join(missing) or "anything"))


def shapes(v):
    """Shape, queries and width of each row of LADDER; knobs are found on the first two."""
    for queries, heads in v.pick(LADDER, (("24", 1),)):
        for width in (128, 64):
            yield "b1h%ds%sd%d" % (heads, queries, width), queries, width


def attention(v):
    """Each provider on each shape: one whose numbers are wrong fails (exit 6)."""
    for shape, queries, width in list(shapes(v))[:v.pick(None, 1)]:
        yield Step("S %s, D %d" % (queries, width), sdpa(v, problems(v, [shape], ("bf16", "fp8")), "--provider", "cuda:mma,cuda:cudnn", *timed(v)), BENCH,
                   functools.partial(compared, ("cuda:mma",)))
    for dtype in v.pick(("bf16", "f16", "fp8", "f32"), ("bf16",)):
        yield Step("every provider, " + dtype, sdpa(v, problems(v, v.pick(("small", "mission"), ("b1h1s24d64",)), [dtype]), *timed(v)), BENCH,
                   functools.partial(compared, ("cuda:rows",) if dtype == "f32" else ("cuda:mma", "cuda:rows")))


def problems(v, of, dtypes):
    return ["%s:%s:%s" % (s, d, mask) for mask in v.pick(("full", "causal"), ("full",)) for s in of for d in dtypes]


def timed(v):
    return v.pick(["--with", "seeds=1", "--samples", "20", "--warmup", "5", "--seconds", "1"], SOME + OWN)


def models(v):
    yield from model(v, "qwen3", "Qwen3-0.6B", *v.pick(("2048", "2304"), ("16", "32")))
    yield from model(v, "gpt2", "GPT-2", *v.pick(("512", "1024"), ("16", "32")))


def model(v, name, whole, prompt, cache):
    """A model by size, of random weights in bf16: rates of prefill and decode, of generating, and PyTorch's."""
    path, more, made = os.path.join(v.scratch.name, "whole-" + name), v.setting("--backend", "cuda"), whole + " of random weights"
    yield Step(made, [sys.executable, folders.__file__, name, v.pick("whole", "small"), path], seconds=60)
    for what, words, look in (
            ("bench", lambda: [v.bsrun, "model", "bench", path, "--dim", "sequence=" + prompt, "--cache-tokens", cache, "--seconds", v.pick("5", "0.05"),
                               *more, "--out", "off", "-o", "json"], rates),
            ("generate", lambda: [v.bsrun, "model", "generate", path, "--ids", "5,17,300", "--tokens", v.pick("256", "8"), *more], rate),
            ("PyTorch", lambda: peer(v, path, prompt, cache), rates)):
        yield Step("%s, %s" % (whole, what), functools.partial(of_folder, v, "model: " + made, words), look=look)


def of_folder(v, name, words):
    return words() if v.row(name).get("state") == "passed" else "no folder was made"


def parsed(text):
    """The object that a command printed as JSON, between its warnings; {}: none."""
    told = re.search(r"^\{.*^\}", text, re.M | re.S)
    return json.loads(told.group(0)) if told else {}


def peer(v, path, prompt, cache):
    python = machine.torch()
    if python is None:
        return "no PyTorch here"
    # In a rehearsal on the CPU: PyTorch would take the stand-in for a device.
    return v.pick([], ["env", "CUDA_VISIBLE_DEVICES="]) + [python, os.path.join(HERE, "torch_model.py"), path, prompt, cache, v.pick("3", "0.05")]


def rates(row, text):
    """Tokens a second of prefill and decode."""
    row["result"] = parsed(text).get("rows") or [json.loads(x) for x in re.findall(r'(?m)^\{"work".*\}$', text)]
    row["table"] = [x for x in text.split("\n") if x.startswith("no decode")]
    row["table"] += ["    %-24s %10.3f ms %12.1f tokens/s" % (r["work"], 1e3 * r["median_s"], r["tokens_per_s"]) for r in row["result"]]
    demand(row, row["result"], "no times")


def rate(row, text):
    row["table"] = ["    " + x for x in re.findall(r"prompt .* tokens [\d.]+/s", text)]
    demand(row, row["table"] and " ran on " not in text, "no rates, or not all of it ran on the device")


def products(v):
    for name, dtype, n, b, providers in v.pick(PRODUCTS, PRODUCTS_SMALL):
        words = [v.bsrun, "bench", "matmul", "n%dk%db%d:%s" % (n, n, b, dtype), "--provider", providers, *v.setting("--backend", "cuda"), "--threads", "1",
                 "--out", "off", "-q", "-o", "json"]
        words += ["--sparse24"] if providers is HALF24 else []
        words += v.pick(["--with", "seeds=1", "--seconds", "3"], SOME if providers is PEERS else SOME + OWN)
        yield Step("%s, %s, N %d, B %d" % (name, dtype, n, b), words, BENCH, functools.partial(compared, ()), seconds=60)


def forwards(v):
    """A layer's forward: what the host took to queue it, and the device's time."""
    for n, b in v.pick(FORWARDS, FORWARDS_SMALL):
        for graph in (False, True):
            out = tempfile.mkdtemp(dir=v.scratch.name)
            keys = "model.N=%d model.B=%d method.bias=false hardware.graph=%s phase.dense_arm=false phase.pairs_seconds=%s" % (
                n, b, str(graph).lower(), v.pick("1", "0.1"))
            yield Step("N %d, B %d, %s" % (n, b, "graph" if graph else "no graph"), [
                v.bsrun, "--method", "dense", "-P", "1", "--phase", "1", *v.setting(*settings(keys)), "--out", out],
                look=functools.partial(cost, out, graph), seconds=30)


def cost(out, graph, row, _):
    told = machine.record(out) or {}
    row["result"], kept = told.get("device"), "forward@cuda/graph" in told.get("algorithms", [])
    demand(row, row["result"] and kept == graph, "no times, or a graph where there should be none, or none")
    if row["result"]:
        us = row["result"]
        row["table"] = ["    queued in %.2f us, %.2f us on the device%s" % (us["enqueue_us"], us["forward_us"], ", launch-bound" if us["launch_bound"] else "")]


def tune(v):
    for shape, _, width in list(shapes(v))[:2]:
        words = [v.bsrun, "tune", shape + ":bf16:full", "--provider", "cuda:mma", "--knob", "warp_specialize=off", *v.setting("--backend", "cuda"), "--stored",
                 "anew", "--tune-cache", os.path.join(v.scratch.name, "tune.json"), "--points", os.path.join(v.out, "gpu-visit-points.jsonl"), "-o", "json"]
        words += v.pick(["--seconds", "80"], ["--samples", "4", "--seconds", "5", "--with", "finalists=1,candidate-seconds=0.02,pair-seconds=0.1"])
        yield Step("mma, D %d" % width, words, look=found, seconds=110)


def found(row, text):
    row["result"] = told = parsed(text)
    row["knobs"] = next((s["best"] for s in told.get("spaces", []) if s["best"]), None)
    row["table"] = ["    %s: %.2f us; %s; %d points, %d failed; %.3f of the speed of %s, %s" % (
        told["problem"], 1e6 * told["elite"][0]["seconds"], row["knobs"], told["measured"], told["failed"], told["ratio"], told["default"],
        told["word"])] if row["knobs"] else []
    demand(row, row["knobs"], "no point was measured")


def with_knobs(v, width, words):
    """words(provider): what to run with the knobs that were found."""
    knobs = v.row("tune: mma, D %d" % width).get("knobs")
    return words("cuda:mma{%s}" % knobs) if knobs else "no knobs were found"


def profile(v):
    """What binds the tuned kernel, by the counters of Nsight Compute."""
    for shape, _, width in list(shapes(v))[:2]:
        def words(provider, shape=shape):
            return [v.bsrun, "profile", "kernel", shape + ":bf16:full", "--provider", provider, *v.setting("--backend", "cuda"), "--with", "ncu", "--out", "off"]
        yield Step("mma, D %d" % width, functools.partial(with_knobs, v, width, words), look=counters, tool="ncu")


def counters(row, text):
    if row["exit"] != 0 and re.search("BS-NCU-(MISSING|PERMISSION)", text):
        row["state"], row["tail"] = "not run", "no counters here: " + row["tail"]
    row["table"] = ["    " + x for x in text.split("\n")] if row["state"] == "passed" else []


def ladder(v):
    """Part 2's ladder with the knobs that were found, beside the default and cuDNN."""
    for shape, queries, width in shapes(v):
        def words(provider, shape=shape):
            return sdpa(v, problems(v, [shape], ["bf16"]), "--provider", provider + ",cuda:mma,cuda:cudnn", *timed(v))
        yield Step("S %s, D %d" % (queries, width), functools.partial(with_knobs, v, width, words), BENCH, functools.partial(compared, ("cuda:mma",)),
                   seconds=60)


def cells(v):
    words = v.pick(["--jobs", str(max(2, v.jobs))], ["--no-faults", "--only", "threads row_parallel none f32 2 0"])
    yield Step("all, with faults", matrix(v, *words, "-v"), look=failed_cells, seconds=600)
