/* SPDX-License-Identifier: MIT
 * sweep_show.c - what a sweep shows: progress with the time left, its plan, and its results. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bsrun/sweep.h"
#include "core/base/error.h"
#include "lab/report/rows.h"
#include "lab/store/read.h"

enum { MAX_FIELDS = 40 };

/* "method" of method.name, else what follows the last dot. */
static const char *title_of(const char *key, char *room, size_t size) {
  const char *dot = strrchr(key, '.');
  if (dot == NULL) return key;
  if (strcmp(dot, ".name") != 0) return dot + 1;
  snprintf(room, size, "%.*s", (int)(dot - key), key);
  return room;
}

const char *sweep_settings_text(const json_t *point) {
  static char text[512];
  const char *key;
  json_t *value;
  size_t used = 0;
  text[0] = '\0';
  json_object_foreach(json_object_get(point, "settings"), key, value) {
    char room[64];
    const int n = snprintf(text + used, sizeof text - used, "%s%s=%s", used > 0 ? " " : "",
                           title_of(key, room, sizeof room), json_string_value(value));
    if (n < 0 || used + (size_t)n >= sizeof text) break;
    used += (size_t)n;
  }
  return text;
}

/* ---- progress -------------------------------------------------------------------------------- */

static void time_left(double seconds, char *out, size_t size) {
  out[0] = '\0';
  if (seconds < 0) return;
  if (seconds >= 5400)
    snprintf(out, size, ", about %.1f h left", seconds / 3600);
  else if (seconds >= 90)
    snprintf(out, size, ", about %.0f min left", seconds / 60);
  else
    snprintf(out, size, ", about %.0f s left", seconds);
}

void sweep_tell_end(sweep_shown *s) {
  if (s->open) fputs("\r\033[K", stderr);
  s->open = 0;
}

void sweep_tell(void *user, const json_t *point, const bs_point_outcome *o, size_t done, double left_s) {
  sweep_shown *s = user;
  char left[48], ended[64] = "";
  if (s->quiet) return;
  time_left(left_s, left, sizeof left);
  sweep_tell_end(s);
  char *shown = bs_report_printable(point == NULL ? "tuning" : sweep_settings_text(point));
  if (o != NULL && o->code == 0) snprintf(ended, sizeof ended, ": %.1f s", o->seconds);
  if (o != NULL && o->code != 0)
    snprintf(ended, sizeof ended, ": FAILED with %d after %.1f s", o->code, o->seconds);
  if (o == NULL && s->terminal) {
    bs_print(stderr, "bsrun: %zu of %zu done%s; %.60s", done, s->points, left, shown != NULL ? shown : "");
    s->open = 1;
  } else if (o != NULL && (!s->terminal || o->code != 0)) {
    bs_print(stderr, "bsrun: %zu of %zu: %s%s%s\n", done, s->points, shown != NULL ? shown : "", ended, left);
  }
  fflush(stderr);
  free(shown);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* A field for each key that any point sets, in the order of the first. Titles are in rooms. */
static size_t axis_fields(const json_t *points, bs_field *fields, char rooms[][64], size_t most) {
  size_t n = 0, i;
  const json_t *point;
  json_array_foreach(points, i, point) {
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(point, "settings"), key, value) {
      size_t k = 0;
      while (k < n && strcmp(fields[k].key, key) != 0) k++;
      if (k < n || n == most) continue;
      fields[n] = (bs_field){.key = key, .title = title_of(key, rooms[n], 64)};
      n++;
    }
  }
  return n;
}

static json_t *row_of(const json_t *point) {
  json_t *row = json_copy(json_object_get(point, "settings"));
  json_object_set(row, "point", json_object_get(point, "i"));
  json_object_set(row, "request_key", json_object_get(point, "request_key"));
  return row;
}

static int32_t print(int format, const json_t *points, const bs_field *before, size_t n_before,
                     const bs_field *after, size_t n_after, const json_t *rows, bs_error *err) {
  bs_field fields[MAX_FIELDS];
  char rooms[MAX_FIELDS][64];
  memcpy(fields, before, n_before * sizeof *fields);
  size_t n = n_before;
  n += axis_fields(points, fields + n, rooms, MAX_FIELDS - n_before - n_after);
  memcpy(fields + n, after, n_after * sizeof *fields);
  return bs_report_print(stdout, format, fields, n + n_after, rows, err);
}

static const bs_field number_field[] = {{"point", "point", BS_FIELD_RIGHT, 0}};

int32_t sweep_print_plan(int format, const json_t *points, bs_error *err) {
  static const bs_field after[] = {{"predicted_ms", "predicted (ms)", BS_FIELD_RIGHT, 3},
                                   {"phases", "phases", BS_FIELD_FOLD, 0},
                                   {"plan", "plan", 0, 0},
                                   {"request_key", "request key", BS_FIELD_WIDE, 0}};
  size_t i;
  const json_t *point;
  json_t *rows = json_array();
  json_array_foreach(points, i, point) {
    char text[1024] = "run";
    json_t *row = row_of(point);
    const json_t *twin = json_object_get(point, "duplicate_of"), *refused = json_object_get(point, "refused");
    const double seconds = json_number_value(json_object_get(point, "predicted_s"));
    if (seconds > 0) json_object_set_new(row, "predicted_ms", json_real(seconds * 1e3));
    if (json_is_integer(twin))
      snprintf(text, sizeof text, "same as %lld", (long long)json_integer_value(twin));
    else if (json_is_true(json_object_get(point, "unchecked")))
      snprintf(text, sizeof text, "run, not checked");
    else if (json_is_string(refused))
      snprintf(text, sizeof text, "refused: %.900s", json_string_value(refused));
    json_object_set_new(row, "plan", json_string(text));
    json_object_set(row, "phases", json_object_get(point, "phases"));
    json_array_append_new(rows, row);
  }
  const int32_t rc = print(format, points, number_field, 1, after, 4, rows, err);
  json_decref(rows);
  return rc;
}

/* ---- results --------------------------------------------------------------------------------- */

/* Is the row that is known to be shown? A run that broke off makes way for one that did not. */
static int is_better(const json_t *known, const json_t *row) {
  const char *was = json_string_value(json_object_get(known, "status"));
  const char *is = json_string_value(json_object_get(row, "status"));
  return known != NULL &&
         (was == NULL || strcmp(was, "failed") != 0 || is == NULL || strcmp(is, "failed") == 0);
}

/* The first row of each run: of arms the method's. By request key; and by "point phase". A bare run below the
 * folder is of no point. */
static json_t *runs_by_key(const json_t *index) {
  size_t i;
  const json_t *row;
  json_t *by = json_object();
  json_array_foreach(index, i, row) {
    char name[128];
    const char *key = json_string_value(json_object_get(row, "request_key"));
    const char *phase = json_string_value(json_object_get(row, "phase"));
    const json_t *point = json_object_get(row, "point");
    snprintf(name, sizeof name, "%lld %.60s", (long long)json_integer_value(point),
             phase != NULL ? phase : "");
    const char *const names[] = {key, json_is_integer(point) ? name : NULL};
    for (size_t k = 0; k < 2; k++)
      if (names[k] != NULL && !is_better(json_object_get(by, names[k]), row))
        json_object_set(by, names[k], (json_t *)(uintptr_t)row);
  }
  return by;
}

/* other_build: the point counts as it is, though the keys are not those of what serves now. */
static const json_t *run_of(const json_t *runs, const json_t *point, size_t k, int other_build) {
  char name[128];
  const json_t *by_key =
      json_object_get(runs, json_string_value(json_array_get(json_object_get(point, "keys"), k)));
  if (by_key != NULL || !other_build) return by_key;
  snprintf(name, sizeof name, "%lld %.60s", (long long)json_integer_value(json_object_get(point, "i")),
           json_string_value(json_array_get(json_object_get(point, "phases"), k)));
  return json_object_get(runs, name);
}

/* Adds the fields of a phase's run to the row; a later phase adds its own. The word is that of the phase that
 * judged. */
static void add_run(json_t *row, const json_t *run) {
  static const char *const same[] = {
      "run",   "speedup",        "speedup_low",    "speedup_high", "speedup_word", "against",
      "limit", "share_of_limit", "relative_error", "backend",      "comm",         "world_size"};
  static const char *const times[][2] = {
      {"median_s", "median_ms"}, {"low_s", "low_ms"}, {"high_s", "high_ms"}, {"predicted_s", "predicted_ms"}};
  for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
    json_t *value = json_object_get(run, same[i]);
    if (value != NULL && !json_is_null(value)) json_object_set(row, same[i], value);
  }
  for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
    const json_t *value = json_object_get(run, times[i][0]);
    if (json_is_number(value))
      json_object_set_new(row, times[i][1], json_real(json_number_value(value) * 1e3));
  }
  json_t *word = json_object_get(run, "word");
  if (json_is_string(word)) json_object_set(row, "word", word);
}

/* begun: the phases that have a run, of a point that did not end. */
static void add_state(json_t *row, const json_t *point, const bs_point_outcome *o, size_t begun) {
  static const char *const states[] = {"not run", "done", "done before", "FAILED", "refused", "same as "};
  char text[48];
  snprintf(text, sizeof text, "%s", states[o->state]);
  if (o->state == BS_POINT_TWIN)
    snprintf(text, sizeof text, "same as %lld",
             (long long)json_integer_value(json_object_get(point, "duplicate_of")));
  if (o->state == BS_POINT_LEFT && begun > 0)
    snprintf(text, sizeof text, "%zu of %zu phases", begun,
             json_array_size(json_object_get(point, "phases")));
  json_object_set_new(row, "state", json_string(text));
  if (o->state == BS_POINT_DONE || o->state == BS_POINT_FAILED) {
    json_object_set_new(row, "exit", json_integer(o->code));
    if (!o->before) json_object_set_new(row, "seconds", json_real(o->seconds));
  }
  if (o->state == BS_POINT_REFUSED) json_object_set(row, "why", json_object_get(point, "refused"));
  json_t *said = o->said != NULL ? json_string(o->said) : NULL;
  if (said != NULL) json_object_set_new(row, "why", said);
}

/* A twin has the values of the point that it is the same as. */
static json_t *result_rows(const bs_sweep *s, const json_t *runs) {
  size_t i;
  const json_t *point;
  json_t *rows = json_array();
  json_array_foreach(s->points, i, point) {
    json_t *row = row_of(point);
    const json_t *twin = json_object_get(point, "duplicate_of");
    const size_t at = json_is_integer(twin) ? (size_t)json_integer_value(twin) : i;
    const json_t *from = json_array_get(s->points, at);
    size_t begun = 0;
    for (size_t k = 0; k < json_array_size(json_object_get(from, "phases")); k++) {
      const json_t *run = run_of(runs, from, k, s->outcomes[at].before);
      if (run != NULL) add_run(row, run);
      begun += run != NULL;
    }
    add_state(row, point, &s->outcomes[i], begun);
    json_array_append_new(rows, row);
  }
  return rows;
}

static int32_t print_failed(int format, const bs_sweep *s, const json_t *rows, bs_error *err) {
  static const bs_field after[] = {{"exit", "exit", BS_FIELD_RIGHT, 0}, {"why", "why", 0, 0}};
  json_t *failed = json_array();
  for (size_t i = 0; i < json_array_size(rows); i++)
    if (s->outcomes[i].state == BS_POINT_FAILED || s->outcomes[i].state == BS_POINT_REFUSED)
      json_array_append(failed, json_array_get(rows, i));
  int32_t rc = BS_OK;
  if (json_array_size(failed) > 0) {
    puts("\npoints that failed or were refused:");
    rc = print(format, s->points, number_field, 1, after, 2, failed, err);
  }
  json_decref(failed);
  return rc;
}

static int32_t print_rows(int format, const bs_sweep *s, const json_t *rows, bs_error *err) {
  static const bs_field after[] = {
      {"word", "numbers", 0, 0},
      {"median_ms", "ms", BS_FIELD_RIGHT, 3},
      {"speedup", "speedup", BS_FIELD_RIGHT, 3},
      {"speedup_low", "from", BS_FIELD_RIGHT | BS_FIELD_SPARE, 3},
      {"speedup_high", "to", BS_FIELD_RIGHT | BS_FIELD_SPARE, 3},
      {"speedup_word", "it is", 0, 0},
      {"against", "against", BS_FIELD_WIDE, 0},
      {"share_of_limit", "% of limit", BS_FIELD_RIGHT | BS_FIELD_LEAST | BS_FIELD_PERCENT, 2},
      {"predicted_ms", "predicted (ms)", BS_FIELD_WIDE | BS_FIELD_RIGHT, 3},
      {"low_ms", "low (ms)", BS_FIELD_WIDE | BS_FIELD_RIGHT, 3},
      {"high_ms", "high (ms)", BS_FIELD_WIDE | BS_FIELD_RIGHT, 3},
      {"limit", "limit", BS_FIELD_WIDE, 0},
      {"relative_error", "relative error", BS_FIELD_WIDE | BS_FIELD_RIGHT, 3},
      {"state", "state", BS_FIELD_FOLD, 0},
      {"exit", "exit", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
      {"why", "why", BS_FIELD_WIDE, 0},
      {"seconds", "seconds", BS_FIELD_WIDE | BS_FIELD_RIGHT, 3},
      {"run", "run", BS_FIELD_WIDE, 0},
      {"request_key", "request key", BS_FIELD_WIDE, 0}};
  const int readable = format == BS_FORMAT_TABLE || format == BS_FORMAT_WIDE || format == BS_FORMAT_MD;
  if (readable) bs_speedup_caption(stdout, rows);
  const int32_t rc =
      print(format, s->points, number_field, 1, after, sizeof after / sizeof after[0], rows, err);
  return rc == BS_OK && readable ? print_failed(format, s, rows, err) : rc;
}

int32_t sweep_print_results(int format, const bs_sweep *s, size_t *out_failed, size_t *out_left,
                            bs_error *err) {
  json_t *index = NULL;
  *out_failed = *out_left = 0;
  for (size_t i = 0; i < json_array_size(s->points); i++) {
    *out_failed += s->outcomes[i].state == BS_POINT_FAILED || s->outcomes[i].state == BS_POINT_REFUSED;
    *out_left += s->outcomes[i].state == BS_POINT_LEFT;
  }
  int32_t rc = bs_runs_index(s->folder.path, &index, NULL, err);
  if (rc != BS_OK) return rc;
  json_t *runs = runs_by_key(index), *rows = result_rows(s, runs);
  rc = print_rows(format, s, rows, err);
  json_decref(rows);
  json_decref(runs);
  json_decref(index);
  return rc;
}
