/* SPDX-License-Identifier: MIT
 *
 * bench_allreduce.c - time of a float32 all_reduce over rank threads, through the public API: a world, a
 * prepared collective, fingerprints and deadlines included.
 *
 *   bench_allreduce [--ranks P] [-o table|json]     4 B .. 16 MiB, medians
 *   bench_allreduce [--ranks P] --once BYTES ITERS  "seconds_per_call", for scripts that interleave
 *                                                   this with other libraries
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blockshock/blockshock.h"

#define BATCHES_MAX 301
#define BATCH_SECONDS 50e-6
#define SIZE_SECONDS 0.4

typedef struct job {
  uint64_t bytes;
  uint64_t iters; /* > 0: so many calls, mean */
  double median;  /* seconds a call, by rank 0 */
  double p95;
  uint64_t calls;
} job;

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int32_t calls(bs_coll_plan *plan, const bs_tensor *in, bs_tensor *out, uint64_t n, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  int32_t rc = BS_OK;
  for (uint64_t i = 0; i < n && rc == BS_OK; ++i) rc = api->collective_run(plan, in, out, NULL, err);
  return rc;
}

/* Every rank makes the same number of calls: rank 0 chooses it and tells the others. */
static int32_t agree(bs_rank *rank, double *values, int64_t n, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  bs_collective d = {.struct_size = sizeof d,
                     .kind = BS_COLL_BROADCAST,
                     .dtype_in = BS_F64,
                     .rows = 1,
                     .count = (uint64_t)n,
                     .site = "bench.agree"};
  bs_tensor t = {.struct_size = sizeof t,
                 .dtype = BS_F64,
                 .rank = 1,
                 .dims = {n},
                 .strides = {1},
                 .data = values,
                 .bytes = (uint64_t)n * 8};
  bs_coll_plan *plan = NULL;
  int32_t rc = api->collective_prepare(rank, &d, &plan, err);
  if (rc == BS_OK) rc = api->collective_run(plan, &t, &t, NULL, err);
  api->collective_release(plan);
  return rc;
}

static int32_t measure(bs_rank *rank, bs_coll_plan *plan, const bs_tensor *in, bs_tensor *out, job *j,
                       bs_error *err) {
  double samples[BATCHES_MAX], plan_of[2];
  int32_t rc = calls(plan, in, out, 200 + (1u << 20) / (j->bytes + 64), err); /* warm up */
  uint64_t start = bs_rank_clock_ns(rank);
  if (rc == BS_OK) rc = calls(plan, in, out, 20, err); /* a first idea of the time */
  double guess = (double)(bs_rank_clock_ns(rank) - start) * 1e-9 / 20.0;
  double batch = BATCH_SECONDS / guess, batches = SIZE_SECONDS / (guess * (batch < 1.0 ? 1.0 : batch));
  plan_of[0] = batch < 1.0 ? 1.0 : batch > 1000.0 ? 1000.0 : batch;
  plan_of[1] = batches < 11.0 ? 11.0 : batches > BATCHES_MAX ? BATCHES_MAX : batches;
  if (rc == BS_OK) rc = agree(rank, plan_of, 2, err);
  uint64_t n = (uint64_t)plan_of[0], count = (uint64_t)plan_of[1];
  if (j->iters > 0) {
    n = j->iters;
    count = 1;
  }
  for (uint64_t b = 0; b < count && rc == BS_OK; ++b) {
    uint64_t t0 = bs_rank_clock_ns(rank);
    rc = calls(plan, in, out, n, err);
    samples[b] = (double)(bs_rank_clock_ns(rank) - t0) * 1e-9 / (double)n;
  }
  if (rc != BS_OK || bs_rank_get_api()->rank(rank) != 0) return rc;
  qsort(samples, count, sizeof *samples, by_value);
  j->median = samples[count / 2];
  j->p95 = samples[(count - 1) * 95 / 100];
  j->calls = n * count;
  return BS_OK;
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  job *j = arg;
  uint64_t n = j->bytes / 4;
  bs_tensor_desc desc = {.struct_size = sizeof desc, .dtype = BS_F32, .rank = 2, .dims = {1, (int64_t)n}};
  bs_collective d = {.struct_size = sizeof d,
                     .kind = BS_COLL_ALL_REDUCE,
                     .dtype_in = BS_F32,
                     .rows = 1,
                     .count = n,
                     .site = "bench.allreduce"};
  bs_tensor in = {0}, out = {0};
  bs_coll_plan *plan = NULL;
  int32_t rc = api->tensor_alloc(rank, &desc, BS_LIFE_ACTIVATION, &in, err);
  if (rc == BS_OK) rc = api->tensor_alloc(rank, &desc, BS_LIFE_ACTIVATION, &out, err);
  if (rc == BS_OK) rc = api->collective_prepare(rank, &d, &plan, err);
  if (rc == BS_OK) rc = measure(rank, plan, &in, &out, j, err);
  api->collective_release(plan);
  api->tensor_free(rank, &out);
  api->tensor_free(rank, &in);
  return rc;
}

static int fail(const bs_error *err) {
  char text[1200];
  bs_error_format(err, "bench_allreduce", text, sizeof text);
  fprintf(stderr, "%s\n", text);
  return bs_status_exit_code(err->code);
}

static int usage(void) {
  fprintf(stderr, "usage: bench_allreduce [--ranks P] [-o table|json] [--once BYTES ITERS]\n");
  return 2;
}

static void print_row(const job *j, uint32_t ranks, int json) {
  double gbs = (double)j->bytes / j->median * 1e-9;
  if (json)
    printf(
        "{\"bench\":\"allreduce\",\"ranks\":%u,\"bytes\":%llu,\"median_s\":%.9g,\"p95_s\":%.9g,"
        "\"calls\":%llu}\n",
        ranks, (unsigned long long)j->bytes, j->median, j->p95, (unsigned long long)j->calls);
  else
    printf("%10llu  %10.3f  %10.3f  %8.2f  %9llu\n", (unsigned long long)j->bytes, j->median * 1e6,
           j->p95 * 1e6, gbs, (unsigned long long)j->calls);
}

static int parse(int argc, char **argv, uint32_t *ranks, int *json, job *once) {
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--ranks") == 0 && i + 1 < argc) {
      *ranks = (uint32_t)strtoul(argv[++i], NULL, 10);
    } else if (strcmp(argv[i], "-o") == 0 && i + 1 < argc) {
      *json = strcmp(argv[++i], "json") == 0;
      if (!*json && strcmp(argv[i], "table") != 0) return 0;
    } else if (strcmp(argv[i], "--once") == 0 && i + 2 < argc) {
      once->bytes = strtoull(argv[++i], NULL, 10);
      once->iters = strtoull(argv[++i], NULL, 10);
      if (once->bytes < 4 || once->iters == 0) return 0;
    } else {
      return 0;
    }
  }
  return 1;
}

int main(int argc, char **argv) {
  uint32_t ranks = 2;
  int json = 0;
  job once;
  memset(&once, 0, sizeof once);
  if (!parse(argc, argv, &ranks, &json, &once)) return usage();
  bs_context *context = NULL;
  bs_world *world = NULL;
  bs_error err;
  bs_context_options co = {.struct_size = sizeof co};
  bs_world_options wo = {
      .struct_size = sizeof wo, .world_size = ranks, .backend = "ref", .threads_per_rank = 1, .bind = 1};
  int code = 0;
  if (bs_context_open(&co, &context, &err) != BS_OK) return fail(&err);
  if (bs_world_create(context, &wo, &world, &err) != BS_OK) {
    code = fail(&err);
  } else if (once.iters > 0) {
    code = bs_world_run(world, rank_main, &once, &err) == BS_OK ? 0 : fail(&err);
    if (code == 0) printf("%.9g\n", once.median);
  } else {
    if (!json) printf("%10s  %10s  %10s  %8s  %9s\n", "bytes", "median us", "p95 us", "GB/s", "calls");
    for (uint64_t bytes = 4; bytes <= (16u << 20) && code == 0; bytes *= 4) {
      job j = {.bytes = bytes};
      code = bs_world_run(world, rank_main, &j, &err) == BS_OK ? 0 : fail(&err);
      if (code == 0) print_row(&j, ranks, json);
    }
  }
  bs_world_destroy(world);
  bs_context_close(context);
  return code;
}
