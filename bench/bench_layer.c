/* SPDX-License-Identifier: MIT
 *
 * bench_layer.c - one linear layer by three arms in one process: blockshock and row_parallel on P ranks of
 * one thread each, dense on one rank of one thread. Arms run interleaved, forwards and backwards in turn
 * (ABBA); every figure is a median of ratios over pairs with its 95 % bootstrap interval.
 *
 *   bench_layer [--n N] [--k K] [--b B] [--dtype D] [--mask NAME] [--ranks P] [--impl auto|packed|dnnl]
 *               [--pairs PAIRS] [--seconds CAP] [-o table|json]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/measure/arm.h"
#include "support.h"

#define BATCH_SECONDS 0.01
#define WARM_SECONDS 0.3
#define MARGIN 0.01
enum { BLOCKSHOCK = 0, ROW_PARALLEL = 1, DENSE = 2, ARMS = 3 };

static const char *const methods[ARMS] = {"blockshock", "row_parallel", "dense"};

typedef struct job {
  int64_t n, k, b, ranks, pairs;
  uint32_t dtype;
  const char *mask, *impl, *output;
  double seconds;
  bench_matrix x, w;
  bs_source x_source, w_source;
  bs_mask parsed;
  bs_context *context;
  bs_arm *arms[ARMS];
  uint64_t batch[ARMS];
  double *samples[ARMS];
  size_t taken;
} job;

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
  return bs_arm_open(&c, methods[i], &j->arms[i], err);
}

/* At least WARM_SECONDS of work; then as many forwards a batch as fill BATCH_SECONDS. */
static int32_t warm_up(job *j, int i, bs_error *err) {
  double seconds = 0.0;
  const double start = bench_now();
  int32_t rc = BS_OK;
  j->batch[i] = 1;
  do {
    rc = bs_arm_batch(j->arms[i], j->batch[i], &seconds, err);
    const double fill = BATCH_SECONDS / (seconds > 1e-9 ? seconds : 1e-9);
    j->batch[i] = fill > 1.0 ? (uint64_t)fill : 1;
  } while (rc == BS_OK && bench_now() - start < WARM_SECONDS);
  return rc == BS_OK ? bs_arm_reset(j->arms[i], err) : rc;
}

static int32_t measure(job *j, bs_error *err) {
  const double start = bench_now();
  int32_t rc = BS_OK;
  for (int i = 0; rc == BS_OK && i < ARMS; ++i) rc = warm_up(j, i, err);
  while (rc == BS_OK && j->taken < (size_t)j->pairs &&
         (bench_now() - start < j->seconds || j->taken < 5 || j->taken % 2 != 0)) {
    for (int i = 0; rc == BS_OK && i < ARMS; ++i) {
      const int arm = j->taken % 2 == 0 ? i : ARMS - 1 - i;
      rc = bs_arm_batch(j->arms[arm], j->batch[arm], &j->samples[arm][j->taken], err);
    }
    ++j->taken;
  }
  return rc;
}

/* Ratio of times `over` / `under`. */
static void print_ratio(const job *j, int over, int under) {
  bs_comparison c;
  if (!bs_compare_pairs(j->samples[under], j->samples[over], j->taken, MARGIN, &c)) {
    fprintf(stderr, "bench_layer: no memory for the bootstrap\n");
    return;
  }
  const double t_over = bs_median(j->samples[over], j->taken),
               t_under = bs_median(j->samples[under], j->taken);
  if (strcmp(j->output, "json") == 0)
    printf(
        "{\"bench\":\"layer\",\"ratio_of\":\"%s\",\"to\":\"%s\",\"ranks\":%d,\"n\":%lld,\"k\":%lld,"
        "\"b\":%lld,\"dtype\":\"%s\",\"mask\":\"%s\",\"impl\":\"%s\",\"pairs\":%zu,\"ratio\":%.6g,"
        "\"low\":%.6g,\"high\":%.6g,\"of_s\":%.6g,\"to_s\":%.6g}\n",
        methods[over], methods[under], (int)j->ranks, (long long)j->n, (long long)j->k, (long long)j->b,
        bs_dtype_name(j->dtype), j->mask, j->impl, c.pairs, c.ratio, c.low, c.high, t_over, t_under);
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
           .output = "table",
           .seconds = 20.0};
  const bench_option options[] = {
      {"--n", 'i', &j.n, 1, 1 << 20},       {"--k", 'i', &j.k, 1, 1 << 20},
      {"--b", 'i', &j.b, 1, 1 << 20},       {"--ranks", 'i', &j.ranks, 1, 1024},
      {"--pairs", 'i', &j.pairs, 5, 10000}, {"--dtype", 'd', &j.dtype, 0, 0},
      {"--mask", 's', &j.mask, 0, 0},       {"--impl", 's', &j.impl, 0, 0},
      {"-o", 's', &j.output, 0, 0},         {"--seconds", 'f', &j.seconds, 0, 3600}};
  if (!bench_parse("bench_layer", argc, argv, options, sizeof options / sizeof options[0])) return 2;
  j.x = (bench_matrix){1, j.b, j.k};
  j.w = (bench_matrix){2, j.n, j.k};
  j.x_source = bench_source(&j.x, j.dtype);
  j.w_source = bench_source(&j.w, j.dtype);
  int code = 10;
  for (int i = 0; i < ARMS; ++i) j.samples[i] = calloc((size_t)j.pairs, sizeof(double));
  if (j.samples[0] != NULL && j.samples[1] != NULL && j.samples[2] != NULL)
    code = run(&j);
  else
    fprintf(stderr, "bench_layer: no memory for %lld pairs\n", (long long)j.pairs);
  for (int i = 0; i < ARMS; ++i) free(j.samples[i]);
  return code;
}
