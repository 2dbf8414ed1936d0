# SPDX-License-Identifier: MIT
"""A visit (scripts/gpu/gpu-visit) where there is no GPU: all parts over the stand-ins, and what must fail.

  gpu_visit.py SOURCE_DIR BUILD_DIR"""
import json
import os
import subprocess
import sys
import tempfile
import time

source, build = sys.argv[1:3]
script = os.path.join(source, "scripts", "gpu", "gpu-visit")
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(script))
import visit  # noqa: E402


def run(out, *words, **env):
    """Exit code, text and the rows of all parts by their names."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("BS_CUDA_", "BS_PLUGIN_PATH"))}
    done = subprocess.run([sys.executable, script, "--out", out, *words, build], env=dict(clean, **env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    rows = {}
    for part in (1, 2, 3):
        path = os.path.join(out, "gpu-visit-%d.json" % part)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                rows.update({(part, r["name"]): r for r in json.load(f)["rows"]})
            os.remove(path)
    return done.returncode, done.stdout, rows


def expect(good, what, text=""):
    if not good:
        sys.exit("gpu_visit: %s\n%s" % (what, text))


def rehearsal(out):
    code, text, rows = run(out, "--rehearse")
    expect(code == 0, "the rehearsal ended with %d" % code, text)
    absent = ("no compute-sanitizer here", "no ncu here", "no PyTorch here")
    for (part, name), r in rows.items():
        expect(r["state"] == "passed" or r["state"] == "not run" and r["tail"] in absent, "%s is %s: %s" % (name, r["state"], r["tail"]), text)
        expect(r["part"] == part and r["decides"] and r["budget"] > 0 and (r["command"] or r["state"] == "not run"), "a row lacks something: %s" % r)
    groups = {(part, name.split(":")[0]) for part, name in rows}
    expect(len(groups) == 15, "not each group has a row: %s" % sorted(groups))
    kernels = rows[1, "machine: kernels as loaded"]["kernels"]
    expect(len(kernels) > 20 and kernels["convert"][0] > 0, "no kernels told of", text)
    by = [r["provider"] for r in rows[2, "attention: every provider, bf16"]["result"]]
    expect(by == ["cuda:cudnn", "cuda:mma", "cuda:rows"], "attention not by all providers: %s" % by)
    arms = {a["provider"].split(":")[1]: a for part, name in rows if name.startswith("product:") for a in rows[part, name]["result"]}
    for arm in ("cublaslt", "tiles", "rows@masked"):
        expect(arms[arm]["of_subject"] > 0 and arms[arm]["copy_us"] > 0 and 0 < arms[arm]["queued_us"] <= arms[arm]["p50_us"], "no ratio of %s" % arm)
    for way in ("graph", "no graph"):
        expect(rows[2, "forward: N 64, B 4, " + way]["result"]["enqueue_us"] > 0, "no cost of a forward, %s" % way)
    works = [r["work"] for r in rows[2, "model: GPT-2, bench"]["result"]]
    expect(works == ["prefill", "decode"], "not both rates of a model: %s" % works)
    best = rows[3, "tune: mma, D 64"]["result"]["spaces"][0]["best"]
    first = rows[3, "ladder: S 24, D 64"]["result"][0]
    expect(first["provider"].startswith("cuda:mma") and first["knobs"] == best, "the ladder is not of the knobs that were found: %s, %s" % (first, best))
    with open(os.path.join(out, "gpu-visit-2.txt"), encoding="utf-8") as f:
        expect("cuda:rows@masked" in f.read(), "no table")


def faults(out):
    """What must fail does, and a step that could not run is no pass."""
    for fault in ("registers=100", "local=16"):
        code, text, rows = run(out, "--rehearse", "--part", "1", "--only", "kernels", BS_CUDA_STANDIN=fault)
        expect(code == 1 and [r["state"] for r in rows.values()] == ["FAILED"], "%s passed" % fault, text)
    code, text, rows = run(out, "--rehearse", "--part", "1", "--only", "run: fp8 by", BS_CUDA_CUBLASLT="off")
    expect(code == 1 and [r["state"] for r in rows.values()] != ["passed"], "products by cuBLASLt passed without it", text)
    code, text, rows = run(out, "--rehearse", "--part", "1", "--minutes", "0.01", "--only", "kernels|kit")
    expect(code == 1 and {(r["state"], r["tail"]) for r in rows.values()} == {("not run", "no time left")}, "no time, and not told", text)
    code, text, rows = run(out, "--part", "2", LD_LIBRARY_PATH="")
    expect(code == 5 and "no GPU" in text and not rows, "without a driver it ended with %d" % code, text)
    for words, told in (((), "--part 1, 2 or 3"), (("--part", "1", "--only", "("), "--only (")):
        code, text, rows = run(out, *words)
        expect(code == 2 and told in text and not rows, "%s: it ended with %d" % (words, code), text)


def tools(out):
    """compute-sanitizer's findings, by a program of this name: racecheck finds a hazard, memcheck runs what it is given."""
    folder = os.path.join(out, "bin")
    os.makedirs(folder)
    with open(os.path.join(folder, "compute-sanitizer"), "w", encoding="utf-8") as f:
        f.write('#!/bin/sh\n[ "$2" = memcheck ] || { echo "========= Error: a hazard"; exit 99; }\nwhile [ "${1#/}" = "$1" ]; do shift; done\nexec "$@"\n')
    os.chmod(os.path.join(folder, "compute-sanitizer"), 0o755)
    code, text, rows = run(out, "--rehearse", "--part", "1", "--only", "sanitizer: (race|mem)check, .*model.B=1", PATH=folder + ":" + os.environ["PATH"])
    told = {name.split(",")[0]: r for (_, name), r in rows.items()}
    expect(code == 1 and told["sanitizer: memcheck"]["state"] == "passed", "memcheck did not pass", text)
    expect(told["sanitizer: racecheck"]["state"] == "FAILED" and "a hazard" in told["sanitizer: racecheck"]["tail"], "a hazard passed", text)


def hang(out):
    """A step that hangs, with a process of its own that keeps its output open, ends; the next one runs."""
    v = visit.Visit(build, 1, 1, out)
    group = visit.Group(1, "hang", 1, False, lambda _: [visit.Step("one", ["sh", "-c", "sleep 100 & sleep 100"], seconds=1), visit.Step("two", ["true"])], "")
    start = time.monotonic()
    v.groups([group])
    expect([r["state"] for r in v.rows] == ["FAILED", "passed"] and "stopped after 1 s" in v.rows[0]["tail"], "a hang: %s" % v.rows)
    visit.LEAST = 0.1
    v = visit.Visit(build, 1, 1 / 60, out)
    v.groups([group._replace(steps=lambda _: [visit.Step("cut", ["sleep", "100"]), visit.Step("late", ["true"])])])
    expect([(r["state"], r["tail"][:12]) for r in v.rows] == [("not run", "no time left")] * 2, "the end of a visit: %s" % v.rows)
    expect(time.monotonic() - start < 20, "a hang was waited for")


def page():
    plan = subprocess.run([sys.executable, script, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout
    with open(os.path.join(source, "docs", "gpu", "README.md"), encoding="utf-8") as f:
        expect(plan.count("\n") > 10 and "\n" + plan + "\n" in f.read(), "docs/gpu/README.md has another plan than gpu-visit --list", plan)


page()
with tempfile.TemporaryDirectory() as scratch:
    hang(scratch)
    faults(scratch)
    tools(scratch)
    rehearsal(scratch)
print("gpu_visit: good")
