# SPDX-License-Identifier: MIT
"""Part 1 of a visit: is the plugin right on this device?"""
import functools
import json
import os
import re
import sys
import tempfile

import folder as folders
import machine
from visit import Step, demand

HERE = os.path.dirname(os.path.abspath(__file__))
# Method, ranks, mask, phase and settings of the layers that compute-sanitizer watches.
LAYERS = (("dense", "1", "none", "3", ("method.bias=true", "phase.optimizer=adamw")),
          ("dense", "1", "none", "0", ("model.B=1",)),
          ("dense", "1", "none", "0", ("method.mixed=0", "method.mixed_dtype=f8e4m3", "model.dtype=bf16")),
          ("row_parallel", "2", "none", "3", ()),
          ("blockshock", "2", "complement_1100_0011", "3", ()),
          ("blockshock", "2", "random_2of4", "0", ("method.kernel=sparse24",)))
TIMED = " phase.dense_arm=false phase.pairs_max=20 phase.pairs_seconds=5"
LT, SPLT = "libcublasLt.so.*", "libcusparseLt.so.*"
# Name; words; settings; what the record must name as having run; the library without which it cannot.
RUNS = (
    ("forwards as a graph", "dense -P 1 --phase 1", "hardware.graph=true model.N=256 model.B=8" + TIMED, ("forward@cuda/graph",), None),
    ("training as graphs", "blockshock -P 1 --phase 3", "hardware.graph=true phase.timed_iters=4 model.N=256 model.B=16",
     ("forward@cuda/graph", "backward@cuda/graph", "step@cuda/graph"), None),
    ("overlap of two ranks", "row_parallel -P 2 --phase 0", "method.overlap=4 model.N=1024 model.B=64", ("overlap@cuda/stream",), None),
    ("overlap, timed", "blockshock -P 2 --phase 1", "method.overlap=2 model.N=2048 model.B=64" + TIMED, ("overlap@cuda/stream",), None),
    ("products by cuBLASLt", "dense -P 1 --phase 0", "method.bias=false model.N=256 model.B=64", ("matmul@cuda/cublaslt",), LT),
    ("2:4 by cuSPARSELt", "blockshock --mask complement_1100_0011 -P 2 --phase 0",
     "method.kernel=sparse24 method.bias=false method.reduce_dtype=bf16 model.dtype=bf16 model.N=1024 model.B=64", ("matmul24@cuda/cusparselt",), SPLT),
    ("fp8 by cuBLASLt", "dense -P 1 --phase 0", "method.mixed=0 method.mixed_dtype=f8e4m3 model.dtype=bf16 model.N=128 model.K=256 model.B=8",
     ("scaled_matmul@cuda/cublaslt (f32 sums, scaled by a kernel behind them) [low sums]",), LT),
    ("fp8 in blocks", "row_parallel -P 2 --phase 0",
     "method.mixed=16 method.mixed_dtype=f8e4m3 method.mixed_scales=block model.dtype=bf16 model.N=128 model.K=528 model.B=8",
     ("scaled_matmul@cuda/kernels",), None),
    ("fp8 with one scale", "column_parallel -P 2 --phase 0",
     "method.mixed=0 method.mixed_dtype=f8e5m2 method.mixed_scales=tensor model.dtype=bf16 model.N=128 model.K=256 model.B=3",
     ("scaled_matmul@cuda/kernels",), None),
    ("cold samples", "row_parallel -P 2 --phase 1", "phase.cold=true model.N=1024 model.B=8" + TIMED, ("collectives@cuda/devlocal",), None),
    ("ranks as processes", "blockshock -P 2 --launch processes --phase 3", "model.N=256 model.B=16", ("collectives@host/staged",), None),
)


def machine_steps(v):
    # Over the stand-in cuBLASLt's products are slow, and doctor's are not small.
    yield Step("doctor", [v.bsrun, "doctor", *v.setting(*v.pick([], settings("plugins.cuda.cublaslt=off")))], seconds=60)
    yield Step("kernels as loaded", [v.bsrun, "--method", "dense", "-P", "1", "--phase", "0", *v.setting("--set", "model.B=8", "--set", "model.N=64"),
                                     "--out", v.scratch.name, "-v", "-v"], look=functools.partial(kernels, built(v.root)), seconds=60)


def built(root):
    """{kernel: registers, shared and local memory} as the compiler said it."""
    places = (os.path.join(root, "share", "blockshock"), os.path.join(HERE, "..", "..", "docs", "gpu"))  # of a bundle; of the sources
    with open(next(p for p in (os.path.join(place, "resources.txt") for place in places) if os.path.exists(p)), encoding="utf-8") as f:
        rows = (line.split() for line in f)
        return {name: [int(n) for n in numbers[:3]] for code, name, *numbers in rows if code == "sm_90a"}


def kernels(want, row, text):
    """What the driver says of each loaded kernel, beside what the compiler said when it was built."""
    if row["state"] != "passed":
        return
    found = re.findall(r"kernel (\w+): (\d+) registers a thread, (\d+) bytes of shared memory a block, (\d+) bytes of local", text)
    row["kernels"] = {name: [int(n) for n in numbers] for name, *numbers in found}
    others = ["%s: %s as loaded, %s as built (registers, shared, local)" % (name, row["kernels"][name], want[name])
              for name in sorted(want.keys() & row["kernels"].keys()) if row["kernels"][name] != want[name]]
    missing = sorted(want.keys() ^ row["kernels"].keys())
    demand(row, want and not missing and not re.search("(bytes of local memory|registers) a thread on device", text), "")
    row["tail"] = "\n".join(others + ["not in both: " + " ".join(missing)] * bool(missing) + re.findall(r".*should have \d+:.*", text))


def on_device(row, text):
    demand(row, " ran on " not in text, "not all of it ran on the device")


def models(v):
    """Whole models: each node on the device and right, on one rank and on two; the tokens of cpu."""
    made = {name: folders.write(os.path.join(v.scratch.name, name), *folders.SMALL[name]) for name in ("gpt2", "qwen3")}
    more = v.setting("--backend", "cuda")
    lm, tokens = v.pick(("builtin:lm:2x128", "40"), ("builtin:lm:1x64", "8"))
    asked = [("builtin:lm", [lm, "--dim", "tokens=" + tokens, "--dim", "batch=2"]), ("builtin:vit", ["builtin:vit:1x64", "--dim", "batch=1"])]
    asked = v.pick(asked, asked[:1]) + [(name, [path, "--dim", "sequence=" + tokens, "--cache-tokens", "64"]) for name, path in made.items()]
    for ranks, split in (("one rank", []), ("two ranks", ["--method", "column_parallel+row_parallel", "-P", "2"])):
        for name, words in asked:
            yield Step("%s node by node on %s" % (name, ranks), [v.bsrun, "model", "check", *words, *split, *more, "--out", "off"], look=on_device, seconds=90)
    for name, path in made.items():
        words = [v.bsrun, "model", "generate", path, "--ids", "5,17,300", "--tokens", "64", "--quiet"]

        def same(row, text, words=words):
            on_device(row, text)
            want = machine.say([*words, "--backend", "cpu"], env=v.env).strip() if row["state"] == "passed" else ""
            demand(row, want and text.strip().split("\n")[-1] == want, "cpu: " + want)

        yield Step("64 tokens of %s as of cpu" % name, words + more, look=same, seconds=60)


def kit(v):
    words = [os.path.join(v.root, "bin", "bs-conformance"), os.path.join(v.root, "lib", "blockshock", "plugins-0", "bs_cuda.so"), "-o", "tap"]
    words += v.pick([], ["--only", "abi,lifecycle"])
    for part in range(1, v.jobs + 1):
        yield Step("%d/%d" % (part, v.jobs), words + ["--part", "%d/%d" % (part, v.jobs)], look=kit_failures, seconds=300)


def kit_failures(row, text):
    """Of a report of the kit, which is TAP, the lines that matter: also where it failed."""
    bad = re.findall(r"(?m)^not ok.*(?:\n#.*)*", text)
    row["tail"] = "\n".join(bad + row["tail"].split("\n")[-1:])


def sdpa(v, shapes, *more):
    return [v.bsrun, "bench", "sdpa", *shapes, *v.setting("--backend", "cuda"), "--out", "off", "--quiet", "-o", "json", *more]


def sanitizer(v):
    """Products by our own kernels, which NVIDIA's libraries would hide, and attention without PyTorch's."""
    off = ["--set", "plugins.cuda.cublaslt=off", "--set", "plugins.cuda.cudnn=off"]
    watched = [("attention", sdpa(v, ["b1h2s70d64:bf16:causal", "b1h2s70d64:f32:causal"], "--with", "seeds=1", "--samples", "3", "--warmup", "0", "--seconds",
                                  "0.01", "--torch", "off", *off), (0, 14))]
    for method, ranks, mask, phase, more in LAYERS:
        words = [v.bsrun, "--method", method, "-P", ranks, "--phase", phase, "--out", v.scratch.name, *v.setting(*off)]
        words += settings("model.N=48 phase.fault_gate=false phase.timed_iters=1 model.K=64 model.B=8") + settings(" ".join(more))
        watched.append(("%s %s on %s ranks, phase %s %s" % (method, mask, ranks, phase, " ".join(more)),
                        words + (["--mask", mask] if mask != "none" else []), (0,)))
    # NVIDIA's libraries try functions that a driver may not have: that is no finding.
    for check, more in (("racecheck", []), ("memcheck", ["--report-api-errors", "no"]), ("synccheck", [])):
        for name, words, ok in watched:
            yield Step("%s, %s" % (check, name.strip()), ["compute-sanitizer", "--tool", check, "--error-exitcode", "99", *more, *words], ok, hazards,
                       "compute-sanitizer")


def hazards(row, text):
    row["tail"] = "\n".join([x for x in text.split("\n") if x.startswith("=========")][:60]) + "\n" + row["tail"][-1500:]
    if re.search("Device not supported|unable to|Failed to initialize", row["tail"]):
        row["state"], row["tail"] = "not run", "no compute-sanitizer that works here: " + row["tail"]


def settings(text):
    return [word for key in text.split() for word in ("--set", key)]


def matrix(v, *words):
    place = next(p for p in (os.path.join(HERE, "matrix"), os.path.join(HERE, "..", "matrix")) if os.path.exists(p))
    return [sys.executable, place, v.root, "--backend", "cuda", "--launch", "threads", *words]


def open_points(v):
    """docs/gpu/h200-2026-11-27.md, "Open"."""
    yield Step("masked_split fp8 silu, T6", matrix(v, "--no-faults", "--only", "threads masked_split complement_1010_0101 f8e4m3 2 3", "-v"), seconds=60)
    yield Step("matmul24 at N = 8192, bf16", [
        v.bsrun, "bench", "matmul", v.pick("n8192k8192b64:bf16", "n64k64b8:bf16"), "--sparse24", "--provider", "cuda@run,cuda", *v.setting("--backend", "cuda"),
        "--with", "seeds=1,pairs=6", "--samples", "20", "--seconds", v.pick("1", "0.05"), "--torch", "off", "--out", "off", "-q", "-o", "json",
        *v.pick([], settings("plugins.cuda.cublaslt=off"))], (0, 14), products24)


def products24(row, text):
    """Signal 11 ended this once: both arms must have been timed, and it is told which implementation was."""
    told = tables(text)
    row["algorithms"] = [r["algorithm"] for r in told]
    demand(row, [r["p50_us"] is not None for r in told] == [True, True], "not both were timed")


def tables(text):
    """The rows that a bench printed as JSON, between its warnings."""
    found = re.search(r"^\[.*^\]", text, re.M | re.S)
    return json.loads(found.group(0)) if found else []


def runs(v):
    """Runs whose record must name what ran: what something else stood in for has not been tried."""
    for name, words, keys, must_name, library in RUNS:
        out = tempfile.mkdtemp(dir=v.scratch.name)
        small = v.pick("", " phase.pairs_seconds=0.05 phase.pairs_min=5 phase.pairs_max=5" + ("" if "model.K" in keys else " model.N=64 model.B=16"))
        yield Step(name, [v.bsrun, "--method", *words.split(), "--out", out, *v.setting(*settings(keys + small))],
                   look=functools.partial(recorded, out, must_name, library), seconds=60)


def recorded(out, must_name, library, row, _):
    if row["state"] != "passed":
        return
    told = machine.record(out) or {}
    row["algorithms"], row["device"] = told.get("algorithms", []), told.get("device")
    # A library that refuses a shape leaves it to the tiles, which the record names with the reason in brackets.
    left = [x for x in row["algorithms"] if library is not None and re.match(r"\w+@cuda/tiles \(.*cu(BLAS|SPARSE)Lt", x)]
    if not left and all(any(x.startswith(name) for x in row["algorithms"]) for name in must_name):
        return
    missing = library is not None and library not in machine.libraries()
    row["state"] = "not run" if missing else "FAILED"
    row["tail"] = "no %s here" % library if missing else "the record does not name %s: %s\n%s" % (" and ".join(must_name), row["algorithms"], row["tail"])


def cells(v):
    words = v.pick(["--quick", "--jobs", str(max(2, v.jobs // 3))], ["--no-faults", "--only", "threads (dense none|blockshock complement_1100_0011) f32 2 0"])
    yield Step("a choice of pairs, with faults", matrix(v, *words, "-v"), look=failed_cells, seconds=600)


def failed_cells(row, text):
    """Cells that failed before the time was up have failed."""
    row["table"] = ["    %d runs of bsrun" % len(re.findall(r"(?m)^ *\d+ +[\d.]+ s  ", text))]
    bad = re.findall(r"(?m)^matrix: (?:FAIL|NOT CAUGHT) .*", text)
    if bad:
        row["state"], row["tail"] = "FAILED", "\n".join(bad)[-5000:] + "\n" + row["tail"][-1000:]
