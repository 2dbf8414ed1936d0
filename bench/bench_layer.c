/* SPDX-License-Identifier: MIT
 *
 * bench_layer.c - one linear layer by three arms in one process: blockshock and row_parallel on P ranks of
 * one thread each, dense on one rank of one thread. Arms run interleaved (lab/measure/sampler.h); every
 * figure is a ratio over pairs with its 95 % interval.
 *
 *   bench_layer [--n N] [--k K] [--b B] [--dtype D] [--mask NAME] [--ranks P] [--impl auto|packed|dnnl]
 *               [--work forward|backward|sgd|adamw] [--pairs PAIRS] [--seconds CAP] [-o table|json]
 *
 * --work: what is timed. backward: dX and dW; sgd, adamw: a train step, forward, backward and update.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/measure/arm.h"
#include "lab/measure/sampler.h"
#include "support.h"

#define BATCH_SECONDS 0.01
#define WARM_SECONDS 0.3
#define MARGIN 0.01
#define LEAST_PAIRS 20
enum { BLOCKSHOCK = 0, ROW_PARALLEL = 1, DENSE = 2, ARMS = 3 };

static const char *const methods[ARMS] = {"blockshock", "row_parallel", "dense"};

typedef struct job {
  int64_t n, k, b, ranks, pairs;
  uint32_t dtype;
  const char *mask, *impl, *work, *output;
  double seconds;
  bench_matrix x, w;
  bs_source x_source, w_source;
  bs_mask parsed;
  bs_context *context;
  bs_arm *arms[ARMS];
  bs_sampling *sampling;
} job;

/* BS_ARM_WORKS_ for another word. */
static uint32_t work_of(const char *word) {
  static const char *const words[BS_ARM_WORKS_] = {"forward", "backward", "sgd", "adamw"};
  uint32_t work = 0;
  while (work < BS_ARM_WORKS_ && strcmp(words[work], word) != 0) ++work;
  return work;
}

static int32_t open_arm(job *j, int i, bs_error *err) {
  bs_case c = {.context = j->context,
               .method = methods[i],
               .backend = "cpu",
               .world_size = i == DENSE ? 1 : (uint32_t)j->ranks,
               .threads_per_rank = 1,
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
                           .mask = i == BLOCKSHOCK ? &j->parsed : NULL};
  return bs_arm_open_work(&c, methods[i], work_of(j->work), i, &j->arms[i], err);
}

static int32_t rebuild(void *user, uint32_t build, bs_error *err) {
  return bs_arms_rebuild(((job *)user)->arms, ARMS, build % 2 == 0, err);
}

static int32_t measure(job *j, bs_error *err) {
  const bs_sampler_host host = {.user = j, .disturb = bs_disturb_host, .rebuild = rebuild};
  bs_sampler_arm arms[ARMS];
  bs_sampler_options o;
  bs_sampler_defaults(&o);
  o.batch_seconds = fmin(BATCH_SECONDS, j->seconds / 100); /* --quick is short */
  o.warm_seconds = fmin(WARM_SECONDS, j->seconds / 4);
  o.margin = MARGIN;
  o.pairs_max = (size_t)j->pairs;
  o.pairs_min = o.pairs_max < LEAST_PAIRS ? o.pairs_max : LEAST_PAIRS;
  o.seconds = j->seconds;
  for (int i = 0; i < ARMS; ++i) arms[i] = bs_arm_sampled(j->arms[i], methods[i], BS_TIME_HOT);
  return bs_sampler_run(&o, &host, arms, ARMS, &j->sampling, err);
}

/* Ratio of times `over` / `under`. */
static void print_ratio(const job *j, int over, int under) {
  const bs_sampled_arm *upper = &j->sampling->arm[over], *lower = &j->sampling->arm[under];
  bs_comparison c;
  if (!bs_compare_pairs(lower->seconds, upper->seconds, j->sampling->pairs, MARGIN, &c)) {
    fprintf(stderr, "bench_layer: no memory to compare\n");
    return;
  }
  const double t_over = upper->look.p50, t_under = lower->look.p50;
  if (strcmp(j->output, "json") == 0)
    printf(
        "{\"bench\":\"layer\",\"ratio_of\":\"%s\",\"to\":\"%s\",\"ranks\":%d,\"n\":%lld,\"k\":%lld,"
        "\"b\":%lld,\"dtype\":\"%s\",\"mask\":\"%s\",\"work\":\"%s\",\"impl\":\"%s\",\"pairs\":%zu,\"ratio\":"
        "%.6g,"
        "\"low\":%.6g,\"high\":%.6g,\"of_s\":%.6g,\"to_s\":%.6g}\n",
        methods[over], methods[under], (int)j->ranks, (long long)j->n, (long long)j->k, (long long)j->b,
        bs_dtype_name(j->dtype), j->mask, j->work, j->impl, c.pairs, c.ratio, c.low, c.high, t_over, t_under);
  else
    printf("%-12s / %-12s  %.4f  [%.4f, %.4f]  %3zu pairs  %10.3f us / %10.3f us  %s is %s\n", methods[over],
           methods[under], c.ratio, c.low, c.high, c.pairs, t_over * 1e6, t_under * 1e6, methods[under],
           bs_comparison_name(c.word));
}

static int run(job *j) {
  bs_error err = BS_ERROR_INIT;
  int32_t rc = bs_mask_parse(j->mask, NULL, NULL, &j->parsed, &err);
  if (rc == BS_OK) rc = bench_context(j->impl, &j->context, &err);
  for (int i = 0; rc == BS_OK && i < ARMS; ++i) rc = open_arm(j, i, &err);
  if (rc == BS_OK) rc = measure(j, &err);
  for (int i = 0; i < ARMS; ++i) {
    bs_error closing = BS_ERROR_INIT;
    if (j->arms[i] == NULL) continue;
    const int32_t closed = bs_arm_close(j->arms[i], NULL, &closing);
    if (rc == BS_OK && closed != BS_OK) {
      rc = closed;
      err = closing;
    }
  }
  bs_context_close(j->context);
  if (rc != BS_OK) return bench_fail("bench_layer", &err);
  print_ratio(j, BLOCKSHOCK, ROW_PARALLEL);
  print_ratio(j, DENSE, BLOCKSHOCK);
  print_ratio(j, DENSE, ROW_PARALLEL);
  return 0;
}

int main(int argc, char **argv) {
  job j = {.n = 4096,
           .k = 4096,
           .b = 64,
           .ranks = 2,
           .pairs = 60,
           .dtype = BS_F32,
           .mask = "complement_1100_0011",
           .impl = "auto",
           .work = "forward",
           .output = "table",
           .seconds = 20.0};
  const bench_option options[] = {
      {"--n", 'i', &j.n, 1, 1 << 20},           {"--k", 'i', &j.k, 1, 1 << 20},
      {"--b", 'i', &j.b, 1, 1 << 20},           {"--ranks", 'i', &j.ranks, 1, 1024},
      {"--pairs", 'i', &j.pairs, 5, 10000},     {"--dtype", 'd', &j.dtype, 0, 0},
      {"--mask", 's', &j.mask, 0, 0},           {"--work", 's', &j.work, 0, 0},
      {"--impl", 's', &j.impl, 0, 0},           {"-o", 's', &j.output, 0, 0},
      {"--seconds", 'f', &j.seconds, 0.1, 3600}};
  if (!bench_parse("bench_layer", argc, argv, options, sizeof options / sizeof options[0])) return 2;
  if (work_of(j.work) == BS_ARM_WORKS_) {
    fprintf(stderr, "bench_layer: --work is forward, backward, sgd or adamw, not %s\n", j.work);
    return 2;
  }
  j.x = (bench_matrix){1, j.b, j.k};
  j.w = (bench_matrix){2, j.n, j.k};
  j.x_source = bench_source(&j.x, j.dtype);
  j.w_source = bench_source(&j.w, j.dtype);
  const int code = run(&j);
  bs_sampling_free(j.sampling);
  return code;
}
