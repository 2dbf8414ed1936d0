# SPDX-License-Identifier: MIT
"""The machine of a visit: what it is, and where NVIDIA's libraries lie on it."""
import glob
import json
import os
import shutil
import site
import subprocess
import sys
import sysconfig
import time

# cuBLASLt, cuSPARSELt, NCCL, cuDNN: the toolkit's folder, or NVIDIA's Python packages next to PyTorch.
LIBRARIES = ("libcublasLt.so.*", "libcusparseLt.so.*", "libnccl.so.*", "libcudnn.so.*")


def say(words, seconds=60, env=None):
    """What a command says, or that it cannot be had."""
    try:
        done = subprocess.run(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds, check=False)
        return done.stdout.decode(errors="replace").strip()
    except (OSError, subprocess.TimeoutExpired) as e:
        return "not available: %s" % e


def packages():
    """Folders of this Python's packages."""
    found = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")] + site.getsitepackages() + [site.getusersitepackages()]
    found += [p for p in sys.path if p.endswith("-packages")]
    return [p for p in dict.fromkeys(found) if os.path.isdir(p)]


def libraries():
    """Files of NVIDIA's libraries: {pattern: path}, the first place that has it."""
    places = [os.path.join(p, "nvidia", "*", "lib") for p in packages()] + ["/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib"]
    out = {}
    for pattern in LIBRARIES:
        for place in places:
            files = sorted(glob.glob(os.path.join(place, pattern)))
            if files:
                out[pattern] = files[0]
                break
    return out


def torch():
    """A python3 that has PyTorch (2.0 or newer); None: there is none."""
    python = shutil.which("python3")
    has = "from torch.nn.functional import scaled_dot_product_attention; print('has it')"
    return python if python and say([python, "-c", has]).endswith("has it") else None


def environment(root):
    """The environment of the bundle's programs. What LD_LIBRARY_PATH names already goes first; the toolkit's programs come last in PATH."""
    own = [os.path.join(root, "lib")]
    here = [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    found = list(dict.fromkeys(os.path.dirname(p) for p in libraries().values()))
    tools = glob.glob("/usr/local/cuda*/bin") + glob.glob("/opt/nvidia/nsight-compute/*")  # compute-sanitizer, ncu
    return dict(os.environ, LD_LIBRARY_PATH=":".join(own + here + found), PATH=":".join([os.environ.get("PATH", os.defpath)] + tools))


def record(folder):
    """What the one run under `folder` has recorded; None: nothing."""
    files = glob.glob(os.path.join(folder, "**", "metrics.jsonl"), recursive=True)
    if len(files) != 1:
        return None
    with open(files[0], encoding="utf-8") as f:
        return json.loads(f.readline())


def about():
    """What the reader of results must know of the machine."""
    return {"date": time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime()),
            "gpu": say(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.sm", "--format=csv,noheader"]),
            "kernel": say(["uname", "-sr"]), "cores": os.cpu_count(),
            "libraries": ", ".join(os.path.basename(p) for p in libraries().values()) or "none of NVIDIA's found"}
