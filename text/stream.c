/* SPDX-License-Identifier: MIT
 * stream.c - text of tokens that come one by one. The tokens of the last two readable pieces are decoded
 * together, and what the first of them gave is taken off: so blanks between words, and what the first token
 * of a text loses, come out as in a decode of all. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "text/decode.h"

struct bs_text_stream {
  const bs_tokenizer *tokenizer;
  uint32_t flags;
  bs_tok_work work;
  int64_t *ids; /* the piece before, then what waits */
  size_t n, room, n_before;
  bs_text before; /* the text of the first n_before */
  bs_text out;
};

int32_t bs_text_stream_open(const bs_tokenizer *t, uint32_t flags, bs_text_stream **out, bs_error *err) {
  if (t == NULL || out == NULL || (flags & ~(uint32_t)BS_DECODE_SPECIAL) != 0)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TOK-NULL",
                        "bs_text_stream_open: an argument is NULL, or the flags 0x%x are not known", flags);
  bs_text_stream *s = calloc(1, sizeof *s);
  if (s == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a stream");
  s->tokenizer = t;
  s->flags = flags;
  const int32_t rc = bs_tok_work_make(&s->work, err);
  if (rc == BS_OK)
    *out = s;
  else
    free(s);
  return rc;
}

void bs_text_stream_close(bs_text_stream *s) {
  if (s == NULL) return;
  bs_tok_work_free(&s->work);
  free(s->ids);
  bs_text_free(&s->before);
  bs_text_free(&s->out);
  free(s);
}

static int32_t decode(bs_text_stream *s, const int64_t *ids, size_t n, bs_text *out, bs_error *err) {
  const int32_t rc = bs_tok_decode(s->tokenizer, &s->work, ids, n, s->flags, err);
  if (rc != BS_OK) return rc;
  out->size = 0;
  bs_text_append(out, s->work.now.text.data, s->work.now.text.size);
  return out->failed ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a stream") : BS_OK;
}

/* What is new in the text of all ids goes to s->out, and they are the piece before. */
static int32_t emit(bs_text_stream *s, const char **out_text, uint64_t *out_bytes, bs_error *err) {
  const size_t old = s->before.size;
  s->n -= s->n_before;
  if (s->n > 0) memmove(s->ids, s->ids + s->n_before, s->n * sizeof *s->ids);
  s->n_before = s->n;
  *out_text = s->out.data + old;
  *out_bytes = s->out.size - old;
  return decode(s, s->ids, s->n, &s->before, err);
}

static int begins_with(const bs_text *text, const bs_text *with) {
  return text->size >= with->size && (with->size == 0 || memcmp(text->data, with->data, with->size) == 0);
}

/* Forgets the piece before, and reads what waits alone. */
static int32_t restart(bs_text_stream *s, const char **out_text, uint64_t *out_bytes, bs_error *err) {
  s->n -= s->n_before;
  memmove(s->ids, s->ids + s->n_before, s->n * sizeof *s->ids);
  s->n_before = s->before.size = 0;
  const int32_t rc = decode(s, s->ids, s->n, &s->out, err);
  return rc == BS_OK && s->work.held == 0 ? emit(s, out_text, out_bytes, err) : rc;
}

int32_t bs_text_stream_add(bs_text_stream *s, int64_t id, const char **out_text, uint64_t *out_bytes,
                           bs_error *err) {
  if (s == NULL || out_text == NULL || out_bytes == NULL)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TOK-NULL", "bs_text_stream_add: an argument is NULL");
  *out_text = "";
  *out_bytes = 0;
  if (id >= 0 && id < (int64_t)bs_tok_size(s->tokenizer) && s->tokenizer->is_special[id] &&
      !(s->flags & BS_DECODE_SPECIAL))
    return BS_OK;
  if (s->n == s->room) {
    const size_t room = s->room == 0 ? 16 : s->room * 2;
    int64_t *ids = realloc(s->ids, room * sizeof *ids);
    if (ids == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a stream");
    s->ids = ids;
    s->room = room;
  }
  s->ids[s->n++] = id;
  const int32_t rc = decode(s, s->ids, s->n, &s->out, err);
  if (rc != BS_OK) {
    s->n--;
    return rc;
  }
  /* A run of byte tokens that is no UTF-8 after all: what it gave stays, the rest is read alone. */
  if (!begins_with(&s->out, &s->before)) return restart(s, out_text, out_bytes, err);
  const size_t old = s->before.size,
               ready = s->out.size - (s->work.held < s->out.size ? s->work.held : s->out.size);
  if (s->work.held == 0 && ready > old) return emit(s, out_text, out_bytes, err);
  *out_text = ready > old ? s->out.data + old : "";
  *out_bytes = ready > old ? ready - old : 0;
  if (ready > old) bs_text_append(&s->before, *out_text, ready - old);
  return s->before.failed ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a stream") : BS_OK;
}

int32_t bs_text_stream_end(bs_text_stream *s, const char **out_text, uint64_t *out_bytes, bs_error *err) {
  if (s == NULL || out_text == NULL || out_bytes == NULL)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TOK-NULL", "bs_text_stream_end: an argument is NULL");
  int32_t rc = decode(s, s->ids, s->n, &s->out, err);
  if (rc == BS_OK && !begins_with(&s->out, &s->before)) s->before.size = s->out.size;
  if (rc == BS_OK) rc = emit(s, out_text, out_bytes, err);
  s->n = s->n_before = s->before.size = 0;
  return rc;
}
