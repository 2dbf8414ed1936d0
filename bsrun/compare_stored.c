/* SPDX-License-Identifier: MIT
 * compare_stored.c - `bsrun compare RUN RUN` and `bsrun compare RUN --baseline NAME`: runs that are stored.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bsrun/bsrun.h"
#include "bsrun/compare.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/compare/baseline.h"
#include "lab/compare/stored.h"

static const bs_field fields[] = {
    {"arm", "arm", 0, 0},
    {"pass", "pass", BS_FIELD_FOLD, 0},
    {"phase", "samples", BS_FIELD_FOLD, 0},
    {"a_ms", "A ms", BS_FIELD_RIGHT, 3},
    {"b_ms", "B ms", BS_FIELD_RIGHT, 3},
    {"word", "B is", 0, 0},
    {"speedup", "speedup", BS_FIELD_RIGHT, 3},
    {"low", "from", BS_FIELD_RIGHT | BS_FIELD_SPARE, 3},
    {"high", "to", BS_FIELD_RIGHT | BS_FIELD_SPARE, 3},
    {"cause", "cause", 0, 0},
    {"samples_a", "samples of A", BS_FIELD_RIGHT | BS_FIELD_LEAST, 0},
    {"samples_b", "of B", BS_FIELD_RIGHT | BS_FIELD_LEAST, 0},
    {"peer", "dense beside it", BS_FIELD_WIDE, 0},
    {"a", "A", BS_FIELD_WIDE, 0},
    {"b", "B", BS_FIELD_WIDE, 0},
    {"differences", "differences", BS_FIELD_WIDE, 0},
};
static const bs_field difference_fields[] = {
    {"what", "what differs", 0, 0}, {"a", "A", 0, 0}, {"b", "B", 0, 0}};

typedef struct pair {
  const char *root;
  bs_stored_run a, b;
  json_t *differences, *rows;
} pair;

static void pair_free(pair *p) {
  bs_stored_close(&p->a);
  bs_stored_close(&p->b);
  json_decref(p->differences);
  json_decref(p->rows);
}

static int is_readable(int format) {
  return format == BS_FORMAT_TABLE || format == BS_FORMAT_WIDE || format == BS_FORMAT_MD;
}

/* A is the baseline, or the first run. */
static int32_t open_pair(const args *a, pair *p, bs_error *err) {
  const char *root = args_value(a, "out"), *baseline = args_value(a, "baseline");
  bs_text name = {0};
  if (!bsrun_keeps(a))
    return bs_error_set(err, BS_USAGE, "BS-USE-FOLDER",
                        "--out off: stored runs lie in a folder, and off names none");
  p->root = root != NULL ? root : "results/raw";
  bs_text_printf(&name, "%s%s", baseline != NULL ? "@" : "", baseline != NULL ? baseline : a->words[0]);
  int32_t rc = name.failed ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory")
                           : bs_stored_open(p->root, name.data, &p->a, err);
  bs_text_free(&name);
  return rc == BS_OK ? bs_stored_open(p->root, a->words[baseline != NULL ? 0 : 1], &p->b, err) : rc;
}

static int32_t print_differences(int format, const pair *p, bs_error *err) {
  if (!is_readable(format)) return BS_OK;
  bs_print(stdout, "A: %s/%s\nB: %s/%s\n\n", p->a.root, p->a.path, p->b.root, p->b.path);
  if (json_array_size(p->differences) == 0) {
    printf("nothing differs in the configuration and the environment\n\n");
    return BS_OK;
  }
  const int32_t rc = bs_report_print(stdout, format, difference_fields, 3, p->differences, err);
  if (rc == BS_OK) printf("\n");
  return rc;
}

/* Adds the names of both runs to the rows, for formats that print nothing but rows. */
static int add_names(pair *p) {
  int bad = 0;
  for (size_t i = 0; i < json_array_size(p->rows); i++) {
    json_t *row = json_array_get(p->rows, i);
    bad |= json_object_set_new(row, "a", json_string(p->a.path));
    bad |= json_object_set_new(row, "b", json_string(p->b.path));
    bad |= json_object_set(row, "differences", p->differences);
  }
  return bad;
}

static int32_t compare(const args *a, pair *p, bs_error *err) {
  const char *junit = args_value(a, "junit"), *baseline = args_value(a, "baseline");
  int format = 0;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = open_pair(a, p, err);
  if (rc != BS_OK) return rc;
  p->differences = bs_stored_differences(&p->a, &p->b);
  if (p->differences == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  rc = print_differences(format, p, err);
  if (rc == BS_OK && !args_has(a, "force")) rc = bs_stored_alike(&p->a, &p->b, err);
  if (rc == BS_OK) rc = bs_stored_rows(&p->a, &p->b, &p->rows, err);
  if (rc == BS_OK && add_names(p) != 0) rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  if (rc == BS_OK && is_readable(format)) printf("speedup: of B against A\n");
  if (rc == BS_OK)
    rc = bs_report_print(stdout, format, fields, sizeof fields / sizeof fields[0], p->rows, err);
  if (rc == BS_OK && junit != NULL)
    rc = bs_junit_write(junit, baseline != NULL ? baseline : p->a.path, p->rows, err);
  return rc;
}

/* Prints a regression as an error with a separate exit code, so that CI stops. */
static int tell_regression(const args *a, const pair *p, const json_t *row) {
  bs_error err = BS_ERROR_INIT;
  const char *arm = json_string_value(json_object_get(row, "arm"));
  bs_error_set(&err, BS_INCONCLUSIVE, "BS-COMPARE-SLOWER",
               "%.100s (%.60s) is SLOWER: speedup %.3g [%.3g, %.3g] against baseline %.60s", p->b.path,
               arm != NULL ? arm : "", json_number_value(json_object_get(row, "speedup")),
               json_number_value(json_object_get(row, "low")),
               json_number_value(json_object_get(row, "high")), args_value(a, "baseline"));
  bs_error_hint(&err, "the table of differences says what else changed between both runs");
  bsrun_fail(&err);
  return COMPARE_REGRESSED;
}

/* Reports a row that the baseline has and the run has not: it cannot be compared. */
static int tell_missing(const args *a, const pair *p, const json_t *row) {
  bs_error err = BS_ERROR_INIT;
  const char *arm = json_string_value(json_object_get(row, "arm"));
  bs_error_set(&err, BS_NOT_FOUND, "BS-COMPARE-MISSING", "%.100s has no samples of %.60s, baseline %.60s has",
               p->b.path, arm != NULL ? arm : "", args_value(a, "baseline"));
  bs_error_hint(&err, "measure it with the options of the baseline, on as many cores");
  return bsrun_fail(&err);
}

int compare_stored(const args *a) {
  bs_error err = BS_ERROR_INIT;
  pair p = {.root = NULL};
  int code = compare(a, &p, &err) == BS_OK ? 0 : bsrun_fail(&err);
  const json_t *slower = code == 0 && args_has(a, "baseline") ? bs_baseline_slower(p.rows) : NULL;
  const json_t *missing = code == 0 && args_has(a, "baseline") ? bs_baseline_missing(p.rows) : NULL;
  if (slower != NULL)
    code = tell_regression(a, &p, slower);
  else if (missing != NULL)
    code = tell_missing(a, &p, missing);
  pair_free(&p);
  return code;
}
