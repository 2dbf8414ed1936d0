# SPDX-License-Identifier: MIT
"""The bundle's scripts on a machine without a GPU: gpu-bench over the stand-ins, and what both say where there is no driver.

  gpu_scripts.py SOURCE_DIR BUILD_DIR"""
import json
import os
import subprocess
import sys
import tempfile

source, build = sys.argv[1:3]
standins = os.path.join(build, "tests", "cuda")


def run(script, out, libraries, *more):
    env = dict(os.environ, LD_LIBRARY_PATH=libraries)
    env.pop("BS_CUDA_DRIVER", None)
    env.pop("BS_CUDA_CUBLASLT", None)
    env.pop("BS_CUDA_CUSPARSELT", None)
    words = [sys.executable, os.path.join(source, "scripts", "gpu", script), "--out", out, *more, build]
    done = subprocess.run(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def expect(good, what, text):
    if not good:
        sys.exit("gpu_scripts: %s\n%s" % (what, text))


def bench(out):
    code, text = run("gpu-bench", out, standins, "--quick", "--python", "/bin/false")
    expect(code == 0, "gpu-bench ended with %d" % code, text)
    with open(os.path.join(out, "gpu-bench.json"), encoding="utf-8") as f:
        told = json.load(f)
    expect([r["state"] for r in told["rows"]] == ["ran"] * 3, "a line did not run", text)
    arms = {(r["group"], a["arm"]): a for r in told["rows"] for a in r["result"]["arms"]}
    for key in (("beside the peers", "cublaslt"), ("beside the peers", "tiles"), ("a rank's half", "masked"), ("a rank's half, 2:4", "sparse24"),
                ("beside the peers", "copy"), ("beside the peers", "rate")):
        expect(key in arms and arms[key]["ratio"] > 0, "no ratio of %s %s" % key, text)
    expect(0 < arms["beside the peers", "auto"]["enqueue"] <= arms["beside the peers", "auto"]["seconds"], "no time of queueing", text)
    expect("no torch" in text, "a peer that is not there is not named", text)
    with open(os.path.join(out, "gpu-bench.txt"), encoding="utf-8") as f:
        expect("masked" in f.read(), "no table", text)


def nothing(out, script):
    code, text = run(script, out, "")
    expect(code == 5 and "no GPU" in text, "%s without a driver ended with %d" % (script, code), text)


with tempfile.TemporaryDirectory() as folder:
    bench(folder)
    for name in ("gpu-bench", "gpu-test"):
        nothing(folder, name)
print("gpu_scripts: good")
