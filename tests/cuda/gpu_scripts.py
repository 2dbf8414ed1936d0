# SPDX-License-Identifier: MIT
"""The bundle's scripts on a machine without a GPU: gpu-bench over the stand-ins, and what both say where there is no driver.

  gpu_scripts.py SOURCE_DIR BUILD_DIR"""
import json
import os
import re
import subprocess
import sys
import tempfile

source, build = sys.argv[1:3]
standins = os.path.join(build, "standin")


def run(script, out, libraries, *more, cublaslt=None, standin="devices=1"):
    env = dict(os.environ, LD_LIBRARY_PATH=libraries, BS_CUDA_STANDIN=standin)
    for name in ("BS_CUDA_DRIVER", "BS_CUDA_CUBLASLT", "BS_CUDA_CUSPARSELT", "BS_CUDA_CUDNN", "BS_CUDA_NCCL", "BS_PLUGIN_PATH"):
        env.pop(name, None)
    if cublaslt:
        env["BS_CUDA_CUBLASLT"] = cublaslt
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
    expect([r["state"] for r in told["rows"]] == ["ran"] * 5, "a line did not run", text)
    arms = {(r["group"], a["arm"]): a for r in told["rows"] if "result" in r for a in r["result"]["arms"]}
    costs = {r["graph"]: r["device"]["enqueue_us"] for r in told["rows"] if "graph" in r}
    expect(set(costs) == {False, True} and min(costs.values()) > 0, "no cost of a forward without and with a graph", text)
    for key in (("beside the peers", "cublaslt"), ("beside the peers", "tiles"), ("a rank's half", "masked"), ("a rank's half, 2:4", "sparse24")):
        expect(key in arms and arms[key]["ratio"] > 0, "no ratio of %s %s" % key, text)
    limits = told["rows"][0]["result"]["limits"]
    expect(limits["copy"] > 0 and limits["rate"] > 0, "no limits: %s" % limits, text)
    expect(0 < arms["beside the peers", "auto"]["enqueue"] <= arms["beside the peers", "auto"]["seconds"], "no time of queueing", text)
    expect("no torch" in text, "a peer that is not there is not named", text)
    with open(os.path.join(out, "gpu-bench.txt"), encoding="utf-8") as f:
        expect("masked" in f.read(), "no table", text)


def states(out):
    with open(os.path.join(out, "gpu-test.json"), encoding="utf-8") as f:
        return {r["name"]: r["state"] for r in json.load(f)["rows"]}


def records(out):
    """A run whose record does not name what was to be tried has not passed."""
    code, text = run("gpu-test", out, standins, "--only", "run: (forwards|training)|kernels")
    for name in ("run: forwards as a graph", "run: training as graphs", "kernels as loaded"):
        expect(code == 0 and states(out)[name] == "passed", "gpu-test ended with %d" % code, text)
    with open(os.path.join(out, "gpu-test.json"), encoding="utf-8") as f:
        told = [r["kernels"] for r in json.load(f)["rows"] if "kernels" in r]
    expect(len(told) == 1 and len(told[0]) > 20 and told[0]["convert"][0] > 0, "no kernels told of", text)
    code, text = run("gpu-test", out, standins, "--only", "model: (gpt2|two)")
    told = {name: state for name, state in states(out).items() if re.match("model: (gpt2|two)", name)}
    expect(code == 0 and len(told) == 4 and set(told.values()) == {"passed"}, "models ended with %d: %s" % (code, told), text)
    code, text = run("gpu-test", out, standins, "--only", "attention: full", "--shapes", "b1h1s24d64")
    told = states(out)
    expect(code == 0 and told["attention: full"] == "passed", "attention by its providers ended with %d" % code, text)
    with open(os.path.join(out, "gpu-test.json"), encoding="utf-8") as f:
        by = [r["providers"] for r in json.load(f)["rows"] if "providers" in r]
    expect(by == [["cuda:cudnn", "cuda:mma", "cuda:rows"]], "attention not by all providers: %s" % by, text)
    code, text = run("gpu-test", out, standins, "--only", "kernels", standin="registers=100")
    expect(code == 1 and states(out)["kernels as loaded"] == "FAILED", "kernels with more registers than allowed passed", text)
    code, text = run("gpu-test", out, standins, "--only", "kernels", standin="local=16")
    expect(code == 1 and states(out)["kernels as loaded"] == "FAILED", "kernels with local memory passed", text)
    code, text = run("gpu-test", out, standins, "--only", "run: fp8 by")
    expect(code == 0 and states(out)["run: fp8 by cuBLASLt"] == "passed", "fp8 by cuBLASLt ended with %d" % code, text)
    code, text = run("gpu-test", out, standins, "--only", "run: fp8 by", cublaslt="off")
    expect(code == 1 and states(out)["run: fp8 by cuBLASLt"] in ("FAILED", "not run"), "products by cuBLASLt passed without it", text)


def nothing(out, script):
    code, text = run(script, out, "")
    expect(code == 5 and "no GPU" in text, "%s without a driver ended with %d" % (script, code), text)


with tempfile.TemporaryDirectory() as folder:
    bench(folder)
    records(folder)
    for name in ("gpu-bench", "gpu-test"):
        nothing(folder, name)
print("gpu_scripts: good")
