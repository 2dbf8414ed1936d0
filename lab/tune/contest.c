/* SPDX-License-Identifier: MIT
 * contest.c - see contest.h. */
#include "lab/tune/contest.h"

#include <math.h>
#include <string.h>

#include "lab/choose/strategy.h"
#include "lab/error.h"
#include "lab/measure/spacer.h"
#include "lab/store/env.h"
#include "lab/tune/cache.h"

/* A comparison that is closer than the margin is settled by +- 1 %; more pairs would change no choice. */
static const double HALF_WIDTH = 0.01;
static const double WARM_SHARE = 0.2;     /* of a comparison's time, for each arm */
static const double REBUILD_SHARE = 0.25; /* of a comparison's time */
enum { PAIRS_MIN = 12, PAIRS_MAX = 60, PAIRS_MAX_ANEW = 240 };

/* An open arm that remembers that it was the one that failed. */
typedef struct watched {
  bs_sampler_arm inner;
  int open, failed;
} watched;

static int32_t batch(void *user, uint64_t lead, uint64_t n, bs_sample *out, bs_error *err) {
  watched *w = user;
  const int32_t rc = w->inner.batch(w->inner.user, lead, n, out, err);
  w->failed = rc != BS_OK;
  return rc;
}

typedef struct contest {
  const bs_contest *of;
  const bs_sampler_host *host;
  bs_sampler_options options;
  watched standard, other;
  uint32_t index; /* of the other */
  json_t *results;
} contest;

static int32_t open_arm(contest *c, uint32_t index, watched *w, bs_error *err) {
  const int32_t rc = c->of->open(c->of->user, index, &w->inner, err);
  w->open = rc == BS_OK;
  w->failed = rc != BS_OK;
  return rc;
}

static void close_arm(contest *c, uint32_t index, watched *w) {
  if (w->open) c->of->close(c->of->user, index);
  w->open = 0;
}

/* Opens both arms at other addresses, so that the effect of an address is no difference between them. */
static int32_t open_anew(void *user, uint32_t build, bs_error *err) {
  contest *c = user;
  close_arm(c, c->index, &c->other);
  close_arm(c, 0, &c->standard);
  bs_spacer_return_pages();
  int32_t rc = build % 2 == 0 ? open_arm(c, c->index, &c->other, err) : BS_OK;
  if (rc == BS_OK) rc = open_arm(c, 0, &c->standard, err);
  return rc == BS_OK && !c->other.open ? open_arm(c, c->index, &c->other, err) : rc;
}

static json_t *comparison_json(const bs_sampled *s) {
  const bs_comparison *c = &s->arm[1].comparison;
  json_t *row = json_pack("{s:s,s:s,s:f,s:f,s:f,s:i,s:s,s:f,s:f}", "word", bs_comparison_name(c->word),
                          "cause", bs_unclear_name(c->cause), "ratio", c->ratio, "low", c->low, "high",
                          c->high, "pairs", (int)c->pairs, "stopped_by", bs_stop_name(s->stop), "seconds",
                          bs_median(s->arm[0].seconds, s->pairs), "default_seconds",
                          bs_median(s->arm[1].seconds, s->pairs));
  char disturbed[BS_LOOK_SENTENCE];
  if (c->cause == BS_UNCLEAR_DISTURBED)
    json_object_set_new(row, "disturbed",
                        json_string(bs_disturbance_cause(&c->disturbance, disturbed, sizeof disturbed)));
  return row;
}

static json_t *failed_json(const bs_error *why) {
  char text[sizeof why->id + sizeof why->message + 4];
  snprintf(text, sizeof text, "[%s] %s", why->id, why->message);
  json_t *row = json_pack("{s:o}", "failed", bs_env_string(text));
  if (why->code == BS_NO_MEMORY || why->code == BS_DEADLINE) json_object_set_new(row, "passing", json_true());
  return row;
}

const char *bs_contest_passing(const json_t *row, int hurried) {
  const json_t *again = json_object_get(row, "again");
  const json_t *look = again != NULL ? again : row;
  if (json_is_true(json_object_get(look, "passing"))) return bs_tune_text(look, "failed");
  if (json_is_string(json_object_get(look, "disturbed"))) return bs_tune_text(look, "disturbed");
  return hurried && strcmp(bs_tune_text(look, "word"), "UNCLEAR") == 0 &&
                 strcmp(bs_tune_text(look, "stopped_by"), "seconds") == 0
             ? "no clear difference in so little time"
             : NULL;
}

static void used_elsewhere(void *user, bs_process_use *out) {
  const watched *w = user;
  if (w->open && w->inner.elsewhere != NULL) w->inner.elsewhere(w->inner.user, out);
}

static bs_sampler_arm arm_of(watched *w, const char *name) {
  return (bs_sampler_arm){.name = name,
                          .user = w,
                          .batch = batch,
                          .threads = w->inner.threads,
                          .elsewhere = w->inner.elsewhere != NULL ? used_elsewhere : NULL,
                          .configuration = w->inner.configuration};
}

/* An arm against the default, as a search measures a point: its time as a share of the default's, INFINITY
 * when it is not FASTER. Effort 1 is the look again: the first result chose it among others, and is likely to
 * flatter it. */
static int32_t compare(void *user, uint64_t point, uint32_t effort, double *out_share, bs_error *err) {
  contest *c = user;
  const uint32_t index = (uint32_t)point + 1;
  const char *name = c->of->names[index];
  bs_sampler_host host = c->host != NULL ? *c->host : (bs_sampler_host){0};
  bs_sampled *s = NULL;
  bs_error why = BS_ERROR_INIT;
  host.rebuild = c->of->anew ? open_anew : NULL;
  host.build_user = c;
  c->index = index;
  int32_t rc = open_arm(c, index, &c->other, &why);
  if (rc == BS_OK) {
    const bs_sampler_arm arms[] = {arm_of(&c->other, name), arm_of(&c->standard, c->of->names[0])};
    rc = bs_sampler_run(&c->options, &host, arms, 2, &s, &why);
    close_arm(c, index, &c->other);
  }
  if (rc != BS_OK && !c->other.failed) {
    if (err != NULL) *err = why;
    return rc;
  }
  const int32_t stands = c->standard.open ? BS_OK : open_arm(c, 0, &c->standard, err);
  if (stands != BS_OK) return stands; /* arm 0 failed while both were reopened */
  const bs_comparison *found = rc == BS_OK ? &s->arm[1].comparison : NULL;
  json_t *row = rc == BS_OK ? comparison_json(s) : failed_json(&why);
  *out_share = found != NULL && found->word == BS_WORD_FASTER ? 1.0 / found->ratio : INFINITY;
  bs_sampling_free(s);
  if (effort == 0) json_object_set_new(row, "name", json_string(name));
  const int bad = effort == 0 ? json_array_append_new(c->results, row)
                              : json_object_set_new(json_array_get(c->results, point), "again", row);
  return bad == 0 ? BS_OK : bs_no_memory(err, "the tuning");
}

/* The fastest of all that were FASTER, if it is that again. */
static int32_t search(contest *c, uint32_t *out_winner, bs_error *err) {
  const bs_search all = {.strategy = BS_STRATEGY_FULL, .user = c, .measure = compare};
  const bs_space alternatives = {.size = c->of->n - 1};
  bs_searched found;
  double again = INFINITY;
  int32_t rc = bs_search_run(&alternatives, &all, &found, err);
  if (rc == BS_OK && isfinite(found.best_seconds)) rc = compare(c, found.best, 1, &again, err);
  if (rc == BS_OK && isfinite(again)) *out_winner = (uint32_t)found.best + 1;
  bs_searched_free(&found);
  return rc;
}

int32_t bs_contest_run(const bs_contest *of, double seconds, double margin, const bs_sampler_host *host,
                       uint32_t *out_winner, json_t **out_results, bs_error *err) {
  contest c = {.of = of, .host = host, .results = json_array()};
  *out_winner = 0;
  *out_results = NULL;
  if (c.results == NULL) return bs_no_memory(err, "the tuning");
  bs_sampler_defaults(&c.options);
  c.options.pairs_min = PAIRS_MIN;
  c.options.pairs_max = of->anew ? PAIRS_MAX_ANEW : PAIRS_MAX;
  c.options.half_width = HALF_WIDTH;
  c.options.margin = margin;
  c.options.seconds = seconds / of->n; /* n - 1 alternatives and one more look */
  c.options.rebuild_seconds = REBUILD_SHARE * c.options.seconds;
  c.options.warm_seconds = WARM_SHARE * c.options.seconds;
  int32_t rc = open_arm(&c, 0, &c.standard, err);
  if (rc == BS_OK) rc = search(&c, out_winner, err);
  close_arm(&c, 0, &c.standard);
  if (rc == BS_OK)
    *out_results = c.results;
  else
    json_decref(c.results);
  return rc;
}
