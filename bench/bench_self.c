/* SPDX-License-Identifier: MIT
 *
 * bench_self.c - a layer against itself, built twice in one process and sampled as phase 1 samples its arms:
 * the ratio is 1, or 1 + --planted when the other arm's times are made longer by that share.
 * scripts/claims self starts it many times and counts how often the words and intervals are wrong.
 *
 *   bench_self [--method M] [--ranks P] [--threads T] [--n N] [--k K] [--b B] [--dtype D] [--planted SHARE]
 * [--seed SEED]
 *              [--pairs PAIRS] [--seconds CAP]
 *
 * Prints one line of JSON.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/measure/arm.h"
#include "lab/measure/sampler.h"
#include "support.h"

enum { ARMS = 2 };

typedef struct job {
  int64_t n, k, b, ranks, threads, pairs, seed;
  uint32_t dtype;
  const char *method;
  double planted, seconds;
  bench_matrix x, w;
  bs_source x_source, w_source;
  bs_mask mask;
  bs_context *context;
  bs_arm *arms[ARMS];
} job;

static int32_t open_arms(job *j, bs_error *err) {
  bs_case c = {.method = j->method,
               .backend = "cpu",
               .world_size = (uint32_t)j->ranks,
               .threads_per_rank = (uint32_t)j->threads,
               .bind = 1,
               .x = &j->x_source,
               .w = &j->w_source};
  c.spec = (bs_layer_spec){.struct_size = sizeof c.spec,
                           .B = j->b,
                           .N = j->n,
                           .K = j->k,
                           .x_dtype = j->dtype,
                           .w_dtype = j->dtype,
                           .y_dtype = j->dtype,
                           .mask = strcmp(j->method, "blockshock") == 0 ? &j->mask : NULL};
  int32_t rc = bs_mask_parse("complement_1100_0011", NULL, NULL, &j->mask, err);
  if (rc == BS_OK) rc = bench_context(&j->context, err);
  c.context = j->context;
  const uint32_t first = bs_arms_backwards((uint64_t)j->seed, 0) ? 1 : 0;
  for (uint32_t k = 0; rc == BS_OK && k < ARMS; ++k) {
    const uint32_t i = first ^ k;
    rc = bs_arm_open_work(&c, i == 0 ? "first" : "second", BS_ARM_FORWARD, i, &j->arms[i], err);
  }
  return rc;
}

static int32_t longer_batch(void *user, uint64_t lead, uint64_t n, bs_sample *out, bs_error *err) {
  const job *j = user;
  const int32_t rc = bs_arm_batch(j->arms[1], lead, n, out, err);
  out->seconds *= 1.0 + j->planted;
  return rc;
}

static int32_t rebuild(void *user, uint32_t build, bs_error *err) {
  const job *j = user;
  return bs_arms_rebuild(j->arms, ARMS, bs_arms_backwards((uint64_t)j->seed, build), err);
}

static int32_t measure(job *j, bs_sampled **out, bs_error *err) {
  const bs_sampler_host host = {.user = j, .disturb = bs_disturb_host, .rebuild = rebuild};
  bs_sampler_arm arms[ARMS];
  for (int i = 0; i < ARMS; ++i)
    arms[i] = bs_arm_sampled(j->arms[i], i == 0 ? "first" : "second", BS_TIME_HOT);
  arms[1].user = j;
  arms[1].batch = longer_batch;
  arms[1].elsewhere = NULL;
  bs_sampler_options o;
  bs_sampler_defaults(&o);
  o.pairs_max = (size_t)j->pairs;
  o.pairs_min = o.pairs_max < o.pairs_min ? o.pairs_max : o.pairs_min;
  o.seconds = j->seconds;
  o.seed = (uint64_t)j->seed;
  return bs_sampler_run(&o, &host, arms, ARMS, out, err);
}

static void print(const job *j, const bs_sampled *s) {
  const bs_comparison *c = &s->arm[1].comparison;
  printf(
      "{\"bench\":\"self\",\"method\":\"%s\",\"planted\":%g,\"seed\":%lld,\"ratio\":%.6f,\"low\":%.6f,"
      "\"high\":%.6f,"
      "\"word\":\"%s\",\"cause\":\"%s\",\"pairs\":%zu,\"builds\":%u,\"lead_s\":%g,\"order\":[%.4f,%.4f],"
      "\"switched\":%zu,\"stolen\":%zu,\"discarded\":%zu,\"forward_s\":%.6g,\"seconds\":%.3f}\n",
      j->method, j->planted, (long long)j->seed, c->ratio, c->low, c->high, bs_comparison_name(c->word),
      bs_unclear_name(c->cause), c->pairs, c->builds, s->lead_seconds, s->arm[0].order, s->arm[1].order,
      s->disturbed[BS_DISTURB_SWITCH], s->disturbed[BS_DISTURB_STEAL], s->discarded, s->arm[0].look.p50,
      s->seconds);
}

int main(int argc, char **argv) {
  job j = {.n = 512,
           .k = 512,
           .b = 64,
           .ranks = 1,
           .threads = 1,
           .pairs = 300,
           .seed = 1,
           .dtype = BS_F32,
           .method = "dense",
           .seconds = 4.0};
  const bench_option options[] = {
      {"--n", 'i', &j.n, 1, 1 << 20},          {"--k", 'i', &j.k, 1, 1 << 20},
      {"--b", 'i', &j.b, 1, 1 << 20},          {"--ranks", 'i', &j.ranks, 1, 1024},
      {"--threads", 'i', &j.threads, 1, 1024}, {"--pairs", 'i', &j.pairs, 5, 10000},
      {"--seed", 'i', &j.seed, 0, 1 << 30},    {"--dtype", 'd', &j.dtype, 0, 0},
      {"--method", 's', &j.method, 0, 0},      {"--planted", 'f', &j.planted, 0, 1},
      {"--seconds", 'f', &j.seconds, 0, 3600}};
  if (!bench_parse("bench_self", argc, argv, options, sizeof options / sizeof options[0])) return 2;
  bs_error err = BS_ERROR_INIT;
  bs_sampled *s = NULL;
  j.x = (bench_matrix){1, j.b, j.k};
  j.w = (bench_matrix){2, j.n, j.k};
  j.x_source = bench_source(&j.x, j.dtype);
  j.w_source = bench_source(&j.w, j.dtype);
  int32_t rc = open_arms(&j, &err);
  if (rc == BS_OK) rc = measure(&j, &s, &err);
  if (rc == BS_OK) print(&j, s);
  for (int i = 0; i < ARMS; ++i)
    if (j.arms[i] != NULL) bs_arm_close(j.arms[i], NULL, NULL);
  bs_sampling_free(s);
  bs_context_close(j.context);
  return rc == BS_OK ? 0 : bench_fail("bench_self", &err);
}
