/* SPDX-License-Identifier: MIT
 * gguf_vocab.c - the tokens of a GGUF file with their types, and its merges or scores. Texts are copied out
 * of the file before they are checked: another program may write it meanwhile. Called by read_gguf.c. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "text/read.h"
#include "text/read_gguf.h"
#include "text/utf8.h"

typedef bs_tok_gguf reader;

/* tokenizer.ggml.token_type */
enum { UNDEFINED, NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE, N_TYPES };

static const char blank_mark[] = "\xe2\x96\x81"; /* U+2581 */
enum { MARK = 3 };

/* An array with an item for each token. */
static int32_t array_of(reader *r, const char *name, int is_needed, const bs_gguf_key **out) {
  char full[64];
  *out = bs_tok_gguf_key(r, name, full);
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

/* Phi-3's special tokens take the white space after them, except three tokens. GGUF has no key for this. */
static int is_stripped(const reader *r, int type) {
  static const char *const others[] = {"<unk>", "<s>", "<|endoftext|>"};
  const bs_gguf_key *key = bs_gguf_find_key(r->gguf, "general.architecture");
  bs_span name;
  if (r->model != BS_TOK_GGUF_LLAMA || key == NULL || !bs_gguf_text(key, &name) || name.size != 4 ||
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
  if (r->model == BS_TOK_GGUF_BERT && !t->failed) rename_word(r, type);
  if (t->failed || r->whole.failed)
    return bs_error_set(r->err, BS_NO_MEMORY, "BS-MEM", "out of memory for a token");
  rc = bs_tok_vocab_add(&r->out->model.vocab, t->data, t->size, (int64_t)id, r->err);
  if (rc != BS_OK || (type != CONTROL && type != UNKNOWN && type != USER_DEFINED)) return rc;
  const int is_special = type != USER_DEFINED, strips = is_stripped(r, type);
  r->out->is_special[id] = (uint8_t)is_special;
  return bs_tok_added_add(&r->out->added, t->data, t->size, (uint32_t)id,
                          (is_special ? BS_TOK_SPECIAL : 0) | (strips ? BS_TOK_RSTRIP : 0), r->err);
}

int32_t bs_tok_gguf_tokens(reader *r) {
  char full[64];
  const bs_gguf_key *tokens = bs_tok_gguf_key(r, "tokens", full);
  bs_span text;
  uint64_t at = 0;
  if (tokens == NULL || !tokens->is_array || tokens->kind != BS_GGUF_KIND_TEXT)
    return bs_tok_bad(r->err, full, "it is no list of texts");
  if (tokens->count == 0 || tokens->count > BS_TOK_MAX_TOKENS)
    return bs_error_set(r->err, BS_INPUT, "BS-TOK-FORMAT", "%s has %llu items; 1 to %d are read", full,
                        (unsigned long long)tokens->count, BS_TOK_MAX_TOKENS);
  r->n = tokens->count;
  int32_t rc = array_of(r, "token_type", 0, &r->types);
  if (rc == BS_OK) rc = array_of(r, "scores", r->model == BS_TOK_GGUF_LLAMA, &r->scores);
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

/* ---- merges ---------------------------------------------------------------------------------- */

typedef struct scored {
  double score;
  uint32_t id;
} scored;

static int by_score(const void *a, const void *b) {
  const scored *x = a, *y = b;
  return (x->score < y->score) - (x->score > y->score);
}

/* Tokens of one score have one rank: of them the leftmost counts. Only normal tokens are made of others. */
int32_t bs_tok_gguf_ranks(reader *r) {
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

int32_t bs_tok_gguf_merges(reader *r) {
  char full[64];
  const bs_gguf_key *merges = bs_tok_gguf_key(r, "merges", full);
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
