/* SPDX-License-Identifier: MIT
 * ask.c - runs a child for each request: its file is the request, its stdout the answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/error.h"
#include "lab/race/racing.h"
#include "lab/store/env.h"
#include "lab/sweep/tasks.h"

static json_t *question(const race *r, const char *what) {
  const bs_race_options *o = r->o;
  return json_pack("{s:s,s:s,s:s,s:s,s:i}", "do", what, "problem", o->problem, "config", o->config, "backend",
                   o->backend != NULL ? o->backend : "", "threads", (int)o->threads);
}

/* Runs one child; takes the question. */
static int32_t run_child(race *r, json_t *asked, double deadline_s, bs_task *task, bs_error *err) {
  const bs_tasks_options o = {
      .program = r->o->program, .words = r->o->words, .jobs = 1, .deadline_s = deadline_s};
  int number = 0;
  *task = (bs_task){.alone = 1, .input = asked != NULL ? json_dumps(asked, JSON_COMPACT) : NULL};
  json_decref(asked);
  if (task->input == NULL) return bs_no_memory(err, "a candidate");
  const int32_t rc = bs_tasks_run(task, 1, &o, &number, err);
  if (rc != BS_OK) return rc;
  r->number = number;
  if (number != 0)
    return bs_error_set(err, BS_ABORTED, "BS-TUNE-STOPPED", "stopped by a signal; what was measured is kept");
  return BS_OK;
}

static void task_free(bs_task *task) {
  free(task->input);
  free(task->out);
  free(task->said);
}

static json_t *answer_of(const bs_task *task) {
  if (task->state != BS_TASK_ENDED || task->code > 128 || task->out == NULL) return NULL;
  return json_loads(task->out, JSON_DISABLE_EOF_CHECK, NULL);
}

/* The error that a child answers with, as its own. */
static int32_t error_of(const json_t *e, bs_error *err) {
  const int32_t code = (int32_t)json_integer_value(json_object_get(e, "code"));
  bs_error_set(err, code != BS_OK ? code : BS_INTERNAL, bs_tune_text(e, "id"), "%s",
               bs_tune_text(e, "message"));
  if (bs_tune_text(e, "where")[0] != '\0') bs_error_where(err, "%s", bs_tune_text(e, "where"));
  if (bs_tune_text(e, "hint")[0] != '\0') bs_error_hint(err, "%s", bs_tune_text(e, "hint"));
  return err->code;
}

/* A child that must answer: the probe, the pairs. Its own error is the error. */
static int32_t must_answer(race *r, json_t *asked, double deadline_s, const char *what, json_t **out,
                           bs_error *err) {
  bs_task task;
  int32_t rc = run_child(r, asked, deadline_s, &task, err);
  *out = rc == BS_OK ? answer_of(&task) : NULL;
  const json_t *error = json_object_get(*out, "error");
  if (error != NULL) {
    rc = error_of(error, err);
    json_decref(*out);
    *out = NULL;
  } else if (rc == BS_OK && *out == NULL) {
    const char *said = task.said != NULL ? task.said : "it said nothing";
    if (task.state == BS_TASK_LATE)
      rc = bs_error_set(err, BS_DEADLINE, "BS-TUNE-LATE", "%s took more than %g s", what, deadline_s);
    else if (task.code > 128)
      rc = bs_error_set(err, BS_PLUGIN, "BS-TUNE-CHILD", "%s was ended by signal %d: %.300s", what,
                        task.code - 128, said);
    else
      rc = bs_error_set(err,
                        task.code == 2   ? BS_USAGE
                        : task.code == 3 ? BS_CONFIG
                                         : BS_UNSUPPORTED,
                        "BS-TUNE-CHILD", "%s: %.400s", what, said);
  }
  task_free(&task);
  return rc;
}

int32_t race_ask_probe(race *r, json_t **out, bs_error *err) {
  return must_answer(r, question(r, "probe"), r->o->deadline_s, "who serves", out, err);
}

int32_t race_ask_stored(race *r, const char *choice, const char *build, json_t **out, bs_error *err) {
  const size_t length = strcspn(choice, "{");
  const char *knobs = choice + length + (choice[length] == '{');
  json_t *asked = question(r, "stored");
  json_object_set_new(asked, "provider", json_stringn(choice, length));
  json_object_set_new(asked, "knobs", json_stringn(knobs, strcspn(knobs, "}")));
  json_object_set_new(asked, "build", json_string(build));
  return must_answer(r, asked, r->o->deadline_s, "the stored choice", out, err);
}

int32_t race_ask_pairs(race *r, const char *provider, const char *config, json_t **out, bs_error *err) {
  json_t *asked = question(r, "pairs");
  json_object_set_new(asked, "default", json_string(r->standard));
  json_object_set_new(asked, "provider", json_string(provider));
  json_object_set_new(asked, "knobs", json_string(config));
  json_object_set_new(asked, "seconds", json_real(r->o->pair_seconds));
  json_object_set_new(asked, "margin", json_real(r->o->margin));
  return must_answer(r, asked, r->o->deadline_s + 2 * r->o->pair_seconds, "the pairs", out, err);
}

/* The answer for a child that gave none: how it ended. */
static json_t *no_answer(const bs_task *task, double deadline_s) {
  char cause[400];
  const char *said = task->said != NULL ? task->said : "it said nothing";
  const int late = task->state == BS_TASK_LATE;
  if (late)
    snprintf(cause, sizeof cause, "it took more than %g s", deadline_s);
  else if (task->code > 128)
    snprintf(cause, sizeof cause, "ended by signal %d: %.300s", task->code - 128, said);
  else
    snprintf(cause, sizeof cause, "%.380s", said);
  return json_pack("{s:s,s:o}", "verdict", late ? "late" : "failed", "cause", bs_env_string(cause));
}

int32_t race_ask_point(race *r, const char *provider, const char *config, uint32_t effort, json_t **out,
                       bs_error *err) {
  bs_task task;
  json_t *asked = question(r, "point");
  json_object_set_new(asked, "provider", json_string(provider));
  json_object_set_new(asked, "knobs", json_string(config));
  json_object_set_new(asked, "seconds", json_real(r->o->sample_seconds));
  json_object_set_new(asked, "effort", json_integer((json_int_t)effort));
  const int32_t rc = run_child(r, asked, r->o->deadline_s, &task, err);
  if (rc == BS_OK) {
    *out = answer_of(&task);
    if (json_object_get(*out, "error") != NULL) {
      json_decref(*out);
      *out = NULL;
    }
    if (*out == NULL) *out = no_answer(&task, r->o->deadline_s);
  }
  task_free(&task);
  return rc == BS_OK && *out == NULL ? bs_no_memory(err, "an answer") : rc;
}
