/* SPDX-License-Identifier: MIT
 * model_text.c - see model_text.h. */
#include "bsrun/model_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

int32_t model_text_open(const bs_tokenizer *tokenizer, const char *stop, int prints, model_text *out,
                        bs_error *err) {
  *out = (model_text){.ids = (int64_t)bs_tokenizer_size(tokenizer), .stop = stop, .prints = prints};
  return bs_text_stream_open(tokenizer, 0, &out->stream, err);
}

void model_text_close(model_text *t) {
  bs_text_stream_close(t->stream);
  bs_text_free(&t->all);
}

/* Bytes at the end of the text that begin `stop`. */
static size_t held_back(const model_text *t) {
  const size_t stop = t->stop != NULL ? strlen(t->stop) : 0, there = t->all.size - t->shown;
  size_t n = stop > 0 ? stop - 1 : 0;
  if (n > there) n = there;
  while (n > 0 && memcmp(t->all.data + t->all.size - n, t->stop, n) != 0) n--;
  return n;
}

static int32_t show(model_text *t, size_t to, bs_error *err) {
  const size_t n = to - t->shown;
  if (t->prints && n > 0 && (fwrite(t->all.data + t->shown, 1, n, stdout) != n || fflush(stdout) != 0))
    return bs_error_set(err, BS_IO, "BS-OUT-WRITE", "stdout cannot be written");
  t->shown = to;
  return BS_OK;
}

static int32_t append(model_text *t, const char *text, uint64_t bytes, bs_error *err) {
  if (bytes > 0) bs_text_append(&t->all, text, (size_t)bytes);
  if (t->all.failed) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a text");
  if (t->all.size == 0 || t->stop == NULL || t->stop[0] == '\0') return BS_OK;
  const char *found = memmem(t->all.data + t->shown, t->all.size - t->shown, t->stop, strlen(t->stop));
  if (found == NULL) return BS_OK;
  t->all.size = (size_t)(found - t->all.data);
  t->all.data[t->all.size] = '\0';
  t->ended = 1;
  return BS_OK;
}

int32_t model_text_add(model_text *t, int64_t id, bs_error *err) {
  const char *text = "";
  uint64_t bytes = 0;
  int32_t rc = id < t->ids ? bs_text_stream_add(t->stream, id, &text, &bytes, err) : BS_OK;
  if (rc == BS_OK) rc = append(t, text, bytes, err);
  return rc == BS_OK ? show(t, t->ended ? t->all.size : t->all.size - held_back(t), err) : rc;
}

int32_t model_text_end(model_text *t, bs_error *err) {
  const char *text = "";
  uint64_t bytes = 0;
  if (t->ended) return BS_OK;
  int32_t rc = bs_text_stream_end(t->stream, &text, &bytes, err);
  if (rc == BS_OK) rc = append(t, text, bytes, err);
  return rc == BS_OK ? show(t, t->all.size, err) : rc;
}

int32_t model_text_ids(const bs_tokenizer *tokenizer, const char *text, int64_t **out_ids, size_t *out_n,
                       bs_error *err) {
  uint64_t n = 0;
  int32_t rc = bs_tokenizer_encode(tokenizer, text, strlen(text), 0, NULL, 0, &n, err);
  int64_t *ids = rc == BS_OK ? malloc((size_t)(n + 1) * sizeof *ids) : NULL;
  if (rc == BS_OK && ids == NULL)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a prompt");
  if (rc == BS_OK) rc = bs_tokenizer_encode(tokenizer, text, strlen(text), 0, ids, n, &n, err);
  if (rc == BS_OK && n == 0) {
    bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "a prompt without a token: '%.40s'", text);
    bs_error_hint(err, "this tokenizer puts no token before a text; give at least one character");
    rc = BS_USAGE;
  }
  if (rc != BS_OK) {
    free(ids);
    return rc;
  }
  *out_ids = ids;
  *out_n = (size_t)n;
  return BS_OK;
}
