/* SPDX-License-Identifier: MIT
 * inside_tune.c - see inside_tune.h. */
#include "lab/sim/inside_tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/text.h"
#include "lab/error.h"
#include "lab/sim/inside.h"
#include "lab/stop.h"
#include "sim/choose.h"

enum { ELITE = 8, LEAST_TILE = 16 };

typedef struct tuning {
  const sim_device *device;
  const bs_inside_tune *o;
  bs_space space;
  double began;
  uint64_t allowed, most; /* points that --where allows; that may be simulated */
  uint64_t simulated;
  char op[160];       /* canonical */
  char standard[160]; /* the fastest of the device's tiles; "": none fits */
  double standard_s;
  json_t *refused; /* a row each */
  bs_error first;  /* of the first refused point */
  bs_searched found;
} tuning;

/* ---- the space --------------------------------------------------------------------------------- */

static const char *given_values(const bs_inside_tune *o, const char *name) {
  for (size_t i = 0; i < o->n_knobs; i++)
    if (strcmp(o->names[i], name) == 0) return o->values[i];
  return NULL;
}

static int ascending(const void *a, const void *b) {
  const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

/* The device's values; of a tile's sizes also half and twice of each. */
static int32_t add_own(bs_space *space, const char *name, const uint32_t *values, uint32_t n, bs_error *err) {
  uint32_t all[3 * BS_INSIDE_VALUES], m = 0;
  const int widens = strcmp(name, "tm") == 0 || strcmp(name, "tn") == 0 || strcmp(name, "tk") == 0;
  bs_text text = {0};
  for (uint32_t i = 0; i < n; i++) {
    all[m++] = values[i];
    if (widens) all[m++] = 2 * values[i];
    if (widens && values[i] % 2 == 0 && values[i] / 2 >= LEAST_TILE) all[m++] = values[i] / 2;
  }
  qsort(all, m, sizeof all[0], ascending);
  for (uint32_t i = 0; i < m; i++)
    if (i == 0 || all[i] != all[i - 1]) bs_text_printf(&text, "%s%u", i > 0 ? "," : "", all[i]);
  const int32_t rc = text.failed     ? bs_no_memory(err, "a space")
                     : text.size > 0 ? bs_space_add(space, name, text.data, "auto", err)
                                     : BS_OK;
  bs_text_free(&text);
  return rc;
}

/* Each value alone is one that explain takes. */
static int32_t check_values(const bs_space *space, bs_error *err) {
  for (uint32_t k = 0; k < space->n; k++)
    for (uint32_t i = 0; i < space->knob[k].n; i++) {
      bs_inside_knobs knobs = {0};
      char text[80];
      snprintf(text, sizeof text, "%s=%s", space->knob[k].name, space->knob[k].value[i]);
      const int32_t rc = bs_inside_knobs_read(text, &knobs, err);
      if (rc != BS_OK) return rc;
    }
  return BS_OK;
}

/* An unknown name has no place in the space. */
static int32_t check_names(const bs_inside_tune *o, bs_error *err) {
  for (size_t i = 0; i < o->n_knobs; i++) {
    bs_inside_knobs knobs = {0};
    char text[80];
    uint32_t k = 0;
    while (k < BS_INSIDE_KNOBS && strcmp(bs_inside_knob_names[k], o->names[i]) != 0) k++;
    if (k < BS_INSIDE_KNOBS || strcmp(o->names[i], "where") == 0) continue;
    snprintf(text, sizeof text, "%.60s=1", o->names[i]);
    return bs_inside_knobs_read(text, &knobs, err);
  }
  return BS_OK;
}

static int32_t limit_space(tuning *t, bs_error *err) {
  t->allowed = t->space.size;
  if (t->o->where == NULL) return BS_OK;
  const int32_t rc = bs_space_limit(&t->space, t->o->where, err);
  if (rc != BS_OK) return rc;
  t->allowed = bs_space_count(&t->space);
  if (t->allowed > 0) return BS_OK;
  return bs_error_set(err, BS_CONFIG, "BS-KNOB-SPACE", "--where '%.200s' leaves none of the %llu points",
                      t->o->where, (unsigned long long)t->space.size);
}

static int32_t make_space(tuning *t, bs_error *err) {
  bs_inside_knobs own;
  bs_space_init(&t->space);
  int32_t rc = bs_inside_own_values(t->device, t->o->op, &own, err);
  if (rc == BS_OK) rc = check_names(t->o, err);
  for (uint32_t k = 0; rc == BS_OK && k <= BS_INSIDE_KNOBS; k++) {
    const char *name = k < BS_INSIDE_KNOBS ? bs_inside_knob_names[k] : "where";
    const char *values = given_values(t->o, name);
    if (values != NULL)
      rc = bs_space_add(&t->space, name, values, "auto", err);
    else if (k < BS_INSIDE_KNOBS)
      rc = add_own(&t->space, name, own.values[k], own.n[k], err);
  }
  if (rc == BS_OK) rc = check_values(&t->space, err);
  return rc == BS_OK ? limit_space(t, err) : rc;
}

/* ---- simulations ------------------------------------------------------------------------------- */

/* Tells what is simulated next, and how long the rest takes if it takes as long as the earlier ones. */
static void tell(const tuning *t, const char *what) {
  const bs_inside_tune *o = t->o;
  if (o->progress == NULL) return;
  const uint64_t done = t->simulated + json_array_size(t->refused);
  const double spent = bs_clock_s() - t->began;
  double left = done > 0 && t->most > done ? spent / (double)done * (double)(t->most - done) : 0;
  if (o->seconds > 0 && (left == 0 || left > o->seconds - spent)) left = fmax(0, o->seconds - spent);
  o->progress(o->user, what, done, t->most, left);
}

/* Says nothing against other points: its buffers do not fit, it is too large, or its knobs do not go
 * together. A knob that the op has not is wrong in every point. */
static int is_refused(const bs_error *why) {
  return why->code != BS_USAGE && sim_left_out(why);
}

static int32_t refuse(tuning *t, const char *config, const bs_error *why, bs_error *err) {
  json_t *row = json_pack("{s:s,s:s,s:s,s:s}", "config", config, "how", "simulated", "id", why->id, "reason",
                          why->message);
  if (t->first.code == BS_OK) t->first = *why;
  return json_array_append_new(t->refused, row) == 0 ? BS_OK : bs_no_memory(err, "a search");
}

static int32_t simulate_point(void *user, uint64_t point, uint32_t effort, double *out_s, bs_error *err) {
  tuning *t = user;
  char config[BS_SPACE_TEXT];
  bs_inside_ask ask = {.op = t->o->op};
  bs_inside_answer answer;
  bs_error why = BS_ERROR_INIT;
  (void)effort;
  *out_s = INFINITY;
  bs_space_text(&t->space, point, config, sizeof config);
  int32_t rc = bs_stop_check(err);
  if (rc == BS_OK) rc = bs_inside_knobs_read(config, &ask.knobs, err);
  if (rc != BS_OK) return rc;
  tell(t, config);
  rc = bs_inside_best(t->device, &ask, &answer, &why);
  if (rc == BS_OK) *out_s = (double)answer.result.settled * 1e-12;
  t->simulated += rc == BS_OK;
  bs_inside_close(&answer);
  if (rc == BS_OK) return BS_OK;
  if (is_refused(&why)) return refuse(t, config, &why, err);
  if (err != NULL) *err = why;
  return rc;
}

/* What runs and explain take without a search. */
static int32_t simulate_standard(tuning *t, bs_error *err) {
  const bs_inside_ask ask = {.op = t->o->op};
  bs_inside_answer answer;
  bs_error why = BS_ERROR_INIT;
  tell(t, "the device's tiles");
  const int32_t rc = bs_inside_best(t->device, &ask, &answer, &why);
  memcpy(t->op, answer.op, sizeof t->op);
  if (rc == BS_OK) {
    t->standard_s = (double)answer.result.settled * 1e-12;
    memcpy(t->standard, answer.knobs, sizeof t->standard);
  }
  bs_inside_close(&answer);
  if (rc == BS_OK || is_refused(&why)) return BS_OK;
  if (err != NULL) *err = why;
  return rc;
}

/* ---- the search -------------------------------------------------------------------------------- */

static int32_t place_start(const tuning *t, uint64_t *out, bs_error *err) {
  const char *start = t->o->start;
  char why[200] = "";
  int exact;
  *out = bs_space_nearest(&t->space, t->standard, &exact);
  if (start == NULL) return BS_OK;
  bs_space_why(&t->space, start, why, sizeof why);
  if (why[0] == '\0' && bs_space_find(&t->space, start, out) && bs_space_allows(&t->space, *out))
    return BS_OK;
  if (why[0] == '\0') snprintf(why, sizeof why, "--where refuses it");
  bs_error_set(err, BS_USAGE, "BS-TUNE-START", "--start '%.200s' is no point: %s", start, why);
  if (t->standard[0] != '\0') bs_error_hint(err, "the fastest tile of the device is %.200s", t->standard);
  return BS_USAGE;
}

static double now_of(void *user) {
  (void)user;
  return bs_clock_s();
}

static int32_t search(tuning *t, bs_error *err) {
  const bs_inside_tune *o = t->o;
  bs_search s = {.strategy = o->strategy,
                 .survivors = o->survivors,
                 .seed = o->seed,
                 .points = o->points,
                 .seconds = o->seconds,
                 .user = t,
                 .now = now_of,
                 .measure = simulate_point};
  int32_t rc = place_start(t, &s.start, err);
  if (rc != BS_OK) return rc;
  t->most = bs_search_points(&s, &t->space);
  if (t->most > t->allowed) t->most = t->allowed;
  rc = bs_search_run(&t->space, &s, &t->found, err);
  if (rc != BS_OK || isfinite(t->found.best_seconds)) return rc;
  if (err != NULL && t->first.code != BS_OK) *err = t->first;
  return t->first.code != BS_OK ? t->first.code
                                : bs_error_set(err, BS_UNSUPPORTED, "BS-TUNE-NONE", "no point was simulated");
}

/* ---- the report -------------------------------------------------------------------------------- */

static json_t *elite_of(const tuning *t, const char *provider) {
  json_t *elite = json_array();
  size_t rows[ELITE];
  const size_t n = bs_searched_elite(&t->found, ELITE, rows);
  for (size_t i = 0; i < n; i++) {
    const bs_searched_row *row = &t->found.rows[rows[i]];
    char config[BS_SPACE_TEXT];
    bs_space_text(&t->space, row->point, config, sizeof config);
    json_array_append_new(elite, json_pack("{s:i,s:s,s:s,s:f,s:i,s:s,s:s}", "place", (int)i + 1, "provider",
                                           provider, "config", config, "seconds", row->seconds, "looks", 1,
                                           "found_by", bs_origin_names[row->origin], "how", "simulated"));
  }
  return elite;
}

static json_t *space_of(const tuning *t, const char *provider, int stopped) {
  char best[BS_SPACE_TEXT] = "";
  const int found = isfinite(t->found.best_seconds) && t->found.n > 0;
  if (found) bs_space_text(&t->space, t->found.best, best, sizeof best);
  json_t *row =
      json_pack("{s:s,s:I,s:I,s:I,s:s,s:s,s:s}", "provider", provider, "points", (json_int_t)t->allowed,
                "seen", (json_int_t)t->found.n, "refused", (json_int_t)json_array_size(t->refused), "default",
                t->standard, "best", best, "end", stopped ? "stopped" : bs_search_end_names[t->found.end]);
  if (found) json_object_set_new(row, "seconds", json_real(t->found.best_seconds));
  return row;
}

static json_t *report_of(const tuning *t, int stopped) {
  char provider[80], choice[BS_SPACE_TEXT + 100] = "", config[BS_SPACE_TEXT];
  size_t best = 0;
  const int found = bs_searched_elite(&t->found, 1, &best) == 1;
  const double best_s = found ? t->found.rows[best].seconds : 0;
  snprintf(provider, sizeof provider, "sim:%s", t->device->name);
  if (found)
    snprintf(choice, sizeof choice, "%s{%s}", provider,
             bs_space_text(&t->space, t->found.rows[best].point, config, sizeof config));
  json_t *out = json_pack(
      "{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:I,s:I,s:f,s:[o],s:o,s:O}", "problem", t->op, "device", t->device->name,
      "label", t->device->label, "origin", stopped ? "stopped" : "simulated", "choice", choice, "default",
      t->standard, "strategy", bs_strategy_names[t->o->strategy], "simulated", (json_int_t)t->simulated,
      "refused", (json_int_t)json_array_size(t->refused), "spent_s", bs_clock_s() - t->began, "spaces",
      space_of(t, provider, stopped), "elite", elite_of(t, provider), "refused_points", t->refused);
  if (out == NULL || t->standard[0] == '\0') return out;
  json_object_set_new(out, "default_s", json_real(t->standard_s));
  if (found) json_object_set_new(out, "ratio", json_real(t->standard_s / best_s));
  return out;
}

int32_t bs_inside_tune_run(const sim_device *device, const bs_inside_tune *o, json_t **out, bs_error *err) {
  tuning *t = calloc(1, sizeof *t);
  *out = NULL;
  if (t == NULL) return bs_no_memory(err, "a search");
  *t = (tuning){.device = device, .o = o, .began = bs_clock_s(), .first = BS_ERROR_INIT};
  t->found.best_seconds = INFINITY;
  t->refused = json_array();
  int32_t rc = t->refused != NULL ? make_space(t, err) : bs_no_memory(err, "a search");
  if (rc == BS_OK) rc = simulate_standard(t, err);
  if (rc == BS_OK) rc = search(t, err);
  if (rc == BS_OK || rc == BS_ABORTED) *out = report_of(t, rc == BS_ABORTED);
  if (rc == BS_OK && *out == NULL) rc = bs_no_memory(err, "a report");
  bs_searched_free(&t->found);
  json_decref(t->refused);
  free(t);
  return rc;
}
