#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_cases.py - trains small tokenizers in the configurations of known models with the package tokenizers, and writes what
it makes of seeded texts: NAME.json and NAME.jsonl. The first line of a .jsonl has how many ids stand before and behind a text.
Each other line has a text, its ids, their text without special tokens (null: that text) and with them (null: the same), some
ids, and their text.

  make_cases.py FOLDER --texts N [--vocab N] [--seed N] [--short]    all configurations
  make_cases.py FOLDER --texts N --of TOKENIZER.json NAME            texts for a tokenizer that is there

The training text is Python's own standard library. Needs the package tokenizers."""
import argparse
import glob
import json
import os
import random
import sysconfig

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = CL100K.replace("{1,3}", "")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def corpus():
    texts = []
    for path in sorted(glob.glob(os.path.join(sysconfig.get_paths()["stdlib"], "*.py")))[:120]:
        with open(path, encoding="utf-8") as f:
            texts.append(f.read())
    texts += ["größer naïve Ελληνικά Москва привет мир 你好世界 日本語 한국어 العربية עברית हिन्दी ไทย 😀 👨‍👩‍👧 ½ Ⅷ ﬁ Å"] * 40
    return texts


# ---- configurations -----------------------------------------------------------------------------


def byte_bpe(size, texts, special, pre, normalizer=None, post=None, **model):
    t = Tokenizer(models.BPE(**model))
    t.pre_tokenizer = pre
    if normalizer is not None:
        t.normalizer = normalizer
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=size, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
        ),
    )
    t.post_processor = post(t) if post else processors.ByteLevel(trim_offsets=False)
    return t


def split_bytes(pattern, behavior="isolated"):
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), behavior), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def around(bos, eos=None):
    def post(t):
        template = f"{bos} $A {eos}" if eos else f"{bos} $A"
        tokens = [(x, t.token_to_id(x)) for x in (bos, eos) if x]
        return processors.Sequence(
            [processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(single=template, special_tokens=tokens)]
        )

    return post


def all_pairs(vocab, merges):
    """What transformers makes of a file of SentencePiece: a token is merged of every pair whose text it is."""
    made = {"".join(m): -i for i, m in reversed(list(enumerate(merges)))}
    pairs = []
    for token, score in made.items():
        cuts = [(token[:i], token[i:], score) for i in range(1, len(token)) if token[:i] in vocab and token[i:] in vocab]
        pairs += sorted(cuts, key=lambda p: (vocab[p[0]], vocab[p[1]]))
    return [list(p[:2]) for p in sorted(pairs, key=lambda p: (p[2], len(p[0]), len(p[1])), reverse=True)]


def sentence_bpe(size, texts, normalizer, pre, decoder, pairs=False):
    """SentencePiece's BPE: 256 byte tokens, then characters and merges."""
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, special_tokens=special, limit_alphabet=90, show_progress=False))
    made = json.loads(t.to_str())
    made["added_tokens"] = [x for x in made["added_tokens"] if not x["content"].startswith("<0x")]
    if pairs:
        made["model"]["merges"] = all_pairs(made["model"]["vocab"], made["model"]["merges"])
    t = Tokenizer.from_str(json.dumps(made))
    if normalizer is not None:
        t.normalizer = normalizer
    t.pre_tokenizer = pre
    t.decoder = decoder
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", t.token_to_id("<s>"))])
    return t


def wordpiece(size, texts, normalizer, pre, cleanup=True):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=30))
    t.normalizer = normalizer
    t.pre_tokenizer = pre
    t.decoder = decoders.WordPiece(cleanup=cleanup)
    t.train_from_iterator(
        texts, trainers.WordPieceTrainer(vocab_size=size, special_tokens=special, limit_alphabet=200, show_progress=False)
    )
    t.post_processor = processors.BertProcessing(("[SEP]", t.token_to_id("[SEP]")), ("[CLS]", t.token_to_id("[CLS]")))
    return t


def add_tokens(t):
    """Added tokens of every kind, as fine-tuned models have them."""
    t.add_special_tokens([AddedToken("<|tool|>", normalized=False), AddedToken("<mask>", lstrip=True, normalized=False)])
    t.add_special_tokens([AddedToken("<|tool|> x", normalized=False), AddedToken("<Sep>", rstrip=True, normalized=True)])
    t.add_tokens([AddedToken("Token", single_word=True), AddedToken("ÉTÉ"), AddedToken("lstrip", lstrip=True, rstrip=True)])
    t.add_tokens([AddedToken("a_word", single_word=True, normalized=False), AddedToken("\n\n\n", normalized=False)])
    return t


def configurations(size, texts):
    seq, B, S, N, P = pre_tokenizers.Sequence, pre_tokenizers.ByteLevel, pre_tokenizers.Split, normalizers, pre_tokenizers
    llama2 = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    gemma = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    meta = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
    roberta = lambda t: processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")))
    ascii_signs = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    yield "gpt2", byte_bpe(size, texts, ["<|endoftext|>"], B(add_prefix_space=False))
    yield "roberta", byte_bpe(size, texts, ["<s>", "</s>", "<unk>"], B(add_prefix_space=True), post=roberta)
    yield "llama3", byte_bpe(
        size, texts, ["<|begin_of_text|>"], split_bytes(CL100K), post=around("<|begin_of_text|>"), ignore_merges=True
    )
    yield "qwen2", byte_bpe(size, texts, ["<|endoftext|>", "<|im_start|>"], split_bytes(QWEN2), normalizer=N.NFC())
    yield "o200k", byte_bpe(size, texts, ["<|endoftext|>"], split_bytes(O200K), post=around("<|endoftext|>", "<|endoftext|>"))
    yield "deepseek", byte_bpe(
        size,
        texts,
        ["<bos>"],
        seq([S(Regex(r"\p{N}{1,3}"), "isolated"), S(Regex(r"[一-龥぀-ゟ゠-ヿ]+"), "isolated"), S(Regex(ascii_signs), "isolated"), B(False, use_regex=False)]),
    )
    yield "falcon", byte_bpe(
        size, texts, ["<|endoftext|>"], seq([P.Punctuation("contiguous"), B(False), P.Digits(True), S(Regex("[0-9][0-9][0-9]"), "isolated", invert=True)])
    )
    yield "clip", byte_bpe(
        size,
        texts,
        ["<|start|>", "<|end|>"],
        seq([S(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True), B(False)]),
        normalizer=N.Sequence([N.NFC(), N.Replace(Regex(r"\s+"), " "), N.Lowercase()]),
        post=around("<|start|>", "<|end|>"),
        end_of_word_suffix="</w>",
        unk_token="<|end|>",
    )
    yield "llama2", sentence_bpe(size, texts, N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")]), None, llama2, pairs=True)
    yield "mistral", sentence_bpe(size, texts, None, P.Metaspace(prepend_scheme="first", split=False), meta)
    yield "gemma", sentence_bpe(size, texts, N.Replace(" ", "▁"), S(" ", "merged_with_previous"), gemma)
    yield "bert", wordpiece(size, texts, N.BertNormalizer(), P.BertPreTokenizer())
    yield "bert_cased", wordpiece(size, texts, N.BertNormalizer(lowercase=False, strip_accents=False), P.BertPreTokenizer(), cleanup=False)
    yield "words", wordpiece(
        size,
        texts,
        N.Sequence([N.Strip(), N.NFKD(), N.StripAccents(), N.NFKC(), N.Lowercase()]),
        seq([P.Whitespace(), P.Digits(False), P.Punctuation("merged_with_previous")]),
    )


# ---- texts --------------------------------------------------------------------------------------

PIECES = (
    "'s|'LL|don't|’s|I've| |  |   |\n|\r\n|\n\n\n|\t|\u00a0|\u3000|\u2009|\u200b|\u200d|\u0085|\u2028|\x0b|\x0c|\x00|\x1f|\ufeff|\ufffd|a|Word|Token|Token_"
    "|a_word|x a_word y|ÉTÉ|été|e\u0301|E\u0301\u0323|<mask>| <mask> |<|tool|>|<|tool|> x|<Sep>|<Sep>  |<sep>|lstrip|  lstrip  |<|endoftext|>|<s>|</s>|[CLS]"
    "|[MASK]|<unk>|<0x41>|<0xE4>|▁|▁▁|##ing|</w>|123|4567|½|Ⅷ|²|٣|๓|ſ|K|İ|ß|ẞ|ǅ|ﬁ|Å|Ω|ά|ς|你好|世界|日本語です|한국어|각|\u1112\u1161\u11ab|مرحبا|हिन्दी|ภาษาไทย|"
    "🦙|👨‍👩‍👧|👍🏽|🇩🇪|❤️|…|--|—|!?|...|(x)|[1, 2]|{'a': 1}|def f(x):\n    return x|https://x.org/?q=1&y=2|1.5e-3|$€£|+=|_|__init__|ABCdefGHI|\U0001d400|\U00010d4a\U00010d50"
    "|\u1c89\u1c8a|\U00011f02|\U0002ebf0|\U00016d40|\U000e0001|\u0e33|\u0f73|\u212b|\u1e9b\u0323|\u0345\u0300\u0316"
).replace("<|", "<\x01").replace("|>", "\x01>").split("|")
PIECES = [p.replace("\x01", "|") for p in PIECES if p]
RANGES = [(0x20, 0x7E), (0x20, 0x7E), (0xA0, 0x24F), (0x250, 0x5FF), (0x600, 0xDFF), (0xE00, 0x1FFF), (0x2000, 0x2BFF), (0x3000, 0x30FF), (0x4E00, 0x4F00),
          (0xAC00, 0xAD00), (0xA640, 0xABFF), (0xF900, 0xFFFF), (0x10000, 0x11FFF), (0x16000, 0x18CFF), (0x1D000, 0x1DFFF), (0x1F000, 0x1FAFF), (0x20000, 0x323AF)]  # fmt: skip


def a_text(rng, sources, tokens, short):
    out = []
    for _ in range(rng.choice((1, 1, 2, 3) if short else (1, 2, 3, 5, 8, 13, 21))):
        kind = rng.random()
        if kind < 0.45:
            out.append(rng.choice(PIECES))
        elif kind < 0.6:
            low, high = rng.choice(RANGES)
            out.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 4))))
        elif kind < 0.9:
            text = rng.choice(sources)
            at = rng.randrange(max(1, len(text) - 60))
            out.append(text[at : at + rng.randint(1, 20 if short else 60)])
        else:
            out.append(rng.choice(tokens))
    return "".join(c for c in "".join(out) if not 0xD800 <= ord(c) < 0xE000)


def write_cases(folder, name, t, texts, a):
    rng = random.Random(f"{a.seed} {name}")
    tokens = [x for x in sorted(t.get_vocab(True)) if x]
    plain, ids = t.encode("a", add_special_tokens=False).ids, t.encode("a").ids
    before = next(i for i in range(len(ids)) if ids[i : i + len(plain)] == plain)
    with open(os.path.join(folder, name + ".jsonl"), "w", encoding="utf-8") as f:
        f.write(json.dumps([before, len(ids) - before - len(plain)]) + "\n")
        for i in range(a.texts):
            text = "" if i == 0 else a_text(rng, texts, tokens, a.short)
            ids, plain = t.encode(text).ids, t.encode(text, add_special_tokens=False).ids
            assert plain == ids[before : before + len(plain)]
            decoded, special = t.decode(ids, True), t.decode(ids, False)
            # Any ids, not only those of a text: what a generator may make.
            some = [rng.choice(plain) for _ in range(3 if a.short else 8)] if plain else []
            row = [text, ids, None if decoded == text else decoded, None if special == decoded else special, some, t.decode(some, False)]
            f.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--texts", type=int, required=True)
    parser.add_argument("--vocab", type=int, default=4000)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--of", nargs=2)
    parser.add_argument("--short", action="store_true")
    a = parser.parse_args()
    os.makedirs(a.folder, exist_ok=True)
    texts = corpus()
    if a.of:
        t = Tokenizer.from_file(a.of[0])
        t.no_truncation()
        t.no_padding()
        write_cases(a.folder, a.of[1], t, texts, a)
        return
    for name, t in configurations(a.vocab, texts):
        add_tokens(t)
        path = os.path.join(a.folder, name + ".json")
        t.save(path, pretty=False)
        write_cases(a.folder, name, Tokenizer.from_file(path), texts, a)


if __name__ == "__main__":
    main()
