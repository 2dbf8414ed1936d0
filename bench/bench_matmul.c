/* SPDX-License-Identifier: MIT
 *
 * bench_matmul.c - the cpu plugin's matmul through the public API (a world of one rank) against oneDNN called
 * directly on the same data, in interleaved ABBA pairs: median ratio of the pairs with its bootstrap
 * interval. Needs a build with oneDNN; without one it times the plugin alone.
 *
 *   bench_matmul [--n N] [--k K] [--b B] [--dtype f32|bf16|f16] [--threads T] [--pairs P]
 *                [--impl auto|packed|dnnl] [--layout plain|any] [--plugins DIR] [-o table|json]
 *
 * --layout: how the direct call holds W: plain [N,K], or any, the layout that oneDNN itself chooses,
 * reordered to once before the clock starts.
 */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "blockshock/blockshock.h"
#include "direct.h"
#include "lab/measure/stats.h"

#define BATCH_SECONDS 0.01

typedef struct job {
  int64_t n, k, b;
  uint32_t dtype, threads;
  uint64_t pairs;
  const char *impl;
  const char *layout;
  const char *output;
  const char *plugins;
  void *w, *x, *y; /* host arrays: weight, input, the peer's output */
  double *mine, *peer;
  int has_peer;
  double difference; /* largest between both outputs, relative to the largest output */
} job;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- both arms, on the rank's thread ------------------------------------------------------------ */

typedef struct arms {
  const bs_rank_api *api;
  bs_plan *plan;
  bs_tensor x, y;
  bench_direct *direct;
} arms;

/* Seconds a call over `calls`, after one that is not timed: it also lets the other arm's threads settle. */
static int32_t time_mine(arms *a, uint64_t calls, double *out_seconds, bs_error *err) {
  bs_tensor *args[4] = {&a->x, NULL, NULL, &a->y};
  int32_t rc = a->api->op_run(a->plan, args, 4, NULL, err);
  const double start = now();
  for (uint64_t i = 0; rc == BS_OK && i < calls; i++) rc = a->api->op_run(a->plan, args, 4, NULL, err);
  *out_seconds = (now() - start) / (double)calls;
  return rc;
}

static double time_peer(const arms *a, uint64_t calls) {
  int good = bench_direct_run(a->direct);
  const double start = now();
  for (uint64_t i = 0; i < calls; i++) good &= bench_direct_run(a->direct);
  return good ? (now() - start) / (double)calls : NAN;
}

static int32_t measure(job *j, arms *a, bs_error *err) {
  double once = 0, first = 0, second = 0;
  int32_t rc = time_mine(a, 1, &once, err);
  const double want = once > 0 ? BATCH_SECONDS / once : 1;
  const uint64_t calls = want < 1 ? 1 : want > 1e6 ? 1000000 : (uint64_t)want;
  for (uint64_t i = 0; rc == BS_OK && i < j->pairs; i++) {
    rc = time_mine(a, calls, &first, err);
    if (j->has_peer) j->peer[i] = time_peer(a, calls) + time_peer(a, calls);
    if (rc == BS_OK) rc = time_mine(a, calls, &second, err);
    j->mine[i] = first + second;
  }
  return rc;
}

static void compare_outputs(job *j, const arms *a) {
  double largest = 0, worst = 0;
  float mine = 0, peers = 0;
  const uint64_t size = BS_DTYPE_BYTES(j->dtype);
  for (int64_t i = 0; j->has_peer && i < j->b * j->n; i++) {
    (void)bs_convert(BS_F32, &mine, j->dtype, (const char *)a->y.data + (uint64_t)i * size, 1);
    (void)bs_convert(BS_F32, &peers, j->dtype, (const char *)j->y + (uint64_t)i * size, 1);
    largest = fmax(largest, fabs((double)peers));
    worst = fmax(worst, fabs((double)mine - (double)peers));
  }
  j->difference = largest > 0 ? worst / largest : 0;
}

static int32_t make_plan(bs_rank *rank, const job *j, arms *a, bs_packed **out_packed, bs_error *err) {
  const bs_tensor_desc x = {.struct_size = sizeof x, .dtype = j->dtype, .rank = 2, .dims = {j->b, j->k}};
  const bs_tensor_desc y = {.struct_size = sizeof y, .dtype = j->dtype, .rank = 2, .dims = {j->b, j->n}};
  const bs_tensor_desc *args[4] = {&x, NULL, NULL, &y};
  const bs_op_query q = {
      .struct_size = sizeof q, .nargs = 4, .op = "matmul", .args = args, .weight_dtype = j->dtype};
  bs_source source = {.struct_size = sizeof source};
  int32_t rc = bs_source_from_memory(j->w, j->dtype, j->n, j->k, j->k, &source, err);
  if (rc != BS_OK) return rc;
  rc = a->api->pack(rank, &q, &source, out_packed, err);
  if (rc == BS_OK) rc = a->api->op_prepare(rank, &q, *out_packed, &a->plan, err);
  if (rc == BS_OK) rc = a->api->tensor_alloc(rank, &x, BS_LIFE_ACTIVATION, &a->x, err);
  if (rc == BS_OK) rc = a->api->tensor_alloc(rank, &y, BS_LIFE_ACTIVATION, &a->y, err);
  if (rc == BS_OK) memcpy(a->x.data, j->x, (size_t)(j->b * j->k) * BS_DTYPE_BYTES(j->dtype));
  bs_source_release(&source);
  return rc;
}

/* The rank's thread is pinned to one core; threads that oneDNN makes from it would inherit that. */
static int on_all_cores(cpu_set_t *out_own) {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int i = 0; i < CPU_SETSIZE; i++) CPU_SET(i, &all);
  return sched_getaffinity(0, sizeof *out_own, out_own) == 0 && sched_setaffinity(0, sizeof all, &all) == 0;
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  job *j = arg;
  bs_packed *packed = NULL;
  arms a;
  memset(&a, 0, sizeof a);
  a.api = bs_rank_get_api();
  int32_t rc = make_plan(rank, j, &a, &packed, err);
  if (rc == BS_OK) {
    const bench_direct_job d = {j->n, j->k, j->b, j->dtype, j->threads, strcmp(j->layout, "any") == 0,
                                j->w, j->x, j->y};
    cpu_set_t own;
    a.direct = on_all_cores(&own) ? bench_direct_open(&d) : NULL;
    if (a.direct != NULL) bench_direct_run(a.direct); /* makes oneDNN's own threads */
    sched_setaffinity(0, sizeof own, &own);
    j->has_peer = a.direct != NULL;
    rc = measure(j, &a, err);
  }
  if (rc == BS_OK) compare_outputs(j, &a);
  if (a.x.data != NULL) a.api->tensor_free(rank, &a.x);
  if (a.y.data != NULL) a.api->tensor_free(rank, &a.y);
  if (a.plan != NULL) a.api->op_release(a.plan);
  if (packed != NULL) a.api->packed_release(packed);
  return rc;
}

/* ---- command line -------------------------------------------------------------------------------- */

static void report_json(const job *j, const char *algorithm) {
  bs_comparison c = {0};
  printf(
      "{\"bench\":\"matmul\",\"dtype\":\"%s\",\"n\":%lld,\"k\":%lld,\"b\":%lld,\"threads\":%u,\"impl\":\"%"
      "s\","
      "\"algorithm\":\"%s\",\"plugin_s\":%.6g",
      bs_dtype_name(j->dtype), (long long)j->n, (long long)j->k, (long long)j->b, j->threads, j->impl,
      algorithm, bs_median(j->mine, j->pairs) / 2);
  if (j->has_peer && bs_compare_pairs(j->mine, j->peer, j->pairs, 0.03, &c))
    printf(
        ",\"layout\":\"%s\",\"direct_s\":%.6g,\"pairs\":%zu,\"ratio\":%.6g,\"low\":%.6g,\"high\":%.6g,"
        "\"difference\":%.2g",
        j->layout, bs_median(j->peer, j->pairs) / 2, c.pairs, c.ratio, c.low, c.high, j->difference);
  printf("}\n");
}

static void report(const job *j, const char *algorithm) {
  if (strcmp(j->output, "json") == 0) {
    report_json(j, algorithm);
    return;
  }
  bs_comparison c = {0};
  const double flops = 2.0 * (double)j->b * (double)j->n * (double)j->k;
  const double mine = bs_median(j->mine, j->pairs) / 2;
  printf("%-5s %6s %6s %6s %7s %-44s %9s %9s  %s\n", "dtype", "N", "K", "B", "threads", "algorithm", "us",
         "GFLOP/s", "oneDNN's time / plugin's (95 % interval)");
  printf("%-5s %6lld %6lld %6lld %7u %-44.44s %9.1f %9.1f  ", bs_dtype_name(j->dtype), (long long)j->n,
         (long long)j->k, (long long)j->b, j->threads, algorithm, mine * 1e6, flops / mine * 1e-9);
  if (!j->has_peer) {
    printf("no oneDNN to compare with\n");
    return;
  }
  const double peer_seconds = bs_median(j->peer, j->pairs) / 2;
  if (!bs_compare_pairs(j->mine, j->peer, j->pairs, 0.03, &c)) {
    printf("out of memory\n");
    return;
  }
  printf("%.3f [%.3f, %.3f] %s; oneDNN %.1f us, %.1f GFLOP/s; outputs differ by %.1e\n", c.ratio, c.low,
         c.high, bs_comparison_name(c.word), peer_seconds * 1e6, flops / peer_seconds * 1e-9, j->difference);
}

static int run(job *j) {
  char matmul[64];
  bs_error err = {.struct_size = sizeof err};
  bs_context *context = NULL;
  bs_world *world = NULL;
  snprintf(matmul, sizeof matmul, "cpu.matmul=%s", j->impl);
  const char *const params[1] = {matmul};
  const char *const ids[1] = {"cpu"};
  bs_context_options options = {.struct_size = sizeof options, .plugins = ids, .n_plugins = 1};
  options.params = params;
  options.n_params = 1;
  options.plugin_dirs = &j->plugins;
  options.n_plugin_dirs = j->plugins != NULL ? 1 : 0;
  if (j->plugins != NULL) options.trust = BS_TRUST_ANY; /* a folder named by the user, often below /tmp */
  int32_t rc = bs_context_open(&options, &context, &err);
  const bs_world_options w = {
      .struct_size = sizeof w, .world_size = 1, .backend = "cpu", .threads_per_rank = j->threads, .bind = 1};
  if (rc == BS_OK) rc = bs_world_create(context, &w, &world, &err);
  if (rc == BS_OK) rc = bs_world_run(world, rank_main, j, &err);
  if (rc == BS_OK)
    report(j, bs_world_algorithms(world));
  else
    fprintf(stderr, "bench_matmul: error[%s] %s; hint: %s\n", err.id, err.message, err.hint);
  if (world != NULL) bs_world_destroy(world);
  if (context != NULL) bs_context_close(context);
  return rc == BS_OK ? 0 : bs_status_exit_code(rc);
}

static int fill(job *j) {
  const uint64_t size = BS_DTYPE_BYTES(j->dtype), nk = (uint64_t)(j->n * j->k), bk = (uint64_t)(j->b * j->k);
  j->w = bench_huge_alloc(nk * size);
  j->x = bench_huge_alloc(bk * size);
  j->y = bench_huge_alloc((uint64_t)(j->b * j->n) * size);
  j->mine = calloc(j->pairs, sizeof *j->mine);
  j->peer = calloc(j->pairs, sizeof *j->peer);
  if (j->w == NULL || j->x == NULL || j->y == NULL || j->mine == NULL || j->peer == NULL) return 0;
  uint32_t state = 1;
  for (uint64_t i = 0; i < nk + bk; i++) {
    state = state * 1664525u + 1013904223u;
    const float v = (float)(int32_t)state * 0x1p-31f;
    char *to = i < nk ? (char *)j->w + i * size : (char *)j->x + (i - nk) * size;
    if (bs_convert(j->dtype, to, BS_F32, &v, 1) != BS_OK) return 0;
  }
  return 1;
}

static int usage(void) {
  fprintf(
      stderr,
      "usage: bench_matmul [--n N] [--k K] [--b B] [--dtype f32|bf16|f16] [--threads T] [--pairs P]\n"
      "                    [--impl auto|packed|dnnl] [--layout plain|any] [--plugins DIR] [-o table|json]\n");
  return 2;
}

static int parse(int argc, char **argv, job *j) {
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 >= argc) return 0;
    const char *name = argv[i], *value = argv[i + 1];
    const long long number = strtoll(value, NULL, 10);
    if (strcmp(name, "--n") == 0)
      j->n = number;
    else if (strcmp(name, "--k") == 0)
      j->k = number;
    else if (strcmp(name, "--b") == 0)
      j->b = number;
    else if (strcmp(name, "--threads") == 0)
      j->threads = (uint32_t)number;
    else if (strcmp(name, "--pairs") == 0)
      j->pairs = (uint64_t)number;
    else if (strcmp(name, "--dtype") == 0)
      j->dtype = bs_dtype_parse(value);
    else if (strcmp(name, "--impl") == 0)
      j->impl = value;
    else if (strcmp(name, "--layout") == 0)
      j->layout = value;
    else if (strcmp(name, "-o") == 0)
      j->output = value;
    else if (strcmp(name, "--plugins") == 0)
      j->plugins = value;
    else
      return 0;
  }
  const int64_t most = 1 << 20;
  return j->n > 0 && j->k > 0 && j->b > 0 && j->n <= most && j->k <= most && j->b <= most && j->threads > 0 &&
         j->threads <= 1024 && j->pairs > 0 && j->pairs <= 100000 && j->dtype != 0;
}

int main(int argc, char **argv) {
  job j = {.n = 4096,
           .k = 4096,
           .b = 64,
           .dtype = BS_F32,
           .threads = 1,
           .pairs = 30,
           .impl = "auto",
           .layout = "plain",
           .output = "table"};
  if (!parse(argc, argv, &j)) return usage();
  int rc = 10;
  if (fill(&j))
    rc = run(&j);
  else
    fprintf(stderr, "bench_matmul: no memory for N %lld, K %lld, B %lld\n", (long long)j.n, (long long)j.k,
            (long long)j.b);
  free(j.w);
  free(j.x);
  free(j.y);
  free(j.mine);
  free(j.peer);
  return rc;
}
