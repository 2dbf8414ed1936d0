/* SPDX-License-Identifier: MIT
 * rows.c - the speedup of one stored run over another, arm by arm. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/compare/stored.h"
#include "lab/json.h"
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

/* Takes the starts of groups in a record if they fit the samples. Cold samples have separate pairs. */
static void take_groups(const json_t *record, const char *phase, taken *t) {
  const json_t *of = strcmp(phase, "steady-cold") == 0 ? json_object_get(record, "pairs_cold") : record;
  const json_t *starts = json_object_get(of, "group_starts");
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
  take_groups(json_array_get(run->records, record), bs_get_text(sample, "phase"), t);
  return BS_OK;
}

static int is_same_arm(const json_t *x, const json_t *y) {
  return strcmp(bs_get_text(x, "arm"), bs_get_text(y, "arm")) == 0 &&
         strcmp(bs_get_text(x, "phase"), bs_get_text(y, "phase")) == 0 &&
         json_equal(json_object_get(x, "record"), json_object_get(y, "record"));
}

static const json_t *partner_of(const bs_stored_run *b, const json_t *sample) {
  for (size_t i = 0; i < json_array_size(b->samples); i++)
    if (is_same_arm(sample, json_array_get(b->samples, i))) return json_array_get(b->samples, i);
  return NULL;
}

/* Is it the dense layer that a run measures next to its subject? It shows the state of the machine. */
static int is_peer(const char *arm) {
  return strncmp(arm, "dense, ", 7) == 0 || strncmp(arm, "dense on ", 9) == 0;
}

/* A new row with the arm's name; pass: null if the record has none. */
static json_t *new_row(const bs_stored_run *run, const json_t *sample) {
  const size_t record = (size_t)json_integer_value(json_object_get(sample, "record"));
  const json_t *pass = json_object_get(json_array_get(run->records, record), "pass");
  return json_pack("{s:s,s:s,s:O?,s:b}", "arm", bs_get_text(sample, "arm"), "phase",
                   bs_get_text(sample, "phase"), "pass", pass, "peer", is_peer(bs_get_text(sample, "arm")));
}

/* Both are released. -1: no memory. */
static int append(json_t *rows, json_t *row, json_t *figures) {
  const int bad = row == NULL || figures == NULL || json_object_update(row, figures) != 0 ||
                  json_array_append(rows, row) != 0;
  json_decref(row);
  json_decref(figures);
  return bad ? -1 : 0;
}

static json_t *figures_of(const bs_apart *a, const bs_apart *b, const bs_comparison *c) {
  const int wordless = c->word == BS_WORD_UNCLEAR || c->word == BS_WORD_NONE;
  return json_pack("{s:o,s:o,s:o,s:o,s:o,s:s,s:s,s:I,s:I}", "a_ms",
                   bs_record_number(1e3 * bs_median(a->seconds, a->count)), "b_ms",
                   bs_record_number(1e3 * bs_median(b->seconds, b->count)), "speedup",
                   bs_record_number(c->ratio), "low", bs_record_number(c->low), "high",
                   bs_record_number(c->high), "word", bs_comparison_name(c->word), "cause",
                   wordless ? bs_unclear_name(c->cause) : "", "samples_a", (json_int_t)a->count, "samples_b",
                   (json_int_t)b->count);
}

/* An arm that A has and B has not. */
static int32_t add_missing(const bs_stored_run *a, const json_t *x, json_t *rows, bs_error *err) {
  taken of_a;
  const int32_t rc = take(a, x, &of_a, err);
  if (rc != BS_OK) return rc;
  json_t *figures =
      json_pack("{s:o,s:n,s:n,s:n,s:n,s:s,s:s,s:I,s:i}", "a_ms",
                bs_record_number(1e3 * bs_median(of_a.series.seconds, of_a.series.count)), "b_ms", "speedup",
                "low", "high", "word", "MISSING", "cause", "B has no samples of it", "samples_a",
                (json_int_t)of_a.series.count, "samples_b", 0);
  free(of_a.seconds);
  return append(rows, new_row(a, x), figures) == 0
             ? BS_OK
             : bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
}

/* Reads from the record how the machine was disturbed while samples were taken. Old records have no such
 * data. */
static void disturbance_of(const bs_stored_run *run, const json_t *sample, bs_disturbance *out) {
  const json_t *record =
      json_array_get(run->records, (size_t)json_integer_value(json_object_get(sample, "record")));
  const int cold = strcmp(bs_get_text(sample, "phase"), "steady-cold") == 0;
  bs_disturbance_read(json_object_get(cold ? json_object_get(record, "pairs_cold") : record, "disturbance"),
                      out);
}

static uint32_t is_same_run(const bs_stored_run *a, const bs_stored_run *b) {
  return a->root != NULL && a->path != NULL && b->root != NULL && b->path != NULL &&
         strcmp(a->root, b->root) == 0 && strcmp(a->path, b->path) == 0;
}

/* Both must have been measured undisturbed; a run is the same as itself. */
static void settle(const bs_stored_run *a, const bs_stored_run *b, const json_t *x, const json_t *y,
                   bs_comparison *c) {
  bs_disturbance of_a, of_b;
  disturbance_of(a, x, &of_a);
  disturbance_of(b, y, &of_b);
  const bs_word_facts facts = {.disturbance = bs_disturbance_decides(&of_a) ? &of_a : &of_b,
                               .equal = is_same_run(a, b)};
  bs_comparison_settle(c, &facts);
}

/* One arm that both have. */
static int32_t add_arm(const bs_stored_run *a, const bs_stored_run *b, const json_t *x, const json_t *y,
                       json_t *rows, bs_error *err) {
  taken of_a, of_b = {0};
  bs_comparison c;
  int32_t rc = take(a, x, &of_a, err);
  if (rc == BS_OK) rc = take(b, y, &of_b, err);
  if (rc == BS_OK && bs_compare_apart(&of_b.series, &of_a.series, MARGIN, &c)) {
    settle(a, b, x, y, &c);
    if (append(rows, new_row(a, x), figures_of(&of_a.series, &of_b.series, &c)) != 0)
      rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  }
  free(of_a.seconds);
  free(of_b.seconds);
  return rc;
}

/* The name of a simulated record's row: the work of a model's run, or the method. */
static const char *simulated_name(const json_t *record) {
  const char *work = bs_get_text(record, "work");
  return work[0] != '\0' ? work : "method";
}

/* One record of each run. Simulated times are exact. */
static int add_simulated(const bs_stored_run *a, const bs_stored_run *b, size_t at, json_t *rows) {
  const json_t *x = json_array_get(a->records, at), *y = json_array_get(b->records, at);
  const double us_a = json_number_value(json_object_get(json_object_get(x, "simulated"), "us"));
  const double us_b = json_number_value(json_object_get(json_object_get(y, "simulated"), "us"));
  if (!(us_a > 0 && us_b > 0) || strcmp(simulated_name(x), simulated_name(y)) != 0) return 0;
  const double ratio = us_a / us_b;
  const uint32_t word = is_same_run(a, b)          ? BS_WORD_NONE
                        : ratio > 1 + MARGIN       ? BS_WORD_FASTER
                        : ratio < 1 / (1 + MARGIN) ? BS_WORD_SLOWER
                                                   : BS_WORD_SAME;
  return json_array_append_new(
      rows, json_pack("{s:s,s:s,s:n,s:b,s:f,s:f,s:f,s:f,s:f,s:s,s:s}", "arm", simulated_name(x), "phase",
                      "simulated", "pass", "peer", 0, "a_ms", us_a * 1e-3, "b_ms", us_b * 1e-3, "speedup",
                      ratio, "low", ratio, "high", ratio, "word", bs_comparison_name(word), "cause",
                      bs_unclear_name(word == BS_WORD_NONE ? BS_UNCLEAR_EQUAL : BS_UNCLEAR_NO)));
}

/* Did both move the same way, and does `peer` explain as much as `row` moved? */
static int moved_alike(const json_t *row, const json_t *peer) {
  const char *word = bs_get_text(row, "word");
  const int slower = strcmp(word, "SLOWER") == 0, faster = strcmp(word, "FASTER") == 0;
  if (!(slower || faster) || !json_is_true(json_object_get(peer, "peer")) ||
      strcmp(word, bs_get_text(peer, "word")) != 0 ||
      strcmp(bs_get_text(row, "phase"), bs_get_text(peer, "phase")) != 0 ||
      strcmp(bs_get_text(row, "pass"), bs_get_text(peer, "pass")) != 0)
    return 0;
  const double far = json_number_value(json_object_get(row, slower ? "high" : "low"));
  const double near = json_number_value(json_object_get(peer, slower ? "low" : "high"));
  return slower ? far >= near : far <= near;
}

/* If a dense arm changed as much as an arm, the cause may be the machine. */
static int doubt_what_dense_did_too(json_t *rows) {
  int bad = 0;
  for (size_t i = 0; i < json_array_size(rows); i++) {
    json_t *row = json_array_get(rows, i);
    int alike = 0;
    for (size_t k = 0; k < json_array_size(rows) && !json_is_true(json_object_get(row, "peer")); k++)
      alike |= moved_alike(row, json_array_get(rows, k));
    if (!alike) continue;
    bad |= json_object_set_new(row, "word", json_string(bs_comparison_name(BS_WORD_UNCLEAR)));
    bad |= json_object_set_new(row, "cause", json_string("a dense arm moved alike"));
  }
  return bad;
}

int32_t bs_stored_rows(const bs_stored_run *a, const bs_stored_run *b, json_t **out_rows, bs_error *err) {
  int32_t rc = BS_OK;
  size_t both = 0;
  *out_rows = json_array();
  if (*out_rows == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  for (size_t i = 0; rc == BS_OK && i < json_array_size(a->samples); i++) {
    const json_t *x = json_array_get(a->samples, i), *y = partner_of(b, x);
    both += y != NULL;
    rc = y != NULL ? add_arm(a, b, x, y, *out_rows, err) : add_missing(a, x, *out_rows, err);
  }
  if (rc == BS_OK && json_array_size(*out_rows) == 0) {
    int bad = 0;
    for (size_t i = 0; i < json_array_size(a->records); i++) bad |= add_simulated(a, b, i, *out_rows);
    if (bad != 0) rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
    both = json_array_size(*out_rows);
  }
  if (rc == BS_OK && doubt_what_dense_did_too(*out_rows) != 0)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  if (rc != BS_OK || both > 0) return rc;
  bs_error_set(err, BS_NOT_FOUND, "BS-COMPARE-SAMPLES", "no arm of both runs has samples of its time");
  bs_error_hint(err, "runs of phase 1, and of bsrun compare, have them");
  return BS_NOT_FOUND;
}
