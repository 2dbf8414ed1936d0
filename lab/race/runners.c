/* SPDX-License-Identifier: MIT
 * runners.c - those that serve the problem, each with the space of its knobs and the points that are known of
 * it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/case/ask.h"
#include "lab/error.h"
#include "lab/race/racing.h"

/* ---- the space of one that serves ----------------------------------------------------------- */

static const bs_race_knob *given_values(const bs_race_options *o, const char *name) {
  for (size_t i = 0; i < o->n_knobs; i++)
    if (strcmp(o->knobs[i].name, name) == 0) return &o->knobs[i];
  return NULL;
}

/* Adds numbers of threads up to the team's size: larger ones could only be refused. */
static int32_t add_threads(bs_space *space, const bs_space *all, uint32_t threads, bs_error *err) {
  bs_text values = {0};
  for (uint32_t i = 0; i < all->knob[0].n; i++) {
    int64_t n = 0;
    if (bs_parse_i64(all->knob[0].value[i], &n) && n > threads) continue;
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
    rc = bs_error_set(err, BS_USAGE, "BS-OP-KNOB", "--knob %s: '%s' is not one of its values", name, value);
    bs_error_hint(err, "they are %.150s", bs_tune_text(knob, "values"));
  }
  return rc;
}

/* Applies --where to an implementation: 0, with the reason, if it cannot be evaluated or allows no point. */
static int may_be_searched(runner *run, bs_error *why) {
  const char *where = run->race->o->where;
  run->allowed = run->space->size;
  if (where == NULL) return 1;
  if (bs_space_limit(run->space, where, why) != BS_OK) return 0;
  run->allowed = bs_space_count(run->space);
  if (run->allowed > 0) return 1;
  bs_error_set(why, BS_CONFIG, "BS-KNOB-SPACE", "--where '%.200s' leaves none of the %llu points of %s",
               where, (unsigned long long)run->space->size, run->name);
  return 0;
}

/* "auto" is not a point: the plan reports the value that it stands for. */
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
  return rc;
}

/* Sets the start of the search and the place of the default. Returns whether --start is a point of this
 * space; if not, the search starts at the default, and out_why gives the reason. */
static int place_start(runner *run, const char *start, char *out_why, size_t size) {
  run->standard = bs_space_nearest(run->space, run->echo, &run->standard_exact);
  run->standard_exact = run->standard_exact && bs_space_allows(run->space, run->standard);
  run->start = run->standard;
  if (start == NULL) return 1;
  bs_space_why(run->space, start, out_why, size);
  if (out_why[0] == '\0' && bs_space_find(run->space, start, &run->start) &&
      bs_space_allows(run->space, run->start))
    return 1;
  if (out_why[0] == '\0') snprintf(out_why, size, "--where refuses it");
  run->start = run->standard;
  return 0;
}

static int32_t open_history(runner *run, const json_t *provider, bs_error *err) {
  const race *r = run->race;
  const json_t *candidate = bs_tune_row(json_object_get(r->asked, "candidates"), run->name);
  const bs_history_key key = {.problem = r->o->problem,
                              .provider = run->name,
                              .plugin = bs_tune_text(provider, "plugin"),
                              .how = bs_tune_text(candidate, "how"),
                              .backend = r->o->backend != NULL ? r->o->backend : "cpu",
                              .regime = "hot",
                              .threads = r->o->threads,
                              .machine = r->cache.machine,
                              .settings = r->settings,
                              .space = run->space};
  return bs_history_open(r->o->points_path, &key, &run->history, err);
}

/* Adds one of the probe's rows. *why: the reason if it is left out, which is not an error as long as another
 * one is there. */
static int32_t add_runner(race *r, const json_t *provider, bs_error *why, bs_error *err) {
  runner *run = &r->run[r->n];
  char text[400];
  *run = (runner){.race = r,
                  .name = bs_tune_text(provider, "name"),
                  .echo = bs_tune_text(provider, "echo"),
                  .space = &run->of};
  if (bs_tune_text(provider, "failed")[0] != '\0') {
    snprintf(text, sizeof text, "%s does not run: %.300s", run->name, bs_tune_text(provider, "failed"));
    race_note(r, text);
    return BS_OK;
  }
  int32_t rc = make_space(run, provider, err);
  if (rc != BS_OK) return rc;
  if (!may_be_searched(run, why)) {
    if (why->code == BS_USAGE && err != NULL) *err = *why; /* a usage error is the same for every runner */
    if (why->code == BS_USAGE) return BS_USAGE;
    snprintf(text, sizeof text, "%s is left out: %.300s", run->name, why->message);
    race_note(r, text);
    return BS_OK;
  }
  r->n++; /* from here on it is closed, also when it failed */
  return open_history(run, provider, err);
}

/* Refuses an unknown knob with the nearest of all knobs of the serving implementations. */
static int32_t unknown_knob(const race *r, const json_t *providers, const char *name, bs_error *err) {
  const char *known[64];
  size_t n = 0, i, k;
  const json_t *p, *knob;
  json_array_foreach(providers, i, p) {
    if (r->o->provider != NULL && strcmp(r->o->provider, bs_tune_text(p, "name")) != 0) continue;
    json_array_foreach(json_object_get(p, "knobs"), k, knob) {
      if (n < sizeof known / sizeof known[0]) known[n++] = bs_tune_text(knob, "name");
    }
  }
  const char *near = bs_nearest(name, known, n);
  bs_error_set(err, BS_USAGE, "BS-OP-KNOB", "--knob %s: no implementation that serves has this knob", name);
  if (near != NULL)
    bs_error_hint(err, "did you mean '%s'?", near);
  else
    bs_error_hint(err, "bsrun plugins knobs lists all");
  return BS_USAGE;
}

/* Each --knob is one of somebody who serves. */
static int32_t check_knobs(const race *r, const json_t *providers, bs_error *err) {
  for (size_t k = 0; k < r->o->n_knobs; k++) {
    const char *name = r->o->knobs[k].name;
    size_t i;
    const json_t *p;
    int known = 0;
    json_array_foreach(providers, i, p) {
      if (r->o->provider == NULL || strcmp(r->o->provider, bs_tune_text(p, "name")) == 0)
        known |= bs_tune_row(json_object_get(p, "knobs"), name) != NULL;
    }
    if (!known) return unknown_knob(r, providers, name, err);
  }
  return BS_OK;
}

static int32_t check_provider(const race *r, const json_t *providers, bs_error *err) {
  const char *name = r->o->provider;
  if (name != NULL ? bs_tune_row(providers, name) != NULL : json_array_size(providers) > 0) return BS_OK;
  bs_error_set(err, name != NULL ? BS_CONFIG : BS_UNAVAILABLE, "BS-TUNE-PROVIDER", "%s %s %s",
               name != NULL ? name : "no implementation", name != NULL ? "does not serve" : "serves",
               r->o->problem);
  bs_error_hint(err, "bsrun explain lists the implementations that serve");
  return name != NULL ? BS_CONFIG : BS_UNAVAILABLE;
}

/* --start must be a point of at least one of them; the others begin at their default. */
static int32_t place_starts(race *r, bs_error *err) {
  char why[200] = "", first[200] = "";
  int placed = 0;
  for (size_t i = 0; i < r->n; i++) {
    placed |= place_start(&r->run[i], r->o->start, why, sizeof why);
    if (first[0] == '\0') snprintf(first, sizeof first, "%s: %.150s", r->run[i].name, why);
  }
  if (placed) return BS_OK;
  bs_error_set(err, BS_USAGE, "BS-TUNE-START", "--start '%.200s' is no point of %s", r->o->start, first);
  bs_error_hint(err, "the default is %.200s", r->run[0].echo);
  return BS_USAGE;
}

int32_t race_open_runners(race *r, bs_error *err) {
  const json_t *providers = json_object_get(r->asked, "providers"), *p;
  size_t i;
  bs_error why = BS_ERROR_INIT;
  r->run = calloc(json_array_size(providers) + 1, sizeof *r->run);
  if (r->run == NULL) return bs_no_memory(err, "the search");
  int32_t rc = check_provider(r, providers, err);
  if (rc == BS_OK) rc = check_knobs(r, providers, err);
  json_array_foreach(providers, i, p) {
    if (rc == BS_OK && (r->o->provider == NULL || strcmp(r->o->provider, bs_tune_text(p, "name")) == 0))
      rc = add_runner(r, p, &why, err);
  }
  if (rc == BS_OK && r->n == 0 && why.code != BS_OK) {
    *err = why;
    rc = why.code;
  } else if (rc == BS_OK && r->n == 0) {
    rc = bs_error_set(err, BS_UNAVAILABLE, "BS-TUNE-PROVIDER",
                      "no implementation that serves %s can run: see the notes above", r->o->problem);
  }
  return rc == BS_OK ? place_starts(r, err) : rc;
}

void race_close_runners(race *r) {
  for (size_t i = 0; i < r->n; i++) {
    bs_history_close(&r->run[i].history);
    bs_searched_free(&r->run[i].found);
  }
  free(r->run);
  r->run = NULL;
  r->n = 0;
}
