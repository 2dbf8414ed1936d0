/* SPDX-License-Identifier: MIT
 * baseline.c - see baseline.h. */
#include "lab/compare/baseline.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/out_file.h"
#include "core/base/text.h"
#include "lab/json.h"
#include "lab/store/notes.h"

enum { MAX_NAMES = 64 };

static int32_t unknown(const char *root, const char *name, const json_t *all, bs_error *err) {
  const char *names[MAX_NAMES], *key;
  json_t *value;
  size_t n = 0;
  json_object_foreach((json_t *)(uintptr_t)all, key, value) if (n < MAX_NAMES) names[n++] = key;
  const char *nearest = bs_nearest(name, names, n);
  bs_error_set(err, BS_NOT_FOUND, "BS-BASELINE-NONE", "no baseline '%.100s' in %.200s/baselines.json", name,
               root);
  if (nearest != NULL)
    bs_error_hint(err, "did you mean '%.100s'?", nearest);
  else
    bs_error_hint(err, "bsrun runs baseline %.60s RUN", name);
  return BS_NOT_FOUND;
}

int32_t bs_baseline_find(const char *root, const char *name, char **out_run, bs_error *err) {
  json_t *all = NULL;
  *out_run = NULL;
  int32_t rc = bs_baselines_read(root, &all, err);
  if (rc != BS_OK) return rc;
  const char *run = json_string_value(json_object_get(all, name));
  if (run == NULL)
    rc = unknown(root, name, all, err);
  else if ((*out_run = bs_strdup(run)) == NULL)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  json_decref(all);
  return rc;
}

const json_t *bs_baseline_slower(const json_t *rows) {
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    if (strcmp(bs_get_text(row, "word"), "SLOWER") == 0 && !json_is_true(json_object_get(row, "peer")))
      return row;
  }
  return NULL;
}

const json_t *bs_baseline_missing(const json_t *rows) {
  for (size_t i = 0; i < json_array_size(rows); i++)
    if (strcmp(bs_get_text(json_array_get(rows, i), "word"), "MISSING") == 0) return json_array_get(rows, i);
  return NULL;
}

/* ---- JUnit -------------------------------------------------------------------------------------- */

/* Escapes text between tags and in attributes; control bytes are not allowed in XML. */
static void add_escaped(bs_text *out, const char *text) {
  for (; *text != '\0'; text++) {
    const char *as = *text == '&'   ? "&amp;"
                     : *text == '<' ? "&lt;"
                     : *text == '>' ? "&gt;"
                     : *text == '"' ? "&quot;"
                                    : NULL;
    if (as != NULL)
      bs_text_printf(out, "%s", as);
    else
      bs_text_append(out, (unsigned char)*text < 0x20 ? " " : text, 1);
  }
}

enum outcome { PASSED, FAILED, SKIPPED, LACKING };

/* The outcome of a row. A dense layer next to the method decides nothing: its change is only reported. */
static enum outcome outcome_of(const json_t *row) {
  const char *word = bs_get_text(row, "word");
  if (strcmp(word, "MISSING") == 0) return LACKING;
  if (strcmp(word, "UNCLEAR") == 0) return SKIPPED;
  return strcmp(word, "SLOWER") == 0 && !json_is_true(json_object_get(row, "peer")) ? FAILED : PASSED;
}

static size_t count(const json_t *rows, enum outcome outcome) {
  size_t n = 0;
  for (size_t i = 0; i < json_array_size(rows); i++) n += outcome_of(json_array_get(rows, i)) == outcome;
  return n;
}

static void add_case(bs_text *out, const char *suite, const json_t *row) {
  static const char *const open[] = {"<system-out>", "<failure message=\"", "<skipped message=\"",
                                     "<error message=\""};
  static const char *const close[] = {"</system-out>", "\"/>", "\"/>", "\"/>"};
  const enum outcome outcome = outcome_of(row);
  const char *pass = bs_get_text(row, "pass"), *cause = bs_get_text(row, "cause");
  bs_text_printf(out, "  <testcase classname=\"");
  add_escaped(out, suite);
  bs_text_printf(out, "\" name=\"");
  add_escaped(out, bs_get_text(row, "arm"));
  bs_text_printf(out, " (");
  add_escaped(out, pass);
  bs_text_printf(out, "%s", pass[0] != '\0' ? ", " : "");
  add_escaped(out, bs_get_text(row, "phase"));
  bs_text_printf(out, ")\" time=\"%.9f\">%s%s", 1e-3 * json_number_value(json_object_get(row, "b_ms")),
                 open[outcome], bs_get_text(row, "word"));
  if (cause[0] != '\0') {
    bs_text_printf(out, " (");
    add_escaped(out, cause);
    bs_text_printf(out, ")");
  }
  if (outcome != LACKING)
    bs_text_printf(
        out, ": speedup %.4g [%.4g, %.4g]: %.6g ms", json_number_value(json_object_get(row, "speedup")),
        json_number_value(json_object_get(row, "low")), json_number_value(json_object_get(row, "high")),
        json_number_value(json_object_get(row, "b_ms")));
  bs_text_printf(out, "%s baseline %.6g ms%s</testcase>\n", outcome == LACKING ? ":" : ",",
                 json_number_value(json_object_get(row, "a_ms")), close[outcome]);
}

int32_t bs_junit_write(const char *path, const char *suite, const json_t *rows, bs_error *err) {
  bs_text out = {0};
  bs_text_printf(&out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"");
  add_escaped(&out, suite);
  bs_text_printf(&out, "\" tests=\"%zu\" failures=\"%zu\" errors=\"%zu\" skipped=\"%zu\">\n",
                 json_array_size(rows), count(rows, FAILED), count(rows, LACKING), count(rows, SKIPPED));
  for (size_t i = 0; i < json_array_size(rows); i++) add_case(&out, suite, json_array_get(rows, i));
  bs_text_printf(&out, "</testsuite>\n");
  if (out.failed) {
    bs_text_free(&out);
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  }
  const int why = bs_out_text(path, out.data, out.size);
  bs_text_free(&out);
  return why != 0 ? bs_error_set(err, BS_IO, "BS-JUNIT-WRITE", "cannot write %.300s: %s", path, strerror(why))
                  : BS_OK;
}
