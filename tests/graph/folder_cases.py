#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes tests/graph/cases/folders.txt: small folders of model kinds, and the logits that transformers computes for them.

  folder_cases.py FILE          the cases below; needs torch, transformers, safetensors
  folder_cases.py FILE --random N [--seed S]    N random configurations: BS_FOLDER_CASES=FILE build/tests/test_folder_cases reads them

A weight is "NAME SHAPE SCALE OFFSET": its elements are OFFSET + SCALE * k / 128, the numbers of model_cases.py with the number of the
weight in its case, from 1, as seed. Logits are those of the last of the first N tokens, in f64, eager, decoded with the cache. f32 and
runs over all N tokens must agree; where they may not, "whole" has the logits of the run over all tokens."""
import argparse
import json
import pathlib
import random
import sys
import tempfile

import numpy as np

from model_cases import numbers

TINY = {"vocab_size": 11, "hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "max_position_embeddings": 16, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}  # fmt: skip
KINDS = {
    "llama": {"hidden_act": "silu"},
    "mistral": {"hidden_act": "silu", "sliding_window": None},
    "qwen2": {"hidden_act": "silu"},
    "qwen3": {"hidden_act": "silu", "head_dim": 8},
    "phi3": {"hidden_act": "silu"},
    "olmo2": {"hidden_act": "silu"},
    "gemma2": {"head_dim": 8},
    "mixtral": {"hidden_act": "silu", "num_local_experts": 3, "num_experts_per_tok": 2},
    "qwen3_moe": {"hidden_act": "silu", "head_dim": 8, "num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 7},
    "granite": {"hidden_act": "silu"},
    "smollm3": {"hidden_act": "silu"},
    "seed_oss": {"hidden_act": "silu", "head_dim": 8},
    "exaone4": {"hidden_act": "silu"},
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8}
PHI3 = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32, "partial_rotary_factor": 0.75}
PHI3_LONG = {"short_factor": [1.0, 1.1, 1.25], "long_factor": [1.0, 2.0, 3.5]}
LONG = {"type": "longrope", "short_factor": [1.0, 1.1, 1.25, 1.5], "long_factor": [1.0, 2.0, 3.5, 4.0]}
WINDOW = {"use_sliding_window": True, "sliding_window": 3}
# Name, kind, keys of config.json, tokens of the prompt, of all. "-" leaves a key out.
CASES = [
    ("mistral_window", "mistral", {"sliding_window": 3}, 5, 9),
    ("mistral_window_2", "mistral", {"sliding_window": 2, "num_key_value_heads": 2}, 3, 5),
    ("qwen2_window_above", "qwen2", WINDOW | {"max_window_layers": 1}, 4, 8),
    ("qwen3_window_listed", "qwen3", WINDOW | {"layer_types": ["sliding_attention", "full_attention"], "tie_word_embeddings": True}, 6, 9),
    ("qwen2_no_window", "qwen2", {"sliding_window": 2, "max_window_layers": 0, "use_sliding_window": False}, 4, 6),
    ("llama_yarn", "llama", {"rope_parameters": YARN | {"rope_theta": 500.0}, "head_dim": 12}, 5, 8),
    ("llama_yarn_old", "llama", {"rope_scaling": {"type": "yarn", "factor": 2.0, "beta_fast": 8, "beta_slow": 2, "mscale": 0.7,
                                                  "mscale_all_dim": 1.2, "original_max_position_embeddings": 8}, "rope_theta": 77.0}, 5, 7),
    ("qwen3_yarn_ramp", "qwen3", {"rope_scaling": YARN | {"truncate": False, "attention_factor": 0.75}}, 5, 7),
    ("llama_top_original", "llama", {"rope_scaling": YARN | {"original_max_position_embeddings": 2}, "original_max_position_embeddings": 8}, 5, 7),
    ("llama_llama3", "llama", {"rope_scaling": LLAMA3, "rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 9.0}, "rope_theta": 30.0}, 6, 8),
    ("qwen2_linear", "qwen2", {"rope_scaling": {"type": "linear", "factor": 2.5}}, 5, 7),
    ("llama_dynamic", "llama", {"rope_scaling": {"type": "dynamic", "factor": 2.5}}, 9, 16),
    ("llama_longrope", "llama", {"rope_scaling": LONG | {"original_max_position_embeddings": 6}}, 4, 9),
    ("llama_longrope_prompt", "llama", {"rope_scaling": LONG | {"original_max_position_embeddings": 4, "factor": 1.5}}, 6, 8),
    ("llama_biases", "llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 6, "num_attention_heads": 4, "rms_norm_eps": 0.5}, 5, 7),
    ("llama_top_theta", "llama", {"rope_scaling": {}, "rope_parameters": {"rope_type": "default"}, "rope_theta": 3.7, "num_hidden_layers": 1}, 6, 8),
    ("phi3", "phi3", {"num_key_value_heads": "-", "rms_norm_eps": "-"}, 5, 8),
    ("phi3_window", "phi3", PHI3 | {"sliding_window": 4, "tie_word_embeddings": True}, 6, 9),
    ("phi3_long", "phi3", PHI3 | {"rope_scaling": PHI3_LONG | {"type": "longrope"}, "original_max_position_embeddings": 5}, 4, 8),
    ("phi3_su", "phi3", PHI3 | {"rope_scaling": PHI3_LONG | {"type": "su", "original_max_position_embeddings": 9}, "original_max_position_embeddings": 5}, 7, 9),
    ("phi3_yarn", "phi3", PHI3 | {"rope_scaling": PHI3_LONG | {"type": "yarn", "original_max_position_embeddings": 5}}, 7, 9),
    ("phi3_odd_part", "phi3", PHI3 | {"partial_rotary_factor": 0.65, "hidden_act": "gelu"}, 5, 7),
    ("olmo2", "olmo2", {}, 5, 8),
    ("olmo2_groups", "olmo2", {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 24, "attention_bias": True,
                               "rope_scaling": YARN, "rms_norm_eps": "-", "tie_word_embeddings": True}, 6, 8),
    ("gemma2", "gemma2", {"sliding_window": 3, "query_pre_attn_scalar": 7, "num_hidden_layers": 3}, 5, 9),
    ("gemma2_caps", "gemma2", {"sliding_window": 2, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.0, "query_pre_attn_scalar": 3,
                               "layer_types": ["full_attention", "sliding_attention"], "attention_bias": True, "head_dim": 12}, 5, 8),
    ("gemma2_plain", "gemma2", {"attn_logit_softcapping": None, "final_logit_softcapping": None, "tie_word_embeddings": False,
                                "hidden_activation": "gelu", "hidden_act": "relu", "num_attention_heads": 4, "num_key_value_heads": 2,
                                "rope_scaling": {"type": "linear", "factor": 2.0}}, 5, 7),
    ("mixtral", "mixtral", {}, 5, 8),
    ("mixtral_one", "mixtral", {"num_experts_per_tok": 1, "sliding_window": 3, "rope_theta": 50.0, "rms_norm_eps": "-", "num_hidden_layers": 1}, 5, 8),
    ("qwen3_moe", "qwen3_moe", {"num_hidden_layers": 1}, 5, 8),
    ("qwen3_moe_stacked", "qwen3_moe", {"num_hidden_layers": 1, "norm_topk_prob": True}, 5, 7),
    ("mixtral_stacked", "mixtral", {"num_hidden_layers": 1, "rope_scaling": YARN, "head_dim": 10}, 5, 7),
    ("qwen3_moe_norm", "qwen3_moe", {"norm_topk_prob": True, "decoder_sparse_step": 2, "mlp_only_layers": [3], "num_hidden_layers": 4,
                                     "hidden_size": 8, "tie_word_embeddings": True}, 4, 6),
    ("qwen3_moe_window", "qwen3_moe", WINDOW | {"attention_bias": True, "num_local_experts": 2, "num_experts": "-", "num_experts_per_tok": 2,
                                                "num_hidden_layers": 1}, 5, 8),
    ("granite", "granite", {"embedding_multiplier": 3.0, "logits_scaling": 2.5, "residual_multiplier": 0.22, "attention_multiplier": 0.1}, 5, 8),
    ("granite_plain", "granite", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "rms_norm_eps": "-"}, 5, 7),
    ("smollm3", "smollm3", {"num_hidden_layers": 4, "rope_scaling": YARN}, 5, 8),
    ("smollm3_listed", "smollm3", {"no_rope_layers": [0, 1], "tie_word_embeddings": False, "attention_bias": True, "sliding_window": 4}, 5, 7),
    ("seed_oss", "seed_oss", {"attention_bias": True, "attention_out_bias": False}, 5, 8),
    ("seed_oss_out", "seed_oss", {"attention_bias": False, "attention_out_bias": True, "mlp_bias": True}, 5, 7),
    ("exaone4", "exaone4", {"sliding_window": 3, "num_hidden_layers": 3, "sliding_window_pattern": 3}, 5, 9),
    ("exaone4_full", "exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 2, "tie_word_embeddings": True}, 5, 8),
]  # fmt: skip


def changed(base, change):
    """`base` with the keys of `change`; a value "-" leaves the key out."""
    return {key: value for key, value in (base | change).items() if value != "-"}


def fill(config, folder, stacked):
    """Writes a folder of that config with weights by formula; the lines of its weights. stacked: the experts of a layer are one tensor."""
    import torch
    import transformers
    from safetensors.torch import load_file, save_file

    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    read = transformers.AutoConfig.from_pretrained(folder)
    made = transformers.AutoModelForCausalLM.from_config(read)
    made.save_pretrained(folder / "made", save_original_format=not stacked)
    made = load_file(folder / "made" / "model.safetensors")
    lines, tensors = [], {}
    for seed, (name, old) in enumerate(sorted(made.items()), 1):
        norm = "norm" in name
        scale, offset = (0.5, 0 if config["model_type"] == "gemma2" else 1) if norm else (0.75, 0)
        array = (offset + scale * numbers(seed, old.numel())).astype(np.float32).reshape(old.shape)
        tensors[name] = torch.from_numpy(array)
        lines.append(f"weight {name} {','.join(map(str, old.shape))} {scale:g} {offset}")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return lines


def load(folder, dtype):
    import transformers

    model, told = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager", output_loading_info=True)
    assert not told["missing_keys"] and not told["unexpected_keys"], told
    return model.eval()


def crosses(config, prompt):
    """Whether decoding leaves the short factors of longrope: keys in the cache keep them, and a whole run is another one."""
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    old = config.get("original_max_position_embeddings", rope.get("original_max_position_embeddings", 4096))
    return "long_factor" in rope and prompt <= old


def cached(model, ids, prompt):
    """The logits of the last token of the prompt, and of each one behind it with the cache."""
    import torch

    rows, cache = [], {}
    with torch.no_grad():
        for first, last in [(0, prompt)] + [(n, n + 1) for n in range(prompt, ids.shape[1])]:
            out = model(ids[:, first:last], use_cache=True, **cache)
            key = "cache" if "cache" in out else "past_key_values"
            cache = {key: out[key]}
            rows.append(out.logits[0, -1].double().numpy())
    return np.array(rows)


def logits(folder, config, tokens, prompt):
    """Of the last token of the prompt, and of each one that is decoded; then of the whole."""
    import torch

    ids = torch.tensor([tokens])
    exact, single = load(folder, torch.float64), load(folder, torch.float32)
    rows = cached(exact, ids, prompt)
    with torch.no_grad():
        wholes = np.array([exact(ids[:, :n]).logits[0, -1].numpy() for n in range(prompt, len(tokens) + 1)])
    near = 5e-6 * abs(rows).max()
    assert abs(cached(single, ids, prompt) - rows).max() < near, "f32 differs"
    assert crosses(config, prompt) or abs(wholes - rows).max() < near, "the cache differs"
    return rows, wholes[-1]


def case(name, kind, change, prompt, count):
    config = changed(TINY | KINDS[kind] | {"model_type": kind}, change)
    draw = random.Random(name)
    tokens = [draw.randrange(config["vocab_size"]) for _ in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        lines = fill(config, pathlib.Path(folder), name.endswith("stacked"))
        rows, whole = logits(folder, config, tokens, prompt)
    text = [f"case {name}", f"config {json.dumps(config)}", *lines, f"tokens {' '.join(map(str, tokens))}"]
    text += [f"logits {n} {' '.join(f'{v:.7g}' for v in row)}" for n, row in enumerate(rows, prompt)]
    text += [f"whole {' '.join(f'{v:.7g}' for v in whole)}"] if crosses(config, prompt) else []
    return "\n".join([*text, "end", ""])


def rotation(draw, pairs, kind):
    """Keys of config.json that say how to rotate, in one of their forms."""
    long = {"short_factor": [draw.choice([1.0, 1.3, 2]) for _ in range(pairs)], "long_factor": [draw.choice([1.5, 4.0, 7]) for _ in range(pairs)]}
    old = {"original_max_position_embeddings": draw.choice([2, 5, 9])}
    choices = [{}, {"factor": draw.choice([1.5, 4]), "rope_type": "linear"}, {"rope_type": "dynamic", "factor": 3.0}, LLAMA3 | old, YARN | old,
               YARN | old | {"beta_fast": draw.choice([3, 20]), "truncate": draw.random() < 0.5}, long | old | {"rope_type": "longrope"}]  # fmt: skip
    rope = draw.choice([{}, choices[-1]] if kind == "phi3" else choices)
    theta = {"rope_theta": draw.choice([11.0, 500, 1e6])}
    if draw.random() < 0.5 and rope:
        return {"rope_scaling": {"type" if key == "rope_type" else key: value for key, value in rope.items()}} | theta | (old if kind == "phi3" else {})
    return {"rope_parameters": {"rope_type": "default"} | rope | theta} | (old if kind == "phi3" else {})


def drawn(draw, number):
    """A random row of CASES."""
    kind = draw.choice(sorted(KINDS))
    groups, times, head = draw.choice([1, 2, 3]), draw.choice([1, 2]), draw.choice([4, 6, 10])
    heads, layers, prompt = groups * times, draw.choice([1, 2, 3]), draw.randrange(3, 12)
    change = {"num_attention_heads": heads, "num_key_value_heads": groups, "num_hidden_layers": layers, "intermediate_size": draw.choice([5, 14]),
              "hidden_size": heads * head if kind in ("phi3", "olmo2", "qwen2") else heads * draw.choice([3, 8]), "vocab_size": draw.choice([7, 13]),
              "rms_norm_eps": draw.choice([1e-6, 1e-2]), "tie_word_embeddings": draw.random() < 0.5}  # fmt: skip
    change |= {} if kind in ("phi3", "olmo2", "qwen2") else {"head_dim": head}
    part = draw.choice([1.0, 2 / 3]) if kind == "phi3" and head == 6 else 1.0
    change |= rotation(draw, int(head * part) // 2, kind) | ({"partial_rotary_factor": part} if part != 1 else {})
    if kind not in ("mistral", "phi3", "mixtral", "qwen2"):
        change["attention_bias"] = draw.random() < 0.5
    window = draw.choice([None, 2, 3, 5, 40])
    types = [draw.choice(["sliding_attention", "full_attention"]) for _ in range(layers)]
    if kind in ("mistral", "phi3", "mixtral"):
        change["sliding_window"] = window
    elif kind == "gemma2":
        change |= {"sliding_window": window or 4, "query_pre_attn_scalar": draw.choice([2, 9]), "attn_logit_softcapping": draw.choice([None, 0.7, 5.0]),
                   "final_logit_softcapping": draw.choice([None, 3.0])} | draw.choice([{}, {"layer_types": types}])  # fmt: skip
    elif kind.startswith("qwen") and window:
        change |= {"use_sliding_window": True, "sliding_window": window}
        if kind != "qwen3_moe":
            change |= draw.choice([{"layer_types": types}, {"max_window_layers": draw.randrange(layers + 1)}])
    if kind in ("mixtral", "qwen3_moe"):
        experts = draw.randrange(1, 6)
        change |= {"num_local_experts": experts, "num_experts": "-", "num_experts_per_tok": draw.randrange(1, experts + 1)}
    if kind == "qwen3_moe":
        change |= {"norm_topk_prob": draw.random() < 0.5, "decoder_sparse_step": draw.choice([1, 2]), "mlp_only_layers": draw.choice([[], [1]])}
    return f"random_{number}_{kind}{draw.choice(['', '_stacked'])}", kind, change, prompt, draw.randrange(prompt + 1, 17)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--only", default="", help="cases whose name has this part")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="N random cases")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    draw = random.Random(options.seed)
    text = []
    for row in [drawn(draw, i) for i in range(options.random)] or CASES:
        if options.only in row[0]:
            print(row[0], file=sys.stderr)
            try:
                text.append(case(*row))
            except AssertionError as wrong:  # of a random case: numbers so large that f32 loses them, or what transformers itself does
                if not options.random:
                    raise
                print(f"  left out: {str(wrong)[:200]}", file=sys.stderr)
    pathlib.Path(options.file).write_text("# made by folder_cases.py\n" + "".join(text), encoding="utf-8")


if __name__ == "__main__":
    main()
