/* SPDX-License-Identifier: MIT
 * read_gguf.c - reads the tokenizer of a GGUF file from its keys tokenizer.ggml.*: `llama` (SentencePiece's
 * BPE by scores), `gpt2` (BPE of bytes; gguf_pre.c splits) and `bert` (WordPiece). Its steps are those that
 * tokenizer.json of such a model has. Texts are copied out of the file before they are checked: another
 * program may write it meanwhile. Called by read.c. */
#include "text/read_gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "formats/gguf.h"
#include "text/read.h"
#include "text/utf8.h"

enum { LLAMA, GPT2, BERT };
/* tokenizer.ggml.token_type */
enum { UNDEFINED, NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE, N_TYPES };
enum { SEP = 4, N_IDS }; /* behind enum bs_token_role */

typedef struct reader {
  const bs_gguf *gguf;
  bs_tokenizer *out;
  int model;
  const bs_tok_pre *pre; /* of GPT2 */
  const bs_gguf_key *types, *scores;
  uint64_t n; /* tokens */
  bs_text text, whole;
  bs_error *err;
} reader;

static const char blank_mark[] = "\xe2\x96\x81"; /* U+2581 */
enum { MARK = 3 };

/* ---- keys ------------------------------------------------------------------------------------ */

static const bs_gguf_key *find(const reader *r, const char *name, char full[64]) {
  snprintf(full, 64, "tokenizer.ggml.%s", name);
  return bs_gguf_find_key(r->gguf, full);
}

/* A text that may be missing: "" then. */
static int32_t text_of(reader *r, const char *name, char out[64]) {
  char full[64];
  bs_span text = {"", 0};
  const bs_gguf_key *key = find(r, name, full);
  if (key != NULL && !bs_gguf_text(key, &text)) return bs_tok_bad(r->err, full, "it is no text");
  snprintf(out, 64, "%.*s", text.size < 63 ? (int)text.size : 63, text.data);
  return BS_OK;
}

static int32_t bool_of(reader *r, const char *name, int fallback, int *out) {
  char full[64];
  int64_t value = fallback;
  const bs_gguf_key *key = find(r, name, full);
  if (key != NULL && (key->kind != BS_GGUF_KIND_BOOL || key->is_array || !bs_gguf_int(key, 0, &value)))
    return bs_tok_bad(r->err, full, "it is neither true nor false");
  *out = value != 0;
  return BS_OK;
}

/* An id that may be missing: the fallback then, or -1 where no token has that. */
static int32_t id_of(reader *r, const char *name, int64_t fallback, int64_t *out) {
  char full[64];
  const bs_gguf_key *key = find(r, name, full);
  *out = fallback < (int64_t)r->n ? fallback : -1;
  if (key == NULL) return BS_OK;
  if (key->is_array || !bs_gguf_int(key, 0, out)) return bs_tok_bad(r->err, full, "it is no whole number");
  if (*out < 0 || *out >= (int64_t)r->n)
    return bs_error_set(r->err, BS_INPUT, "BS-TOK-FORMAT", "%s is %lld; there are %llu tokens", full,
                        (long long)*out, (unsigned long long)r->n);
  return BS_OK;
}

/* An array with an item for each token. */
static int32_t array_of(reader *r, const char *name, int is_needed, const bs_gguf_key **out) {
  char full[64];
  *out = find(r, name, full);
  if (*out == NULL) return is_needed ? bs_tok_bad(r->err, full, "it is not there") : BS_OK;
  if (!(*out)->is_array || (*out)->kind == BS_GGUF_KIND_TEXT)
    return bs_tok_bad(r->err, full, "it is no list of numbers");
  if ((*out)->count != r->n)
    return bs_error_set(r->err, BS_INPUT, "BS-TOK-FORMAT", "%s has %llu items for %llu tokens", full,
                        (unsigned long long)(*out)->count, (unsigned long long)r->n);
  return BS_OK;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static int32_t type_of(const reader *r, uint64_t id, int *out) {
  int64_t type = NORMAL;
  if (r->types != NULL && (!bs_gguf_int(r->types, id, &type) || type < 0 || type >= N_TYPES))
    return bs_error_set(r->err, BS_INPUT, "BS-TOK-FORMAT", "the type of token %llu is %lld; 0 to %d are read",
                        (unsigned long long)id, (long long)type, N_TYPES - 1);
  *out = (int)type;
  return BS_OK;
}

/* GGUF marks what begins a word, BERT's vocabulary what does not. [NAMES] stay as they are, and special
 * tokens without a mark. */
static void rename_word(reader *r, int type) {
  bs_text *t = &r->text, *name = &r->whole;
  const int is_marked = t->size > MARK && memcmp(t->data, blank_mark, MARK) == 0;
  if (t->data[0] == '[' && t->data[t->size - 1] == ']') return;
  if (!is_marked && (type == CONTROL || type == UNKNOWN || type == USER_DEFINED)) return;
  name->size = 0;
  bs_text_append(name, "##", is_marked ? 0 : 2);
  bs_text_append(name, t->data + (is_marked ? MARK : 0), t->size - (is_marked ? MARK : 0));
  const bs_text swapped = *t;
  *t = *name;
  *name = swapped;
}

/* Phi-3's special tokens take the white space behind them, but for three; GGUF has no key for it. */
static int is_stripped(const reader *r, int type) {
  static const char *const others[] = {"<unk>", "<s>", "<|endoftext|>"};
  const bs_gguf_key *key = bs_gguf_find_key(r->gguf, "general.architecture");
  bs_span name;
  if (r->model != LLAMA || key == NULL || !bs_gguf_text(key, &name) || name.size != 4 ||
      memcmp(name.data, "phi3", 4) != 0)
    return 0;
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
    if (r->text.size == strlen(others[i]) && memcmp(r->text.data, others[i], r->text.size) == 0) return 0;
  return type == CONTROL || (r->text.size == 4 && memcmp(r->text.data, "</s>", 4) == 0);
}

/* The token in r->text. */
static int32_t add_token(reader *r, uint64_t id) {
  bs_text *t = &r->text;
  int type = NORMAL;
  int32_t rc = type_of(r, id, &type);
  if (rc != BS_OK) return rc;
  if (t->size == 0) bs_text_printf(t, "[EMPTY_%llu]", (unsigned long long)id); /* as llama.cpp names it */
  for (size_t at = 0, n, good; at < t->size; at += n) {
    n = bs_utf8_measure(t->data + at, t->size - at, &good);
    if (n == 0)
      return bs_error_set(r->err, BS_INPUT, "BS-TOK-FORMAT", "token %llu is not UTF-8 at byte %zu",
                          (unsigned long long)id, at);
  }
  if (r->model == BERT && !t->failed) rename_word(r, type);
  if (t->failed || r->whole.failed)
    return bs_error_set(r->err, BS_NO_MEMORY, "BS-MEM", "out of memory for a token");
  rc = bs_tok_vocab_add(&r->out->model.vocab, t->data, t->size, (int64_t)id, r->err);
  if (rc != BS_OK || (type != CONTROL && type != UNKNOWN && type != USER_DEFINED)) return rc;
  const int is_special = type != USER_DEFINED, strips = is_stripped(r, type);
  r->out->is_special[id] = (uint8_t)is_special;
  return bs_tok_added_add(&r->out->added, t->data, t->size, (uint32_t)id,
                          (is_special ? BS_TOK_SPECIAL : 0) | (strips ? BS_TOK_RSTRIP : 0), r->err);
}

static int32_t read_tokens(reader *r) {
  char full[64];
  const bs_gguf_key *tokens = find(r, "tokens", full);
  bs_span text;
  uint64_t at = 0;
  if (tokens == NULL || !tokens->is_array || tokens->kind != BS_GGUF_KIND_TEXT)
    return bs_tok_bad(r->err, full, "it is no list of texts");
  if (tokens->count == 0 || tokens->count > BS_TOK_MAX_TOKENS)
    return bs_error_set(r->err, BS_INPUT, "BS-TOK-FORMAT", "%s has %llu items; 1 to %d are read", full,
                        (unsigned long long)tokens->count, BS_TOK_MAX_TOKENS);
  r->n = tokens->count;
  int32_t rc = array_of(r, "token_type", 0, &r->types);
  if (rc == BS_OK) rc = array_of(r, "scores", r->model == LLAMA, &r->scores);
  if (rc != BS_OK) return rc;
  r->out->is_special = calloc((size_t)r->n, 1);
  if (r->out->is_special == NULL)
    return bs_error_set(r->err, BS_NO_MEMORY, "BS-MEM", "out of memory for a tokenizer");
  for (uint64_t id = 0; id < r->n && rc == BS_OK; id++) {
    if (!bs_gguf_text_next(tokens, &at, &text)) return bs_tok_bad(r->err, full, "a text is cut");
    if (text.size > BS_TOK_MAX_BYTES)
      return bs_error_set(r->err, BS_INPUT, "BS-TOK-FORMAT", "token %llu has %llu bytes; at most %d are read",
                          (unsigned long long)id, (unsigned long long)text.size, BS_TOK_MAX_BYTES);
    r->text.size = 0;
    bs_text_append(&r->text, text.data, (size_t)text.size);
    rc = add_token(r, id);
  }
  bs_tok_added_sort(&r->out->added);
  return rc;
}

/* ---- models ---------------------------------------------------------------------------------- */

typedef struct scored {
  double score;
  uint32_t id;
} scored;

static int by_score(const void *a, const void *b) {
  const scored *x = a, *y = b;
  return (x->score < y->score) - (x->score > y->score);
}

/* Tokens of one score have one rank: of them the leftmost counts. Only normal tokens are made of others. */
static int32_t read_ranks(reader *r) {
  bs_tok_model *m = &r->out->model;
  scored *all = malloc((size_t)r->n * sizeof *all);
  uint32_t n = 0, rank = 0;
  int type = NORMAL;
  int32_t rc = BS_OK;
  m->ranks = malloc((size_t)r->n * sizeof *m->ranks);
  if (all == NULL || m->ranks == NULL)
    rc = bs_error_set(r->err, BS_NO_MEMORY, "BS-MEM", "out of memory for %llu scores",
                      (unsigned long long)r->n);
  for (uint32_t id = 0; id < r->n && rc == BS_OK; id++) {
    double score = 0;
    m->ranks[id] = BS_TOK_NONE;
    rc = type_of(r, id, &type);
    if (rc == BS_OK && (!bs_gguf_real(r->scores, id, &score) || score != score))
      rc = bs_error_set(r->err, BS_INPUT, "BS-TOK-FORMAT", "the score of token %u is no number", id);
    if (rc == BS_OK && type <= UNUSED && (type < UNKNOWN || type == UNUSED)) all[n++] = (scored){score, id};
  }
  if (rc == BS_OK && n > 1) qsort(all, n, sizeof *all, by_score);
  for (uint32_t i = 0; i < n && rc == BS_OK; i++) {
    if (i > 0 && all[i].score < all[i - 1].score) rank++;
    m->ranks[all[i].id] = rank;
  }
  free(all);
  return rc;
}

/* Two tokens with a blank between them. */
static int32_t read_merge(reader *r, bs_span text, uint32_t rank) {
  if (text.size > 2 * BS_TOK_MAX_BYTES + 1) text.size = 0;
  r->text.size = 0;
  bs_text_append(&r->text, text.data, (size_t)text.size);
  if (r->text.failed) return bs_error_set(r->err, BS_NO_MEMORY, "BS-MEM", "out of memory for a merge");
  const char *begin = r->text.data, *end = begin + r->text.size;
  const char *blank = memchr(begin, ' ', r->text.size);
  if (blank == NULL || memchr(blank + 1, ' ', (size_t)(end - blank - 1)) != NULL)
    return bs_error_set(r->err, BS_INPUT, "BS-TOK-FORMAT", "merge %u is not two tokens", rank);
  const char *const parts[2] = {begin, blank + 1};
  const size_t bytes[2] = {(size_t)(blank - begin), (size_t)(end - blank - 1)};
  return bs_tok_read_merge(parts, bytes, rank, &r->whole, &r->out->model, r->err);
}

static int32_t read_merges(reader *r) {
  char full[64];
  const bs_gguf_key *merges = find(r, "merges", full);
  bs_span text;
  uint64_t at = 0;
  if (merges == NULL || !merges->is_array || merges->kind != BS_GGUF_KIND_TEXT)
    return bs_tok_bad(r->err, full, "it is no list of texts");
  if (merges->count > BS_TOK_MAX_MERGES)
    return bs_error_set(r->err, BS_INPUT, "BS-TOK-FORMAT", "%s has %llu items; at most %d are read", full,
                        (unsigned long long)merges->count, BS_TOK_MAX_MERGES);
  int32_t rc = bs_tok_bpe_prepare(&r->out->model, (size_t)merges->count, r->err);
  for (uint32_t rank = 0; rank < merges->count && rc == BS_OK; rank++) {
    if (!bs_gguf_text_next(merges, &at, &text)) return bs_tok_bad(r->err, full, "a text is cut");
    rc = read_merge(r, text, rank);
  }
  return rc;
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
  const int llama = r->model == LLAMA, bert = r->model == BERT;
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
  const int bert = r->model == BERT;
  int bos = 0, eos = 0, sep = 0;
  int32_t rc = bool_of(r, "add_bos_token", r->model != GPT2 || (r->pre->flags & BS_TOK_PRE_BOS) != 0, &bos);
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

/* ---- the whole ------------------------------------------------------------------------------- */

/* The model and its splitter, each by a name that is known. */
static int32_t read_kind(reader *r) {
  static const char *const models[] = {[LLAMA] = "llama", [GPT2] = "gpt2", [BERT] = "bert"};
  static const char *const of_bert[] = {"", "default", "bert-bge", "bert-bge-large", "jina-v2-en"};
  char model[64] = "", pre[64] = "";
  int known = 0, on = 0;
  int32_t rc = text_of(r, "model", model);
  if (rc == BS_OK) rc = text_of(r, "pre", pre);
  if (rc != BS_OK) return rc;
  for (r->model = LLAMA; r->model <= BERT && strcmp(model, models[r->model]) != 0;) r->model++;
  if (r->model > BERT) return bs_tok_unknown(r->err, "tokenizer.ggml.model", model);
  if (r->model == GPT2 && pre[0] == '\0') {
    bs_error_set(r->err, BS_UNSUPPORTED, "BS-TOK-KIND",
                 "the file does not say how a text is split (tokenizer.ggml.pre)");
    bs_error_hint(r->err, "convert the model with a newer llama.cpp, which writes it");
    return BS_UNSUPPORTED;
  }
  if (r->model == GPT2) known = (r->pre = bs_tok_pre_find(pre, strlen(pre))) != NULL;
  if (r->model == LLAMA) known = pre[0] == '\0' || strcmp(pre, "default") == 0;
  for (size_t i = 0; i < sizeof of_bert / sizeof of_bert[0] && r->model == BERT; i++)
    known |= strcmp(pre, of_bert[i]) == 0;
  if (!known) return bs_tok_unknown(r->err, "tokenizer.ggml.pre", pre);
  if (r->model != LLAMA) rc = bool_of(r, "add_space_prefix", 0, &on);
  if (rc == BS_OK && on) return bs_tok_unknown(r->err, "the first piece", "one with add_space_prefix");
  rc = rc == BS_OK ? bool_of(r, "remove_extra_whitespaces", 0, &on) : rc;
  return rc == BS_OK && on ? bs_tok_unknown(r->err, "the white space", "that of remove_extra_whitespaces")
                           : rc;
}

static int32_t read_model(reader *r, int64_t unk) {
  bs_tok_model *m = &r->out->model;
  m->unk = r->model == GPT2 || unk < 0 ? BS_TOK_NONE : (uint32_t)unk;
  m->kind = r->model == BERT ? BS_TOK_WORDPIECE : BS_TOK_BPE;
  if (r->model == GPT2) {
    m->ignore_merges = (r->pre->flags & BS_TOK_PRE_WHOLE) != 0;
    return read_merges(r);
  }
  if (r->model == LLAMA) {
    m->byte_fallback = m->fuse_unk = 1;
    const int32_t rc = bs_tok_bpe_prepare(m, 0, r->err);
    return rc == BS_OK ? read_ranks(r) : rc;
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
  if (rc == BS_OK) rc = read_tokens(r);
  if (rc == BS_OK) rc = read_roles(r, ids);
  if (rc == BS_OK) rc = read_model(r, ids[BS_TOKEN_UNK]);
  if (rc == BS_OK) rc = read_around(r, ids);
  if (rc != BS_OK) return rc;
  return r->model == LLAMA ? llama_steps(r) : r->model == GPT2 ? gpt2_steps(r) : bert_steps(r);
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
