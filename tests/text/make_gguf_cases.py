#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_gguf_cases.py - cases for the trained vocabularies ggml-vocab-*.gguf of llama.cpp (scripts/fetch-vocabularies):

  make_gguf_cases.py FOLDER VOCABULARIES --texts N [--seed N]

NAME.gguf.jsonl has lines [text, ids] of the texts that lie beside a vocabulary with Hugging Face's own ids (.inp and .out).
NAME_hf.gguf.jsonl has N seeded texts as make_cases.py writes them, by Hugging Face's tokenizers: its tokenizer has the file's
tokens and merges, and the steps of the model's tokenizer.json, which a table here names. Needs the packages tokenizers, gguf."""
import argparse
import glob
import json
import os

from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from make_cases import CL100K, QWEN2, corpus, write_cases

B, S, D, P = pre_tokenizers.ByteLevel, pre_tokenizers.Split, pre_tokenizers.Digits, pre_tokenizers.Punctuation
LETTERS = (
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼ"
    r"ℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"
)


def splits(*patterns):
    return [S(Regex(p), "isolated") for p in patterns]


BYTES = B(add_prefix_space=False, use_regex=False)
WORDS = B(add_prefix_space=False)
CJK = r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
NFC = normalizers.NFC()
# The normalizer and pre-tokenizer of each vocabulary, and whether a piece that is a token needs no merges.
KNOWN = {
    "gpt-2": (None, [WORDS], False),
    "mpt": (NFC, [WORDS], False),
    "starcoder": (None, [D(True), WORDS], False),
    "refact": (None, [D(True), WORDS], False),
    "command-r": (NFC, [D(True), WORDS], False),
    "falcon": (None, [P("contiguous"), WORDS, D(False), *splits("[0-9][0-9][0-9]")], False),
    "llama-bpe": (None, [*splits(CL100K), BYTES], True),
    "qwen2": (NFC, [*splits(QWEN2), BYTES], False),
    "deepseek-coder": (None, [*splits(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK), D(True), BYTES], False),
    "deepseek-llm": (
        None,
        [*splits(r"[\r\n]", LETTERS, r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$", CJK), D(True), BYTES],
        False,
    ),
}


def merges_of_scores(vocab, scores):
    """As transformers makes them of a file of SentencePiece: every pair whose text is a token, the highest score first."""
    merges = []
    for token, score in zip(vocab, scores):
        pairs = [(token[:i], token[i:], score) for i in range(1, len(token)) if token[:i] in vocab and token[i:] in vocab]
        merges += sorted(pairs, key=lambda p: (vocab[p[0]], vocab[p[1]]))
    return [p[:2] for p in sorted(merges, key=lambda p: (p[2], len(p[0]), len(p[1])), reverse=True)]


def contents(file, key):
    field = file.fields.get("tokenizer.ggml." + key)
    return None if field is None else field.contents()


def around(t, file, before, after):
    ids = [(contents(file, "tokens")[i], i) for i in (before, after) if i is not None]
    names = dict((i, name) for name, i in ids)
    template = " ".join(x for x in (names.get(before), "$A", names.get(after)) if x)
    if ids:
        t.post_processor = processors.TemplateProcessing(single=template, special_tokens=ids)


def tokenizer_of(name, file):
    tokens, types = contents(file, "tokens"), contents(file, "token_type")
    vocab = {token: i for i, token in enumerate(tokens)}
    before = contents(file, "bos_token_id") if contents(file, "add_bos_token") or name == "llama-bpe" else None
    after = None
    if contents(file, "model") == "bert":
        unmarked = lambda t: t if t[0] + t[-1] == "[]" else t[1:] if t[0] == "▁" and len(t) > 1 else "##" + t
        t = Tokenizer(models.WordPiece({unmarked(x): i for x, i in vocab.items()}, unk_token="[UNK]"))
        t.normalizer, t.pre_tokenizer, t.decoder = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
        before, after = contents(file, "cls_token_id"), contents(file, "seperator_token_id")
    elif contents(file, "model") == "llama":
        t = Tokenizer(models.BPE(vocab, merges_of_scores(vocab, contents(file, "scores")), unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    elif name in KNOWN:
        normalizer, steps, whole = KNOWN[name]
        t = Tokenizer(models.BPE(vocab, [tuple(m.split(" ")) for m in contents(file, "merges")], ignore_merges=whole))
        t.pre_tokenizer, t.decoder = pre_tokenizers.Sequence(steps), decoders.ByteLevel()
        if normalizer is not None:
            t.normalizer = normalizer
    else:
        return None
    for i, kind in enumerate(types):
        strips = name == "phi-3" and (kind == 3 or tokens[i] == "</s>") and tokens[i] not in ("<unk>", "<s>", "<|endoftext|>")
        if kind in (2, 3):
            t.add_special_tokens([AddedToken(tokens[i], normalized=False, rstrip=strips)])
        elif kind == 4:
            t.add_tokens([AddedToken(tokens[i], normalized=False, rstrip=strips)])
    around(t, file, before, after)
    return t


def write_golden(path, out):
    with open(path + ".inp", encoding="utf-8", newline="") as f:
        texts = f.read().split("\n__ggml_vocab_test__\n")
    with open(path + ".out", encoding="utf-8") as f:
        lines = f.read().split("\n")
    with open(out + ".jsonl", "w", encoding="utf-8") as f:
        f.write("[0, 0]\n")
        for text, ids in zip(texts, lines):
            f.write(json.dumps([text, [int(x) for x in ids.split()]], ensure_ascii=False) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("vocabularies")
    parser.add_argument("--texts", type=int, required=True)
    parser.add_argument("--seed", default="1")
    a = parser.parse_args()
    a.short = False
    texts = corpus()
    for path in sorted(glob.glob(os.path.join(a.vocabularies, "ggml-vocab-*.gguf"))):
        if not os.path.exists(path + ".inp"):
            continue
        name = os.path.basename(path)[len("ggml-vocab-") : -len(".gguf")]
        for end in ("", "_hf"):
            os.symlink(os.path.abspath(path), os.path.join(a.folder, f"{name}{end}.gguf"))
        write_golden(path, os.path.join(a.folder, name + ".gguf"))
        t = tokenizer_of(name, GGUFReader(path)) if a.texts > 0 else None
        if t is not None:
            write_cases(a.folder, name + "_hf.gguf", t, texts, a)


if __name__ == "__main__":
    main()
