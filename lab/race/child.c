/* SPDX-License-Identifier: MIT
 * child.c - one candidate in a separate process. {"do": "probe"} reports who serves and with which knobs,
 * "stored" opens the plan of a stored choice, "point" judges and times one, "pairs" measures two
 * alternately. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/case/ask.h"
#include "lab/choose/history.h"
#include "lab/config/experiment.h"
#include "lab/error.h"
#include "lab/kernel/case.h"
#include "lab/measure/sampler.h"
#include "lab/race/judge.h"
#include "lab/race/race.h"
#include "lab/store/env.h"
#include "lab/tune/contest.h"

static const double WARM_SHARE = 0.4; /* of the seconds of the samples */
enum { SAMPLES = 9, MOST_EFFORT = 6 };

typedef struct child {
  const json_t *input;
  bs_node *config;
  bs_context *context;
  bs_kernel_problem problem;
  bs_kernel_data *data;
} child;

static const char *text_of(const child *c, const char *key) {
  return bs_tune_text(c->input, key);
}

static bs_kernel_setup setup_of(const child *c, const char *provider, const char *knobs) {
  const char *backend = text_of(c, "backend");
  return (bs_kernel_setup){.context = c->context,
                           .problem = &c->problem,
                           .backend = backend[0] != '\0' ? backend : NULL,
                           .provider = provider[0] != '\0' ? provider : NULL,
                           .knobs = knobs,
                           .threads = (uint32_t)json_integer_value(json_object_get(c->input, "threads")),
                           .bind = 1,
                           .data = c->data};
}

static int32_t open_child(child *c, bs_error *err) {
  const char *config = text_of(c, "config");
  const bs_backend *backend = NULL;
  void *state = NULL;
  int32_t rc = bs_config_parse("the configuration", config, strlen(config), &c->config, err);
  if (rc == BS_OK) rc = bs_context_of_config(c->config, BS_LOG_ERROR, NULL, NULL, &c->context, err);
  if (rc == BS_OK && text_of(c, "backend")[0] != '\0')
    rc = bs_find_backend(c->context, text_of(c, "backend"), &backend, &state, err);
  if (rc == BS_OK) rc = bs_kernel_problem_parse(text_of(c, "problem"), &c->problem, err);
  if (rc == BS_OK) rc = bs_kernel_data_make(&c->problem, 1, &c->data, err);
  return rc;
}

static void close_child(child *c) {
  bs_kernel_data_free(c->data);
  if (c->context != NULL) bs_context_close(c->context);
  bs_config_free(c->config);
}

/* ---- probe ---------------------------------------------------------------------------------- */

static json_t *knobs_json(uint32_t n, const bs_knob *const *knobs) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < n; i++)
    json_array_append_new(
        list, json_pack("{s:s,s:s,s:s,s:b}", "name", knobs[i]->name, "values", knobs[i]->values, "standard",
                        knobs[i]->standard, "build", (knobs[i]->flags & BS_KNOB_BUILD) != 0));
  return list;
}

/* The knobs of "cpu:online", as its plugin declares them for the op. */
static int32_t knobs_of(const child *c, const char *provider, json_t **out, bs_error *err) {
  char plugin[64], name[160];
  const size_t length = strcspn(provider, ":");
  const char *backend = text_of(c, "backend");
  snprintf(plugin, sizeof plugin, "%.*s", (int)length, provider);
  snprintf(name, sizeof name, "%s@%s/%s", bs_kernel_problem_op(c->problem.kind),
           backend[0] != '\0' ? backend : "cpu", provider + length + (provider[length] == ':'));
  for (uint32_t i = 0; i < bs_thing_count(c->context, plugin); i++) {
    bs_thing_info info = {.struct_size = sizeof info};
    const int32_t rc = bs_thing_get(c->context, plugin, i, &info, err);
    if (rc != BS_OK) return rc;
    if (strcmp(info.name, name) != 0) continue;
    *out = knobs_json(info.n_knobs, info.knobs);
    return *out != NULL ? BS_OK : bs_no_memory(err, "knobs");
  }
  *out = json_array();
  return BS_OK;
}

/* Adds an implementation that serves: its knobs, and the echo of its plan without any. */
static int32_t probe_provider(child *c, const json_t *candidate, json_t *list, bs_error *err) {
  const char *name = bs_tune_text(candidate, "name");
  bs_kernel_arm *arm = NULL;
  json_t *knobs = NULL;
  bs_error why = BS_ERROR_INIT;
  const bs_kernel_setup setup = setup_of(c, name, NULL);
  int32_t rc = bs_kernel_arm_open(&setup, &arm, &why);
  if (rc == BS_NO_MEMORY) return (*err = why, rc);
  const bs_op_echo *echo = arm != NULL ? bs_kernel_arm_echo(arm) : NULL;
  rc = knobs_of(c, name, &knobs, err);
  if (rc == BS_OK) {
    json_t *row =
        json_pack("{s:s,s:s,s:o,s:s,s:s,s:s}", "name", name, "plugin", bs_tune_text(candidate, "plugin"),
                  "knobs", knobs, "echo", echo != NULL ? echo->knobs : "", "build",
                  echo != NULL ? echo->build : "", "failed", arm != NULL ? "" : why.message);
    if (row == NULL || json_array_append_new(list, row) != 0) rc = bs_no_memory(err, "providers");
  }
  bs_kernel_arm_close(arm);
  return rc;
}

static int32_t probe(child *c, json_t *answer, bs_error *err) {
  const bs_kernel_setup setup = setup_of(c, "", NULL);
  bs_kernel_arm *arm = NULL;
  json_t *plugins = NULL, *candidate, *list = json_array();
  size_t i;
  int32_t rc = bs_kernel_arm_open(&setup, &arm, err);
  if (rc == BS_UNSUPPORTED)
    rc = err->code = BS_UNAVAILABLE; /* no implementation serves it: the same code as
                                      * in bsrun bench */
  if (rc == BS_OK) rc = bs_env_plugins(c->context, &plugins, err);
  if (rc == BS_OK) {
    json_t *candidates = bs_tune_candidates(plugins, bs_kernel_arm_candidates(arm));
    json_object_set_new(answer, "key", json_string(bs_kernel_arm_key(arm)));
    json_object_set_new(answer, "default", json_string(bs_kernel_arm_provider(arm)));
    json_object_set_new(answer, "candidates", candidates);
    json_array_foreach(candidates, i, candidate) {
      if (rc == BS_OK) rc = probe_provider(c, candidate, list, err);
    }
    json_object_set(answer, "providers", list);
  }
  bs_kernel_arm_close(arm);
  json_decref(plugins);
  json_decref(list);
  return rc;
}

/* ---- point ---------------------------------------------------------------------------------- */

static json_t *samples_json(const bs_look *look) {
  return json_pack("{s:I,s:f,s:f,s:f,s:f}", "n", (json_int_t)look->count, "min", look->min, "p50", look->p50,
                   "p90", look->p90, "mad", look->mad);
}

/* seconds: of the samples at effort 0 */
static int32_t time_arm(bs_kernel_arm *arm, double seconds, int effort, json_t *answer, bs_error *err) {
  bs_sampler_options o;
  bs_sampled *taken = NULL;
  const bs_sampler_host host = {.disturb = bs_disturb_host};
  const bs_sampler_arm one = {.name = "candidate", .user = arm, .batch = bs_kernel_arm_batch};
  const double times = (double)(1 << effort);
  bs_sampler_defaults(&o);
  o.pairs_min = SAMPLES;
  o.pairs_max = (size_t)(SAMPLES << effort);
  o.warm_seconds = WARM_SHARE * seconds;
  o.seconds = seconds * times;
  const int32_t rc = bs_sampler_run(&o, &host, &one, 1, &taken, err);
  if (rc != BS_OK) return rc;
  json_object_set_new(answer, "seconds", json_real(taken->arm[0].look.p50));
  json_object_set_new(answer, "samples", samples_json(&taken->arm[0].look));
  bs_sampling_free(taken);
  return BS_OK;
}

static void put_verdict(json_t *answer, uint32_t verdict, const char *cause) {
  json_object_set_new(answer, "verdict", json_string(bs_verdict_names[verdict]));
  json_object_set_new(answer, "cause", bs_env_string(cause));
}

/* Adds the reason why there is no plan. The build gate reports a knob that has no effect. */
static void put_error(json_t *answer, const bs_error *why) {
  char text[sizeof why->id + sizeof why->message + 4];
  const int refused = why->code == BS_UNSUPPORTED || strncmp(why->id, "BS-OP-KNOB", 10) == 0;
  snprintf(text, sizeof text, "[%s] %s", why->id, why->message);
  put_verdict(answer, refused ? BS_VERDICT_REFUSED : BS_VERDICT_FAILED, text);
}

static int32_t point(child *c, json_t *answer, bs_error *err) {
  const char *provider = text_of(c, "provider"), *knobs = text_of(c, "knobs");
  const json_int_t effort = json_integer_value(json_object_get(c->input, "effort"));
  const bs_kernel_setup setup = setup_of(c, provider, knobs);
  bs_kernel_arm *arm = NULL;
  bs_judgement judged = {.verdict = BS_VERDICT_OK};
  bs_error why = BS_ERROR_INIT;
  int32_t rc = bs_judge_candidate(&setup, &arm, &judged, &why);
  if (arm != NULL && bs_kernel_arm_echo(arm) != NULL) {
    json_object_set_new(answer, "echo", json_string(bs_kernel_arm_echo(arm)->knobs));
    json_object_set_new(answer, "build", json_string(bs_kernel_arm_echo(arm)->build));
  }
  if (rc == BS_OK && judged.verdict == BS_VERDICT_OK)
    rc = time_arm(arm, json_number_value(json_object_get(c->input, "seconds")),
                  effort < 0             ? 0
                  : effort > MOST_EFFORT ? MOST_EFFORT
                                         : (int)effort,
                  answer, &why);
  bs_kernel_arm_close(arm);
  if (rc == BS_NO_MEMORY) return (*err = why, rc);
  if (rc != BS_OK)
    put_error(answer, &why);
  else
    put_verdict(answer, judged.verdict, judged.cause);
  return BS_OK;
}

/* ---- stored --------------------------------------------------------------------------------- */

/* Opens the plan of a stored choice and compares its build with the stored one. */
static int32_t stored(child *c, json_t *answer, bs_error *err) {
  const char *build = text_of(c, "build");
  bs_kernel_setup setup = setup_of(c, text_of(c, "provider"), text_of(c, "knobs"));
  bs_judgement judged;
  setup.stored_id = build[0] != '\0' ? build : NULL;
  const int32_t rc = bs_judge_build(&setup, &judged, err);
  if (rc == BS_OK) put_verdict(answer, judged.verdict, judged.cause);
  return rc;
}

/* ---- pairs ---------------------------------------------------------------------------------- */

typedef struct pair {
  const child *c;
  bs_kernel_arm *arm[2];
  const char *names[2];
  char same[2][BS_KERNEL_SAME]; /* the code that they run; "": not known */
} pair;

static int32_t pair_open(void *user, uint32_t arm, bs_sampler_arm *out, bs_error *err) {
  pair *p = user;
  const bs_kernel_setup setup = setup_of(p->c, p->names[arm], arm == 0 ? NULL : text_of(p->c, "knobs"));
  const int32_t rc = bs_kernel_arm_open(&setup, &p->arm[arm], err);
  if (rc == BS_OK) bs_kernel_arm_same(p->arm[arm], p->same[arm]);
  *out = (bs_sampler_arm){.configuration = p->same[arm][0] != '\0' ? p->same[arm] : NULL,
                          .name = arm == 0 ? "default" : "choice",
                          .user = p->arm[arm],
                          .batch = bs_kernel_arm_batch,
                          .threads = rc == BS_OK && bs_kernel_arm_on_device(p->arm[arm]) ? 1 : setup.threads};
  return rc;
}

static void pair_close(void *user, uint32_t arm) {
  pair *p = user;
  bs_kernel_arm_close(p->arm[arm]);
  p->arm[arm] = NULL;
}

static int32_t pairs(child *c, json_t *answer, bs_error *err) {
  pair p = {.c = c, .names = {text_of(c, "default"), text_of(c, "provider")}};
  const bs_contest of = {
      .n = 2, .user = &p, .names = p.names, .open = pair_open, .close = pair_close, .anew = 1};
  const bs_sampler_host host = {.disturb = bs_disturb_host};
  uint32_t winner = 0;
  json_t *results = NULL;
  const int32_t rc =
      bs_contest_run(&of, json_number_value(json_object_get(c->input, "seconds")),
                     json_number_value(json_object_get(c->input, "margin")), &host, &winner, &results, err);
  if (rc != BS_OK) return rc;
  json_object_set_new(answer, "wins", json_boolean(winner == 1));
  json_object_set(answer, "result", json_array_get(results, 0));
  json_decref(results);
  return BS_OK;
}

int32_t bs_race_child(const char *input, json_t **out, bs_error *err) {
  static const struct {
    const char *name;
    int32_t (*run)(child *c, json_t *answer, bs_error *err);
  } works[] = {{"probe", probe}, {"stored", stored}, {"point", point}, {"pairs", pairs}};
  enum { WORKS = sizeof works / sizeof works[0] };
  json_t *read = json_loads(input, JSON_REJECT_DUPLICATES, NULL), *answer = json_object();
  child c = {.input = read};
  int32_t rc = answer == NULL ? bs_no_memory(err, "an answer") : BS_OK;
  size_t i = 0;
  while (i < WORKS && strcmp(works[i].name, bs_tune_text(read, "do")) != 0) i++;
  if (rc == BS_OK && i == WORKS)
    rc = bs_error_set(err, BS_USAGE, "BS-TUNE-CHILD", "the file is not a request written by bsrun tune");
  if (rc == BS_OK) rc = open_child(&c, err);
  if (rc == BS_OK) rc = works[i].run(&c, answer, err);
  close_child(&c);
  json_decref(read);
  if (rc != BS_OK) {
    json_decref(answer);
    answer = json_pack("{s:{s:i,s:o,s:o,s:o,s:o}}", "error", "code", rc, "id", bs_env_string(err->id),
                       "where", bs_env_string(err->where), "message", bs_env_string(err->message), "hint",
                       bs_env_string(err->hint));
  }
  *out = answer;
  return rc;
}
