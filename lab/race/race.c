/* SPDX-License-Identifier: MIT
 * race.c - see race.h: asks who serves, searches each one's space, and lets the fastest meet the default. */
#include "lab/race/race.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/text.h"
#include "lab/case/ask.h"
#include "lab/error.h"
#include "lab/race/racing.h"
#include "lab/store/env.h"

/* ---- words ---------------------------------------------------------------------------------- */

static void note(const race *r, const char *text) {
  if (r->o->note != NULL) r->o->note(r->o->user, text);
}

/* Before a measurement: what it is, and how long the rest takes as the ones before did. */
static void tell(race *r, const char *what) {
  const bs_race_options *o = r->o;
  if (o->progress == NULL) return;
  const double spent = bs_clock_s() - r->began;
  double left =
      r->most > 0 && r->measured > 0
          ? spent / (double)r->measured * (double)(r->most > r->measured ? r->most - r->measured : 0)
          : 0.0;
  if (o->seconds > 0 && (left == 0.0 || left > o->seconds - spent)) left = fmax(0.0, o->seconds - spent);
  o->progress(o->user, what, r->measured, r->most, left + o->pair_seconds);
}

/* ---- one point of a search ------------------------------------------------------------------ */

static double now_of(void *user) {
  (void)user;
  return bs_clock_s();
}

static int known_point(void *user, uint64_t point, double *out) {
  runner *run = user;
  const json_t *entry = run->race->o->anew ? NULL : bs_history_find(&run->history, point);
  if (entry == NULL) return 0;
  *out = bs_history_seconds(entry);
  run->race->known++;
  return 1;
}

/* Two points that say the same of themselves are one binary under two names: the knob does not reach it. */
static void refuse_twin(const runner *run, uint64_t point, json_t *answer) {
  const char *echo = bs_tune_text(answer, "echo"), *build = bs_tune_text(answer, "build");
  size_t i;
  const json_t *e;
  for (i = 0; i < json_array_size(run->history.lines.entries); i++) {
    uint64_t other = 0;
    char cause[320];
    e = json_array_get(run->history.lines.entries, i);
    if (!bs_space_find(run->space, bs_tune_text(e, "config"), &other) || other == point) continue;
    if (strcmp(bs_tune_text(e, "verdict"), "ok") != 0 || strcmp(bs_tune_text(e, "build"), build) != 0)
      continue;
    const char *knob = NULL;
    for (uint32_t k = 0; k < run->space->n && knob == NULL; k++)
      if (run->of_build[k] && bs_space_place(run->space, point, k) != bs_space_place(run->space, other, k))
        knob = run->space->knob[k].name;
    if (strcmp(bs_tune_text(e, "echo"), echo) != 0 && (knob == NULL || build[0] == '\0')) continue;
    if (knob != NULL)
      snprintf(cause, sizeof cause,
               "it runs build %.12s as %.120s does: knob %.31s does not reach the binary", build,
               bs_tune_text(e, "config"), knob);
    else
      snprintf(cause, sizeof cause, "its plan says the same as that of %.120s: %.120s",
               bs_tune_text(e, "config"), echo);
    json_object_set_new(answer, "verdict", json_string(bs_verdict_names[BS_VERDICT_REFUSED]));
    json_object_set_new(answer, "cause", bs_env_string(cause));
    return;
  }
}

static int32_t measure_point(void *user, uint64_t point, uint32_t effort, double *out, bs_error *err) {
  runner *run = user;
  race *r = run->race;
  char config[BS_SPACE_TEXT];
  json_t *answer = NULL;
  bs_space_text(run->space, point, config, sizeof config);
  tell(r, config);
  int32_t rc = race_ask_point(r, run->name, config, effort, &answer, err);
  if (rc != BS_OK) return rc;
  r->measured++;
  if (strcmp(bs_tune_text(answer, "verdict"), "ok") == 0) refuse_twin(run, point, answer);
  json_object_set_new(answer, "effort", json_integer((json_int_t)effort));
  *out = bs_history_seconds(answer);
  if (isinf(*out)) {
    r->bad++;
    snprintf(r->cause, sizeof r->cause, "%s", bs_tune_text(answer, "cause"));
  }
  return bs_history_add(&run->history, point, answer, err);
}

/* ---- the space of one that serves ----------------------------------------------------------- */

static const bs_race_knob *given_values(const bs_race_options *o, const char *name) {
  for (size_t i = 0; i < o->n_knobs; i++)
    if (strcmp(o->knobs[i].name, name) == 0) return &o->knobs[i];
  return NULL;
}

/* More members than the team has can only be refused: they are no points. */
static int32_t add_threads(bs_space *space, const bs_space *all, uint32_t threads, bs_error *err) {
  bs_text values = {0};
  for (uint32_t i = 0; i < all->knob[0].n; i++) {
    int64_t n = 0;
    if (bs_parse_i64(all->knob[0].value[i], 0, &n) && n > threads) continue;
    bs_text_printf(&values, "%s%s", values.size > 0 ? "," : "", all->knob[0].value[i]);
  }
  const int32_t rc = values.failed     ? bs_no_memory(err, "a space")
                     : values.size > 0 ? bs_space_add(space, "threads", values.data, "auto", err)
                                       : BS_OK;
  bs_text_free(&values);
  return rc;
}

/* The values that --knob leaves are some of the declared ones. */
static int32_t add_knob(bs_space *space, const json_t *knob, const bs_race_knob *given, uint32_t threads,
                        bs_error *err) {
  const char *name = bs_tune_text(knob, "name"), *standard = bs_tune_text(knob, "standard");
  bs_space all;
  bs_space_init(&all);
  int32_t rc = bs_space_add(&all, name, bs_tune_text(knob, "values"), standard, err);
  if (rc == BS_OK && given == NULL && strcmp(name, "threads") == 0)
    return add_threads(space, &all, threads, err);
  if (rc != BS_OK || given == NULL)
    return rc == BS_OK ? bs_space_add(space, name, bs_tune_text(knob, "values"), standard, err) : rc;
  rc = bs_space_add(space, name, given->values, "auto", err);
  for (uint32_t i = 0; rc == BS_OK && i < space->knob[space->n - 1].n; i++) {
    const char *value = space->knob[space->n - 1].value[i];
    uint32_t at = 0;
    while (at < all.knob[0].n && strcmp(all.knob[0].value[at], value) != 0) at++;
    if (at < all.knob[0].n) continue;
    rc = bs_error_set(err, BS_USAGE, "BS-OP-KNOB", "--knob %s: '%s' is none of its values", name, value);
    bs_error_hint(err, "they are %.150s", bs_tune_text(knob, "values"));
  }
  return rc;
}

/* "auto" is no point: the plan says what it stands for, and that is one. */
static int32_t make_space(runner *run, const json_t *provider, bs_error *err) {
  const bs_race_options *o = run->race->o;
  size_t i;
  const json_t *knob;
  int32_t rc = BS_OK;
  bs_space_init(run->space);
  json_array_foreach(json_object_get(provider, "knobs"), i, knob) {
    const bs_race_knob *given = given_values(o, bs_tune_text(knob, "name"));
    const uint32_t before = run->space->n;
    if (rc == BS_OK) rc = add_knob(run->space, knob, given, o->threads, err);
    if (rc == BS_OK && run->space->n > before)
      run->of_build[before] = json_is_true(json_object_get(knob, "build"));
  }
  if (rc == BS_OK && o->where != NULL && run->space->n > 0) rc = bs_space_limit(run->space, o->where, err);
  int exact = 0;
  const char *echo = bs_tune_text(provider, "echo");
  run->start = bs_space_nearest(run->space, o->start != NULL ? o->start : echo, &exact);
  run->standard = bs_space_nearest(run->space, echo, &run->standard_exact);
  if (rc == BS_OK && o->start != NULL && !exact && o->provider != NULL)
    rc = bs_error_set(err, BS_USAGE, "BS-TUNE-START", "--start '%s' is no point: %.200s", o->start, echo);
  return rc;
}

static int32_t open_runner(race *r, const json_t *provider, runner *run, bs_error *err) {
  *run = (runner){.race = r, .name = bs_tune_text(provider, "name"), .space = &run->of};
  const int32_t rc = make_space(run, provider, err);
  if (rc != BS_OK) return rc;
  const bs_history_key key = {.problem = r->o->problem,
                              .provider = run->name,
                              .plugin = bs_tune_text(provider, "plugin"),
                              .regime = "hot",
                              .threads = r->o->threads,
                              .machine = r->cache.machine,
                              .space = run->space};
  return bs_history_open(r->o->points_path, &key, &run->history, err);
}

static void close_runner(runner *run) {
  bs_history_close(&run->history);
  bs_searched_free(&run->found);
}

/* ---- searching ------------------------------------------------------------------------------ */

static bs_search search_of(race *r, runner *run, double share) {
  const bs_race_options *o = r->o;
  const double points = ceil(share * (double)o->points);
  return (bs_search){.strategy = o->strategy,
                     .survivors = o->survivors,
                     .finalists = o->finalists,
                     .seed = o->seed,
                     .start = run->start,
                     .points = o->points > 0 ? (uint64_t)fmax(1.0, points) : 0,
                     .seconds = o->seconds > 0 ? share * o->seconds : 0,
                     .user = run,
                     .now = now_of,
                     .measure = measure_point,
                     .known = known_point};
}

/* What is expected: of strategies that know no end of their own, the most. */
static void plan(race *r) {
  uint64_t all = 0;
  for (size_t i = 0; i < r->n; i++) all += r->run[i].of.size;
  for (size_t i = 0; i < r->n; i++) {
    r->run[i].share = (double)r->run[i].of.size / (double)(all > 0 ? all : 1);
    const bs_search s = search_of(r, &r->run[i], r->run[i].share);
    r->most += bs_search_points(&s, &r->run[i].of);
  }
}

static int32_t search_all(race *r, bs_error *err) {
  int32_t rc = BS_OK;
  plan(r);
  for (size_t i = 0; i < r->n && rc == BS_OK; i++) {
    runner *run = &r->run[i];
    const bs_search s = search_of(r, run, run->share);
    rc = bs_search_run(run->space, &s, &run->found, err);
    if (rc == BS_OK && (r->best == NULL || run->found.best_seconds < r->best->found.best_seconds))
      r->best = run;
  }
  if (rc == BS_OK && (r->best == NULL || !isfinite(r->best->found.best_seconds))) {
    rc = bs_error_set(
        err, BS_UNSUPPORTED, "BS-TUNE-NONE", "none of %llu candidates could be timed; the last: %s",
        (unsigned long long)(r->measured + r->known), r->cause[0] != '\0' ? r->cause : "failed before");
    bs_error_hint(err, "the file of points has all causes (--points FILE); --anew tries them again");
  }
  return rc;
}

/* ---- against the default -------------------------------------------------------------------- */

/* The default's own point, or an implementation without knobs that is the default: nothing to compare. */
static int is_default(const race *r) {
  return strcmp(r->best->name, r->standard) == 0 &&
         (r->best->space->n == 0 || (r->best->standard_exact && r->best->found.best == r->best->standard));
}

static int32_t meet_default(race *r, bs_error *err) {
  char config[BS_SPACE_TEXT];
  bs_space_text(r->best->space, r->best->found.best, config, sizeof config);
  snprintf(r->choice, sizeof r->choice, r->best->space->n > 0 ? "%s{%s}" : "%s%s", r->best->name, config);
  if (is_default(r)) {
    snprintf(r->choice, sizeof r->choice, "%s", r->standard);
    return BS_OK;
  }
  tell(r, "pairs with the default");
  json_t *answer = NULL;
  const int32_t rc = race_ask_pairs(r, r->best->name, config, &answer, err);
  if (rc != BS_OK) return rc;
  r->result = json_incref(json_object_get(answer, "result"));
  if (!json_is_true(json_object_get(answer, "wins")))
    snprintf(r->choice, sizeof r->choice, "%s", r->standard);
  json_decref(answer);
  return BS_OK;
}

/* The id of the code that the choice runs. */
static const char *build_of_choice(const race *r) {
  if (strcmp(r->choice, r->standard) != 0)
    return bs_tune_text(bs_history_find(&r->best->history, r->best->found.best), "build");
  return bs_tune_text(bs_tune_row(json_object_get(r->asked, "providers"), r->standard), "build");
}

/* One line of the tuning file, as lab/tune reads it. */
static int32_t keep(race *r, bs_error *err) {
  char config[BS_SPACE_TEXT];
  json_t *results = r->result != NULL ? json_pack("[O]", r->result) : json_array();
  json_t *row = json_array_get(results, 0); /* named as the candidate is */
  if (row != NULL)
    json_object_set_new(
        row, "knobs", json_string(bs_space_text(r->best->space, r->best->found.best, config, sizeof config)));
  json_t *entry = bs_tune_entry(&r->cache, r->asked, r->choice, results);
  json_decref(results);
  if (entry == NULL) return bs_no_memory(err, "the tuning");
  json_object_set_new(entry, "judged", json_true());
  json_object_set_new(entry, "build", json_string(build_of_choice(r)));
  json_object_set_new(entry, "problem", json_string(r->o->problem));
  json_object_set_new(entry, "strategy", json_string(bs_strategy_names[r->o->strategy]));
  json_object_set_new(entry, "points", json_integer((json_int_t)(r->measured + r->known)));
  const int32_t rc = bs_lines_append(&r->cache.lines, entry, err);
  json_decref(entry);
  return rc;
}

/* ---- the report ----------------------------------------------------------------------------- */

static json_t *space_json(const runner *run) {
  char best[BS_SPACE_TEXT] = "", standard[BS_SPACE_TEXT] = "";
  uint64_t failed = 0;
  const int found = isfinite(run->found.best_seconds) && run->found.n > 0;
  for (size_t i = 0; i < run->found.n; i++) failed += isinf(run->found.rows[i].seconds) != 0;
  if (found) bs_space_text(run->space, run->found.best, best, sizeof best);
  bs_space_text(run->space, run->standard, standard, sizeof standard);
  json_t *row = json_pack("{s:s,s:I,s:I,s:I,s:s,s:s,s:s}", "provider", run->name, "points",
                          (json_int_t)run->space->size, "measured", (json_int_t)run->found.measured, "failed",
                          (json_int_t)failed, "default", standard, "best", best, "end",
                          bs_search_end_names[run->found.end]);
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

static json_t *report(const race *r, const char *origin) {
  json_t *spaces = json_array(), *elite = json_array();
  for (size_t i = 0; i < r->n; i++) json_array_append_new(spaces, space_json(&r->run[i]));
  add_elite(r, elite);
  json_t *out =
      json_pack("{s:s,s:s,s:s,s:s,s:s,s:i,s:s,s:I,s:I,s:I,s:o,s:o}", "problem", r->o->problem, "key", r->key,
                "choice", r->choice, "default", r->standard, "origin", origin, "threads", (int)r->o->threads,
                "strategy", bs_strategy_names[r->o->strategy], "measured", (json_int_t)r->measured, "known",
                (json_int_t)r->known, "failed", (json_int_t)r->bad, "spaces", spaces, "elite", elite);
  if (out == NULL) return NULL;
  json_object_set_new(out, "spent_s", json_real(bs_clock_s() - r->began));
  const json_t *again = json_object_get(r->result, "again"), *look = again != NULL ? again : r->result;
  static const char *const keys[] = {"word", "ratio", "low", "high", "pairs", "seconds", "default_seconds"};
  for (size_t i = 0; look != NULL && i < sizeof keys / sizeof keys[0]; i++)
    if (json_object_get(look, keys[i]) != NULL) json_object_set(out, keys[i], json_object_get(look, keys[i]));
  return out;
}

/* What the tuning file knows: as a report without points. */
static json_t *stored_report(const race *r, const json_t *entry) {
  json_t *out = report(r, "stored");
  size_t i;
  const json_t *c;
  if (out == NULL) return NULL;
  json_object_set(out, "choice", json_object_get(entry, "choice"));
  json_object_set(out, "measured_at", json_object_get(entry, "measured_at"));
  json_array_foreach(json_object_get(entry, "candidates"), i, c) {
    const json_t *again = json_object_get(c, "again"), *look = again != NULL ? again : c;
    static const char *const keys[] = {"word", "ratio", "low", "high", "pairs", "seconds", "default_seconds"};
    for (size_t k = 0; json_object_get(look, "word") != NULL && k < sizeof keys / sizeof keys[0]; k++)
      json_object_set(out, keys[k], json_object_get(look, keys[k]));
  }
  return out;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static int32_t open_runners(race *r, const json_t *providers, bs_error *err) {
  size_t i;
  const json_t *p;
  int32_t rc = BS_OK;
  r->run = calloc(json_array_size(providers) + 1, sizeof *r->run);
  if (r->run == NULL) return bs_no_memory(err, "the search");
  json_array_foreach(providers, i, p) {
    char text[400];
    if (rc != BS_OK || (r->o->provider != NULL && strcmp(r->o->provider, bs_tune_text(p, "name")) != 0))
      continue;
    if (bs_tune_text(p, "failed")[0] != '\0') {
      snprintf(text, sizeof text, "%s does not run: %.300s", bs_tune_text(p, "name"),
               bs_tune_text(p, "failed"));
      note(r, text);
      continue;
    }
    rc = open_runner(r, p, &r->run[r->n], err);
    r->n++; /* to be closed also when it failed */
  }
  for (size_t k = 0; k < r->o->n_knobs && rc == BS_OK; k++) {
    int known = 0;
    for (size_t j = 0; j < r->n; j++)
      for (uint32_t q = 0; q < r->run[j].of.n; q++)
        known |= strcmp(r->run[j].of.knob[q].name, r->o->knobs[k].name) == 0;
    if (!known)
      rc = bs_error_set(err, BS_USAGE, "BS-OP-KNOB", "--knob %s: nobody who serves has this knob",
                        r->o->knobs[k].name);
  }
  if (rc == BS_OK && r->n == 0) {
    rc = bs_error_set(err, BS_USAGE, "BS-TUNE-PROVIDER", "%s does not serve %s",
                      r->o->provider != NULL ? r->o->provider : "nobody", r->o->problem);
    bs_error_hint(err, "who serves: bsrun explain");
  }
  return rc;
}

/* One point alone, of which not all knobs must be given. */
static int32_t run_point(race *r, json_t **out, bs_error *err) {
  const char *name = r->o->provider != NULL ? r->o->provider : r->standard;
  json_t *answer = NULL, *pairs = NULL;
  tell(r, r->o->point);
  int32_t rc = race_ask_point(r, name, r->o->point, 0, &answer, err);
  if (rc != BS_OK) return rc;
  r->measured = 1;
  if (strcmp(bs_tune_text(answer, "verdict"), "ok") != 0) {
    const int wrong = strcmp(bs_tune_text(answer, "verdict"), "wrong") == 0;
    rc = bs_error_set(err, wrong ? BS_NUMERIC : BS_UNSUPPORTED, "BS-TUNE-POINT", "%s: %s: %.300s",
                      r->o->point, bs_tune_text(answer, "verdict"), bs_tune_text(answer, "cause"));
  } else {
    rc = race_ask_pairs(r, name, r->o->point, &pairs, err);
    r->result = json_incref(json_object_get(pairs, "result"));
    if (json_is_true(json_object_get(pairs, "wins")))
      snprintf(r->choice, sizeof r->choice, "%s{%s}", name, r->o->point);
  }
  json_decref(answer);
  json_decref(pairs);
  if (rc != BS_OK) return rc;
  *out = report(r, "measured");
  return *out != NULL ? BS_OK : bs_no_memory(err, "a report");
}

static int32_t run_search(race *r, json_t **out, bs_error *err) {
  int32_t rc = search_all(r, err);
  if (rc == BS_OK) rc = meet_default(r, err);
  if (rc == BS_OK) rc = keep(r, err);
  if (rc == BS_OK || r->number != 0) *out = report(r, "measured");
  return rc == BS_OK && *out == NULL ? bs_no_memory(err, "a report") : rc;
}

static int32_t run_race(race *r, json_t **out, bs_error *err) {
  json_t *answer = NULL;
  int32_t rc = race_ask_probe(r, &answer, err);
  if (rc != BS_OK) return rc;
  r->key = bs_tune_text(answer, "key");
  r->standard = bs_tune_text(answer, "default");
  r->asked = answer; /* with the candidates */
  snprintf(r->choice, sizeof r->choice, "%s", r->standard);
  const json_t *entry = r->o->anew ? NULL : bs_tune_cache_find(&r->cache, answer);
  if (r->o->point != NULL) {
    rc = run_point(r, out, err);
  } else if (entry != NULL && !r->o->go_on) {
    *out = stored_report(r, entry);
    rc = *out != NULL ? BS_OK : bs_no_memory(err, "a report");
  } else if (r->o->cache_only) {
    rc = bs_error_set(err, BS_NOT_FOUND, "BS-TUNE-UNKNOWN", "no choice is stored for %s", r->key);
    bs_error_hint(err, "bsrun tune '%s' measures one", r->o->problem);
  } else {
    rc = open_runners(r, json_object_get(answer, "providers"), err);
    if (rc == BS_OK) rc = run_search(r, out, err);
  }
  for (size_t i = 0; i < r->n; i++) close_runner(&r->run[i]);
  free(r->run);
  json_decref(answer);
  return rc;
}

int32_t bs_race_run(const bs_race_options *o, json_t **out, int *out_signal, bs_error *err) {
  race r = {.o = o, .began = bs_clock_s()};
  *out = NULL;
  int32_t rc = bs_tune_cache_open(o->tune_path, &r.cache, err);
  if (rc == BS_OK) rc = run_race(&r, out, err);
  json_decref(r.result);
  bs_tune_cache_close(&r.cache);
  *out_signal = r.number;
  return rc;
}
