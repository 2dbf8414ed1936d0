/* SPDX-License-Identifier: MIT
 * runs_show.c - `bsrun runs show RUN`: all that is kept of one run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bsrun/bsrun.h"
#include "bsrun/runs.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/store/find.h"
#include "lab/store/notes.h"
#include "lab/store/read.h"
#include "lab/store/summary.h"

static const args_option options[] = {
    {OPT_OUT, NULL, ARGS_STORE},
    {OPT_OUTPUT, "table, md, csv, json (records, environment and notes, whole) or jsonl", 0},
    {OPT_WIDE, NULL, 0},
    ARGS_HELP,
};

static const bs_field fields[] = {{"what", "WHAT", 0, 0}, {"answer", "VALUE", 0, 0}};

static int ends_in(const char *key, const char *end) {
  const size_t n = strlen(key), m = strlen(end);
  return n > m && strcmp(key + n - m, end) == 0;
}

/* A number with its unit. */
static char *number_text(const char *key, double x) {
  static const char *const seconds[] = {"us", "ms", "s"};
  char text[64], date[32];
  const time_t when = (time_t)x;
  struct tm tm;
  if (strcmp(key, "time") == 0 && gmtime_r(&when, &tm) != NULL) {
    strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S UTC", &tm);
    return strdup(date);
  }
  snprintf(text, sizeof text, "%.4g", x);
  if (ends_in(key, "_bytes")) bs_bytes_text(x, text, sizeof text);
  if (ends_in(key, "_s")) {
    double v = x * 1e6;
    size_t k = 0;
    for (; k < 2 && fabs(v) >= 1e3; k++) v /= 1e3;
    snprintf(text, sizeof text, "%.4g %s", v, seconds[k]);
  }
  return strdup(text);
}

/* A value as a person reads it; "" for none. The caller frees. */
static char *as_text(const char *key, const json_t *value) {
  if (json_is_string(value)) return strdup(json_string_value(value));
  if (json_is_real(value) || (json_is_integer(value) && ends_in(key, "_bytes")))
    return number_text(key, json_number_value(value));
  return json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
}

/* Prints the common fields of a run's rows once, then the separate fields of each arm or kernel. */
static void add_rows(json_t *out, const json_t *rows) {
  const json_t *first = json_array_get(rows, 0);
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    const char *arm = json_string_value(json_object_get(row, "arm"));
    if (arm == NULL) arm = json_string_value(json_object_get(row, "method"));
    for (size_t k = 0; bs_run_row_keys[k] != NULL; k++) {
      const json_t *value = json_object_get(row, bs_run_row_keys[k]);
      if (value == NULL || json_is_null(value)) continue;
      if (i > 0 && json_equal(value, json_object_get(first, bs_run_row_keys[k]))) continue;
      char what[512], *text = as_text(bs_run_row_keys[k], value);
      snprintf(what, sizeof what, "%s%s%s", i > 0 && arm != NULL ? arm : "", i > 0 && arm != NULL ? ": " : "",
               bs_run_row_keys[k]);
      runs_add(out, what, text);
      free(text);
    }
  }
}

/* "; failed: kept, promoted": the gates of a record in one state. */
static void add_names(bs_text *text, const json_t *record, const char *state, const char *word) {
  const json_t *gates = json_object_get(record, "gates");
  int n = 0;
  for (size_t i = 0; i < json_array_size(gates); i++) {
    const json_t *gate = json_array_get(gates, i);
    const char *is = json_string_value(json_object_get(gate, "state"));
    if (is == NULL || strcmp(is, state) != 0) continue;
    if (n == 0) bs_text_printf(text, "%s%s: ", text->size > 0 ? "; " : "", word);
    bs_text_printf(text, "%s%s", n++ > 0 ? ", " : "", bs_gate_name(gate));
  }
}

static int32_t add_gates(json_t *out, const json_t *records, bs_error *err) {
  static const char *const states[][2] = {
      {"pass", "passed"}, {"fail", "failed"}, {"unknown", "UNKNOWN"}, {"skipped", "not applicable"}};
  int failed = 0;
  for (size_t i = 0; i < json_array_size(records); i++) {
    const json_t *record = json_array_get(records, i);
    const char *method = json_string_value(json_object_get(record, "method"));
    const int named = i > 0 && method != NULL;
    char what[512];
    bs_text text = {0};
    for (size_t k = 0; k < sizeof states / sizeof states[0]; k++)
      add_names(&text, record, states[k][0], states[k][1]);
    snprintf(what, sizeof what, "%s%sgates", named ? method : "", named ? ": " : "");
    failed |= text.failed;
    if (!text.failed && text.size > 0) runs_add(out, what, text.data);
    bs_text_free(&text);
  }
  return failed ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory") : BS_OK;
}

static void add_notes(json_t *out, const json_t *notes) {
  for (size_t i = 0; i < json_array_size(notes); i++) {
    const json_t *note = json_array_get(notes, i);
    const char *kind = json_string_value(json_object_get(note, "kind"));
    const char *date = json_string_value(json_object_get(note, "date"));
    char what[96];
    snprintf(what, sizeof what, "%.32s, %.32s", kind != NULL ? kind : "note", date != NULL ? date : "");
    runs_add(out, what, json_string_value(json_object_get(note, "text")));
  }
}

static int32_t print_whole(const char *run, json_t *records, json_t *env, json_t *notes, bs_error *err) {
  json_t *whole =
      json_pack("{s:s, s:O, s:O, s:O}", "run", run, "records", records, "env", env, "notes", notes);
  char *text = whole != NULL
                   ? json_dumps(whole, bs_report_json(stdout) | JSON_INDENT(2) | JSON_REAL_PRECISION(17))
                   : NULL;
  json_decref(whole);
  if (text == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  puts(text);
  free(text);
  return BS_OK;
}

static int32_t show(const char *root, const char *run, int format, bs_error *err) {
  json_t *records = NULL, *env = NULL, *notes = NULL, *rows = NULL, *list = json_array();
  int32_t rc = bs_run_read(root, run, &records, &env, err);
  if (rc == BS_OK) rc = bs_run_notes(root, run, &notes, err);
  if (rc == BS_OK && format == BS_FORMAT_JSON) {
    rc = print_whole(run, records, env, notes, err);
  } else if (rc == BS_OK) {
    rc = bs_run_rows(root, run, &rows, err);
    add_rows(list, rows);
    if (rc == BS_OK) rc = add_gates(list, records, err);
    add_notes(list, notes);
    if (rc == BS_OK) rc = bs_report_print(stdout, format, fields, 2, list, err);
  }
  json_decref(records);
  json_decref(env);
  json_decref(notes);
  json_decref(rows);
  json_decref(list);
  return rc;
}

static int32_t run(const args *a, bs_error *err) {
  char *root = NULL, *path = NULL;
  int format;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = runs_find(a, a->words[0], &root, &path, err);
  if (rc == BS_OK) rc = show(root, path, format, err);
  free(root);
  free(path);
  return rc;
}

const bsrun_verb runs_show_verb = {
    .name = "show",
    .words = "RUN [options]",
    .summary = "all that is kept of one run",
    .about =
        "RUN is a short id of `bsrun runs list`, a run's folder, its run_id or `latest`. -o json prints "
        "whole records, with the\n"
        "configuration, the environment and all notes.\n",
    .examples =
        "  bsrun runs show 20260131_120000\n  bsrun runs show results/raw/phase1_forward/dense/ID -o json\n",
    .options = options,
    .run = run,
    .min_words = 1,
    .max_words = 1,
    .takes = "runs :dir",
};
