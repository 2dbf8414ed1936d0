/* SPDX-License-Identifier: MIT
 * check_cases.h - compares a tokenizer with lines of texts, ids and decoded texts that
 * tests/text/make_cases.py wrote. */
#ifndef BS_TESTS_TEXT_CHECK_CASES_H
#define BS_TESTS_TEXT_CHECK_CASES_H
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "blockshock/text.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "tests/run_tests.h"

/* Ends the test, or the program where no test runs. */
static inline void need(int ok, const char *what, const char *why) {
  if (ok) return;
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static inline bs_tokenizer *opened(const char *path) {
  bs_tokenizer *t = NULL;
  bs_error err = BS_ERROR_INIT;
  need(bs_tokenizer_open(path, &t, &err) == BS_OK, path, err.message);
  return t;
}

/* ---- one line of a file of cases ------------------------------------------------------------- */

typedef struct lists {
  int64_t *ids;
  size_t n;
} lists;

static inline lists list_of(const json_t *array) {
  lists l = {calloc(json_array_size(array) + 1, sizeof(int64_t)), json_array_size(array)};
  for (size_t i = 0; i < l.n; i++) l.ids[i] = json_integer_value(json_array_get(array, i));
  return l;
}

static inline int ids_are(const bs_tokenizer *t, const json_t *text, uint32_t flags, const int64_t *want,
                          size_t n) {
  const char *bytes = json_string_value(text);
  const size_t size = json_string_length(text);
  int64_t *ids = calloc(n + 1, sizeof *ids);
  uint64_t made = 0;
  int ok = bs_tokenizer_encode(t, bytes, size, flags, ids, n, &made, NULL) == BS_OK && made == n &&
           (n == 0 || memcmp(ids, want, n * sizeof *ids) == 0);
  free(ids);
  return ok;
}

/* Decodes all ids together, then token by token. A run of byte tokens that is not UTF-8 may differ between
 * the two; every piece is UTF-8. */
static inline int text_is(const bs_tokenizer *t, const lists *ids, uint32_t flags, const json_t *want) {
  const size_t size = json_string_length(want);
  char *text = malloc(size + 1);
  uint64_t bytes = 0;
  int ok = bs_tokenizer_decode(t, ids->ids, ids->n, flags, text, size, &bytes, NULL) == BS_OK &&
           bytes == size && memcmp(text, json_string_value(want), size) == 0;
  bs_text_stream *stream = NULL;
  bs_text all = {0};
  const char *piece = NULL;
  ok = ok && bs_text_stream_open(t, flags, &stream, NULL) == BS_OK;
  for (size_t i = 0; i <= ids->n && ok; i++) {
    ok = i < ids->n ? bs_text_stream_add(stream, ids->ids[i], &piece, &bytes, NULL) == BS_OK
                    : bs_text_stream_end(stream, &piece, &bytes, NULL) == BS_OK;
    json_t *whole = ok ? json_stringn(piece, (size_t)bytes) : NULL; /* it takes UTF-8 alone */
    ok = whole != NULL;
    json_decref(whole);
    if (ok) bs_text_append(&all, piece, (size_t)bytes);
  }
  const int lost = memmem(text, size, "\xef\xbf\xbd", 3) != NULL;
  ok = ok && (lost || (all.size == size && memcmp(all.size > 0 ? all.data : "", text, size) == 0));
  bs_text_stream_close(stream);
  bs_text_free(&all);
  free(text);
  return ok;
}

/* Checks a line that has a text and the ids of the text alone, without ids before and after it. */
static inline const char *check_ids(const bs_tokenizer *t, const json_t *row) {
  lists ids = list_of(json_array_get(row, 1));
  const char *wrong =
      ids_are(t, json_array_get(row, 0), BS_ENCODE_PLAIN, ids.ids, ids.n) ? NULL : "ids alone";
  free(ids.ids);
  return wrong;
}

/* NULL: the line is right; else what is not. */
static inline const char *check_line(const bs_tokenizer *t, const json_t *row, size_t before, size_t after) {
  const json_t *text = json_array_get(row, 0), *decoded = json_array_get(row, 2),
               *special = json_array_get(row, 3);
  if (json_array_size(row) == 2) return check_ids(t, row);
  if (json_array_size(row) != 6) return "it has not six parts";
  if (json_is_null(decoded)) decoded = text;
  if (json_is_null(special)) special = decoded;
  lists ids = list_of(json_array_get(row, 1)), any = list_of(json_array_get(row, 4));
  const char *wrong = ids.n < before + after                 ? "too few ids"
                      : !ids_are(t, text, 0, ids.ids, ids.n) ? "ids"
                      : !ids_are(t, text, BS_ENCODE_PLAIN, ids.ids + before, ids.n - before - after)
                          ? "ids alone"
                      : !text_is(t, &ids, 0, decoded)                 ? "text"
                      : !text_is(t, &ids, BS_DECODE_SPECIAL, special) ? "text with special tokens"
                      : !text_is(t, &any, BS_DECODE_SPECIAL, json_array_get(row, 5)) ? "text of any ids"
                                                                                     : NULL;
  free(ids.ids);
  free(any.ids);
  return wrong;
}

/* Checks all lines of a file; tells the first five that are wrong. Returns the lines, and *out_wrong. */
static inline int check_file(const char *json, const char *cases, int *out_wrong) {
  bs_tokenizer *t = opened(json);
  FILE *f = fopen(cases, "r");
  char *line = NULL;
  size_t room = 0, before = 0, after = 0;
  int count = 0;
  *out_wrong = 0;
  need(f != NULL, cases, "cannot be read");
  for (ssize_t n; (n = getline(&line, &room, f)) > 0; count++) {
    json_t *row = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL);
    need(row != NULL, cases, "a line is no JSON");
    if (count == 0) {
      before = (size_t)json_integer_value(json_array_get(row, 0));
      after = (size_t)json_integer_value(json_array_get(row, 1));
    }
    const char *wrong = count == 0 ? NULL : check_line(t, row, before, after);
    if (wrong != NULL && ++*out_wrong <= 5) printf("%s:%d: %s: %.300s", cases, count + 1, wrong, line);
    json_decref(row);
  }
  free(line);
  fclose(f);
  bs_tokenizer_close(t);
  return count - 1;
}
#endif
