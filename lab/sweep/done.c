/* SPDX-License-Identifier: MIT
 * done.c - which points of a plan the committed runs have done (points.h). */
#include <stdio.h>
#include <string.h>

#include "lab/error.h"
#include "lab/json.h"
#include "lab/store/read.h"
#include "lab/sweep/points.h"

/* Ranks the verdict of a run: a right run wins over a wrong one, and both win over an interrupted one. */
static int rank_of(int32_t said) {
  return said == BS_OK ? 2 : said == BS_POINT_OPEN ? 0 : 1;
}

/* The verdict of a run on its point; an interrupted run has none. */
static int32_t said_by(const json_t *row, const char *status) {
  if (strcmp(status, "ok") == 0) return BS_OK;
  if (strcmp(status, "not passed") != 0) return BS_POINT_OPEN;
  return strcmp(bs_get_text(row, "word"), "WRONG") == 0 ? BS_NUMERIC : BS_INCONCLUSIVE;
}

static void add(json_t *by, const char *name, int32_t said) {
  const json_t *known = json_object_get(by, name);
  if (known == NULL || rank_of((int32_t)json_integer_value(known)) < rank_of(said))
    json_object_set_new(by, name, json_integer(said));
}

/* Sorts the verdicts of runs by "<request key>" and by "<point> <phase>". */
static void sort_rows(const json_t *rows, json_t *by_key, json_t *by_point) {
  size_t i;
  const json_t *row;
  json_array_foreach(rows, i, row) {
    char name[160];
    const char *status = bs_get_text(row, "status"), *key = bs_get_text(row, "request_key");
    if (status[0] == '\0') continue;
    const int32_t said = said_by(row, status);
    if (key[0] != '\0') add(by_key, key, said);
    const json_t *point = json_object_get(row, "point");
    if (!json_is_integer(point)) continue;
    snprintf(name, sizeof name, "%lld %.100s", (long long)json_integer_value(point),
             bs_get_text(row, "phase"));
    add(by_point, name, said);
  }
}

/* A phase that was not right ends its point: the later ones are not run. */
static int32_t said_of(const json_t *point, const json_t *runs, int by_point) {
  const json_t *phases = json_object_get(point, "phases"), *keys = json_object_get(point, "keys");
  for (size_t k = 0; k < json_array_size(phases); k++) {
    char name[160];
    if (by_point)
      snprintf(name, sizeof name, "%lld %.100s", (long long)json_integer_value(json_object_get(point, "i")),
               json_string_value(json_array_get(phases, k)));
    else
      snprintf(name, sizeof name, "%.64s", json_string_value(json_array_get(keys, k)));
    const json_t *said = json_object_get(runs, name);
    if (said == NULL) return BS_POINT_OPEN;
    if (json_integer_value(said) != BS_OK) return (int32_t)json_integer_value(said);
  }
  return BS_OK;
}

int32_t bs_points_done(const char *folder, const json_t *points, int any_build, int32_t *out_said,
                       size_t *out_other, bs_error *err) {
  json_t *rows = NULL, *by_key = json_object(), *by_point = json_object();
  size_t i;
  const json_t *point;
  int32_t rc = by_key == NULL || by_point == NULL ? bs_no_memory(err, "a sweep") : BS_OK;
  if (rc == BS_OK) rc = bs_runs_index(folder, &rows, NULL, err);
  if (rc == BS_OK) sort_rows(rows, by_key, by_point);
  if (out_other != NULL) *out_other = 0;
  json_array_foreach(points, i, point) {
    const int32_t now = said_of(point, by_key, 0), ever = said_of(point, by_point, 1);
    out_said[i] = now == BS_POINT_OPEN && any_build ? ever : now;
    if (out_other != NULL && now == BS_POINT_OPEN && ever != BS_POINT_OPEN) ++*out_other;
  }
  json_decref(rows);
  json_decref(by_key);
  json_decref(by_point);
  return rc;
}
