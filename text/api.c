/* SPDX-License-Identifier: MIT
 * api.c - the functions of text.h that make ids of text, and text of ids. Each call has its own work space,
 * so that threads may share a tokenizer. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "text/decode.h"
#include "text/utf8.h"

enum { MAX_TEXT = 1 << 30 };

int32_t bs_tokenizer_open(const char *path, bs_tokenizer **out, bs_error *err) {
  if (path == NULL || out == NULL)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TOK-NULL", "bs_tokenizer_open: an argument is NULL");
  bs_tokenizer *t = calloc(1, sizeof *t);
  if (t == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a tokenizer");
  const int32_t rc = bs_tok_read(path, t, err);
  if (rc == BS_OK)
    *out = t;
  else
    bs_tokenizer_close(t);
  return rc;
}

void bs_tokenizer_close(bs_tokenizer *t) {
  if (t == NULL) return;
  bs_tok_steps_free(&t->normalizers);
  bs_tok_steps_free(&t->splitters);
  bs_tok_steps_free(&t->decoders);
  bs_tok_added_free(&t->added);
  bs_tok_added_free(&t->added_normalized);
  for (uint32_t id = 0; t->shown != NULL && id < bs_tok_size(t); id++) bs_text_free(&t->shown[id]);
  free(t->shown);
  free(t->is_special);
  bs_tok_vocab_free(&t->model.vocab);
  bs_tok_vocab_free(&t->extra);
  free(t->model.merges);
  free(t->model.ranks);
  free(t->model.prefix);
  free(t->model.suffix);
  free(t->before);
  free(t->after);
  free(t);
}

static int32_t check_text(const char *text, uint64_t bytes, bs_error *err) {
  if (bytes > MAX_TEXT)
    return bs_error_set(err, BS_INPUT, "BS-TOK-TEXT", "a text of %llu bytes; at most %d are read",
                        (unsigned long long)bytes, MAX_TEXT);
  for (size_t at = 0, n, good; at < bytes; at += n) {
    n = bs_utf8_measure(text + at, bytes - at, &good);
    if (n == 0)
      return bs_error_set(err, BS_INPUT, "BS-TOK-UTF8", "the text is not UTF-8: byte 0x%02x at offset %zu",
                          (unsigned)(unsigned char)text[at], at);
  }
  return BS_OK;
}

/* Added tokens, normalizers, added tokens of normalized text, pre-tokenizers: pieces in work->now. */
static int32_t make_pieces(const bs_tokenizer *t, bs_tok_work *w, const char *text, uint64_t bytes,
                           uint32_t flags, bs_error *err) {
  const int literal = (flags & BS_ENCODE_LITERAL) != 0;
  int32_t rc = BS_OK;
  bs_tok_added_split(&t->added, text, bytes, 1, literal, &w->next);
  bs_tok_list_clear(&w->now);
  for (size_t i = 0; i < w->next.n && rc == BS_OK; i++) {
    const bs_tok_piece *p = &w->next.pieces[i];
    const char *from = w->next.text.data + p->at;
    if (p->id != BS_TOK_NONE) {
      const size_t at = w->now.text.size;
      bs_text_append(&w->now.text, from, p->bytes);
      bs_tok_list_end(&w->now, at, p->id, 0);
      continue;
    }
    rc = bs_tok_normalize(&t->normalizers, w, from, p->bytes, err);
    if (rc == BS_OK)
      bs_tok_added_split(&t->added_normalized, w->text.data, w->text.size, p->is_first, literal, &w->now);
  }
  if (rc == BS_OK) rc = bs_tok_list_check(&w->next, err);
  if (rc == BS_OK) rc = bs_tok_list_check(&w->now, err);
  for (size_t i = 0; i < t->splitters.n && rc == BS_OK; i++) rc = bs_tok_split(&t->splitters.at[i], w, err);
  return rc;
}

static int32_t encode(const bs_tokenizer *t, bs_tok_work *w, const char *text, uint64_t bytes, uint32_t flags,
                      bs_error *err) {
  bs_tok_work_limit(w, bytes);
  int32_t rc = make_pieces(t, w, text, bytes, flags, err);
  for (size_t i = 0; i < t->n_before && rc == BS_OK && !(flags & BS_ENCODE_PLAIN); i++)
    rc = bs_tok_work_id(w, (uint32_t)t->before[i], err);
  for (size_t i = 0; i < w->now.n && rc == BS_OK; i++) {
    const bs_tok_piece *p = &w->now.pieces[i];
    const char *from = w->now.text.data + p->at;
    if (p->id != BS_TOK_NONE)
      rc = bs_tok_work_id(w, p->id, err);
    else if (t->model.kind == BS_TOK_BPE)
      rc = bs_tok_bpe_encode(&t->model, w, from, p->bytes, err);
    else
      rc = bs_tok_wordpiece_encode(&t->model, w, from, p->bytes, err);
  }
  for (size_t i = 0; i < t->n_after && rc == BS_OK && !(flags & BS_ENCODE_PLAIN); i++)
    rc = bs_tok_work_id(w, (uint32_t)t->after[i], err);
  return rc;
}

int32_t bs_tokenizer_encode(const bs_tokenizer *t, const char *text, uint64_t bytes, uint32_t flags,
                            int64_t *ids, uint64_t room, uint64_t *out_n, bs_error *err) {
  bs_tok_work w;
  if (t == NULL || out_n == NULL || (text == NULL && bytes > 0) || (ids == NULL && room > 0) ||
      (flags & ~(uint32_t)(BS_ENCODE_PLAIN | BS_ENCODE_LITERAL)) != 0)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TOK-NULL",
                        "bs_tokenizer_encode: an argument is NULL, or the flags 0x%x are not known", flags);
  int32_t rc = check_text(text, bytes, err);
  if (rc != BS_OK) return rc;
  rc = bs_tok_work_make(&w, err);
  if (rc == BS_OK) rc = encode(t, &w, text, bytes, flags, err);
  if (rc == BS_OK) {
    *out_n = w.n_ids;
    const size_t n = w.n_ids < room ? w.n_ids : (size_t)room;
    if (n > 0) memcpy(ids, w.ids, n * sizeof *ids);
  }
  bs_tok_work_free(&w);
  return rc;
}

int32_t bs_tokenizer_decode(const bs_tokenizer *t, const int64_t *ids, uint64_t n, uint32_t flags, char *text,
                            uint64_t room, uint64_t *out_bytes, bs_error *err) {
  bs_tok_work w;
  if (t == NULL || out_bytes == NULL || (ids == NULL && n > 0) || (text == NULL && room > 0) ||
      (flags & ~(uint32_t)BS_DECODE_SPECIAL) != 0)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TOK-NULL",
                        "bs_tokenizer_decode: an argument is NULL, or the flags 0x%x are not known", flags);
  int32_t rc = bs_tok_work_make(&w, err);
  if (rc == BS_OK) rc = bs_tok_decode(t, &w, ids, n, flags, err);
  if (rc == BS_OK) {
    *out_bytes = w.now.text.size;
    const size_t bytes = w.now.text.size < room ? w.now.text.size : (size_t)room;
    if (bytes > 0) memcpy(text, w.now.text.data, bytes);
  }
  bs_tok_work_free(&w);
  return rc;
}

uint32_t bs_tok_size(const bs_tokenizer *t) {
  return t->extra.size > t->model.vocab.size ? t->extra.size : t->model.vocab.size;
}

uint32_t bs_tok_find(const bs_tokenizer *t, const char *text, size_t bytes) {
  const uint32_t id = bs_tok_vocab_find(&t->model.vocab, text, bytes);
  return id != BS_TOK_NONE ? id : bs_tok_vocab_find(&t->extra, text, bytes);
}

const char *bs_tok_text(const bs_tokenizer *t, int64_t id, size_t *out_bytes) {
  const char *text = bs_tok_vocab_text(&t->model.vocab, id, out_bytes);
  return text != NULL ? text : bs_tok_vocab_text(&t->extra, id, out_bytes);
}

uint64_t bs_tokenizer_size(const bs_tokenizer *t) {
  return t == NULL ? 0 : bs_tok_size(t);
}

int64_t bs_tokenizer_id(const bs_tokenizer *t, const char *token) {
  if (t == NULL || token == NULL) return -1;
  const uint32_t id = bs_tok_find(t, token, strlen(token));
  return id == BS_TOK_NONE ? -1 : (int64_t)id;
}

const char *bs_tokenizer_token(const bs_tokenizer *t, int64_t id) {
  return t == NULL ? NULL : bs_tok_text(t, id, NULL);
}

int64_t bs_tokenizer_special(const bs_tokenizer *t, uint32_t role) {
  return t == NULL || role >= sizeof t->roles / sizeof t->roles[0] ? -1 : t->roles[role];
}
