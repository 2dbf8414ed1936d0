# SPDX-License-Identifier: MIT
"""The model of a folder (folder.py) in PyTorch, with a key-value cache: how long a prompt and one token behind it take.

  torch_model.py FOLDER PROMPT CACHE [SECONDS]

A JSON object a line: work, median_s, tokens_per_s. Logits are copied to the host, as of `bsrun model bench`. Decode is timed eager and, on
a GPU, as a CUDA graph, and compiled (reduce-overhead); a way that fails is told of.
"""
import functools
import json
import os
import statistics
import struct
import sys
import time

import torch
import torch.nn.functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def load(path):
    """config.json, and the tensors of the one safetensors file."""
    with open(os.path.join(path, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    with open(os.path.join(path, "model.safetensors"), "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = bytearray(f.read())
    out = {}
    for name, t in header.items():
        dtype, size = {"F32": (torch.float32, 4), "BF16": (torch.bfloat16, 2)}[t["dtype"]]
        first, end = t["data_offsets"]
        out[name] = torch.frombuffer(data, dtype=dtype, offset=first, count=(end - first) // size).reshape(t["shape"]).to(DEVICE)
    return config, out


def attend(q, keys, values, position, more):
    """Attention of new queries over the whole cache, of which those behind `position` are hidden."""
    heads = q.shape[1] // keys.shape[1]
    if heads > 1:
        keys, values = (x.repeat_interleave(heads, 1) for x in (keys, values))
    mask = torch.arange(keys.shape[2], device=DEVICE)[None, :] <= position[:, None]
    return F.scaled_dot_product_attention(q, keys, values, **(more if more else {"attn_mask": mask}))


class Model:
    def __init__(self, path, cache):
        self.c, self.w = load(path)
        c = self.c
        self.qwen = c["model_type"] == "qwen3"
        self.layers = c["num_hidden_layers"] if self.qwen else c["n_layer"]
        self.heads = c["num_attention_heads"] if self.qwen else c["n_head"]
        self.width = c["head_dim"] if self.qwen else c["n_embd"] // c["n_head"]
        groups = c["num_key_value_heads"] if self.qwen else self.heads
        dtype = next(iter(self.w.values())).dtype
        self.cache = [[torch.zeros(1, groups, cache, self.width, dtype=dtype, device=DEVICE) for _ in range(2)] for _ in range(self.layers)]
        angle = torch.arange(cache, device=DEVICE)[:, None] / c.get("rope_theta", 1e4) ** (torch.arange(0, self.width, 2, device=DEVICE) / self.width)
        self.cos, self.sin = (torch.cat((f(angle), f(angle)), 1).to(dtype) for f in (torch.cos, torch.sin))

    def rms(self, x, name):
        y = x.float()
        return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.c["rms_norm_eps"])).to(x.dtype) * self.w[name]

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.w[name + ".weight"], self.w[name + ".bias"], self.c["layer_norm_epsilon"])

    def dense(self, x, name):
        return torch.addmm(self.w[name + ".bias"], x[0], self.w[name + ".weight"])[None]

    def split(self, x):
        return x.view(1, x.shape[1], -1, self.width).transpose(1, 2)

    def turn(self, x, position):
        half = self.width // 2
        return x * self.cos[position] + torch.cat((-x[..., half:], x[..., :half]), -1) * self.sin[position]

    def heads_of(self, x, i, position, whole):
        """The attention of layer i: whole, a prompt from the first position on."""
        w = self.w
        if self.qwen:
            a = "model.layers.%d.self_attn." % i
            q, k, v = (self.split(F.linear(x, w[a + n + "_proj.weight"])) for n in "qkv")
            q, k = (self.turn(self.rms(y, a + n), position) for y, n in ((q, "q_norm.weight"), (k, "k_norm.weight")))
        else:
            q, k, v = (self.split(y) for y in self.dense(x, "h.%d.attn.c_attn" % i).chunk(3, -1))
        keys, values = self.cache[i]
        keys.index_copy_(2, position, k)
        values.index_copy_(2, position, v)
        y = attend(q, *((k, v, position, {"is_causal": True}) if whole else (keys, values, position, None)))
        y = y.transpose(1, 2).reshape(1, x.shape[1], -1)
        return F.linear(y, w[a + "o_proj.weight"]) if self.qwen else self.dense(y, "h.%d.attn.c_proj" % i)

    def forward(self, ids, position, whole):
        w = self.w
        if self.qwen:
            x = w["model.embed_tokens.weight"][ids][None]
            for i in range(self.layers):
                p = "model.layers.%d." % i
                x = x + self.heads_of(self.rms(x, p + "input_layernorm.weight"), i, position, whole)
                h = self.rms(x, p + "post_attention_layernorm.weight")
                h = F.silu(F.linear(h, w[p + "mlp.gate_proj.weight"])) * F.linear(h, w[p + "mlp.up_proj.weight"])
                x = x + F.linear(h, w[p + "mlp.down_proj.weight"])
            return F.linear(self.rms(x[:, -1], "model.norm.weight"), w["model.embed_tokens.weight"])
        x = (w["wte.weight"][ids] + w["wpe.weight"][position])[None]
        for i in range(self.layers):
            p = "h.%d." % i
            x = x + self.heads_of(self.norm(x, p + "ln_1"), i, position, whole)
            x = x + self.dense(F.gelu(self.dense(self.norm(x, p + "ln_2"), p + "mlp.c_fc"), approximate="tanh"), p + "mlp.c_proj")
        return F.linear(self.norm(x[:, -1], "ln_f"), w["wte.weight"])


def report(work, tokens, call, seconds):
    for _ in range(3):
        call().cpu()
    times, end = [], time.monotonic() + seconds
    while len(times) < 5 or time.monotonic() < end:
        start = time.perf_counter()
        call().cpu()
        times.append(time.perf_counter() - start)
    median = statistics.median(times)
    print(json.dumps({"work": work, "median_s": median, "tokens_per_s": tokens / median}), flush=True)


def captured(call):
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = call()

    def replay():
        graph.replay()
        return y
    return replay


def compiled(m, call):
    for x in [*m.w.values(), m.cos, m.sin, *(x for pair in m.cache for x in pair)]:
        torch._dynamo.mark_static_address(x)  # else each run copies it
    return torch.compile(call, mode="reduce-overhead")


def main(path, prompt, cache, seconds=3.0):
    prompt, cache = int(prompt), int(cache)
    with torch.no_grad():
        m = Model(path, cache)
        ids, at = torch.arange(prompt, device=DEVICE) % m.c["vocab_size"], torch.arange(prompt, device=DEVICE)
        report("prefill, eager", prompt, lambda: m.forward(ids, at, True), seconds)
        one, last = ids[:1].clone(), torch.tensor([prompt], device=DEVICE)
        decode = lambda: m.forward(one, last, False)  # noqa: E731
        report("decode, eager", 1, decode, seconds)
        for way, make in (("CUDA graph", captured), ("compiled", functools.partial(compiled, m))) if DEVICE == "cuda" else ():
            try:
                report("decode, " + way, 1, make(decode), seconds)
            except Exception as why:  # noqa: BLE001: whatever a way raises, the others are timed
                print("no decode, %s: %s" % (way, str(why).strip().split("\n")[0][:200]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:4], *(float(x) for x in sys.argv[4:]))
