/* SPDX-License-Identifier: MIT
 * model_split.c - the check `split` of a model over ranks: what its collectives take, which rank the others
 * wait for, pairs that are refused, products that every rank computes whole, and one rank with as many
 * threads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/text.h"
#include "lab/diagnose/model_checks.h"
#include "lab/error.h"
#include "lab/json.h"

/* Samples of a region that are kept in their order (blockshock.h), and runs at least. */
enum { KEPT = 4096, LEAST_RUNS = 3 };
/* The share of a run from which collectives are a finding, as the rule `collectives` has it. */
static const double MUCH = 0.3;
static const char f_refused[] = "its pair as F is refused: ", s_refused[] = "its pair as S is refused: ",
                  alone[] = "in no pair: ", whole[] = "whole on every rank: ";

/* Collectives of a run, in seconds. The rank that comes last does not wait, so that the shortest time over
 * the ranks is that of the exchange. */
typedef struct split_times {
  uint64_t runs, each;       /* each: collectives of a run */
  double run_s, mean, waits; /* mean over the ranks, and how much of it is waiting */
  double *of;                /* each: the mean over ranks and runs */
  double *of_wait;           /* each: of that, waiting */
  double *of_rank;           /* of all collectives of a run */
  uint32_t slowest;          /* the rank that waits least */
} split_times;

/* So many seconds of the runs that were timed here, as a part of the pass that findings are relative to. */
static double of_pass(const bs_diagnosis *d, const split_times *t, double seconds) {
  return d->pass_s > 0 && t->run_s > 0 ? seconds / t->run_s * d->pass_s : seconds;
}

/* ---- times ----------------------------------------------------------------------------------- */

static void times_free(split_times *t) {
  free(t->of);
  free(t->of_wait);
  free(t->of_rank);
}

static void forget(const diag_model *m) {
  for (uint32_t r = 0; r < m->ranks.n; r++) {
    bs_rank_regions_reset(bs_world_rank(m->model->world, r));
    bs_rank_counters_reset(bs_world_rank(m->model->world, r));
  }
}

static int32_t run_some(const bs_diagnosis *d, const diag_model *m, split_times *t, bs_error *err) {
  diag_session s = {0};
  int32_t rc = diag_session_asked(m, &s, err);
  if (rc == BS_OK) rc = diag_session_run(&s, err);
  forget(m);
  const double began = bs_clock_s();
  for (t->runs = 0; rc == BS_OK && (t->runs < LEAST_RUNS || bs_clock_s() - began < d->seconds); t->runs++) {
    if ((t->runs + 1) * (m->stats.collectives + 1) > KEPT && t->runs >= LEAST_RUNS) break;
    rc = diag_session_run(&s, err);
  }
  t->run_s = (bs_clock_s() - began) / (double)t->runs;
  diag_session_close(&s);
  return rc;
}

/* Adds up the samples `ms` of each rank, one behind the other: `all` of a rank, of runs of `each`. */
static void add_up(split_times *t, const double *ms, uint32_t ranks, uint64_t all) {
  const double scale = 1e-3 / (double)t->runs;
  for (uint64_t i = 0; i < all; i++) {
    double sum = 0, least = ms[i];
    for (uint32_t r = 0; r < ranks; r++) {
      const double own = ms[r * all + i];
      sum += own;
      least = own < least ? own : least;
      t->of_rank[r] += own * scale;
    }
    t->of[i % t->each] += sum / ranks * scale;
    t->of_wait[i % t->each] += (sum / ranks - least) * scale;
  }
  for (uint64_t i = 0; i < t->each; i++) {
    t->mean += t->of[i];
    t->waits += t->of_wait[i];
  }
  for (uint32_t r = 1; r < ranks; r++)
    if (t->of_rank[r] < t->of_rank[t->slowest]) t->slowest = r;
}

static uint64_t timed_on(const diag_model *m, uint32_t rank) {
  bs_region_stats stats = {.struct_size = sizeof stats};
  const int32_t rc =
      bs_rank_region_stats(bs_world_rank(m->model->world, rank), BS_REGION_ALLREDUCE, &stats, NULL);
  return rc == BS_OK ? stats.count : 0;
}

/* Times of which each run has as many, in the same order on every rank. each 0: there are none such. */
static int32_t take_times(const diag_model *m, split_times *t, bs_error *err) {
  const uint32_t ranks = m->ranks.n;
  const uint64_t all = timed_on(m, 0);
  t->each = all % t->runs == 0 && all <= KEPT ? all / t->runs : 0;
  for (uint32_t r = 1; r < ranks; r++)
    if (timed_on(m, r) != all) t->each = 0;
  double *ms = calloc((size_t)ranks * KEPT, sizeof *ms);
  t->of = calloc(t->each + 1, sizeof *t->of);
  t->of_wait = calloc(t->each + 1, sizeof *t->of_wait);
  t->of_rank = calloc(ranks, sizeof *t->of_rank);
  const int room = ms != NULL && t->of != NULL && t->of_wait != NULL && t->of_rank != NULL;
  for (uint32_t r = 0; room && r < ranks && t->each > 0; r++)
    bs_rank_region_samples(bs_world_rank(m->model->world, r), BS_REGION_ALLREDUCE, ms + r * all, all);
  if (room && t->each > 0) add_up(t, ms, ranks, all);
  free(ms);
  return room ? BS_OK : bs_no_memory(err, "times of collectives");
}

/* The time of a node's collectives; *out_wait (may be NULL): how much of it is waiting. A node with
 * collectives has one time, or each of its collectives has. */
static double collectives_of(const diag_model *m, const split_times *t, size_t node, double *out_wait) {
  const json_t *nodes = json_object_get(m->explain, "nodes");
  uint64_t before = 0, timed = 0, own = 0;
  double sum = 0;
  for (size_t i = 0; i < json_array_size(nodes); i++)
    timed += bs_get_number(json_array_get(nodes, i), "collectives") > 0;
  const int alike = timed == t->each;
  if (out_wait != NULL) *out_wait = 0;
  if (!alike && t->each != m->stats.collectives) return 0;
  for (size_t i = 0; i <= node; i++) {
    before += own;
    own = (uint64_t)bs_get_number(json_array_get(nodes, i), "collectives");
    if (alike && own > 0) own = 1;
  }
  for (uint64_t k = before; k < before + own && k < t->each; k++) {
    sum += t->of[k];
    if (out_wait != NULL) *out_wait += t->of_wait[k];
  }
  return sum;
}

static void tell_times(bs_diagnosis *d, const diag_model *m, const split_times *t) {
  const json_t *nodes = json_object_get(m->explain, "nodes"), *worst = NULL;
  bs_rank *first = bs_world_rank(m->model->world, 0);
  double most = 0, wait, work = 0;
  bs_fact(d, "collectives of a run", (double)m->stats.collectives, "");
  bs_fact(d, "payload of a run", (double)m->stats.payload_bytes, "bytes");
  bs_fact(d, "on the wire, a run of rank 0",
          (double)bs_rank_counter(first, BS_COUNT_WIRE_BYTES) / (double)t->runs, "bytes");
  if (t->each == 0) return;
  bs_fact(d, "in collectives, a run", t->mean, "s");
  bs_fact(d, "share of a run in collectives", 100 * t->mean / t->run_s, "%");
  bs_fact(d, "in collectives, waiting for the last rank", t->waits, "s");
  for (uint32_t r = 0; r < m->ranks.n; r++) work += (t->run_s - t->of_rank[r]) / m->ranks.n;
  bs_fact_text(d, "the slowest rank", "%u: %.3g ms outside of collectives, %.3g ms the mean of all",
               t->slowest, 1e3 * (t->run_s - t->of_rank[t->slowest]), 1e3 * work);
  for (size_t i = 0; i < json_array_size(nodes); i++) {
    collectives_of(m, t, i, &wait);
    if (wait <= most) continue;
    most = wait;
    worst = json_array_get(nodes, i);
  }
  if (worst != NULL)
    bs_fact_text(d, "ranks wait longest in", "'%.200s', %.3g ms", bs_get_text(worst, "origin"), 1e3 * most);
  if (t->mean >= MUCH * t->run_s)
    bs_find(d, of_pass(d, t, t->mean), NULL,
            "%llu collective%s %.3g ms of a run of %.3g ms, %.3g ms of it is waiting for the rank that "
            "comes last",
            (unsigned long long)m->stats.collectives, m->stats.collectives == 1 ? " takes" : "s take",
            1e3 * t->mean, 1e3 * t->run_s, 1e3 * t->waits);
}

/* ---- products -------------------------------------------------------------------------------- */

/* What follows `mark` in the text of a node's split; NULL: it has not the mark. */
static const char *behind(const json_t *node, const char *mark) {
  const char *at = strstr(bs_get_text(node, "split"), mark);
  return at != NULL ? at + strlen(mark) : NULL;
}

/* A refused pair, by F or S: its S have F's reason, and stand behind it. An F that no method takes is whole
 * on every rank. */
static void tell_pairs(bs_diagnosis *d, const diag_model *m, const split_times *t) {
  const json_t *nodes = json_object_get(m->explain, "nodes"), *first = NULL, *node;
  const char *last = "", *why;
  size_t i, n = 0;
  double cost = 0;
  json_array_foreach(nodes, i, node) {
    const char *of_f = behind(node, f_refused), *of_s = behind(node, s_refused);
    const double seconds = of_f != NULL ? collectives_of(m, t, i, NULL) : 0;
    if (behind(node, alone) != NULL)
      bs_fact_text(d, "in no pair", "'%.120s': %s", bs_get_text(node, "origin"), behind(node, alone));
    if (of_f == NULL && of_s == NULL) continue;
    why = of_f != NULL ? of_f : of_s;
    if (of_f != NULL)
      bs_fact_text(d, "refused pair", "F '%.120s' gathers %.0f bytes in %.3g ms: %s",
                   bs_get_text(node, "origin"), bs_get_number(node, "payload_bytes"), 1e3 * seconds, why);
    else
      bs_fact_text(d, "refused pair", "S '%.120s' takes the whole x: %s", bs_get_text(node, "origin"), why);
    cost += seconds;
    n += of_f != NULL || strcmp(last, why) != 0;
    last = why;
    if (first == NULL) first = node;
  }
  if (first == NULL) return;
  why = behind(first, f_refused);
  bs_find(d, of_pass(d, t, cost), NULL,
          "%zu pair%s refused, gathers of F take %.3g ms a run; the first is of '%.100s': %s", n,
          n == 1 ? " is" : "s are", 1e3 * cost, bs_get_text(first, "origin"),
          why != NULL ? why : behind(first, s_refused));
}

/* Products that no method takes: of n ranks all but one could do something else. */
static int32_t tell_whole(bs_diagnosis *d, const diag_model *m, bs_error *err) {
  const json_t *nodes = json_object_get(m->explain, "nodes"), *first = NULL, *node;
  const diag_change change = {.profile = 1, .share = 1};
  diag_session s = {0};
  json_t *profile = NULL;
  double each = 0;
  size_t i;
  if (m->stats.layers_whole == 0) return BS_OK;
  int32_t rc = diag_session_open(m, &change, &s, err);
  if (rc == BS_OK) rc = diag_session_profile(d, &s, &profile, err);
  diag_session_close(&s);
  if (rc != BS_OK) return rc;
  json_array_foreach(nodes, i, node) {
    const json_t *row = json_array_get(json_object_get(profile, "nodes"), i);
    if (behind(node, whole) == NULL) continue;
    if (first == NULL) first = node;
    each += bs_get_number(row, "seconds") / (double)(bs_get_number(row, "runs") + 1e-9);
    bs_fact_text(d, "whole on every rank", "'%.120s': %s", bs_get_text(node, "origin"), behind(node, whole));
  }
  json_decref(profile);
  if (first != NULL && m->ranks.n > 1)
    bs_find(d, each * (m->ranks.n - 1) / m->ranks.n, NULL,
            "%llu product%s whole on every rank, %.3g ms a run; the first is '%.100s': %s",
            (unsigned long long)m->stats.layers_whole, m->stats.layers_whole == 1 ? " is" : "s are",
            1e3 * each, bs_get_text(first, "origin"), behind(first, whole));
  return BS_OK;
}

/* ---- the check ------------------------------------------------------------------------------- */

/* Threads of one rank share the memory of the model, so that they are what ranks are compared with. */
static int32_t beside_one_rank(bs_diagnosis *d, const diag_model *m, bs_error *err) {
  const diag_change change = {.one_rank = 1};
  const uint32_t threads = m->request.threads, all = threads * m->ranks.n;
  bs_pair_times t;
  const int32_t rc = diag_model_pair(d, m, &change, &t, NULL, NULL, err);
  if (rc != BS_OK) return rc;
  bs_fact(d, "a run of one rank with as many threads", t.other, "s");
  bs_fact_text(d, "its time over that of these ranks", "%.3g [%.3g, %.3g], these ranks are %s",
               t.comparison.ratio, t.comparison.low, t.comparison.high,
               bs_comparison_name(t.comparison.word));
  if (bs_pair_is_slower(&t))
    bs_find_pair(d, &t, "%u ranks with %u thread%s each: %.3g ms a run; one rank with %u: %.3g ms",
                 m->ranks.n, threads, threads == 1 ? "" : "s", 1e3 * t.as_is, all, 1e3 * t.other);
  return BS_OK;
}

int32_t diag_model_split(bs_diagnosis *d, diag_model *m, bs_error *err) {
  split_times t = {0};
  if (m->request.ranks == NULL) return bs_skip(d, "no method splits the model: it runs on one rank");
  const json_t *split = json_object_get(m->explain, "split");
  bs_fact_text(d, "products", "%llu split, %.0f of them in pairs, %llu whole on every rank",
               (unsigned long long)m->stats.layers, bs_get_number(split, "in_pairs"),
               (unsigned long long)m->stats.layers_whole);
  int32_t rc = run_some(d, m, &t, err);
  if (rc == BS_OK) rc = take_times(m, &t, err);
  if (rc == BS_OK) tell_times(d, m, &t);
  if (rc == BS_OK) tell_pairs(d, m, &t);
  if (rc == BS_OK) rc = tell_whole(d, m, err);
  if (rc == BS_OK) rc = beside_one_rank(d, m, err);
  times_free(&t);
  return rc;
}
