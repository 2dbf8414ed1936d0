/* SPDX-License-Identifier: MIT
 * rows.c - how fast one stored run is beside another, arm by arm. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/compare/stored.h"
#include "lab/measure/stats.h"
#include "lab/report/rows.h"
#include "lab/store/record.h"

static const double MARGIN = 0.01;

/* Samples of one arm of a run, with the groups that are builds. */
typedef struct taken {
  double *seconds;
  size_t start[BS_GROUPS_MAX + 1];
  bs_apart series;
} taken;

static const char *text_of(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text != NULL ? text : "";
}

/* Starts that a record tells, where they fit the samples. */
static void take_groups(const json_t *record, taken *t) {
  const json_t *starts = json_object_get(record, "group_starts");
  const size_t n = json_array_size(starts);
  if (n < 3 || n > BS_GROUPS_MAX) return;
  for (size_t g = 0; g < n; g++) {
    const json_int_t at = json_integer_value(json_array_get(starts, g));
    if (at < 0 || (size_t)at >= t->series.count || (g == 0 ? at != 0 : (size_t)at <= t->start[g - 1])) return;
    t->start[g] = (size_t)at;
  }
  t->start[n] = t->series.count;
  t->series.start = t->start;
  t->series.groups = (uint32_t)n;
}

static int32_t take(const bs_stored_run *run, const json_t *sample, taken *t, bs_error *err) {
  const json_t *seconds = json_object_get(sample, "seconds");
  const size_t n = json_array_size(seconds);
  memset(t, 0, sizeof *t);
  t->seconds = calloc(n > 0 ? n : 1, sizeof *t->seconds);
  if (t->seconds == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  for (size_t i = 0; i < n; i++) t->seconds[i] = json_number_value(json_array_get(seconds, i));
  t->series = (bs_apart){.seconds = t->seconds, .count = n};
  const size_t record = (size_t)json_integer_value(json_object_get(sample, "record"));
  take_groups(json_array_get(run->records, record), t);
  return BS_OK;
}

static int is_same_arm(const json_t *x, const json_t *y) {
  return strcmp(text_of(x, "arm"), text_of(y, "arm")) == 0 &&
         strcmp(text_of(x, "phase"), text_of(y, "phase")) == 0 &&
         json_equal(json_object_get(x, "record"), json_object_get(y, "record"));
}

static const json_t *partner_of(const bs_stored_run *b, const json_t *sample) {
  for (size_t i = 0; i < json_array_size(b->samples); i++)
    if (is_same_arm(sample, json_array_get(b->samples, i))) return json_array_get(b->samples, i);
  return NULL;
}

static json_t *row_of(const json_t *sample, const bs_apart *a, const bs_apart *b, const bs_comparison *c) {
  const int unclear = c->word == BS_WORD_UNCLEAR;
  return json_pack("{s:s,s:s,s:o,s:o,s:o,s:o,s:o,s:s,s:s,s:I,s:I}", "arm", text_of(sample, "arm"), "phase",
                   text_of(sample, "phase"), "a_ms", bs_record_number(1e3 * bs_median(a->seconds, a->count)),
                   "b_ms", bs_record_number(1e3 * bs_median(b->seconds, b->count)), "speedup",
                   bs_record_number(c->ratio), "low", bs_record_number(c->low), "high",
                   bs_record_number(c->high), "word", bs_comparison_name(c->word), "cause",
                   unclear ? bs_unclear_name(c->cause) : "", "samples_a", (json_int_t)a->count, "samples_b",
                   (json_int_t)b->count);
}

/* One arm that both have. */
static int32_t add_arm(const bs_stored_run *a, const bs_stored_run *b, const json_t *x, const json_t *y,
                       json_t *rows, bs_error *err) {
  taken of_a, of_b = {0};
  bs_comparison c;
  int32_t rc = take(a, x, &of_a, err);
  if (rc == BS_OK) rc = take(b, y, &of_b, err);
  if (rc == BS_OK && bs_compare_apart(&of_b.series, &of_a.series, MARGIN, &c) &&
      json_array_append_new(rows, row_of(x, &of_a.series, &of_b.series, &c)) != 0)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  free(of_a.seconds);
  free(of_b.seconds);
  return rc;
}

/* Times of a model of a machine are what they are. */
static int add_simulated(const bs_stored_run *a, const bs_stored_run *b, json_t *rows) {
  const json_t *x = json_array_get(a->records, 0), *y = json_array_get(b->records, 0);
  const double us_a = json_number_value(json_object_get(json_object_get(x, "simulated"), "us"));
  const double us_b = json_number_value(json_object_get(json_object_get(y, "simulated"), "us"));
  if (!(us_a > 0 && us_b > 0)) return 0;
  const double ratio = us_a / us_b;
  const uint32_t word = ratio > 1 + MARGIN         ? BS_WORD_FASTER
                        : ratio < 1 / (1 + MARGIN) ? BS_WORD_SLOWER
                                                   : BS_WORD_SAME;
  return json_array_append_new(
      rows, json_pack("{s:s,s:s,s:f,s:f,s:f,s:f,s:f,s:s,s:s}", "arm", "method", "phase", "simulated", "a_ms",
                      us_a * 1e-3, "b_ms", us_b * 1e-3, "speedup", ratio, "low", ratio, "high", ratio, "word",
                      bs_comparison_name(word), "cause", ""));
}

int32_t bs_stored_rows(const bs_stored_run *a, const bs_stored_run *b, json_t **out_rows, bs_error *err) {
  int32_t rc = BS_OK;
  *out_rows = json_array();
  if (*out_rows == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  for (size_t i = 0; rc == BS_OK && i < json_array_size(a->samples); i++) {
    const json_t *x = json_array_get(a->samples, i), *y = partner_of(b, x);
    if (y != NULL) rc = add_arm(a, b, x, y, *out_rows, err);
  }
  if (rc == BS_OK && json_array_size(*out_rows) == 0 && add_simulated(a, b, *out_rows) != 0)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  if (rc != BS_OK || json_array_size(*out_rows) > 0) return rc;
  bs_error_set(err, BS_NOT_FOUND, "BS-COMPARE-SAMPLES", "no arm of both runs has samples of its time");
  bs_error_hint(err, "runs of phase 1, and of bsrun compare and bsrun ladder, have them");
  return BS_NOT_FOUND;
}
