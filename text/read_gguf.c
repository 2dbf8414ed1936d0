/* SPDX-License-Identifier: MIT
 * read_gguf.c - reads the tokenizer of a GGUF file from its keys tokenizer.ggml.*: `llama` (SentencePiece's
 * BPE by scores), `gpt2` (BPE of bytes; gguf_pre.c splits) and `bert` (WordPiece). Its steps are those that
 * tokenizer.json of such a model has. gguf_vocab.c reads tokens and merges. Called by read.c. */
#include "text/read_gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "formats/gguf.h"
#include "text/read.h"

enum { SEP = 4, N_IDS }; /* after enum bs_token_role */

typedef bs_tok_gguf reader;

static const char blank_mark[] = "\xe2\x96\x81"; /* U+2581 */

/* ---- keys ------------------------------------------------------------------------------------ */

const bs_gguf_key *bs_tok_gguf_key(const reader *r, const char *name, char full[64]) {
  snprintf(full, 64, "tokenizer.ggml.%s", name);
  return bs_gguf_find_key(r->gguf, full);
}

/* A text that may be missing: "" then. */
static int32_t text_of(reader *r, const char *name, char out[64]) {
  char full[64];
  bs_span text = {"", 0};
  const bs_gguf_key *key = bs_tok_gguf_key(r, name, full);
  if (key != NULL && !bs_gguf_text(key, &text)) return bs_tok_bad(r->err, full, "it is no text");
  snprintf(out, 64, "%.*s", text.size < 63 ? (int)text.size : 63, text.data);
  return BS_OK;
}

static int32_t bool_of(reader *r, const char *name, int fallback, int *out) {
  char full[64];
  int64_t value = fallback;
  const bs_gguf_key *key = bs_tok_gguf_key(r, name, full);
  if (key != NULL && (key->kind != BS_GGUF_KIND_BOOL || key->is_array || !bs_gguf_int(key, 0, &value)))
    return bs_tok_bad(r->err, full, "it is neither true nor false");
  *out = value != 0;
  return BS_OK;
}

/* An id that may be missing: the fallback then, or -1 where no token has that. */
static int32_t id_of(reader *r, const char *name, int64_t fallback, int64_t *out) {
  char full[64];
  const bs_gguf_key *key = bs_tok_gguf_key(r, name, full);
  *out = fallback < (int64_t)r->n ? fallback : -1;
  if (key == NULL) return BS_OK;
  if (key->is_array || !bs_gguf_int(key, 0, out)) return bs_tok_bad(r->err, full, "it is no whole number");
  if (*out < 0 || *out >= (int64_t)r->n)
    return bs_error_set(r->err, BS_INPUT, "BS-TOK-FORMAT", "%s is %lld; there are %llu tokens", full,
                        (long long)*out, (unsigned long long)r->n);
  return BS_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

typedef int32_t read_part(const json_t *part, bs_tok_steps *out, bs_error *err);

/* Steps in the words of tokenizer.json. */
static int32_t add_steps(reader *r, read_part *read, bs_tok_steps *out, json_t *part) {
  const int32_t rc = part != NULL
                         ? read(part, out, r->err)
                         : bs_error_set(r->err, BS_NO_MEMORY, "BS-MEM", "out of memory for a tokenizer");
  json_decref(part);
  return rc;
}

static int32_t llama_steps(reader *r) {
  bs_tokenizer *t = r->out;
  int prefix = 1;
  int32_t rc = bool_of(r, "add_space_prefix", 1, &prefix);
  if (rc == BS_OK && prefix)
    rc = add_steps(r, bs_tok_read_normalizer, &t->normalizers,
                   json_pack("{s:s, s:s}", "type", "Prepend", "prepend", blank_mark));
  if (rc == BS_OK)
    rc = add_steps(
        r, bs_tok_read_normalizer, &t->normalizers,
        json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", " ", "content", blank_mark));
  if (rc == BS_OK)
    rc = add_steps(r, bs_tok_read_decoder, &t->decoders,
                   json_pack("{s:s, s:[{s:s, s:{s:s}, s:s}, {s:s}, {s:s}]}", "type", "Sequence", "decoders",
                             "type", "Replace", "pattern", "String", blank_mark, "content", " ", "type",
                             "ByteFallback", "type", "Fuse"));
  if (rc == BS_OK && prefix)
    rc = add_steps(r, bs_tok_read_decoder, &t->decoders,
                   json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content", " ", "start", 1, "stop", 0));
  return rc;
}

static int32_t gpt2_steps(reader *r) {
  bs_tokenizer *t = r->out;
  int32_t rc = BS_OK;
  if (r->pre->flags & BS_TOK_PRE_NFC)
    rc = add_steps(r, bs_tok_read_normalizer, &t->normalizers, json_pack("{s:s}", "type", "NFC"));
  for (size_t i = 0; i < 6 && r->pre->patterns[i] != NULL && rc == BS_OK; i++)
    rc = add_steps(r, bs_tok_read_splitter, &t->splitters,
                   json_pack("{s:s, s:{s:s}, s:s}", "type", "Split", "pattern", "Regex", r->pre->patterns[i],
                             "behavior", "Isolated"));
  if (rc == BS_OK)
    rc = add_steps(r, bs_tok_read_splitter, &t->splitters,
                   json_pack("{s:s, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "use_regex", 0));
  return rc == BS_OK
             ? add_steps(r, bs_tok_read_decoder, &t->decoders, json_pack("{s:s}", "type", "ByteLevel"))
             : rc;
}

static int32_t bert_steps(reader *r) {
  bs_tokenizer *t = r->out;
  int lower = 1, accents = 1;
  int32_t rc = bool_of(r, "normalizer.lowercase", 1, &lower);
  if (rc == BS_OK) rc = bool_of(r, "normalizer.strip_accents", lower, &accents);
  if (rc == BS_OK)
    rc = add_steps(
        r, bs_tok_read_normalizer, &t->normalizers,
        json_pack("{s:s, s:b, s:b}", "type", "BertNormalizer", "lowercase", lower, "strip_accents", accents));
  if (rc == BS_OK)
    rc = add_steps(r, bs_tok_read_splitter, &t->splitters, json_pack("{s:s}", "type", "BertPreTokenizer"));
  return rc == BS_OK ? add_steps(r, bs_tok_read_decoder, &t->decoders,
                                 json_pack("{s:s, s:s}", "type", "WordPiece", "prefix", "##"))
                     : rc;
}

/* ---- ids around a text ----------------------------------------------------------------------- */

static int32_t read_roles(reader *r, int64_t ids[N_IDS]) {
  const int llama = r->model == BS_TOK_GGUF_LLAMA, bert = r->model == BS_TOK_GGUF_BERT;
  int32_t rc = id_of(r, "bos_token_id", llama ? 1 : bert ? 101 : -1, &ids[BS_TOKEN_BOS]);
  if (rc == BS_OK && bert) rc = id_of(r, "cls_token_id", ids[BS_TOKEN_BOS], &ids[BS_TOKEN_BOS]);
  if (rc == BS_OK) rc = id_of(r, "eos_token_id", llama ? 2 : -1, &ids[BS_TOKEN_EOS]);
  if (rc == BS_OK) rc = id_of(r, "unknown_token_id", llama ? 0 : bert ? 100 : -1, &ids[BS_TOKEN_UNK]);
  if (rc == BS_OK) rc = id_of(r, "padding_token_id", bert ? 0 : -1, &ids[BS_TOKEN_PAD]);
  if (rc == BS_OK) rc = id_of(r, "seperator_token_id", bert ? 102 : -1, &ids[SEP]); /* GGUF spells it so */
  for (int i = 0; i < 4 && rc == BS_OK; i++) r->out->roles[i] = ids[i];
  return rc;
}

static int32_t put_id(reader *r, const char *key, int64_t id, int64_t **ids, size_t *n) {
  if (id < 0)
    return bs_error_set(r->err, BS_INPUT, "BS-TOK-FORMAT", "%s is true, and the file does not name the token",
                        key);
  *ids = malloc(sizeof **ids);
  if (*ids == NULL) return bs_error_set(r->err, BS_NO_MEMORY, "BS-MEM", "out of memory for a tokenizer");
  (*ids)[0] = id;
  *n = 1;
  return BS_OK;
}

static int32_t read_around(reader *r, const int64_t ids[N_IDS]) {
  const int bert = r->model == BS_TOK_GGUF_BERT;
  int bos = 0, eos = 0, sep = 0;
  int32_t rc = bool_of(r, "add_bos_token",
                       r->model != BS_TOK_GGUF_GPT2 || (r->pre->flags & BS_TOK_PRE_BOS) != 0, &bos);
  if (rc == BS_OK) rc = bool_of(r, "add_eos_token", 0, &eos);
  if (rc == BS_OK) rc = bool_of(r, "add_sep_token", bert, &sep);
  if (rc == BS_OK && sep && !bert)
    return bs_tok_unknown(r->err, "the pair of tokens around a text", "of add_sep_token");
  if (rc == BS_OK && bos)
    rc = put_id(r, "add_bos_token", ids[BS_TOKEN_BOS], &r->out->before, &r->out->n_before);
  if (rc == BS_OK && bert && sep)
    rc = put_id(r, "add_sep_token", ids[SEP], &r->out->after, &r->out->n_after);
  else if (rc == BS_OK && eos && !bert)
    rc = put_id(r, "add_eos_token", ids[BS_TOKEN_EOS], &r->out->after, &r->out->n_after);
  return rc;
}

/* Where a generator stops: ids by their keys, and tokens by their texts. */
static int32_t read_ends(reader *r) {
  static const struct {
    const char *key, *names[5];
  } fills[] = {{"fim_pad_token_id", {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
               {"fim_rep_token_id", {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
               {"fim_sep_token_id", {"<|file_sep|>"}}};
  static const char *const keys[] = {"eot_token_id", "eom_token_id"};
  int64_t id;
  int32_t rc = bs_tok_add_end(r->out, r->out->roles[BS_TOKEN_EOS], r->err);
  for (size_t i = 0; i < 2 && rc == BS_OK; i++) {
    rc = id_of(r, keys[i], -1, &id);
    if (rc == BS_OK) rc = bs_tok_add_end(r->out, id, r->err);
  }
  for (size_t i = 0; i < sizeof fills / sizeof fills[0] && rc == BS_OK; i++) {
    rc = id_of(r, fills[i].key, -1, &id);
    for (size_t k = 0; k < 5 && id < 0 && fills[i].names[k] != NULL; k++)
      id = bs_tokenizer_id(r->out, fills[i].names[k]);
    if (rc == BS_OK) rc = bs_tok_add_end(r->out, id, r->err);
  }
  return rc == BS_OK ? bs_tok_add_known_ends(r->out, r->err) : rc;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* The model and its splitter, each by a name that is known. */
static int32_t read_kind(reader *r) {
  static const char *const models[] = {
      [BS_TOK_GGUF_LLAMA] = "llama", [BS_TOK_GGUF_GPT2] = "gpt2", [BS_TOK_GGUF_BERT] = "bert"};
  static const char *const of_bert[] = {"", "default", "bert-bge", "bert-bge-large", "jina-v2-en"};
  char model[64] = "", pre[64] = "";
  int known = 0, on = 0;
  int32_t rc = text_of(r, "model", model);
  if (rc == BS_OK) rc = text_of(r, "pre", pre);
  if (rc != BS_OK) return rc;
  for (r->model = BS_TOK_GGUF_LLAMA; r->model <= BS_TOK_GGUF_BERT && strcmp(model, models[r->model]) != 0;)
    r->model++;
  if (model[0] == '\0' || strcmp(model, "no_vocab") == 0 || strcmp(model, "none") == 0) {
    bs_error_set(r->err, BS_UNSUPPORTED, "BS-TOK-KIND", "the file has no tokenizer (tokenizer.ggml.model)");
    bs_error_hint(r->err, "bsrun model generate takes token ids too: --ids 1,2,3");
    return BS_UNSUPPORTED;
  }
  if (r->model > BS_TOK_GGUF_BERT) return bs_tok_unknown(r->err, "tokenizer.ggml.model", model);
  if (r->model == BS_TOK_GGUF_GPT2 && pre[0] == '\0') {
    bs_error_set(r->err, BS_UNSUPPORTED, "BS-TOK-KIND",
                 "the file does not say how a text is split (tokenizer.ggml.pre)");
    bs_error_hint(r->err, "convert the model with a newer llama.cpp, which writes it");
    return BS_UNSUPPORTED;
  }
  if (r->model == BS_TOK_GGUF_GPT2) known = (r->pre = bs_tok_pre_find(pre, strlen(pre))) != NULL;
  if (r->model == BS_TOK_GGUF_LLAMA) known = pre[0] == '\0' || strcmp(pre, "default") == 0;
  for (size_t i = 0; i < sizeof of_bert / sizeof of_bert[0] && r->model == BS_TOK_GGUF_BERT; i++)
    known |= strcmp(pre, of_bert[i]) == 0;
  if (!known) return bs_tok_unknown(r->err, "tokenizer.ggml.pre", pre);
  if (r->model != BS_TOK_GGUF_LLAMA) rc = bool_of(r, "add_space_prefix", 0, &on);
  if (rc == BS_OK && on) return bs_tok_unknown(r->err, "the first piece", "one with add_space_prefix");
  rc = rc == BS_OK ? bool_of(r, "remove_extra_whitespaces", 0, &on) : rc;
  return rc == BS_OK && on ? bs_tok_unknown(r->err, "the white space", "that of remove_extra_whitespaces")
                           : rc;
}

static int32_t read_model(reader *r, int64_t unk) {
  bs_tok_model *m = &r->out->model;
  m->unk = r->model == BS_TOK_GGUF_GPT2 || unk < 0 ? BS_TOK_NONE : (uint32_t)unk;
  m->kind = r->model == BS_TOK_GGUF_BERT ? BS_TOK_WORDPIECE : BS_TOK_BPE;
  if (r->model == BS_TOK_GGUF_GPT2) {
    m->ignore_merges = (r->pre->flags & BS_TOK_PRE_WHOLE) != 0;
    return bs_tok_gguf_merges(r);
  }
  if (r->model == BS_TOK_GGUF_LLAMA) {
    m->byte_fallback = m->fuse_unk = 1;
    const int32_t rc = bs_tok_bpe_prepare(m, 0, r->err);
    return rc == BS_OK ? bs_tok_gguf_ranks(r) : rc;
  }
  m->longest_word = 100;
  m->prefix = bs_tok_copy("##", 2);
  if (m->prefix == NULL) return bs_error_set(r->err, BS_NO_MEMORY, "BS-MEM", "out of memory for a tokenizer");
  return m->unk != BS_TOK_NONE ? BS_OK
                               : bs_tok_bad(r->err, "the model", "WordPiece without unknown_token_id");
}

static int32_t read_all(reader *r) {
  int64_t ids[N_IDS] = {-1, -1, -1, -1, -1};
  int32_t rc = read_kind(r);
  if (rc == BS_OK) rc = bs_tok_gguf_tokens(r);
  if (rc == BS_OK) rc = read_roles(r, ids);
  if (rc == BS_OK) rc = read_model(r, ids[BS_TOKEN_UNK]);
  if (rc == BS_OK) rc = read_around(r, ids);
  if (rc == BS_OK && r->model != BS_TOK_GGUF_BERT) rc = read_ends(r);
  if (rc != BS_OK) return rc;
  return r->model == BS_TOK_GGUF_LLAMA  ? llama_steps(r)
         : r->model == BS_TOK_GGUF_GPT2 ? gpt2_steps(r)
                                        : bert_steps(r);
}

int bs_tok_is_gguf(const char *path) {
  char magic[4] = "";
  const size_t n = strlen(path);
  if (n >= 5 && strcmp(path + n - 5, ".gguf") == 0) return 1;
  FILE *f = fopen(path, "rb");
  const int is = f != NULL && fread(magic, 1, 4, f) == 4 && memcmp(magic, "GGUF", 4) == 0;
  if (f != NULL) fclose(f);
  return is;
}

int32_t bs_tok_read_gguf(const char *path, bs_tokenizer *out, bs_error *err) {
  bs_gguf gguf;
  int32_t rc = bs_gguf_open(path, &gguf, err);
  if (rc != BS_OK) return rc;
  reader r = {.gguf = &gguf, .out = out, .err = err};
  for (size_t i = 0; i < 4; i++) out->roles[i] = -1;
  rc = read_all(&r);
  if (rc == BS_OK) rc = bs_map_unchanged(&gguf.map, path, err);
  if (rc != BS_OK) bs_error_file(err, path);
  bs_text_free(&r.text);
  bs_text_free(&r.whole);
  bs_gguf_close(&gguf);
  return rc;
}
