/* SPDX-License-Identifier: MIT
 * phase1.c - phase 1, forward: the method and two dense peers (one rank's cores; all cores) as interleaved
 * arms of one run. Each round runs the arms forwards and then backwards (ABBA), so that drift of the machine
 * hits all alike; every half round gives a pair. Ratios are medians over pairs with a bootstrap interval. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/error.h"
#include "lab/measure/arm.h"
#include "lab/measure/constants.h"
#include "lab/measure/machine.h"
#include "lab/measure/stats.h"
#include "lab/phase/arms.h"
#include "lab/phase/case.h"
#include "lab/phase/record_fields.h"

enum { ARMS = BS_ARMS_MAX, MAX_SAMPLES = 1000 };
static const double BATCH_SECONDS =
    2e-3;                          /* a sample is long enough for the clock and the wake-up of the ranks */
static const double MARGIN = 0.01; /* equivalence margin of the verdict */
static const double HALF_WIDTH = 0.005; /* stop when the interval is this narrow */
static const double SETTLED = 0.01;
static const double WARMUP_SECONDS = 2.0;

typedef struct arm_state {
  bs_case c;
  bs_arm *arm;
  uint64_t batch;
  uint32_t warm_batches;
  uint32_t settled;
  double first_seconds; /* the first forward after the build */
  double samples[MAX_SAMPLES];
  bs_predicted predicted;
} arm_state;

typedef struct phase1 {
  bs_context *context;
  const bs_experiment *e;
  bs_subject subject;
  uint32_t arms;
  arm_state *arm[ARMS];
  size_t samples;
  const char *stopped; /* the rule that ended the pairs */
  bs_machine machine;
  bs_comparison comparison[ARMS];
  bs_progress_fn progress;
  void *user;
} phase1;

static double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int32_t open_arms(phase1 *p, bs_error *err) {
  bs_arm_case arms[BS_ARMS_MAX];
  const uint32_t n = bs_arms_of(p->context, p->e, &p->subject, arms);
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < n; ++i) {
    arm_state *state = calloc(1, sizeof *state);
    if (!state)
      return bs_error_set(err, BS_NO_MEMORY, "BS-PHASE-MEMORY", "no memory for arm %s", arms[i].name);
    p->arm[p->arms++] = state;
    state->c = arms[i].c;
    rc = bs_arm_open(&state->c, arms[i].name, &state->arm, err);
  }
  return rc;
}

/* Blocks of batches until the median stops improving by more than 1 %, for at most two seconds; the batch
 * grows to BATCH_SECONDS. */
static int32_t warm_up(phase1 *p, arm_state *a, bs_error *err) {
  double block[4];
  double previous = INFINITY;
  double took = 0.0;
  int32_t rc = bs_arm_batch(a->arm, 1, &a->first_seconds, err);
  const double start = seconds_now();
  a->batch = 1;
  for (int64_t done = 1; rc == BS_OK && !a->settled;) {
    for (size_t i = 0; rc == BS_OK && i < 4; ++i) {
      rc = bs_arm_batch(a->arm, a->batch, &block[i], err);
      done += (int64_t)a->batch;
      ++a->warm_batches;
    }
    took = bs_median(block, 4);
    const double wanted = BATCH_SECONDS / (took > 0 ? took : 1e-9);
    const uint64_t batch = wanted > 1 ? (uint64_t)ceil(wanted) : 1;
    a->settled = took > previous * (1.0 - SETTLED) && done >= p->e->warmup_iters && batch <= a->batch * 2;
    if (batch > a->batch) a->batch = batch;
    previous = took;
    if (seconds_now() - start > WARMUP_SECONDS) break;
  }
  if (rc == BS_OK) rc = bs_arm_reset(a->arm, err);
  return rc;
}

static int narrow_enough(const phase1 *p) {
  for (uint32_t i = 1; i < p->arms; ++i) {
    bs_comparison c;
    if (!bs_compare_pairs(p->arm[0]->samples, p->arm[i]->samples, p->samples, MARGIN, &c)) return 0;
    if ((c.high - c.low) / 2 > HALF_WIDTH * c.ratio) return 0;
  }
  return 1;
}

/* One half round: each arm once, in the given direction. */
static int32_t half_round(phase1 *p, int backwards, bs_error *err) {
  for (uint32_t i = 0; i < p->arms; ++i) {
    arm_state *a = p->arm[backwards ? p->arms - 1 - i : i];
    const int32_t rc = bs_arm_batch(a->arm, a->batch, &a->samples[p->samples], err);
    if (rc != BS_OK) return rc;
  }
  ++p->samples;
  return BS_OK;
}

static int32_t take_pairs(phase1 *p, bs_error *err) {
  const double start = seconds_now();
  const size_t least = (size_t)(p->e->pairs_min > 0 ? p->e->pairs_min : 20);
  size_t most = (size_t)(p->e->pairs_max > 0 ? p->e->pairs_max : 100);
  if (most < least) most = least;
  if (most > MAX_SAMPLES - 1) most = MAX_SAMPLES - 1;
  p->stopped = "max_pairs";
  while (p->samples < most) {
    int32_t rc = half_round(p, 0, err);
    if (rc == BS_OK) rc = half_round(p, 1, err);
    if (rc != BS_OK) return rc;
    if (p->progress) p->progress(p->user, "pairs", p->samples, most);
    if (p->samples < least) continue;
    if (p->arms > 1 && narrow_enough(p)) {
      p->stopped = "interval";
      break;
    }
    if (p->e->pairs_seconds > 0 && seconds_now() - start > p->e->pairs_seconds) {
      p->stopped = "seconds";
      break;
    }
  }
  return BS_OK;
}

static int32_t predict(phase1 *p, bs_error *err) {
  double footprint = 0.0;
  bs_proposal proposals[ARMS];
  for (uint32_t i = 0; i < p->arms; ++i) {
    bs_proposal *proposal = &proposals[i];
    memset(proposal, 0, sizeof *proposal);
    proposal->struct_size = sizeof *proposal;
    const bs_case *c = &p->arm[i]->c;
    const int32_t rc = bs_method_propose(p->context, c->method, &c->spec, 0, c->world_size, proposal, err);
    if (rc != BS_OK) return rc;
    const double bytes = (double)proposal->weight_bytes * c->world_size;
    if (i == 0) footprint = bytes;
  }
  int32_t rc = BS_OK;
  if (!bs_constants_find(p->e->machine_constants, &p->arm[0]->c, footprint, &p->machine))
    rc = bs_machine_measure(&p->arm[0]->c, footprint, &p->machine, err);
  for (uint32_t i = 0; rc == BS_OK && i < p->arms; ++i) {
    const bs_case *c = &p->arm[i]->c;
    bs_predict_forward(&p->machine, &c->spec, &proposals[i], c->world_size, c->threads_per_rank,
                       &p->arm[i]->predicted);
  }
  return rc;
}

static json_t *arm_json(const phase1 *p, const arm_state *a) {
  json_t *samples = json_array();
  for (size_t i = 0; i < p->samples; ++i) json_array_append_new(samples, json_real(a->samples[i]));
  json_t *out =
      json_pack("{s:s,s:s,s:i,s:i,s:i,s:i,s:b,s:f,s:f}", "name", bs_arm_name(a->arm), "method", a->c.method,
                "world_size", (int)a->c.world_size, "threads_per_rank", (int)a->c.threads_per_rank,
                "forwards_per_sample", (int)a->batch, "warm_batches", (int)a->warm_batches, "settled",
                (int)a->settled, "build_s", bs_arm_build_seconds(a->arm), "first_s", a->first_seconds);
  json_object_set_new(out, "median_s", json_real(bs_median(a->samples, p->samples)));
  json_object_set_new(out, "min_s", json_real(bs_percentile(a->samples, p->samples, 0.0)));
  json_object_set_new(out, "p50_s", json_real(bs_percentile(a->samples, p->samples, 0.5)));
  json_object_set_new(out, "p90_s", json_real(bs_percentile(a->samples, p->samples, 0.9)));
  json_object_set_new(out, "p99_s", json_real(bs_percentile(a->samples, p->samples, 0.99)));
  json_object_set_new(
      out, "predicted_s",
      json_pack("{s:f,s:f,s:f,s:f,s:f}", "compute", a->predicted.compute, "memory", a->predicted.memory,
                "wire", a->predicted.wire, "host", a->predicted.host, "total", a->predicted.total));
  json_object_set_new(out, "limit", json_string(a->predicted.limit ? a->predicted.limit : "unknown"));
  json_object_set_new(out, "samples_s", samples);
  return out;
}

static void add_comparisons(phase1 *p, bs_phase_result *out) {
  json_t *list = json_array();
  for (uint32_t i = 1; i < p->arms; ++i) {
    bs_comparison *c = &p->comparison[i];
    if (!bs_compare_pairs(p->arm[0]->samples, p->arm[i]->samples, p->samples, MARGIN, c)) continue;
    json_array_append_new(
        list, json_pack("{s:s,s:i,s:f,s:f,s:f,s:s,s:f}", "against", bs_arm_name(p->arm[i]->arm), "pairs",
                        (int)c->pairs, "speedup", c->ratio, "low", c->low, "high", c->high, "word",
                        bs_comparison_name(c->word), "margin", c->margin));
  }
  json_object_set_new(out->record, "comparisons", list);
}

static int32_t fill(phase1 *p, bs_phase_result *out, bs_error *err) {
  json_t *arms = json_array();
  for (uint32_t i = 0; i < p->arms; ++i) json_array_append_new(arms, arm_json(p, p->arm[i]));
  json_object_set_new(out->record, "arms", arms);
  add_comparisons(p, out);
  json_object_set_new(out->record, "pairs", json_integer((json_int_t)p->samples));
  json_object_set_new(out->record, "stopped_by", json_string(p->stopped));
  json_object_set_new(out->record, "iterations", json_integer((json_int_t)(p->samples * p->arm[0]->batch)));
  json_object_set_new(out->record, "warmup_iters", json_integer(p->e->warmup_iters));
  json_object_set_new(out->record, "machine", bs_machine_json(&p->machine));
  bs_case_result result = {0};
  bs_arm *method = p->arm[0]->arm;
  p->arm[0]->arm = NULL;
  int32_t rc = bs_arm_close(method, &result, err);
  if (rc == BS_OK) rc = bs_record_case_fields(out->record, &p->arm[0]->c, &result, &p->subject, err);
  bs_case_result_free(&result);
  out->passed = 1; /* it ran; phase 1 judges no numbers */
  return rc;
}

int32_t bs_phase1_run(bs_context *context, const bs_experiment *e, bs_progress_fn progress, void *user,
                      bs_phase_result *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  out->record = json_object();
  if (!out->record) return bs_error_set(err, BS_NO_MEMORY, "BS-PHASE-MEMORY", "no memory for a record");
  phase1 p = {.context = context, .e = e, .progress = progress, .user = user};
  int32_t rc = bs_subject_open(context, e, &p.subject, err);
  if (rc == BS_OK) rc = open_arms(&p, err);
  for (uint32_t i = 0; rc == BS_OK && i < p.arms; ++i) {
    if (progress) progress(user, "warm-up", i, p.arms);
    rc = warm_up(&p, p.arm[i], err);
  }
  if (rc == BS_OK) rc = take_pairs(&p, err);
  if (rc == BS_OK) rc = predict(&p, err);
  if (rc == BS_OK) rc = fill(&p, out, err);
  for (uint32_t i = 0; i < p.arms; ++i) {
    if (p.arm[i]->arm) bs_arm_close(p.arm[i]->arm, NULL, NULL);
    free(p.arm[i]);
  }
  bs_subject_close(&p.subject);
  if (rc != BS_OK) bs_phase_result_free(out);
  return rc;
}
