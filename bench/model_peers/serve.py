# SPDX-License-Identifier: MIT
"""The loop of a peer of `bsrun model bench MODEL --peer NAME` that is written in Python (docs/dev/benchmarks.md has the lines)."""
import sys
import time

import numpy


def feeds_of(words):
    """The inputs of --input NAME=FILE.npy words."""
    inputs = [words[i + 1].split("=", 1) for i in range(len(words) - 1) if words[i] == "--input"]
    return {name: numpy.load(file) for name, file in inputs}


def threads_of(words):
    return int(words[words.index("--threads") + 1])


def loop(peer):
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "outputs":
            for name, array in zip(peer.names, peer.outputs):
                numpy.save(f"{rest[0]}/{name.replace('/', '_')}.npy", array)
            print("done", flush=True)
            continue
        lead, count = int(rest[1]), int(rest[2])
        for _ in range(lead):
            peer.run()
        began = time.perf_counter()
        for _ in range(count):
            peer.run()
        print(f"seconds {(time.perf_counter() - began) / count:.9g}", flush=True)


def serve(make, version):
    """make(words) is a peer: names and outputs of one run, and run()."""
    try:
        peer = make(sys.argv[1:])
        print(f"ready {version}", flush=True)
        loop(peer)
    except Exception as why:  # the runtimes' exceptions have no common base
        print(f"error {' '.join(str(why).split())[:300]}", flush=True)
        return 1
    return 0
