/* SPDX-License-Identifier: MIT
 * layer.c - a profile of one forward of a layer: the regions of each rank, the waits of ranks, and the
 * machine's bound. The layer runs twice, the first time with a third of the forwards: the difference of the
 * counters counts only forwards. */
#include <math.h>
#include <stdio.h>

#include "lab/case/arms.h"
#include "lab/error.h"
#include "lab/measure/chunks.h"
#include "lab/measure/constants.h"
#include "lab/profile/parts.h"
#include "lab/stop.h"
#include "lab/tune/tune.h"

enum { PART = 3 };

static double stat(const bs_case_rank *rank, const char *name, const char *key) {
  return json_number_value(json_object_get(json_object_get(rank->timings, name), key));
}

/* Median seconds of a region of one forward. */
static double region(const bs_case_rank *rank, const char *name) {
  return 1e-3 * stat(rank, name, "p50_ms");
}

/* A rank's own work, and its time in collectives. */
static double own_of(const bs_case_rank *rank) {
  return region(rank, "forward") - region(rank, "allreduce");
}

static int32_t add_rank(json_t *record, const bs_case_rank *rank, int32_t r, double bound_s, bs_error *err) {
  static const char *const names[] = {"layout_fix", "allreduce"};
  const double own = own_of(rank) - region(rank, "layout_fix");
  const bs_profile_part work = {.name = "products",
                                .rank = r,
                                .seconds = own > 0 ? own : 0,
                                .flops = (double)rank->counters[BS_COUNT_FLOPS],
                                .bytes = (double)rank->counters[BS_COUNT_OP_BYTES],
                                .bound_s = bound_s};
  int32_t rc = bs_profile_add(record, &work, err);
  for (int i = 0; rc == BS_OK && i < 2; i++) {
    const bs_profile_part part = {.name = names[i],
                                  .rank = r,
                                  .seconds = region(rank, names[i]),
                                  .bytes = i == 1 ? (double)rank->counters[BS_COUNT_WIRE_BYTES] : 0};
    if (part.seconds > 0) rc = bs_profile_add(record, &part, err);
  }
  return rc;
}

/* Adds which rank is slower than the others, and how long the others wait for it. The rank that arrives last
 * does not wait, so the collective's own time is its shortest one over the ranks. */
static int32_t add_ranks(json_t *record, const bs_case_result *result, double call_s, bs_error *err) {
  double most = 0, sum = 0, collective = 0, least = INFINITY;
  for (uint32_t r = 0; r < result->world_size; r++) {
    const double own = own_of(&result->ranks[r]), together = region(&result->ranks[r], "allreduce");
    most = fmax(most, own);
    sum += own;
    collective += together / result->world_size;
    least = fmin(least, together);
  }
  json_t *ranks = json_pack("{s:i}", "n", (int)result->world_size);
  if (ranks != NULL && sum > 0)
    json_object_set_new(ranks, "imbalance", json_real(most * result->world_size / sum));
  if (ranks != NULL && sum > 0)
    json_object_set_new(ranks, "imbalance_s", json_real(most - sum / result->world_size));
  if (ranks != NULL && call_s > 0) {
    json_object_set_new(ranks, "wait_s", json_real(collective - least));
    json_object_set_new(ranks, "wait_share", json_real((collective - least) / call_s));
    json_object_set_new(ranks, "collective_s", json_real(collective));
    json_object_set_new(ranks, "collective_share", json_real(collective / call_s));
  }
  return bs_profile_set(record, "ranks", ranks, err);
}

/* The limits of the machine; a device's are not known. */
static int32_t predict(const bs_case *c, const bs_experiment *e, bs_machine *machine, bs_predicted *out,
                       bs_error *err) {
  double footprint = 0;
  *out = (bs_predicted){.bound = {-1, -1, -1, -1, -1}};
  *machine = (bs_machine){0};
  if (!bs_predict_holds(c) || bs_stop_asked() != 0) return BS_OK; /* the machine is not measured any more */
  int32_t rc = bs_predict_footprint(c, &footprint, err);
  if (rc == BS_OK && !bs_constants_find(e->machine_constants, c, footprint, machine))
    rc = bs_machine_measure(c, footprint, machine, err);
  return rc == BS_OK ? bs_predict_case(machine, NULL, c, out, err) : rc;
}

static const bs_case_rank *slowest(const bs_case_result *result) {
  const bs_case_rank *most = &result->ranks[0];
  for (uint32_t r = 1; r < result->world_size; r++)
    if (region(&result->ranks[r], "forward") > region(most, "forward")) most = &result->ranks[r];
  return most;
}

static int32_t add_calls(json_t *record, const bs_case_rank *rank, bs_error *err) {
  return bs_profile_calls(record, stat(rank, "forward", "count"), 1e-3 * stat(rank, "forward", "min_ms"),
                          1e-3 * stat(rank, "forward", "p95_ms"), err);
}

static int32_t describe(const bs_case *c, const bs_case_result *result, const bs_predicted *p, json_t **out,
                        bs_error *err) {
  static const char *const names[] = {"fma", "bytes", "wire", "launch"};
  const double seconds[] = {p->bound.compute, p->bound.memory, p->bound.wire, p->bound.host};
  const bs_case_rank *rank = slowest(result);
  const double call_s = region(rank, "forward");
  char name[160];
  snprintf(name, sizeof name, "%s B=%lld N=%lld K=%lld P=%u", c->method, (long long)c->spec.B,
           (long long)c->spec.N, (long long)c->spec.K, result->world_size);
  *out = bs_profile_record("layer", name, result->threads_per_rank, result->world_size, call_s);
  int32_t rc = *out != NULL ? BS_OK : bs_no_memory(err, "a profile");
  for (uint32_t r = 0; rc == BS_OK && r < result->world_size; r++)
    rc = add_rank(*out, &result->ranks[r], (int32_t)r, fmax(p->bound.compute, p->bound.memory), err);
  if (rc == BS_OK) rc = add_calls(*out, rank, err);
  if (rc == BS_OK) rc = bs_profile_bound(*out, names, seconds, 4, err);
  return rc == BS_OK ? add_ranks(*out, result, call_s, err) : rc;
}

static void forget_counters(bs_counters *counters) {
  for (int i = 0; i < BS_PERF_EVENTS_; i++) counters->count[i] = NAN;
}

/* Runs the case twice. *out_result: of the longer run, the caller's; counters: of the forwards that it has
 * more. After a request to stop *out_result may be of the shorter run, and counters are not known. */
static int32_t run_twice(bs_case *c, const bs_profile_options *o, bs_case_result *out_result,
                         bs_counters *counters, double *out_calls, bs_error *err) {
  bs_case_result first = {0};
  double before[BS_PERF_EVENTS_];
  const int64_t all = c->iterations, part = all / PART > 0 ? all / PART : 1;
  bs_counters_open(o->counters, counters);
  c->iterations = part;
  bs_counters_start(counters);
  int32_t rc = bs_case_run(c, &first, err);
  bs_counters_stop(counters);
  for (int i = 0; i < BS_PERF_EVENTS_; i++) before[i] = counters->count[i];
  c->iterations = all;
  bs_counters_start(counters);
  const int has_first = rc == BS_OK;
  if (rc == BS_OK) rc = bs_stop_check(err);
  if (rc == BS_OK) rc = bs_case_run(c, out_result, err);
  bs_counters_stop(counters);
  if (rc != BS_OK && has_first && bs_stop_asked() != 0) {
    *out_result = first;
    forget_counters(counters);
    rc = BS_OK;
  } else if (has_first) {
    bs_case_result_free(&first);
  }
  const int64_t more = rc == BS_OK ? out_result->iterations - part : 0;
  *out_calls = (double)more;
  for (int i = 0; i < BS_PERF_EVENTS_; i++) counters->count[i] -= before[i];
  if (more <= 0) forget_counters(counters);
  bs_counters_close(counters);
  return rc;
}

int32_t bs_profile_case(bs_case *c, const bs_experiment *e, const bs_profile_options *o, json_t **out,
                        bs_error *err) {
  bs_case_result result = {0};
  bs_counters counters;
  bs_predicted predicted;
  bs_machine machine;
  double calls = 0;
  bs_load before;
  *out = NULL;
  bs_load_now(&before);
  int32_t rc = run_twice(c, o, &result, &counters, &calls, err);
  if (rc == BS_OK) rc = predict(c, e, &machine, &predicted, err);
  if (rc == BS_OK) rc = describe(c, &result, &predicted, out, err);
  if (rc == BS_OK)
    rc = bs_profile_set(
        *out, "counters",
        bs_counters_json(&counters, calls, region(slowest(&result), "forward"), machine.read_all), err);
  if (rc == BS_OK) rc = bs_profile_conditions(*out, &before, err);
  if (rc == BS_OK) rc = bs_profile_trace(*out, o->trace, err);
  bs_case_result_free(&result);
  if (rc != BS_OK) {
    json_decref(*out);
    *out = NULL;
  }
  return rc;
}

static int32_t choose(bs_context *context, bs_experiment *e, const char *tune_path, bs_error *err) {
  const bs_tuner_options options = {.path = tune_path};
  bs_tuner *tuner = NULL;
  e->tune_measure = 0;
  int32_t rc = bs_tuner_open(context, &options, &tuner, err);
  if (rc == BS_OK) rc = bs_tuner_choose(tuner, e, err);
  if (tuner != NULL) bs_tuner_close(tuner);
  return rc;
}

int32_t bs_profile_layer(bs_context *context, bs_experiment *e, const char *tune_path,
                         const bs_profile_options *o, json_t **out, bs_error *err) {
  bs_subject subject;
  bs_arm_case arms[BS_ARMS_MAX];
  *out = NULL;
  int32_t rc = choose(context, e, tune_path, err);
  if (rc == BS_OK) rc = bs_subject_open(context, e, &subject, err);
  if (rc != BS_OK) return rc;
  bs_overlap_resolve(e, &subject);
  (void)bs_arms_of(context, e, &subject, arms);
  bs_case *c = &arms[0].c;
  c->keep_stopped = 1;
  c->warmup = e->warmup_iters;
  c->iterations = e->timed_iters > 0 ? e->timed_iters : 1;
  c->progress = o->progress;
  c->progress_user = o->user;
  rc = bs_profile_case(c, e, o, out, err);
  bs_subject_close(&subject);
  return rc;
}
