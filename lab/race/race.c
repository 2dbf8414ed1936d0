/* SPDX-License-Identifier: MIT
 * race.c - see race.h: finds the implementations that serve, searches each one's space, and compares the
 * fastest with the default. */
#include "lab/race/race.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "lab/case/ask.h"
#include "lab/error.h"
#include "lab/race/racing.h"
#include "lab/store/env.h"
#include "lab/yaml/config.h"

/* ---- words ---------------------------------------------------------------------------------- */

void race_note(const race *r, const char *text) {
  if (r->o->note != NULL) r->o->note(r->o->user, text);
}

/* Reports before a measurement its name and the remaining time, estimated from the earlier ones. */
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

/* Two points with the same echo are one binary under two names: the knob has no effect on the code. */
static void refuse_twin(const runner *run, uint64_t point, json_t *answer) {
  const char *echo = bs_tune_text(answer, "echo"), *build = bs_tune_text(answer, "build");
  for (size_t i = 0; i < run->history.n; i++) {
    const uint64_t other = run->history.point[i];
    char cause[320];
    const json_t *e = json_array_get(run->history.lines.entries, i);
    if (other == point) continue;
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

/* The file of points cannot be written: the user is told once, and the search goes on without it. */
static void keep_no_points(race *r, const bs_error *why) {
  char text[1024];
  snprintf(text, sizeof text, "[%s] %s; the measured points are not kept: %s", why->id, why->message,
           why->hint);
  if (r->o->warn != NULL) r->o->warn(r->o->user, text);
  for (size_t i = 0; i < r->n; i++) bs_lines_forget_path(&r->run[i].history.lines);
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
    r->refused += strcmp(bs_tune_text(answer, "verdict"), bs_verdict_names[BS_VERDICT_REFUSED]) == 0;
    snprintf(r->cause, sizeof r->cause, "%s", bs_tune_text(answer, "cause"));
  }
  bs_error why = BS_ERROR_INIT;
  rc = bs_history_add(&run->history, point, answer, &why);
  if (rc == BS_IO) {
    keep_no_points(r, &why);
    return BS_OK;
  }
  if (rc != BS_OK && err != NULL) *err = why;
  return rc;
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

/* Estimates the number of measurements; for strategies without a fixed end this is their limit. */
static void plan(race *r) {
  uint64_t all = 0;
  for (size_t i = 0; i < r->n; i++) all += r->run[i].allowed;
  for (size_t i = 0; i < r->n; i++) {
    r->run[i].share = (double)r->run[i].allowed / (double)(all > 0 ? all : 1);
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
    bs_error_hint(err, "the file of points has all causes (--points FILE); --stored anew tries them again");
  }
  return rc;
}

/* ---- against the default -------------------------------------------------------------------- */

/* Is it the default's own point, or a default without knobs? Then there is nothing to compare. */
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
  if (json_object_size(r->restriction) > 0) json_object_set(entry, "restriction", r->restriction);
  json_object_set_new(entry, "strategy", json_string(bs_strategy_names[r->o->strategy]));
  json_object_set_new(entry, "points", json_integer((json_int_t)(r->measured + r->known)));
  bs_error why = BS_ERROR_INIT;
  const int32_t rc = bs_lines_append(&r->cache.lines, entry, &why);
  json_decref(entry);
  if (rc == BS_OK) return rc;
  bs_error_set(err, rc, why.id, rc == BS_IO ? "%s; the choice is not kept" : "%s", why.message);
  bs_error_hint(err, "%s", why.hint);
  return rc;
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* Runs one point, for which some knobs may be left out. */
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
  *out = race_report(r, "measured");
  return *out != NULL ? BS_OK : bs_no_memory(err, "a report");
}

static int32_t run_search(race *r, json_t **out, bs_error *err) {
  int32_t rc = search_all(r, err);
  if (rc == BS_OK) rc = meet_default(r, err);
  const int made = rc == BS_OK;
  if (made) rc = keep(r, err);
  if (r->number != 0) snprintf(r->choice, sizeof r->choice, "%s", r->standard); /* no choice was made */
  if (made || r->number != 0) *out = race_report(r, r->number != 0 ? "stopped" : "measured");
  return rc == BS_OK && *out == NULL ? bs_no_memory(err, "a report") : rc;
}

/* Measures nothing, but opens a plan: it must be the measured code (gate same_code). */
static int32_t take_stored(race *r, const json_t *entry, json_t **out, bs_error *err) {
  const char *choice = bs_tune_text(entry, "choice");
  json_t *answer = NULL;
  int32_t rc = race_ask_stored(r, choice, bs_tune_text(entry, "build"), &answer, err);
  if (rc == BS_OK && strcmp(bs_tune_text(answer, "verdict"), "ok") != 0)
    rc = bs_error_set(err, BS_NUMERIC, "BS-TUNE-STORED", "the stored choice %.200s: %.300s", choice,
                      bs_tune_text(answer, "cause"));
  json_decref(answer);
  if (rc == BS_CONFIG || rc == BS_NUMERIC) {
    bs_error_where(err, "%s", r->cache.lines.path);
    bs_error_hint(err, "--stored anew measures the problem again");
  }
  if (rc != BS_OK) return rc;
  *out = race_stored_report(r, entry);
  return *out != NULL ? BS_OK : bs_no_memory(err, "a report");
}

/* Takes the answer of the tuning file, or searches. Options are checked before this: an impossible one is an
 * error even if a choice is stored. */
static int32_t run_or_read(race *r, json_t **out, bs_error *err) {
  const json_t *entry = r->o->anew ? NULL : bs_tune_cache_find(&r->cache, r->asked, r->restriction);
  int32_t rc = race_open_runners(r, err);
  if (rc != BS_OK) return rc;
  if (entry != NULL && !r->o->go_on) return take_stored(r, entry, out, err);
  if (!r->o->cache_only) return run_search(r, out, err);
  bs_error_set(err, BS_NOT_FOUND, "BS-TUNE-UNKNOWN", "no choice is stored for %s%s", r->key,
               json_object_size(r->restriction) > 0 ? " under these --provider, --knob, --where" : "");
  bs_error_hint(err, "bsrun tune '%s' measures one", r->o->problem);
  return BS_NOT_FOUND;
}

static int32_t run_race(race *r, json_t **out, bs_error *err) {
  json_t *answer = NULL;
  int32_t rc = race_ask_probe(r, &answer, err);
  if (rc != BS_OK) return rc;
  r->key = bs_tune_text(answer, "key");
  r->standard = bs_tune_text(answer, "default");
  r->asked = answer; /* with the candidates */
  snprintf(r->choice, sizeof r->choice, "%s", r->standard);
  rc = r->o->point != NULL ? run_point(r, out, err) : run_or_read(r, out, err);
  race_close_runners(r);
  json_decref(answer);
  return rc;
}

/* The parameters of plugins in a configuration. */
static int32_t read_settings(const char *config, json_t **out, bs_error *err) {
  bs_node *root = NULL;
  const int32_t rc = bs_config_parse("the configuration", config, strlen(config), &root, err);
  const bs_node *plugins = rc == BS_OK ? bs_config_find(root, "plugins") : NULL;
  *out = json_object();
  for (const bs_node *p = plugins != NULL ? plugins->first : NULL; p != NULL; p = p->next) {
    json_t *of = json_object();
    for (const bs_node *v = p->first; v != NULL; v = v->next)
      if (v->kind == BS_NODE_SCALAR) json_object_set_new(of, v->key, bs_env_string(v->text));
    if (json_object_size(of) > 0)
      json_object_set_new(*out, p->key, of);
    else
      json_decref(of);
  }
  bs_config_free(root);
  return rc == BS_OK && *out == NULL ? bs_no_memory(err, "the parameters of plugins") : rc;
}

/* The restrictions of a search. A choice found with them does not answer a search of everything. */
static json_t *restriction_of(const bs_race_options *o) {
  json_t *out = json_object(), *knobs = json_object();
  for (size_t i = 0; i < o->n_knobs; i++)
    json_object_set_new(knobs, o->knobs[i].name, bs_env_string(o->knobs[i].values));
  if (o->provider != NULL) json_object_set_new(out, "provider", bs_env_string(o->provider));
  if (o->n_knobs > 0) json_object_set(out, "knobs", knobs);
  if (o->where != NULL) json_object_set_new(out, "where", bs_env_string(o->where));
  json_decref(knobs);
  return out;
}

int32_t bs_race_run(const bs_race_options *o, json_t **out, int *out_signal, bs_error *err) {
  race r = {.o = o, .began = bs_clock_s(), .restriction = restriction_of(o)};
  *out = NULL;
  char broken[600];
  int32_t rc = bs_tune_cache_open(o->tune_path, &r.cache, err);
  if (rc == BS_OK && bs_tune_cache_broken(&r.cache, broken, sizeof broken)) race_note(&r, broken);
  if (rc == BS_OK && r.restriction == NULL) rc = bs_no_memory(err, "the options");
  if (rc == BS_OK) rc = read_settings(o->config, &r.settings, err);
  if (rc == BS_OK) rc = run_race(&r, out, err);
  json_decref(r.result);
  json_decref(r.settings);
  json_decref(r.restriction);
  bs_tune_cache_close(&r.cache);
  *out_signal = r.number;
  return rc;
}
