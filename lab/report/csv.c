/* SPDX-License-Identifier: MIT
 * csv.c - records as flat rows, and the CSV of the original's columns: see model.h. */
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/report/model.h"
#include "lab/store/read.h"

json_t *bs_report_flat(const json_t *record) {
  json_t *flat = json_object(), *timings = json_object_get(record, "timings_ms"), *value, *stats;
  const char *key, *region;
  char name[128];
  json_object_foreach((json_t *)record, key, value) {
    const int document = strcmp(key, "config") == 0; /* many lines */
    if (!document && !json_is_object(value) && !json_is_array(value) && !json_is_null(value))
      json_object_set(flat, key, value);
  }
  json_object_foreach(timings, region, stats) {
    json_object_foreach(stats, key, value) {
      if (snprintf(name, sizeof name, "%s_%s", region, key) < (int)sizeof name)
        json_object_set(flat, name, value);
    }
  }
  char *text = json_is_object(timings) ? json_dumps(timings, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
  if (text != NULL) json_object_set_new(flat, "timings_ms", json_string(text));
  free(text);
  return flat;
}

/* Adds to a run's record the keys of its index row that the record lacks. */
static int32_t add_run(const json_t *row, json_t *out_rows, bs_error *err) {
  json_t *records = NULL, *record, *value;
  const char *key;
  size_t i;
  int32_t rc = bs_run_read(bs_row_text(row, "root"), bs_row_text(row, "run"), &records, NULL, err);
  if (rc == BS_CORRUPT || rc == BS_NOT_FOUND) {
    if (err != NULL) bs_error_clear(err);
    return BS_OK;
  }
  json_array_foreach(records, i, record) {
    json_t *flat = bs_report_flat(record);
    json_object_foreach((json_t *)row, key, value) {
      if (i == 0 && !json_is_object(value) && !json_is_null(value) && json_object_get(flat, key) == NULL)
        json_object_set(flat, key, value);
    }
    if (flat == NULL || json_array_append_new(out_rows, flat) != 0) rc = bs_no_memory(err, "the CSV");
  }
  json_decref(records);
  return rc;
}

int32_t bs_report_flat_rows(const json_t *model, size_t most, json_t *out_rows, bs_error *err) {
  const json_t *rows = json_object_get(model, "rows");
  const char *last = "";
  int32_t rc = BS_OK;
  for (size_t i = 0, read = 0; rc == BS_OK && i < json_array_size(rows) && read < most; i++) {
    const json_t *row = json_array_get(rows, i);
    if (strcmp(bs_row_text(row, "run"), last) == 0) continue; /* the rows of a run are adjacent */
    last = bs_row_text(row, "run");
    rc = add_run(row, out_rows, err);
    ++read;
  }
  return rc;
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const bs_field *)a)->key, ((const bs_field *)b)->key);
}

int32_t bs_report_csv(FILE *out, const json_t *rows, bs_error *err) {
  json_t *keys = json_object(), *row, *value;
  const char *key;
  size_t i, n = 0;
  json_array_foreach((json_t *)rows, i, row) {
    json_object_foreach(row, key, value) json_object_set_new(keys, key, json_true());
  }
  bs_field *fields = calloc(json_object_size(keys) + 1, sizeof *fields);
  int32_t rc = keys != NULL && fields != NULL ? BS_OK : bs_no_memory(err, "the CSV");
  if (rc == BS_OK) {
    json_object_foreach(keys, key, value) fields[n++] = (bs_field){key, key, 0, 17};
    qsort(fields, n, sizeof *fields, by_name);
    rc = bs_report_print(out, BS_FORMAT_CSV, fields, n, rows, err);
  }
  free(fields);
  json_decref(keys);
  return rc;
}
