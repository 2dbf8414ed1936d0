/* SPDX-License-Identifier: MIT
 * bound.c - the check `bound`: a profile of the subject, and those of its findings that have a cost. So
 * `bsrun profile` and `bsrun diagnose` judge by the same rules. */
#include <math.h>
#include <string.h>

#include "lab/diagnose/layer_checks.h"
#include "lab/diagnose/model_checks.h"
#include "lab/error.h"
#include "lab/json.h"
#include "lab/model/bench.h"
#include "lab/profile/profile.h"

enum { MIN_CALLS = 12, MAX_CALLS = 1000 };

/* A check of the same name measures it itself. */
static int has_check(const char *rule) {
  for (size_t i = 0; i < bs_n_checks; i++)
    if (strcmp(bs_checks[i].id, rule) == 0) return 1;
  return 0;
}

static int32_t tell_profile(bs_diagnosis *d, json_t *record, bs_error *err) {
  const json_t *bound = json_object_get(record, "bound"), *finding;
  size_t i;
  const int32_t rc = bs_profile_judge(record, "cpu", err);
  if (rc != BS_OK) return rc;
  if (json_object_get(bound, "limit") != NULL) {
    bs_fact_text(d, "limit of the machine", "%s", bs_get_text(bound, "limit"));
    bs_fact(d, "at that limit a pass takes", bs_get_number(bound, "seconds"), "s");
    bs_fact(d, "of that limit", bs_get_number(bound, "percent"), "%");
  }
  json_array_foreach(json_object_get(record, "findings"), i, finding) {
    const json_t *cost = json_object_get(finding, "cost_s");
    if (cost == NULL || has_check(bs_get_text(finding, "rule"))) continue;
    bs_find(d, json_number_value(cost), NULL, "%s: %s: %s", bs_get_text(finding, "rule"),
            bs_get_text(finding, "text"), bs_get_text(finding, "says"));
  }
  return BS_OK;
}

static int64_t calls_for(const bs_diagnosis *d, double each_s) {
  const double n = each_s > 0 ? d->seconds / each_s : MAX_CALLS;
  return (int64_t)fmin(fmax(n, MIN_CALLS), MAX_CALLS);
}

int32_t diag_layer_bound(bs_diagnosis *d, diag_layer *l, bs_error *err) {
  const bs_profile_options options = {.seconds = d->seconds};
  bs_case c = l->c;
  json_t *record = NULL;
  c.warmup = 2;
  c.iterations = calls_for(d, l->steady);
  int32_t rc = bs_profile_case(&c, &l->e, &options, &record, err);
  if (rc == BS_OK) rc = tell_profile(d, record, err);
  json_decref(record);
  return rc;
}

/* A run of the session as asked, for bs_profile_run. */
static int32_t row_of(const diag_model *m, json_t **out, bs_error *err) {
  uint64_t flops, bytes;
  const int32_t rc = bs_model_count_work(m->model->session, &flops, &bytes, err);
  if (rc != BS_OK) return rc;
  *out =
      json_pack("{s:f, s:i, s:i, s:I, s:I, s:I}", "median_s", m->steady, "threads", (int)m->request.threads,
                "world_size", (int)diag_model_ranks(m), "flops", (json_int_t)flops, "bytes",
                (json_int_t)bytes, "fallback_nodes", (json_int_t)m->stats.fallback_nodes);
  return *out != NULL ? BS_OK : bs_no_memory(err, "a row");
}

int32_t diag_model_bound(bs_diagnosis *d, diag_model *m, bs_error *err) {
  const diag_change change = {.profile = 1, .share = 1};
  diag_session s = {0};
  json_t *report = NULL, *nodes = NULL, *row = NULL, *record = NULL;
  int32_t rc = diag_session_open(m, &change, &s, err);
  if (rc == BS_OK) rc = diag_session_profile(d, &s, &report, err);
  if (rc == BS_OK) rc = row_of(m, &row, err);
  if (rc == BS_OK) nodes = bs_model_by_time(json_object_get(report, "nodes"));
  if (rc == BS_OK) rc = bs_profile_run(m->request.path, row, nodes, &record, err);
  if (rc == BS_OK) rc = tell_profile(d, record, err);
  json_decref(record);
  json_decref(row);
  json_decref(nodes);
  json_decref(report);
  diag_session_close(&s);
  return rc;
}
