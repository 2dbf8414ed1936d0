/* SPDX-License-Identifier: MIT
 * phase1.c - phase 1, forward: the method and two dense peers (one rank's cores; all cores) as arms of one
 * sampling (lab/measure/sampler.h), hot and, on request, cold; the times of the phases before; the
 * predictions. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/error.h"
#include "core/plugin/registry.h"
#include "lab/case/arms.h"
#include "lab/case/case.h"
#include "lab/case/watch.h"
#include "lab/measure/arm.h"
#include "lab/measure/chunks.h"
#include "lab/measure/constants.h"
#include "lab/measure/kernel.h"
#include "lab/measure/predict.h"
#include "lab/measure/sampler.h"
#include "lab/peers/peers.h"
#include "lab/phase/frame.h"
#include "lab/phase/record_fields.h"
#include "lab/stop.h"

enum { ARMS = BS_ARMS_MAX, COLD_CALLS = 2, ROWS_AT_ONCE = 64 };
static const double MOST_KEPT = 128.0 * (1 << 20);
static const double COLD_WARM_SECONDS = 10; /* flushing takes most of it */

typedef struct arm_state {
  bs_case c;
  bs_watched w_view; /* c.w is w: the subject's, watched */
  bs_source w;
  const char *name;
  bs_arm *arm;
  bs_span build, pack, first; /* first: the first forward after the build */
  uint64_t flush_bytes;
  bs_predicted predicted;
  bs_kernel kernel;   /* of predicted.kernel */
  bs_error no_kernel; /* why the kernel is unknown */
} arm_state;

typedef struct phase1 {
  bs_context *context;
  const bs_experiment *e;
  bs_subject subject;
  uint32_t arms;
  arm_state arm[ARMS];
  bs_sampled *hot, *cold; /* cold: NULL unless requested */
  bs_machine machine;
  void *weights;  /* W, read once; NULL: each build reads the workload */
  bs_source w;    /* of weights */
  int warm;       /* the first build of the samples that are taken is */
  bs_watch watch; /* only checks for a stop request: building is timed */
  bs_progress_fn progress;
  void *user;
} phase1;

static void tell(void *user, const char *what, uint64_t done, uint64_t total) {
  const phase1 *p = user;
  if (p->progress) p->progress(p->user, what, done, total);
}

/* Makes W once if it is small and the backend's memory is the host's, because arms are built several
 * times. */
static int32_t keep_weights(phase1 *p, bs_error *err) {
  const bs_source *from = &p->subject.w;
  const bs_backend *backend = NULL;
  void *state = NULL;
  int32_t rc = bs_find_backend(p->context, p->e->backend, &backend, &state, err);
  const size_t width = BS_DTYPE_BYTES(from->dtype);
  const double bytes = (double)from->rows * (double)from->cols * (double)width;
  if (rc != BS_OK || (backend->flags & BS_BACKEND_HOST_MEMORY) == 0 || bytes > MOST_KEPT) return rc;
  p->weights = malloc((size_t)bytes);
  for (int64_t row = 0; rc == BS_OK && p->weights != NULL && row < from->rows; row += ROWS_AT_ONCE) {
    const int64_t left = from->rows - row, rows = left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE;
    char *to = (char *)p->weights + (size_t)(row * from->cols) * width;
    tell(p, "weights", (uint64_t)row, (uint64_t)from->rows);
    rc = bs_stop_check(err);
    if (rc == BS_OK) rc = from->read(from->ctx, row, rows, NULL, from->dtype, to, from->cols, err);
  }
  if (rc != BS_OK || p->weights == NULL) return rc;
  return bs_source_from_memory(p->weights, from->dtype, from->rows, from->cols, from->cols, &p->w, err);
}

static int32_t open_arms(phase1 *p, bs_error *err) {
  bs_arm_case arms[BS_ARMS_MAX];
  const uint32_t n = bs_arms_of(p->context, p->e, &p->subject, arms);
  const int backwards = p->e->peers == NULL && bs_arms_backwards(p->e->seed, 0);
  int32_t rc = keep_weights(p, err);
  p->arms = n;
  for (uint32_t k = 0; rc == BS_OK && k < n; ++k) {
    const uint32_t i = backwards ? n - 1 - k : k;
    arm_state *a = &p->arm[i];
    bs_sample first = {0};
    char what[48];
    a->c = arms[i].c;
    a->name = arms[i].name;
    bs_watch_source(&p->watch, &a->w_view, p->w.read != NULL ? &p->w : a->c.w, 0, &a->w);
    a->c.w = &a->w;
    snprintf(what, sizeof what, "build %s", a->name);
    tell(p, what, k + 1, n);
    rc = bs_arm_open(&a->c, a->name, &a->arm, err);
    if (rc != BS_OK) break;
    a->build = bs_arm_build(a->arm);
    a->pack = bs_arm_pack(a->arm);
    rc = bs_arm_batch(a->arm, 0, 1, &first, err);
    a->first = bs_span_make(BS_TIME_FIRST, first.seconds, 1);
  }
  return rc;
}

/* ---- samples ------------------------------------------------------------------------------------ */

/* Resets regions and counters, so that they cover only the steady forwards. */
static int32_t forget_the_warm_up(void *user, bs_error *err) {
  phase1 *p = user;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < p->arms; ++i) rc = bs_arm_reset(p->arm[i].arm, !p->warm, err);
  p->warm = 1;
  return rc;
}

static int32_t rebuild(void *user, uint32_t build, bs_error *err) {
  const phase1 *p = user;
  bs_arm *arms[ARMS];
  for (uint32_t i = 0; i < p->arms; ++i) arms[i] = p->arm[i].arm;
  return bs_arms_rebuild(arms, p->arms, bs_arms_backwards(p->e->seed, build), err);
}

static int32_t sample(phase1 *p, uint32_t phase, bs_sampled **out, bs_error *err) {
  const bs_experiment *e = p->e;
  p->warm = 0;
  const bs_sampler_host host = {.user = p,
                                .disturb = bs_disturb_host,
                                .progress = tell,
                                .steady = forget_the_warm_up,
                                .rebuild = rebuild};
  bs_sampler_arm arms[ARMS];
  bs_sampler_options o;
  bs_sampler_defaults(&o);
  o.phase = phase;
  o.seed = e->seed;
  o.warm_calls = (uint64_t)e->warmup_iters;
  if (e->pairs_min > 0) o.pairs_min = (size_t)e->pairs_min;
  o.pairs_max = e->pairs_max > 0 ? (size_t)e->pairs_max : o.pairs_max;
  if (o.pairs_max < o.pairs_min) o.pairs_max = o.pairs_min;
  o.seconds = e->pairs_seconds;
  if (phase == BS_TIME_COLD) {
    o.batch_calls = COLD_CALLS;
    o.warm_calls = 0;
    o.warm_seconds = COLD_WARM_SECONDS;
  }
  for (uint32_t i = 0; i < p->arms; ++i) arms[i] = bs_arm_sampled(p->arm[i].arm, p->arm[i].name, phase);
  return bs_sampler_run(&o, &host, arms, p->arms, out, err);
}

/* Cold first: the regions in the record are then those of the hot forwards. */
static int32_t sample_all(phase1 *p, bs_error *err) {
  int32_t rc = BS_OK;
  if (p->e->cold) rc = sample(p, BS_TIME_COLD, &p->cold, err);
  if (rc == BS_OK) rc = sample(p, BS_TIME_HOT, &p->hot, err);
  return rc;
}

/* The rates of the implementation that serves an arm: another arm's, stored, or measured now. A run does not
 * fail without them: the record has the reason. */
static const bs_kernel *kernel_of(phase1 *p, uint32_t i, double footprint) {
  arm_state *a = &p->arm[i];
  bs_kernel *k = &a->kernel;
  bs_error_clear(&a->no_kernel);
  if (bs_kernel_identify(&a->c, k, &a->no_kernel) != BS_OK) return NULL;
  for (uint32_t j = 0; j < i; ++j) {
    if (!bs_kernel_same(&p->arm[j].kernel, k) || p->arm[j].kernel.source == NULL) continue;
    *k = p->arm[j].kernel;
    return k;
  }
  if (bs_constants_kernel(p->e->machine_constants, &a->c, footprint, k, k)) return k;
  const double seconds = p->e->pairs_seconds;
  const int32_t rc = bs_kernel_measure(&a->c, a->c.spec.w_dtype, footprint, seconds, k, &a->no_kernel);
  return rc == BS_OK ? k : NULL;
}

static int32_t predict(phase1 *p, bs_error *err) {
  double footprint = 0.0;
  tell(p, "machine constants", 0, 0);
  int32_t rc = bs_predict_footprint(&p->arm[0].c, &footprint, err);
  if (rc == BS_OK && !bs_constants_find(p->e->machine_constants, &p->arm[0].c, footprint, &p->machine))
    rc = bs_machine_measure(&p->arm[0].c, footprint, &p->machine, err);
  for (uint32_t i = 0; rc == BS_OK && i < p->arms; ++i) {
    tell(p, "predict", i + 1, p->arms);
    const bs_kernel *kernel = kernel_of(p, i, footprint);
    rc = bs_predict_case(&p->machine, kernel, &p->arm[i].c, &p->arm[i].predicted, err);
  }
  return rc;
}

/* ---- the record --------------------------------------------------------------------------------- */

static json_t *parts_json(const bs_parts *p) {
  return json_pack("{s:f,s:f,s:f,s:f,s:f}", "compute", p->compute, "memory", p->memory, "wire", p->wire,
                   "host", p->host, "total", p->total);
}

static void add_predicted(json_t *out, const arm_state *a, double median) {
  const bs_predicted *p = &a->predicted;
  json_t *kernel =
      p->has_kernel ? bs_kernel_json(&a->kernel) : json_pack("{s:s}", "why", a->no_kernel.message);
  if (p->has_kernel) json_object_set_new(kernel, "source", json_string(a->kernel.source));
  json_object_set_new(out, "bound_s", parts_json(&p->bound));
  json_object_set_new(out, "limit", json_string(p->limit ? p->limit : "unknown"));
  json_object_set_new(out, "predicted_s", p->has_kernel ? parts_json(&p->kernel) : json_null());
  const bs_against against = bs_against_of(p, median);
  bs_against_json(out, &against);
  json_object_set_new(out, "kernel", kernel);
}

static json_t *arm_json(const phase1 *p, uint32_t i) {
  const arm_state *a = &p->arm[i];
  json_t *out = json_pack("{s:s,s:s,s:i,s:i,s:f,s:f,s:f}", "name", a->name, "method", a->c.method,
                          "world_size", (int)a->c.world_size, "threads_per_rank", (int)a->c.threads_per_rank,
                          "build_s", bs_span_each(&a->build), "pack_s", bs_span_each(&a->pack), "first_s",
                          bs_span_each(&a->first));
  bs_sampling_arm_json(out, p->hot, i);
  json_t *cold = p->cold ? json_object() : json_null();
  if (p->cold) {
    bs_sampling_arm_json(cold, p->cold, i);
    json_object_set_new(cold, "flush_bytes", json_integer((json_int_t)a->flush_bytes));
  }
  json_object_set_new(out, "cold", cold);
  bs_clocks_json(out, bs_arm_clocks(a->arm));
  add_predicted(out, a, p->hot->arm[i].look.p50);
  return out;
}

/* The number of forwards after which the method's build and first forward have paid off; null: never. */
static json_t *break_even_json(const phase1 *p, const bs_sampled *s, uint32_t i) {
  const arm_state *a = &p->arm[0], *b = &p->arm[i];
  const bs_span once_a[2] = {a->build, a->first}, once_b[2] = {b->build, b->first};
  const bs_span each_a = bs_span_make(s->phase, s->arm[0].look.p50, 1);
  const bs_span each_b = bs_span_make(s->phase, s->arm[i].look.p50, 1);
  double calls = 0.0;
  if (bs_span_break_even(once_a, once_b, &each_a, &each_b, &calls, NULL) != BS_OK || !isfinite(calls))
    return json_null();
  return json_integer((json_int_t)fmin(ceil(calls), 1e15));
}

/* Removes the word of a time below the machine's bound. */
static void doubt_below_bound(const phase1 *p, bs_sampled *s, uint32_t i) {
  const uint32_t both[] = {0, i};
  bs_word_facts facts = {0};
  for (size_t k = 0; k < 2; ++k)
    facts.below_bound |= bs_against_of(&p->arm[both[k]].predicted, s->arm[both[k]].look.p50).below_bound != 0;
  bs_comparison_settle(&s->arm[i].comparison, &facts);
}

static json_t *comparisons_json(const phase1 *p, bs_sampled *s) {
  json_t *list = json_array();
  for (uint32_t i = 1; i < p->arms; ++i) {
    doubt_below_bound(p, s, i);
    json_t *row = bs_sampling_comparison_json(s, i);
    json_object_set_new(row, "break_even_forwards", break_even_json(p, s, i));
    json_array_append_new(list, row);
  }
  return list;
}

/* Warns of launch overhead, in addition to the messages on samples: bsrun prints both. */
static void warn_of_device(json_t *record, const bs_case_result *result) {
  const json_int_t slowest = json_integer_value(json_object_get(record, "timings_rank"));
  char text[256];
  if (bs_launch_bound(&result->ranks[slowest], text, sizeof text))
    json_array_append_new(json_object_get(record, "measuring_warnings"), json_string(text));
}

static void warn_of_clock(json_t *pairs, const arm_state *a) {
  char text[256];
  if (bs_clocks_sentence(bs_arm_clocks(a->arm), a->name, text, sizeof text))
    json_array_append_new(json_object_get(pairs, "measuring_warnings"), json_string(text));
}

/* A time below its bound, or a prediction that is off. */
static void warn_of_prediction(const phase1 *p, json_t *pairs, uint32_t i) {
  const arm_state *a = &p->arm[i];
  char text[640];
  bs_against_facts facts = {.arm = a->name,
                            .machine = &p->machine,
                            .ranks = a->c.world_size,
                            .threads = a->c.threads_per_rank,
                            .pairs = p->hot->pairs + p->hot->discarded};
  for (uint32_t k = 0; k < BS_DISTURB_COUNT_; ++k)
    if (p->hot->disturbed[k] > facts.disturbed) facts.disturbed = p->hot->disturbed[k];
  if (bs_against_sentence(&a->predicted, p->hot->arm[i].look.p50, &facts, text, sizeof text))
    json_array_append_new(json_object_get(pairs, "measuring_warnings"), json_string(text));
}

static int32_t fill(phase1 *p, bs_phase_result *out, bs_error *err) {
  json_t *arms = json_array(), *pairs = bs_sampling_pairs_json(p->hot);
  for (uint32_t i = 0; i < p->arms; ++i) {
    p->arm[i].flush_bytes = bs_arm_flush_bytes(p->arm[i].arm);
    json_array_append_new(arms, arm_json(p, i));
    warn_of_clock(pairs, &p->arm[i]);
    warn_of_prediction(p, pairs, i);
  }
  json_object_set_new(out->record, "arms", arms);
  json_object_set_new(out->record, "comparisons", comparisons_json(p, p->hot));
  json_object_set_new(out->record, "comparisons_cold", p->cold ? comparisons_json(p, p->cold) : json_null());
  json_object_update(out->record, pairs);
  json_decref(pairs);
  json_object_set_new(out->record, "pairs_cold", p->cold ? bs_sampling_pairs_json(p->cold) : json_null());
  const uint64_t forwards = p->hot->pairs * p->hot->arm[0].warm.calls;
  json_object_set_new(out->record, "iterations", json_integer((json_int_t)forwards));
  json_object_set_new(out->record, "warmup_iters", json_integer(p->e->warmup_iters));
  json_object_set_new(out->record, "machine", bs_machine_json(&p->machine));
  bs_case_result result = {0};
  bs_arm *method = p->arm[0].arm;
  p->arm[0].arm = NULL;
  int32_t rc = bs_arm_close(method, &result, err);
  if (rc == BS_OK) rc = bs_record_case_fields(out->record, &p->arm[0].c, &result, &p->subject, err);
  if (rc == BS_OK) warn_of_device(out->record, &result);
  bs_case_result_free(&result);
  const bs_samples *const trails[] = {&p->hot->trail, p->cold != NULL ? &p->cold->trail : NULL};
  if (rc == BS_OK)
    rc = bs_samples_encode(trails, p->cold != NULL ? 2 : 1, p->arms, &out->samples, &out->samples_bytes, err);
  out->passed = 1; /* it ran; phase 1 judges no numbers */
  return rc;
}

/* Runs a process that is not rank 0: its rank of the method's arm executes rank 0's commands; only rank 0 has
 * the dense peers. */
static int32_t follow(phase1 *p, bs_error *err) {
  bs_arm_case arms[BS_ARMS_MAX];
  bs_told told = {0};
  arm_state *a = &p->arm[0];
  (void)bs_arms_of(p->context, p->e, &p->subject, arms);
  a->c = arms[0].c;
  p->arms = 1;
  int32_t rc = bs_arm_open(&a->c, arms[0].name, &a->arm, err);
  while (rc == BS_OK && told.word != BS_WORD_CLOSE && told.word != BS_WORD_END) {
    rc = bs_peers_hear(p->e->peers, &told, err);
    if (rc == BS_OK && told.word == BS_WORD_BATCH) rc = bs_arm_follow(a->arm, &told, err);
    if (rc == BS_OK && told.word == BS_WORD_EXCHANGE) rc = bs_machine_exchange(&a->c, &p->machine, err);
  }
  if (rc != BS_OK || told.word == BS_WORD_END || !told.what) return rc;
  bs_case_result result = {0};
  bs_arm *method = a->arm;
  a->arm = NULL;
  rc = bs_arm_close(method, &result, err);
  bs_case_result_free(&result);
  return rc;
}

static int32_t lead(phase1 *p, bs_phase_result *out, bs_error *err) {
  int32_t rc = open_arms(p, err);
  if (rc == BS_OK) rc = sample_all(p, err);
  if (rc == BS_OK) rc = predict(p, err);
  if (rc == BS_OK) rc = fill(p, out, err);
  return rc;
}

int32_t bs_phase1_run(bs_context *context, const bs_experiment *e, bs_progress_fn progress, void *user,
                      bs_phase_result *out, bs_error *err) {
  phase1 p = {.context = context, .e = e, .progress = progress, .user = user};
  int32_t rc = bs_phase_result_open(out, err);
  if (rc != BS_OK) return rc;
  rc = bs_subject_open(context, e, &p.subject, err);
  if (rc == BS_OK) bs_overlap_resolve(e, &p.subject);
  if (rc == BS_OK) rc = bs_peers_lead(e->peers) ? lead(&p, out, err) : follow(&p, err);
  for (uint32_t i = 0; i < p.arms; ++i) {
    if (p.arm[i].arm) bs_arm_close(p.arm[i].arm, NULL, NULL);
  }
  if (bs_context_stuck(context) == 0) { /* otherwise a rank that has not returned may still read it */
    bs_source_release(&p.w);
    free(p.weights);
  }
  bs_sampling_free(p.hot);
  bs_sampling_free(p.cold);
  bs_subject_close(&p.subject);
  if (rc != BS_OK) bs_phase_result_free(out);
  return rc;
}
