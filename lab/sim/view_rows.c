/* SPDX-License-Identifier: MIT
 * view_rows.c - rows of `bsrun sim explain --inside` from a file: see view.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/json.h"
#include "lab/sim/view.h"

enum { MOST_BYTES = 1 << 16, MOST_ROWS = 64 };
#define MOST_US 9e9 /* 2.5 hours; a double has each ps of them */

static int32_t wrong(const char *path, const char *what, bs_error *err) {
  bs_error_set(err, BS_INPUT, "BS-VIEW-FILE", "%s", what);
  bs_error_where(err, "%s", path);
  bs_error_hint(err, "bsrun sim explain --inside OP --device D -o json > FILE writes one");
  return BS_INPUT;
}

static int32_t check(const char *path, const json_t *rows, bs_error *err) {
  const size_t n = json_array_size(rows);
  const json_t *total = json_array_get(rows, n > 0 ? n - 1 : 0);
  if (n == 0 || n > MOST_ROWS) return wrong(path, "this is no list of 1 to 64 rows", err);
  for (size_t i = 0; i < n; i++)
    if (bs_get_text(json_array_get(rows, i), "part")[0] == '\0') return wrong(path, "a row has no part", err);
  const double us = bs_get_number(total, "us");
  if (strcmp(bs_get_text(total, "part"), "total") != 0 || !(us > 0 && us < MOST_US))
    return wrong(path, "the last row is no total with a time", err);
  return BS_OK;
}

static int32_t parse(const char *path, const char *text, size_t size, json_t **out_rows, bs_error *err) {
  json_error_t why;
  json_t *rows = json_loadb(text, size, JSON_REJECT_DUPLICATES, &why);
  const int32_t rc = rows != NULL ? check(path, rows, err) : wrong(path, why.text, err);
  if (rc == BS_OK)
    *out_rows = rows;
  else
    json_decref(rows);
  return rc;
}

int32_t bs_view_rows_read(const char *path, json_t **out_rows, bs_error *err) {
  FILE *f = fopen(path, "re");
  char *text = f != NULL ? malloc(MOST_BYTES + 1) : NULL;
  int32_t rc = BS_OK;
  *out_rows = NULL;
  if (f == NULL) {
    rc = bs_error_errno(err, BS_INPUT, "BS-VIEW-FILE", errno, "%s cannot be opened", path);
    bs_error_hint(err, "a file of `bsrun sim explain --inside OP --device D -o json`; an op needs --device");
  } else if (text == NULL) {
    rc = bs_no_memory(err, "a file");
  } else {
    const size_t size = fread(text, 1, MOST_BYTES + 1, f);
    rc = ferror(f)           ? bs_error_errno(err, BS_INPUT, "BS-VIEW-FILE", errno, "%s cannot be read", path)
         : size > MOST_BYTES ? wrong(path, "more than 64 KiB are no such rows", err)
                             : parse(path, text, size, out_rows, err);
  }
  free(text);
  if (f != NULL) fclose(f);
  return rc;
}
