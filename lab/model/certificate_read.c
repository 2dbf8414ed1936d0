/* SPDX-License-Identifier: MIT
 * certificate_read.c - reads a certificate and checks its fields (certificate.h). */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "formats/map.h"
#include "lab/model/certificate.h"
#include "lab/model/text_file.h"

enum { FIRST_BYTES = 64, MOST_ROWS = 1 << 20, MOST_CELLS = 4096, MOST_TEXT = 4096, DIGITS = 8 };
static const json_int_t MOST_NUMBER = (json_int_t)1 << 53;

int bs_certificate_is(const char *path) {
  static const char key[] = "\"blockshock_bits\"";
  char text[FIRST_BYTES + 1] = "";
  const size_t length = strlen(path);
  bs_map map;
  if (length > 5 && strcmp(path + length - 5, ".json") == 0) return 1;
  if (bs_map_open(path, "BS-CERT-BAD", &map, NULL) != BS_OK) return 0;
  const uint64_t n = map.bytes < FIRST_BYTES ? map.bytes : FIRST_BYTES;
  const int read = bs_map_pread(&map, path, 0, text, n, NULL) == BS_OK;
  bs_map_close(&map);
  const char *at = text + strspn(text, " \t\r\n");
  if (!read || *at != '{') return 0;
  at += 1 + strspn(at + 1, " \t\r\n");
  return strncmp(at, key, sizeof key - 1) == 0;
}

/* ---- rules ----------------------------------------------------------------------------------- */

enum kind { TEXT, TEXT_OR_NULL, NUMBER, FLAG, HEX, OBJECT, ARRAY };
static const char *const kinds[] = {"a text of at most 4096 bytes",
                                    "a text of at most 4096 bytes, or null",
                                    "a whole number from 0 to 2^53",
                                    "true or false",
                                    "64 digits 0-9a-f",
                                    "an object",
                                    "a list"};

/* Fields that must be there: of the object `of` ("": the whole), or of each object in the list `of`. */
typedef struct rule {
  const char *of, *key;
  enum kind kind;
} rule;
static const rule rules[] = {
    {"", "blockshock_bits", NUMBER},
    {"", "word", TEXT},
    {"", "definition", NUMBER},
    {"", "asked", OBJECT},
    {"", "files", ARRAY},
    {"", "made_constants", OBJECT},
    {"", "inputs", ARRAY},
    {"", "output", OBJECT},
    {"", "cells", ARRAY},
    {"", "failed", NUMBER},
    {"asked", "backend", TEXT_OR_NULL},
    {"asked", "cache_tokens", NUMBER},
    {"asked", "cache_dtype", TEXT_OR_NULL},
    {"asked", "seed", NUMBER},
    {"asked", "weights", TEXT_OR_NULL},
    {"asked", "activations", TEXT_OR_NULL},
    {"asked", "passes_off", ARRAY},
    {"asked", "dims", OBJECT},
    {"files", "name", TEXT},
    {"files", "bytes", NUMBER},
    {"files", "sha256", HEX},
    {"made_constants", "count", NUMBER},
    {"made_constants", "sha256", HEX},
    {"made_constants", "named", OBJECT},
    {"inputs", "name", TEXT},
    {"inputs", "made", FLAG},
    {"inputs", "sha256", HEX},
    {"output", "numbers", NUMBER},
    {"output", "sha256", HEX},
    {"output", "rows", ARRAY},
    {"cells", "table", TEXT},
    {"cells", "threads", NUMBER},
    {"cells", "run", TEXT},
    {"cells", "equal", FLAG},
};

/* Fields of a certificate over ranks. */
static const rule rules_of_ranks[] = {
    {"asked", "method", TEXT}, {"asked", "method_options", OBJECT}, {"asked", "mask", TEXT_OR_NULL}};
enum {
  N_OF_RANKS = sizeof rules_of_ranks / sizeof rules_of_ranks[0],
  MOST_THREADS = 1024,
  MOST_IN_ALL = 16384
};

static int is_hex(const json_t *value, size_t digits) {
  const char *text = json_string_value(value);
  return text != NULL && strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

static int is_of(enum kind kind, const json_t *value) {
  switch (kind) {
    case TEXT:
      return json_is_string(value) && json_string_length(value) <= MOST_TEXT;
    case TEXT_OR_NULL:
      return json_is_null(value) || is_of(TEXT, value);
    case NUMBER:
      return json_is_integer(value) && json_integer_value(value) >= 0 &&
             json_integer_value(value) <= MOST_NUMBER;
    case FLAG:
      return json_is_boolean(value);
    case HEX:
      return is_hex(value, 64);
    case OBJECT:
      return json_is_object(value);
    case ARRAY:
      return json_is_array(value);
  }
  return 0;
}

/* at: the place in a list; -1: none. */
static int32_t bad(const char *of, long long at, const char *key, const char *what, bs_error *err) {
  char place[40] = "";
  if (at >= 0) snprintf(place, sizeof place, "[%lld]", at);
  return bs_error_set(err, BS_INPUT, "BS-CERT-BAD", "%.40s%s%s%.60s of the certificate is not %.100s", of,
                      place, of[0] != '\0' && key[0] != '\0' ? "." : "", key, what);
}

static int32_t check_rule(const json_t *root, const rule *r, bs_error *err) {
  const json_t *of = r->of[0] != '\0' ? json_object_get(root, r->of) : root, *row;
  int32_t rc = BS_OK;
  size_t i;
  if (!json_is_array(of))
    return is_of(r->kind, json_object_get(of, r->key)) ? BS_OK : bad(r->of, -1, r->key, kinds[r->kind], err);
  json_array_foreach(of, i, row) {
    if (rc == BS_OK && !is_of(r->kind, json_object_get(row, r->key)))
      rc = bad(r->of, (long long)i, r->key, kinds[r->kind], err);
  }
  return rc;
}

static int32_t check_lists(const json_t *root, bs_error *err) {
  const json_t *asked = json_object_get(root, "asked"), *value;
  const json_t *rows = json_object_get(json_object_get(root, "output"), "rows");
  const char *key;
  size_t i;
  if (json_array_size(rows) > MOST_ROWS || json_array_size(rows) == 0)
    return bad("output", -1, "rows", "a list of 1 to 1048576", err);
  if (json_array_size(json_object_get(root, "cells")) > MOST_CELLS)
    return bad("cells", -1, "", "a list of at most 4096", err);
  json_array_foreach(rows, i, value) {
    if (!is_hex(value, DIGITS)) return bad("output.rows", (long long)i, "", "8 digits 0-9a-f", err);
  }
  json_array_foreach(json_object_get(asked, "passes_off"), i, value) {
    if (!is_of(TEXT, value)) return bad("asked.passes_off", (long long)i, "", kinds[TEXT], err);
  }
  json_object_foreach((json_t *)(uintptr_t)json_object_get(asked, "dims"), key, value) {
    if (!is_of(NUMBER, value)) return bad("asked.dims", -1, key, kinds[NUMBER], err);
  }
  json_object_foreach((json_t *)(uintptr_t)json_object_get(asked, "method_options"), key, value) {
    if (!is_of(TEXT, value)) return bad("asked.method_options", -1, key, kinds[TEXT], err);
  }
  const json_int_t seed = json_integer_value(json_object_get(asked, "seed"));
  if (seed > UINT32_MAX) return bad("asked", -1, "seed", "a whole number from 0 to 2^32-1", err);
  return BS_OK;
}

/* ranks: NULL, or the field of the cell. */
static int32_t check_threads(const json_t *ranks, json_int_t threads, size_t cell, bs_error *err) {
  const json_int_t n = ranks != NULL ? json_integer_value(ranks) : 1;
  if (threads < 1 || threads > MOST_THREADS)
    return bad("cells", (long long)cell, "threads", "1 to 1024", err);
  if (n < 1 || n > MOST_THREADS) return bad("cells", (long long)cell, "ranks", "1 to 1024", err);
  return n * threads <= MOST_IN_ALL
             ? BS_OK
             : bad("cells", (long long)cell, "ranks", "1 to 16384 over its threads", err);
}

/* over: 1 if the model was run over ranks. */
static int32_t check_cells(const json_t *root, int over, bs_error *err) {
  const json_t *cell;
  int32_t rc = BS_OK;
  size_t i;
  json_array_foreach(json_object_get(root, "cells"), i, cell) {
    const json_t *ranks = json_object_get(cell, "ranks");
    const char *table = json_string_value(json_object_get(cell, "table"));
    if (!json_is_true(json_object_get(cell, "equal")))
      return bad("cells", (long long)i, "equal", "true, while failed is 0", err);
    if (over != (ranks != NULL))
      return bad("cells", (long long)i, "ranks", over ? "1 to 1024" : "absent, as asked.method is", err);
    const json_t *launch = json_object_get(cell, "launch");
    if (launch != NULL && !json_is_string(launch))
      return bad("cells", (long long)i, "launch", "a text, or absent", err);
    rc = check_threads(ranks, json_integer_value(json_object_get(cell, "threads")), i, err);
    if (rc != BS_OK) return rc;
    if (strlen(table) > 31 || table[strspn(table, "abcdefghijklmnopqrstuvwxyz0123456789_")] != '\0')
      return bad("cells", (long long)i, "table", "a name of at most 31 letters a-z0-9_", err);
  }
  return rc;
}

/* Checks that the fields over ranks are all there, or are all missing. */
static int32_t check_ranks(const json_t *root, int *out_over, bs_error *err) {
  int over = strcmp(json_string_value(json_object_get(root, "word")), "ranks") == 0;
  int32_t rc = BS_OK;
  for (size_t i = 0; i < N_OF_RANKS; i++)
    over |= json_object_get(json_object_get(root, "asked"), rules_of_ranks[i].key) != NULL;
  for (size_t i = 0; over && rc == BS_OK && i < N_OF_RANKS; i++)
    rc = check_rule(root, &rules_of_ranks[i], err);
  *out_over = over;
  return rc;
}

/* What this version can run again. */
static int32_t check_words(const json_t *root, bs_error *err) {
  const json_int_t form = json_integer_value(json_object_get(root, "blockshock_bits"));
  const json_int_t definition = json_integer_value(json_object_get(root, "definition"));
  const json_int_t failed = json_integer_value(json_object_get(root, "failed"));
  const char *word = json_string_value(json_object_get(root, "word"));
  if (form != 1)
    return bs_error_set(err, BS_INPUT, "BS-CERT-BAD", "blockshock_bits is %lld; this version reads 1",
                        (long long)form);
  if (definition != 1)
    return bs_error_set(err, BS_INPUT, "BS-CERT-BAD", "definition is %lld; this version keeps definition 1",
                        (long long)definition);
  if (strcmp(word, "tokens") != 0 && strcmp(word, "ranks") != 0) {
    bs_error_set(err, BS_INPUT, "BS-CERT-BAD", "word is '%.40s'; only 'tokens' and 'ranks' are checked again",
                 word);
    bs_error_hint(err, "'runs' promises nothing to another machine");
    return BS_INPUT;
  }
  if (failed == 0) return BS_OK;
  return bs_error_set(err, BS_INPUT, "BS-CERT-BAD",
                      "failed is %lld: the bits were not equal where the certificate was made",
                      (long long)failed);
}

static int32_t check(const json_t *root, bs_error *err) {
  int32_t rc = BS_OK;
  int over = 0;
  for (size_t i = 0; rc == BS_OK && i < sizeof rules / sizeof rules[0]; i++)
    rc = check_rule(root, &rules[i], err);
  if (rc == BS_OK) rc = check_words(root, err);
  if (rc == BS_OK) rc = check_ranks(root, &over, err);
  if (rc == BS_OK) rc = check_lists(root, err);
  return rc == BS_OK ? check_cells(root, over, err) : rc;
}

int32_t bs_certificate_read(const char *path, json_t **out, bs_error *err) {
  char *text = NULL;
  json_error_t why;
  *out = NULL;
  int32_t rc = bs_text_file_read(path, "BS-CERT-BAD", &text, err);
  if (rc != BS_OK) return rc;
  json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &why);
  free(text);
  if (root == NULL)
    rc = bs_error_set(err, BS_INPUT, "BS-CERT-BAD", "line %d: %.150s", why.line, why.text);
  else
    rc = check(root, err);
  if (rc != BS_OK) {
    bs_error_file(err, path);
    json_decref(root);
    return rc;
  }
  *out = root;
  return BS_OK;
}
