/* SPDX-License-Identifier: MIT
 * bench_time.c - the times of one problem: single calls of each arm, whose percentiles are printed; then
 * pairs of all arms by the lab's sampler, which give the ratios; and the bounds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "lab/error.h"
#include "lab/kernel/bench_point.h"
#include "lab/measure/spacer.h"

static const double SERIES_SECONDS = 10;  /* a series ends before its count when it would take longer */
static const double SLOWEST_PAIRED = 0.5; /* bs_kernel_bench.slowest by default */
static const double MARGIN = 0.01;
enum { LEAST_CALLS = 3, LAUNCHES = 200, LEAST_PAIRS = 20, MOST_PAIRS = 200 };

/* ---- an arm of any kind ------------------------------------------------------------------------- */

/* A call of a peer. Its failure ends its part, and not the command: finish_peers. */
static int32_t of_peer(bs_entrant *e, int32_t rc, const bs_error *why, bs_error *err) {
  if (rc == BS_OK) return rc;
  e->broken = rc != BS_ABORTED && rc != BS_NO_MEMORY;
  snprintf(e->cause, sizeof e->cause, "%.290s", why->message);
  if (err != NULL) *err = *why;
  return rc;
}

static int32_t batch(void *user, uint64_t lead, uint64_t n, bs_sample *out, bs_error *err) {
  bs_entrant *e = user;
  bs_error why = BS_ERROR_INIT;
  if (e->peer == NULL) return bs_kernel_arm_batch(e->arm, lead, n, out, err);
  return of_peer(e, bs_kernel_peer_batch(e->peer, lead, n, out, &why), &why, err);
}

static int32_t series(bs_entrant *e, uint64_t warmup, uint64_t n, double *out, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  if (e->peer == NULL) return bs_kernel_arm_series(e->arm, warmup, n, out, err);
  return of_peer(e, bs_kernel_peer_series(e->peer, warmup, n, out, &why), &why, err);
}

static void drop(bs_entrant *e) {
  bs_kernel_arm_close(e->arm);
  e->arm = NULL;
}

static int32_t build_anew(bs_entrant *e, bs_error *err) {
  bs_kernel_data *data = NULL;
  int32_t rc = bs_kernel_seeds_get(e->seeds, 0, &data, err);
  if (rc != BS_OK) return rc;
  if (e->peer != NULL) {
    bs_error why = BS_ERROR_INIT;
    return of_peer(e, bs_kernel_peer_load(e->peer, data, &why), &why, err);
  }
  e->setup.data = data;
  return bs_kernel_arm_open(&e->setup, &e->arm, err);
}

/* ---- single calls ------------------------------------------------------------------------------- */

static int32_t time_calls(const bs_kernel_bench *q, bs_entrant *e, bs_error *err) {
  bs_sample first = {0};
  int32_t rc = batch(e, 0, 1, &first, err); /* not stored: it may wake threads and fill caches */
  if (rc == BS_OK) rc = batch(e, 0, 1, &first, err);
  if (rc != BS_OK) return rc;
  const double each = fmax(first.seconds, 1e-9), most = SERIES_SECONDS / each;
  const uint64_t n = (double)q->iters > most ? (uint64_t)fmax(most, LEAST_CALLS) : q->iters;
  const uint64_t warmup = (double)q->warmup > most ? (uint64_t)most : q->warmup;
  e->calls = calloc((size_t)n, sizeof *e->calls);
  if (e->calls == NULL) return bs_no_memory(err, "%llu times", (unsigned long long)n);
  e->n_calls = (size_t)n;
  rc = series(e, warmup, n, e->calls, err);
  return rc != BS_OK || bs_look_at(e->calls, e->n_calls, &e->look) ? rc : bs_no_memory(err, "percentiles");
}

/* The shortest call of the smallest problem of the same kind; of attention it has the same widths. A peer's
 * is not known. */
static int32_t time_launch(bs_entrant *e, bs_error *err) {
  bs_kernel_problem p = e->problem;
  bs_kernel_arm *arm = NULL;
  double seconds[LAUNCHES], least = INFINITY;
  if (e->peer != NULL) return BS_OK;
  p.B = p.H = p.G = p.S = p.T = 1;
  if (bs_kernel_is_product(&p)) p.N = 1;
  if (bs_kernel_is_product(&p)) p.K = bs_kernel_is_24(&p) || p.columns != BS_COLUMNS_ALL ? 4 : 1;
  p.left = p.right = 0;
  bs_kernel_setup s = e->setup;
  s.problem = &p;
  s.data = NULL;
  int32_t rc = bs_kernel_arm_open(&s, &arm, NULL);
  if (rc != BS_OK && rc != BS_NO_MEMORY) return BS_OK; /* it does not serve the smallest one: not known */
  if (rc == BS_OK) rc = bs_kernel_arm_series(arm, LAUNCHES, LAUNCHES, seconds, err);
  for (int i = 0; rc == BS_OK && i < LAUNCHES; i++) least = fmin(least, seconds[i]);
  if (rc == BS_OK) e->launch_s = least;
  bs_kernel_arm_close(arm);
  return rc;
}

/* ---- pairs -------------------------------------------------------------------------------------- */

static int32_t rebuild(void *user, uint32_t build, bs_error *err) {
  bs_point *point = user;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < point->n; i++)
    if (point->of[i].paired >= 0) drop(&point->of[i]);
  bs_spacer_return_pages();
  for (uint32_t i = 0; rc == BS_OK && i < point->n; i++) {
    bs_entrant *e = &point->of[build % 2 == 0 ? point->n - 1 - i : i];
    if (e->paired >= 0) rc = build_anew(e, err);
  }
  return rc;
}

static void progress(void *user, const char *what, uint64_t done, uint64_t total) {
  const bs_point *point = user;
  if (point->bench->progress != NULL) point->bench->progress(point->bench->user, what, done, total);
}

static double slowest_paired(const bs_point *point) {
  return point->bench->slowest > 0.0 ? point->bench->slowest : SLOWEST_PAIRED;
}

/* A peer runs in a separate process. */
static void used_elsewhere(void *user, bs_process_use *out) {
  bs_kernel_peer_used(((const bs_entrant *)user)->peer, out);
}

static int32_t take_pairs(bs_point *point, bs_error *err) {
  const bs_kernel_bench *q = point->bench;
  uint32_t threads = q->threads;
  const bs_sampler_host host = {
      .user = point, .disturb = bs_disturb_host, .progress = progress, .rebuild = rebuild};
  bs_sampler_arm arms[BS_KERNEL_PROVIDERS + BS_KERNEL_PEERS];
  uint32_t n = 0;
  bs_sampler_options o;
  for (uint32_t i = 0; i < point->n; i++) /* a device's host thread waits; PyTorch is on the same device */
    if (point->of[i].arm != NULL && bs_kernel_arm_on_device(point->of[i].arm)) threads = 1;
  for (uint32_t i = 0; i < point->n; i++) {
    bs_entrant *e = &point->of[i];
    if (!bs_entrant_runs(e) || e->look.p50 > slowest_paired(point)) continue;
    e->paired = (int32_t)n;
    if (e->arm != NULL) bs_kernel_arm_same(e->arm, e->same);
    arms[n++] = (bs_sampler_arm){.name = e->label,
                                 .user = e,
                                 .batch = batch,
                                 .threads = threads,
                                 .elsewhere = e->peer != NULL ? used_elsewhere : NULL,
                                 .configuration = e->same[0] != '\0' ? e->same : e->label};
  }
  if (n < 2) {
    for (uint32_t i = 0; i < point->n; i++) point->of[i].paired = -1;
    return BS_OK;
  }
  bs_sampler_defaults(&o);
  o.pairs_min = q->pairs > 0 ? q->pairs : LEAST_PAIRS;
  o.pairs_max = MOST_PAIRS;
  o.seconds = q->seconds;
  o.warm_seconds = fmin(0.1 * q->seconds, 1.0);
  o.margin = MARGIN;
  o.seed = q->seed + 1;
  return bs_sampler_run(&o, &host, arms, n, &point->sampling, err);
}

/* Ends the part of peers whose calls failed. *out_some: there was one. */
static int32_t finish_peers(bs_point *point, int *out_some, bs_error *err) {
  int32_t rc = BS_OK;
  *out_some = 0;
  for (uint32_t i = 0; rc == BS_OK && i < point->n; i++) {
    bs_entrant *e = &point->of[i];
    if (!e->broken || e->failed >= 0) continue;
    *out_some = 1;
    rc = bs_entrant_peer_failed(e, BS_STAGE_PERFORMANCE, e->cause, err);
  }
  return rc;
}

/* Arms that a failed sampling has not built again. */
static int32_t mend_arms(bs_point *point, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < point->n; i++) {
    bs_entrant *e = &point->of[i];
    if (e->paired >= 0 && e->peer == NULL && e->arm == NULL) rc = build_anew(e, err);
    e->paired = -1;
  }
  return rc;
}

/* The pairs; again without a peer that fails in them. */
static int32_t pair_all(bs_point *point, bs_error *err) {
  for (;;) {
    bs_error why = BS_ERROR_INIT;
    int some = 0;
    int32_t rc = take_pairs(point, &why);
    const int32_t finished = rc != BS_OK ? finish_peers(point, &some, err) : BS_OK;
    if (rc != BS_OK && !some && finished == BS_OK && err != NULL) *err = why;
    if (rc == BS_OK || !some || finished != BS_OK) return finished != BS_OK ? finished : rc;
    bs_sampling_free(point->sampling);
    point->sampling = NULL;
    rc = mend_arms(point, err);
    if (rc != BS_OK) return rc;
  }
}

static double pair_median(const bs_point *point, const bs_entrant *e) {
  return point->sampling->arm[e->paired].look.p50;
}

/* The fastest other one in the pairs on the same problem; NULL: none. A stored build is no other provider. */
static const bs_entrant *best_other(const bs_point *point, const bs_entrant *e) {
  const bs_entrant *best = NULL;
  for (uint32_t i = 0; i < point->n; i++) {
    const bs_entrant *o = &point->of[i];
    if (o == e || o->paired < 0 || o->baseline || !bs_entrant_alike(o, e)) continue;
    if (best == NULL || pair_median(point, o) < pair_median(point, best)) best = o;
  }
  return best;
}

static int32_t compare(const bs_point *point, const bs_entrant *e, const bs_entrant *other,
                       bs_comparison *out, bs_error *err) {
  const bs_sampled *s = point->sampling;
  const double *mine = s->arm[e->paired].seconds, *theirs = s->arm[other->paired].seconds;
  size_t start[BS_GROUPS_MAX + 1];
  const uint32_t groups = bs_sampling_groups(s, start);
  const int known = groups > 0 ? bs_compare_groups(mine, theirs, start, groups, MARGIN, out)
                               : bs_compare_pairs(mine, theirs, s->pairs, MARGIN, out);
  bs_comparison *table[] = {out};
  const double order = s->arm[e->paired].order - s->arm[other->paired].order;
  if (!known) return bs_no_memory(err, "a comparison");
  if (order != 0) bs_comparison_widen(out, order);
  bs_comparisons_decide(table, 1);
  bs_sampling_settle(s, (uint32_t)e->paired, (uint32_t)other->paired, out);
  return BS_OK;
}

/* The standing that a provider's ratio gives it, by the limits of the gates promoted and kept: 1.0 of the
 * best other provider to replace it, 0.9 to be kept. */
static const char *standing(const bs_comparison *c) {
  if (bs_kernel_undecided(c)) return "unclear";
  if (c->low >= 1.0) return "promoted";
  if (c->low >= 0.9) return "kept";
  return c->high < 0.9 ? "dropped" : "unclear";
}

/* The advice of bs_comparison_next, with the option names of bench. */
static const char *say_next(const bs_comparison *c, char *out, size_t size) {
  if (c->word != BS_WORD_UNCLEAR || (c->cause != BS_UNCLEAR_FEW && c->cause != BS_UNCLEAR_BUILD))
    return bs_comparison_next(c, out, size);
  if (c->cause == BS_UNCLEAR_BUILD)
    snprintf(out, size, "builds differ: a longer --seconds takes more of them");
  else
    snprintf(out, size, "needs about %zu pairs, has %zu: a longer --seconds, or a quiet machine", c->needs,
             c->pairs);
  return out;
}

/* Adds the ratio next to `performance`; gates judge it only where it could be decided. */
static int32_t add_ratio(const bs_point *point, const bs_entrant *e, const char *against,
                         const bs_comparison *c, json_t *record, bs_error *err) {
  char next[BS_LOOK_SENTENCE];
  json_t *ratio = json_pack(
      "{s:s, s:o, s:o, s:o, s:s, s:s, s:s, s:I, s:I, s:f, s:s, s:o}", "against", against, "ratio",
      bs_kernel_number(c->ratio), "ratio_low", bs_kernel_number(c->low), "ratio_high",
      bs_kernel_number(c->high), "word", bs_comparison_name(c->word), "cause", bs_unclear_name(c->cause),
      "standing", standing(c), "pairs", (json_int_t)c->pairs, "builds", (json_int_t)point->sampling->builds,
      "pair_median_us", 1e6 * pair_median(point, e), "next", say_next(c, next, sizeof next), "disturbance",
      bs_disturbance_json(&point->sampling->disturbance));
  const int bad = ratio == NULL || json_object_set_new(record, "comparison", ratio) != 0;
  return bad ? bs_no_memory(err, "a ratio") : BS_OK;
}

/* Adds its time over the subject's, for any problems of both. */
static int32_t add_of_subject(const bs_point *point, const bs_entrant *e, bs_error *err) {
  const bs_entrant *subject = &point->of[0];
  bs_comparison c;
  if (e == subject || e->paired < 0 || subject->paired < 0) return BS_OK;
  const int32_t rc = compare(point, subject, e, &c, err);
  json_t *ratio = rc == BS_OK ? json_pack("{s:o, s:o, s:o, s:s}", "ratio", bs_kernel_number(c.ratio), "low",
                                          bs_kernel_number(c.low), "high", bs_kernel_number(c.high), "word",
                                          bs_comparison_name(c.word))
                              : NULL;
  if (rc != BS_OK) return rc;
  const int bad = ratio == NULL || json_object_set_new(e->record, "of_subject", ratio) != 0;
  return bad ? bs_no_memory(err, "a ratio") : BS_OK;
}

/* ---- bounds and the record ---------------------------------------------------------------------- */

/* Seconds of one product on a device, from several that are queued one after another; 0: its backend does not
 * serve the product, or lacks the memory. */
static int32_t product_time(const bs_entrant *e, const bs_kernel_problem *p, double *out_seconds,
                            bs_error *err) {
  enum { CALLS = 10 };
  bs_kernel_setup s = e->setup;
  bs_kernel_arm *arm = NULL;
  bs_sample sample = {0};
  *out_seconds = 0.0;
  s.problem = p;
  s.provider = s.knobs = s.stored_id = NULL;
  s.data = NULL;
  if (bs_kernel_arm_open(&s, &arm, NULL) != BS_OK) return BS_OK;
  const int32_t rc = bs_kernel_arm_batch(arm, CALLS, CALLS, &sample, err);
  if (rc == BS_OK) *out_seconds = sample.seconds;
  bs_kernel_arm_close(arm);
  return rc;
}

/* Bytes a second that a copy of half of `bytes` reads and writes; 0: it cannot be had. */
static double copy_rate(const bs_entrant *e, double bytes) {
  enum { COPIES = 20 };
  const bs_backend *b = NULL;
  const uint64_t half = (uint64_t)(bytes / 2.0) + 1;
  void *state = NULL, *device = NULL, *at[2] = {NULL, NULL};
  double seconds = 0.0;
  if (bs_find_backend(e->setup.context, e->setup.backend, &b, &state, NULL) != BS_OK ||
      b->device_open(state, 0, &device, NULL) != BS_OK)
    return 0.0;
  int32_t rc = b->mem_alloc(device, half, 64, &at[0], NULL);
  if (rc == BS_OK) rc = b->mem_alloc(device, half, 64, &at[1], NULL);
  for (int turn = 0; rc == BS_OK && turn < 2; turn++) { /* the first is not counted */
    const double began = bs_clock_s();
    for (int i = 0; rc == BS_OK && i < COPIES; i++)
      rc = b->mem_copy(device, at[1], at[0], half, BS_COPY_DEVICE_TO_DEVICE, NULL, NULL);
    if (rc == BS_OK && b->stream_sync != NULL) rc = b->stream_sync(device, NULL, NULL);
    seconds = bs_clock_s() - began;
  }
  for (int i = 0; i < 2; i++)
    if (at[i] != NULL) b->mem_free(device, at[i]);
  b->device_close(device);
  return rc == BS_OK && seconds > 0.0 ? 2.0 * (double)half * COPIES / seconds : 0.0;
}

/* The peaks of a device: the fastest product of square matrices that its backend serves, in sizes that grow
 * until one takes long enough. Its bytes and exponentials a second are not measured, and limit nothing. */
static int32_t device_peaks(const bs_entrant *e, const bs_kernel_problem *of, bs_kernel_peaks *out,
                            bs_error *err) {
  static const double while_s = 100e-6;
  *out = (bs_kernel_peaks){.threads = 1, .loop = "product"};
  for (int64_t n = 128; n <= 4096; n *= 2) {
    bs_kernel_problem p;
    char text[64];
    double seconds = 0.0;
    snprintf(text, sizeof text, "matmul n%lldk%lldb%lld", (long long)n, (long long)n, (long long)n);
    int32_t rc = bs_kernel_problem_parse(text, &p, err);
    if (rc != BS_OK) return rc;
    p.dtype = BS_DTYPE_BYTES(of->dtype) == 1 ? (uint32_t)BS_F16 : of->dtype;
    rc = product_time(e, &p, &seconds, err);
    if (rc != BS_OK || seconds <= 0.0) return rc;
    out->flops = fmax(out->flops, bs_kernel_flops(&p) / seconds);
    if (seconds > while_s) break;
  }
  out->copied = copy_rate(e, bs_kernel_bytes(of));
  if (BS_DTYPE_BYTES(of->dtype) == 1) out->flops *= 2.0; /* tensor cores multiply bytes twice as fast */
  return BS_OK;
}

static int32_t peaks(const bs_point *point, const bs_kernel_problem *of, bs_kernel_peaks *out,
                     bs_error *err) {
  for (uint32_t i = 0; i < point->n; i++)
    if (point->of[i].arm != NULL && bs_kernel_arm_on_device(point->of[i].arm))
      return device_peaks(&point->of[i], of, out, err);
  return bs_kernel_peaks_measure(of, point->bench->threads, point->bench->avx2_only != 0, out, err);
}

/* Measures the peaks once more if a share is above 100 %: other programs may have run then. A share that is
 * still above is not shown, and fails its gate. */
static int32_t bound(bs_point *point, const bs_entrant *e, bs_kernel_peaks *rates, bs_kernel_bound *out,
                     bs_error *err) {
  double percent;
  bs_kernel_bound_of(&e->problem, rates, e->launch_s, out);
  if (bs_kernel_bound_percent(out, e->look.p50, &percent, NULL) == BS_OK) return BS_OK;
  bs_kernel_peaks again;
  const int32_t rc = peaks(point, &e->problem, &again, err);
  if (rc != BS_OK) return rc;
  rates->flops = fmax(rates->flops, again.flops);
  rates->exps = fmax(rates->exps, again.exps);
  rates->bytes = fmax(rates->bytes, again.bytes);
  bs_kernel_bound_of(&e->problem, rates, e->launch_s, out);
  return BS_OK;
}

static json_t *bound_json(const bs_kernel_bound *b, const bs_kernel_peaks *r) {
  return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:s, s:i, s:f}", "fma_us",
                   1e6 * b->limit_s[BS_LIMIT_FMA], "exp_us", 1e6 * b->limit_s[BS_LIMIT_EXP], "bytes_us",
                   1e6 * b->limit_s[BS_LIMIT_BYTES], "launch_us", 1e6 * b->limit_s[BS_LIMIT_LAUNCH],
                   "fma_and_exp_us", 1e6 * b->shared_s, "gflops", 1e-9 * r->flops, "gexps", 1e-9 * r->exps,
                   "gbytes", 1e-9 * r->bytes, "loop", r->loop, "threads", (int)r->threads, "footprint_bytes",
                   r->footprint);
}

static json_t *numbers(const double *values, size_t n) {
  json_t *list = json_array();
  for (size_t i = 0; list != NULL && i < n; i++) json_array_append_new(list, json_real(values[i]));
  return list;
}

static uint32_t peers(const bs_point *point, const bs_entrant *e) {
  uint32_t n = 0;
  /* Only the subject is judged by its speed: the other entrants are its comparison. */
  for (uint32_t i = 1; e == &point->of[0] && i < point->n; i++)
    n += (uint32_t)(bs_entrant_runs(&point->of[i]) && !point->of[i].baseline &&
                    bs_entrant_alike(&point->of[i], e));
  return n;
}

/* The reason why an entrant that is judged by its speed is in no pairs: it, or each of the others, takes too
 * long. */
static void say_unpaired(const bs_point *point, const bs_entrant *e, char *out, size_t size) {
  double least = INFINITY;
  for (uint32_t i = 0; i < point->n; i++)
    if (&point->of[i] != e && bs_entrant_runs(&point->of[i]) && !point->of[i].baseline &&
        bs_entrant_alike(&point->of[i], e))
      least = fmin(least, point->of[i].look.p50);
  const int mine = e->look.p50 > slowest_paired(point);
  snprintf(out, size, "%s takes %.3g s a call, and more than %.3g s is not paired",
           mine ? "it" : "the best other provider", mine ? e->look.p50 : least, slowest_paired(point));
}

/* Single calls, in microseconds of one call; an item is one of the batch, of all arms alike. */
static json_t *calls_json(const bs_entrant *e, const bs_kernel_bound *b) {
  const bs_kernel_problem *p = &e->problem;
  const double each = e->look.p50;
  return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:s, s:f, s:f}", "unit", "us_per_call",
                   "p50_us", 1e6 * each, "p90_us", 1e6 * e->look.p90, "p99_us", 1e6 * e->look.p99, "min_us",
                   1e6 * e->look.min, "p50_us_per_item", 1e6 * each / (double)p->B, "gflops",
                   1e-9 * bs_kernel_flops(p) / each, "calls", (json_int_t)e->n_calls, "items",
                   (json_int_t)p->B, "binding", bs_kernel_limit_names[b->binding], "bound_us",
                   1e6 * b->seconds, "fma_and_exp_percent", 100.0 * b->shared_s / each);
}

/* The stored build that the subject is compared with; NULL: none, or it is not
 * among the entrants. */
static const bs_entrant *baseline_of(const bs_point *point, const bs_entrant *e) {
  for (uint32_t i = 1; e == &point->of[0] && i < point->n; i++)
    if (point->of[i].baseline) return &point->of[i];
  return NULL;
}

/* The reason why the subject and the stored build are in no pairs. */
static void say_no_progress(const bs_point *point, const bs_entrant *e, const bs_entrant *before, char *out,
                            size_t size) {
  if (before == NULL)
    snprintf(out, size, "the stored build is not included");
  else if (before->failed >= 0)
    snprintf(out, size, "%.200s", before->cause);
  else
    snprintf(out, size, "%.3g s a call, of the stored build %.3g s: more than %.3g s is not paired",
             e->look.p50, before->look.p50, slowest_paired(point));
}

static int32_t add_performance(bs_point *point, bs_entrant *e, bs_kernel_peaks *rates, bs_error *err) {
  const bs_entrant *other = e->paired >= 0 ? best_other(point, e) : NULL;
  const uint32_t judged = peers(point, e);
  char unpaired[160], no_progress[240];
  const bs_entrant *before = baseline_of(point, e);
  const int has_progress = before != NULL && e->paired >= 0 && before->paired >= 0;
  bs_kernel_bound b;
  bs_comparison c, progress;
  say_unpaired(point, e, unpaired, sizeof unpaired);
  say_no_progress(point, e, before, no_progress, sizeof no_progress);
  int32_t rc = bound(point, e, rates, &b, err);
  if (rc == BS_OK && other != NULL) rc = compare(point, e, other, &c, err);
  if (rc == BS_OK && has_progress) rc = compare(point, e, before, &progress, err);
  const bs_kernel_timed timed = {.seconds = e->look.p50,
                                 .samples = e->n_calls,
                                 .bound = &b,
                                 .peers = judged,
                                 .best = other != NULL ? &c : NULL,
                                 .unpaired = judged > 0 && other == NULL ? unpaired : NULL,
                                 .baseline = e == &point->of[0] && point->bench->baseline != NULL,
                                 .progress = has_progress ? &progress : NULL,
                                 .no_progress = has_progress ? NULL : no_progress,
                                 .candidate = judged > 0 && point->bench->promote};
  if (rc == BS_OK) rc = bs_kernel_record_times(&timed, e->record, err);
  if (rc != BS_OK) return rc;
  json_t *performance = json_object_get(e->record, "performance"), *calls = calls_json(e, &b);
  if (rates->copied > 0.0)
    json_object_set_new(performance, "copy_us",
                        json_real(1e6 * bs_kernel_bytes(&e->problem) / rates->copied));
  if (e->arm != NULL && bs_kernel_arm_queued(e->arm) > 0.0)
    json_object_set_new(performance, "queued_us", json_real(1e6 * bs_kernel_arm_queued(e->arm)));
  const int bad = calls == NULL || json_object_update(performance, calls) != 0 ||
                  json_object_set_new(e->record, "bound", bound_json(&b, rates)) != 0 ||
                  json_object_set_new(e->record, "calls_s", numbers(e->calls, e->n_calls)) != 0;
  json_decref(calls);
  if (bad) return bs_no_memory(err, "times");
  rc = other != NULL ? add_ratio(point, e, other->label, &c, e->record, err) : BS_OK;
  return rc == BS_OK ? add_of_subject(point, e, err) : rc;
}

int32_t bs_point_time(bs_point *point, bs_error *err) {
  bs_kernel_peaks rates, own;
  uint32_t running = 0;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < point->n; i++) running += (uint32_t)bs_entrant_runs(&point->of[i]);
  if (running == 0) return BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < point->n; i++) {
    bs_entrant *e = &point->of[i];
    if (!bs_entrant_runs(e)) continue;
    progress(point, "single calls", i, point->n);
    int some = 0;
    rc = time_launch(e, err);
    if (rc == BS_OK) rc = time_calls(point->bench, e, err);
    if (rc != BS_OK && e->broken) rc = finish_peers(point, &some, err);
  }
  if (rc == BS_OK) rc = pair_all(point, err);
  if (rc == BS_OK) rc = peaks(point, point->problem, &rates, err);
  for (uint32_t i = 0; rc == BS_OK && i < point->n; i++) {
    bs_entrant *e = &point->of[i];
    const int differs = e->vary[0] != '\0';
    if (!bs_entrant_runs(e)) continue;
    if (differs) rc = peaks(point, &e->problem, &own, err);
    if (rc == BS_OK) rc = add_performance(point, e, differs ? &own : &rates, err);
  }
  return rc;
}
