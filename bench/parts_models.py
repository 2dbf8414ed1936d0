# SPDX-License-Identifier: MIT
"""The part models of bench/run: `bsrun model bench MODEL --peer NAME`, which compares the outputs and then takes pairs in turns.

Language models are GGUF files of random weights, made once by bench/make_gguf.py. MiniLM is a folder of `tools/bs-export minilm`, which
needs torch: without it its rows are left out. All of it lies in BS_PEERS_DIR/files; the peers are those of scripts/peers."""
import json
import os
import subprocess

from common import ROOT, heading, interval, note, table

HEAD = ("model", "weights", "work", "tokens", "threads", "peer", "ours, ms", "peer / ours", "of the read limit", "bar", "met", "outputs apart")
LANGUAGE = ("gpt2", "qwen3-0.6b")
TYPES = ("Q8_0", "Q4_0")
DECODE, PREFILL, INT8 = 1.1, 1.0, 1.0  # bars


def python(bench):
    return os.path.join(bench.peers.folder, "bin", "python")


def made(bench, name, command):
    """A file below the peers' folder, made by the command if it is not there."""
    path = os.path.join(bench.peers.folder, "files", name)
    if not os.path.exists(path):
        note(f"making {name}")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        part = os.path.join(os.path.dirname(path), "part-" + os.path.basename(path))
        done = subprocess.run([*command, part], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{name}: {done.stderr.strip()[-300:]}")
        os.replace(part, path)
    return path


def timed(bench, path, peer, threads, more):
    """The rows of one bench; a peer that cannot be had, or differs, is told in the place of rows."""
    command = [bench.path("bin", "bsrun"), "model", "bench", path, "--peer", peer, "--threads", str(threads), *more,
               "--seconds", str(bench.count(3, 0.05)), "--out", "off", "-q", "-o", "json"]
    try:
        return json.loads(bench.run(command, env=dict(os.environ, BS_PEERS_DIR=bench.peers.folder)))
    except RuntimeError as why:
        print(f"\n{os.path.basename(path)}, {peer}, {threads} threads: {why}", flush=True)
        return {"rows": []}


def cells(row, model, weights, peer, bar):
    pair = row["peer"]
    share = row.get("read", {}).get("share")
    ratio = dict(pair, ratio=pair["speedup"])
    met = "-" if not bar else "unclear" if row["unclear"] else "yes" if pair["speedup"] >= bar else "no"
    return (model, weights, row["work"], row.get("cache_tokens") or row.get("tokens") or "-", row["threads"], peer, f"{row['median_s'] * 1e3:.2f}",
            interval(ratio, 2), f"{share:.2f}" if share is not None else "-", bar or "-", met,
            f"{pair['apart']:.1e}")


def language(bench, names=LANGUAGE, kinds=TYPES, prompts=(128, 512)):
    rows = []
    for model in names[:bench.count(2, 1)]:
        for kind in kinds:
            path = made(bench, f"{model}-{kind}.gguf", [python(bench), os.path.join(ROOT, "bench", "make_gguf.py"), model, kind])
            for threads in bench.threads(1, 2):
                for tokens in prompts:
                    found = timed(bench, path, "llama", threads, ["--dim", f"sequence={tokens}", "--cache-tokens", str(tokens + 128)])
                    for row in found["rows"]:
                        if row["work"] == "prefill" or tokens == 128:
                            rows.append(cells(row, model, kind, "llama", PREFILL if row["work"] == "prefill" else DECODE))
    return rows


def minilm(bench):
    folder = os.path.join(bench.peers.folder, "files", "minilm")
    model = os.path.join(folder, "model.onnx")
    if not os.path.exists(model):
        note(f"no {model}: tools/bs-export minilm {folder} makes it, with torch")
        return []
    small = made(bench, "minilm-int8.onnx", [python(bench), os.path.join(ROOT, "bench", "make_int8.py"), model])
    rows, dims = [], ["--dim", "batch=1", "--dim", "tokens=128"]
    for threads in bench.threads(1, 2):
        for weights, peer, more, bar in (("f32", "onnxruntime", [], None), ("f32", "openvino", [], None),
                                         ("w8 x8", f"onnxruntime:{small}", ["--weights", "w8", "--activations", "x8"], INT8)):
            for row in timed(bench, model, peer, threads, [*dims, *more])["rows"]:
                rows.append(cells(row, "minilm", weights, peer.replace(f":{small}", ", its int8"), bar))
    return rows


def models(bench):
    heading("Models beside other runtimes")
    table(HEAD, language(bench) + minilm(bench))
