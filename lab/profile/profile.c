/* SPDX-License-Identifier: MIT
 * profile.c - see profile.h and parts.h. */
#include "lab/profile/profile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/error.h"
#include "lab/profile/ncu.h"
#include "lab/profile/parts.h"
#include "lab/rules/rules.h"
#include "sim/trace.h"

#define PS 1e12 /* of a second */

json_t *bs_profile_record(const char *kind, const char *name, uint32_t threads, uint32_t ranks,
                          double call_s) {
  return json_pack("{s:{s:s,s:s,s:i,s:i,s:i,s:i},s:f,s:[]}", "subject", "kind", kind, "name", name, "threads",
                   (int)threads, "ranks", (int)ranks, "kernel", strcmp(kind, "kernel") == 0, "model",
                   strcmp(kind, "model") == 0, "call_s", call_s, "parts");
}

int32_t bs_profile_set(json_t *record, const char *key, json_t *value, bs_error *err) {
  return value != NULL && json_object_set_new(record, key, value) == 0 ? BS_OK
                                                                       : bs_no_memory(err, "a profile");
}

static void add_known(json_t *into, const char *key, double value) {
  if (isfinite(value) && value > 0) json_object_set_new(into, key, json_real(value));
}

int32_t bs_profile_add(json_t *record, const bs_profile_part *p, bs_error *err) {
  const double call = json_number_value(json_object_get(record, "call_s"));
  json_t *row = json_pack("{s:s,s:f}", "part", p->name, "seconds", p->seconds);
  if (row == NULL) return bs_no_memory(err, "a profile");
  if (p->rank >= 0) json_object_set_new(row, "rank", json_integer(p->rank));
  add_known(row, "share", p->seconds / call);
  add_known(row, "flops", p->flops);
  add_known(row, "bytes", p->bytes);
  add_known(row, "gflops", 1e-9 * p->flops / p->seconds);
  add_known(row, "gbytes_s", 1e-9 * p->bytes / p->seconds);
  add_known(row, "bound_percent", 100 * p->bound_s / p->seconds);
  return json_array_append_new(json_object_get(record, "parts"), row) == 0 ? BS_OK
                                                                           : bs_no_memory(err, "a profile");
}

int32_t bs_profile_calls(json_t *record, double n, double min_s, double p95_s, bs_error *err) {
  return bs_profile_set(record, "calls",
                        json_pack("{s:I,s:f,s:f}", "n", (json_int_t)n, "min_s", min_s, "p95_s", p95_s), err);
}

int32_t bs_profile_bound(json_t *record, const char *const *names, const double *seconds, uint32_t n,
                         bs_error *err) {
  char key[48];
  const double call = json_number_value(json_object_get(record, "call_s"));
  uint32_t most = 0;
  json_t *bound = json_object();
  for (uint32_t i = 0; i < n; i++) {
    snprintf(key, sizeof key, "%s_share", names[i]);
    if (seconds[i] >= 0 && call > 0) json_object_set_new(bound, key, json_real(seconds[i] / call));
    if (seconds[i] > seconds[most]) most = i;
  }
  if (seconds[most] > 0 && call > 0) {
    json_object_set_new(bound, "limit", json_string(names[most]));
    json_object_set_new(bound, "seconds", json_real(seconds[most]));
    json_object_set_new(bound, "beyond_s", json_real(fmax(0, call - seconds[most])));
    json_object_set_new(bound, "percent", json_real(100 * seconds[most] / call));
  }
  return bs_profile_set(record, "bound", bound, err);
}

int32_t bs_profile_conditions(json_t *record, const bs_load *before, bs_error *err) {
  bs_load after;
  bs_load_now(&after);
  return bs_profile_set(record, "conditions", bs_load_json(before, &after), err);
}

int32_t bs_profile_trace(const json_t *record, const char *path, bs_error *err) {
  uint64_t at[256] = {0}; /* of each rank */
  size_t i;
  json_t *part;
  if (path == NULL) return BS_OK;
  const json_int_t ranks = json_integer_value(json_object_get(json_object_get(record, "subject"), "ranks"));
  sim_trace *trace = sim_trace_new(0, 0, ranks > 0 ? (uint32_t)ranks - 1 : 0);
  if (trace == NULL) return bs_no_memory(err, "a trace");
  json_array_foreach(json_object_get(record, "parts"), i, part) {
    const json_int_t rank = json_integer_value(json_object_get(part, "rank"));
    const uint64_t length = (uint64_t)(PS * json_number_value(json_object_get(part, "seconds")));
    if (rank < 0 || rank >= 256) continue;
    sim_trace_slice(trace, (uint32_t)rank, SIM_LANE_HOST, json_string_value(json_object_get(part, "part")),
                    at[rank], at[rank] + length);
    at[rank] += length;
  }
  const int32_t rc = sim_trace_write(trace, path, err);
  sim_trace_free(trace);
  return rc;
}

static double cost_of(const json_t *finding) {
  return json_number_value(json_object_get(finding, "cost_s")); /* 0 where it has none */
}

/* Appends a finding; those that cost more come first, the others stay in the order of the rules. */
static void add_finding(json_t *findings, json_t *finding, double cost_s) {
  if (finding != NULL && isfinite(cost_s)) json_object_set_new(finding, "cost_s", json_real(cost_s));
  size_t at = json_array_size(findings);
  while (at > 0 && cost_of(json_array_get(findings, at - 1)) < cost_of(finding)) at--;
  json_array_insert_new(findings, at, finding);
}

static int32_t judge_by(json_t *record, const bs_rules *rules, bs_error *err) {
  static const char *const states[] = {"no", "holds", "UNKNOWN", "no"};
  bs_rules_outcome outcome = {0};
  bs_error nothing = BS_ERROR_INIT;
  int32_t rc = bs_rules_judge(rules, record, &outcome, &nothing);
  if (rc == BS_USAGE) rc = BS_OK; /* all are UNKNOWN, with their reasons */
  json_t *findings = rc == BS_OK ? json_array() : NULL;
  for (uint32_t i = 0; findings != NULL && i < outcome.n; i++) {
    const bs_rule_result *r = &outcome.result[i];
    const int holds = strcmp(states[r->state], "holds") == 0;
    add_finding(findings,
                json_pack("{ss,ss,ss,ss}", "rule", r->rule->name, "state", states[r->state], "text", r->text,
                          "says", r->rule->says),
                holds && r->rule->cost != NULL ? bs_rules_number(record, r->rule->cost) : NAN);
  }
  if (rc == BS_OK)
    rc = bs_profile_set(record, "findings", findings, err);
  else if (err != NULL)
    *err = nothing;
  bs_rules_outcome_free(&outcome);
  return rc;
}

int32_t bs_profile_judge(json_t *record, const char *name, bs_error *err) {
  bs_rules *rules = NULL;
  int32_t rc = bs_rules_load(name, "rules", &rules, err);
  if (rc == BS_OK) rc = judge_by(record, rules, err);
  bs_rules_free(rules);
  return rc;
}

typedef struct taking {
  const bs_rules *rules;
  bs_profile_take take;
  void *user;
} taking;

static int32_t take_kernel(void *user, const json_t *kernel, size_t at, size_t all, bs_error *err) {
  const taking *t = user;
  json_t *ncu = json_object_get(kernel, "ncu");
  const double seconds = json_number_value(json_object_get(ncu, "seconds"));
  const char *name = json_string_value(json_object_get(kernel, "kernel"));
  json_t *record = bs_profile_record("ncu", name, 0, 1, seconds);
  const bs_profile_part whole = {.name = name, .rank = -1, .seconds = seconds};
  int32_t rc = record != NULL ? bs_profile_add(record, &whole, err) : bs_no_memory(err, "a profile");
  if (rc == BS_OK) rc = bs_profile_set(record, "ncu", json_incref(ncu), err);
  if (rc == BS_OK)
    rc = bs_profile_set(record, "launches", json_incref(json_object_get(kernel, "launches")), err);
  if (rc == BS_OK) rc = judge_by(record, t->rules, err);
  if (rc == BS_OK) rc = t->take(t->user, record, at, all, err);
  json_decref(record);
  return rc;
}

int32_t bs_profile_ncu(const char *path, const char *rules, bs_profile_take take, void *user, bs_error *err) {
  bs_rules *loaded = NULL;
  int32_t rc = bs_rules_load(rules, "rules", &loaded, err);
  taking t = {loaded, take, user};
  if (rc == BS_OK) rc = bs_ncu_read(path, take_kernel, &t, err);
  bs_rules_free(loaded);
  return rc;
}
