#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The reference of the headers: everything that is public is in it, with a comment; and neither is taken on trust - a header
without a comment, and a reference that has lost something, are found.   reference_test.py SOURCE BUILD"""
import os
import subprocess
import sys
import tempfile

source, build = sys.argv[1], sys.argv[2]
tool = os.path.join(source, "scripts", "reference")
headers = os.path.join(source, "include", "blockshock")
failures = []


def expect(ok, text):
    if not ok:
        failures.append(text)


def run(*words):
    return subprocess.run([sys.executable, tool, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def public_names():
    """As the linker's list and the ledger of the ABI have them, which are checked against code by tests of their own."""
    names = [line for line in read(source, "abi", "exports.txt").split() if line.startswith("bs_")]
    for line in read(source, "abi", "ledger.txt").split("\n"):
        words = line.split()
        if words[:1] == ["struct"]:
            names.append(words[1])
        elif words[:1] == ["field"]:
            names.append(f"{words[1]}.{words[2]}")
        elif words[:1] == ["enum"] and not words[2].endswith("_"):
            names.append(words[2])
    return names


def lost(text):
    return [name for name in public_names() if f'<a id="{name}"></a>' not in text]


def planted(scratch, header, old, new, said):
    """A header with something changed: the check must end in 1 and say what."""
    text = read(headers, header)
    expect(text.count(old) == 1, f"{header}: not once there: {old}")
    path = os.path.join(scratch, header)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text.replace(old, new))
    done = run("--check", path)
    expect(done.returncode == 1 and said in done.stdout, f"{header} without '{old[:40]}': exit {done.returncode}: {done.stdout}")


with tempfile.TemporaryDirectory() as scratch:
    done = run("--check")
    expect(done.returncode == 0, done.stdout)
    page = os.path.join(scratch, "reference.md")
    done = run(page)
    expect(done.returncode == 0, done.stdout)
    text = read(page)
    names = public_names()
    expect(len(names) > 400, f"only {len(names)} public names")
    expect(not lost(text), f"not in the reference: {lost(text)}")
    for name in (names[0], names[len(names) // 2], names[-1]):  # the look for what is lost finds it
        expect(lost(text.replace(f'<a id="{name}"></a>', "")) == [name], f"{name} was taken out unnoticed")
    for macro in ("BS_PLUGIN_DEFINE", "BS_HOST_HAS", "BS_DTYPE_BYTES", "BS_ABI_VERSION"):
        expect(f"#### {macro}\n" in text, f"{macro} is not in the reference")
    for told in ("Weights are packed for matmul or matmul24", "Counter-based random numbers", "exit code 6 of bsrun"):
        expect(told in text, f"the comment is lost: {told}")
    expect(text == read(build, "share", "doc", "blockshock", "reference.md"), "the build's reference is another: build it again")
    planted(scratch, "tensor.h", "/* Shape without memory. A stride is counted in elements; all strides zero means dense row-major. */\n",
            "", "struct bs_tensor_desc has no comment")
    planted(scratch, "blockshock.h", "/* Opens and activates a plugin by id. The functions below do so by themselves for the plugins that they need.\n */\n",
            "", "function bs_plugin_activate has no comment")
    planted(scratch, "comm.h", " * Threads: abort", " * abort", "comm.h: the head of the header has no 'Threads:'")
    planted(scratch, "tp.h", " * Units. Shapes", " * Shapes", "tp.h: the head of the header has no 'Units:'")
    planted(scratch, "topology.h", "/* Required: name, open, route, close. */\n", "", "struct bs_topology has no comment")

for failure in failures:
    print("reference_test:", failure)
sys.exit(1 if failures else 0)
