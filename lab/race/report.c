/* SPDX-License-Identifier: MIT
 * report.c - the result of a tuning, or of its entry in the tuning file, as one JSON object
 * (docs/tuning.md). */
#include <math.h>
#include <string.h>

#include "core/base/clock.h"
#include "lab/case/ask.h"
#include "lab/race/racing.h"

/* ---- the report ----------------------------------------------------------------------------- */

static json_t *space_json(const runner *run) {
  char best[BS_SPACE_TEXT] = "";
  uint64_t failed = 0, seen = 0; /* seen: points; the halving measures some of them again */
  const int found = isfinite(run->found.best_seconds) && run->found.n > 0;
  for (size_t i = 0; i < run->found.n; i++) {
    failed += isinf(run->found.rows[i].seconds) != 0;
    seen += run->found.rows[i].effort == 0;
  }
  if (found) bs_space_text(run->space, run->found.best, best, sizeof best);
  json_t *row = json_pack("{s:s,s:I,s:I,s:I,s:I,s:s,s:b,s:s,s:s}", "provider", run->name, "points",
                          (json_int_t)run->allowed, "seen", (json_int_t)seen, "measured",
                          (json_int_t)run->found.measured, "failed", (json_int_t)failed, "default", run->echo,
                          "outside", run->space->n > 0 && !run->standard_exact, "best", best, "end",
                          run->race->number != 0 && !found ? "stopped" : bs_search_end_names[run->found.end]);
  if (found) json_object_set_new(row, "seconds", json_real(run->found.best_seconds));
  return row;
}

enum { ELITE = 8 };

/* The fastest of each implementation, with how they were found. */
static void add_elite(const race *r, json_t *elite) {
  for (size_t k = 0; k < r->n; k++) {
    const runner *run = &r->run[k];
    size_t rows[ELITE];
    const size_t n = bs_searched_elite(&run->found, ELITE, rows);
    for (size_t i = 0; i < n; i++) {
      char config[BS_SPACE_TEXT];
      const bs_searched_row *row = &run->found.rows[rows[i]];
      uint32_t origin = row->origin;
      for (size_t j = 0; j < rows[i]; j++)
        if (run->found.rows[j].point == row->point) {
          origin = run->found.rows[j].origin;
          break;
        }
      json_array_append_new(
          elite, json_pack("{s:i,s:s,s:s,s:f,s:i,s:s}", "place", (int)i + 1, "provider", run->name, "config",
                           bs_space_text(run->space, row->point, config, sizeof config), "seconds",
                           row->seconds, "looks", (int)row->effort + 1, "found_by", bs_origin_names[origin]));
    }
  }
}

/* The fields of a look of a contest. */
static const char *const look_keys[] = {"word", "cause", "disturbed", "ratio",          "low",
                                        "high", "pairs", "seconds",   "default_seconds"};
enum { N_LOOK_KEYS = sizeof look_keys / sizeof look_keys[0] };

json_t *race_report(const race *r, const char *origin) {
  json_t *spaces = json_array(), *elite = json_array();
  for (size_t i = 0; i < r->n; i++) json_array_append_new(spaces, space_json(&r->run[i]));
  add_elite(r, elite);
  json_t *out =
      json_pack("{s:s,s:s,s:s,s:s,s:s,s:i,s:s,s:I,s:I,s:I,s:o,s:o}", "problem", r->o->problem, "key", r->key,
                "choice", r->choice, "default", r->standard, "origin", origin, "threads", (int)r->o->threads,
                "strategy", bs_strategy_names[r->o->strategy], "measured", (json_int_t)r->measured, "known",
                (json_int_t)r->known, "failed", (json_int_t)r->bad, "spaces", spaces, "elite", elite);
  if (out == NULL) return NULL;
  json_object_set_new(out, "not_applicable", json_integer((json_int_t)r->refused));
  if (json_object_size(r->restriction) > 0) json_object_set(out, "restriction", r->restriction);
  json_object_set_new(out, "spent_s", json_real(bs_clock_s() - r->began));
  const json_t *again = json_object_get(r->result, "again"), *look = again != NULL ? again : r->result;
  for (size_t i = 0; look != NULL && i < N_LOOK_KEYS; i++)
    if (json_object_get(look, look_keys[i]) != NULL)
      json_object_set(out, look_keys[i], json_object_get(look, look_keys[i]));
  return out;
}

json_t *race_stored_report(const race *r, const json_t *entry) {
  json_t *out = race_report(r, "stored");
  size_t i;
  const json_t *c;
  if (out == NULL) return NULL;
  json_object_set(out, "choice", json_object_get(entry, "choice"));
  json_object_set(out, "measured_at", json_object_get(entry, "measured_at"));
  json_array_foreach(json_object_get(entry, "candidates"), i, c) {
    const json_t *again = json_object_get(c, "again"), *look = again != NULL ? again : c;
    for (size_t k = 0; json_object_get(look, "word") != NULL && k < N_LOOK_KEYS; k++)
      json_object_set(out, look_keys[k], json_object_get(look, look_keys[k]));
  }
  return out;
}
