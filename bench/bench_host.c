/* SPDX-License-Identifier: MIT
 *
 * bench_host.c - the time that the library and a method add to one forward of a small layer, on each rank: a
 * whole bs_layer_forward minus the same kernel and the same collective called without the library in between
 * (bare.h; the communicator's own slot). Both are timed alternately on the rank's thread; the cost is the
 * median over pairs, of the slowest rank. With --runs it times RUNS empty runs of a world (bs_world_run) on
 * 1, 2 and 4 ranks instead.
 *
 *   bench_host [--n N] [--k K] [--b B] [--pairs PAIRS] [--calls CALLS] [--ranks P] [-o table|json]
 *   bench_host --runs RUNS [-o table|json]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bare.h"
#include "blockshock/plugin.h"
#include "core/base/clock.h"
#include "support.h"

#define MAX_RANKS 16
#define WARM_BATCHES 3
#define WARM_RUNS 20

typedef struct job {
  const char *method;
  int64_t n, k, b, pairs, calls;
  uint32_t ranks;
  bs_source x, w;
  bs_mask mask;
  const bench_plugin *plugin;
  const bs_comm *comm;
  void *comm_world; /* of the bare collective; NULL for one rank */
  bs_world *world;
  char impl[32];
  int gathers; /* the layer copies its columns of x first; that copy is then part of the cost */
  double *whole[MAX_RANKS], *bare[MAX_RANKS]; /* seconds a call, by pair */
} job;

/* One rank's ends of both ways. */
typedef struct hand {
  job *j;
  bs_rank *rank;
  bs_layer *layer;
  const bs_partition *columns;
  bench_team team; /* the rank's thread */
  bench_kernel kernel;
  void *comm;
  bs_coll_call call;
  bs_tensor x, y, x_own; /* x_own: what the bare kernel reads */
} hand;

static int32_t whole_batch(hand *h, double *out_seconds, bs_error *err) {
  int32_t rc = bs_rank_barrier(h->rank, "bench.whole", err);
  const double start = bs_clock_s();
  for (int64_t i = 0; rc == BS_OK && i < h->j->calls; ++i)
    rc = bs_layer_forward(h->layer, &h->x, &h->y, NULL, err);
  *out_seconds = (bs_clock_s() - start) / (double)h->j->calls;
  return rc;
}

static int32_t bare_batch(hand *h, double *out_seconds, bs_error *err) {
  bs_tensor *args[4] = {&h->x_own, NULL, NULL, &h->y};
  int32_t rc = bs_rank_barrier(h->rank, "bench.bare", err);
  const double start = bs_clock_s();
  for (int64_t i = 0; rc == BS_OK && i < h->j->calls; ++i) {
    rc = h->kernel.impl->run(h->kernel.plan, args, 4, NULL, err);
    if (rc == BS_OK && h->comm != NULL) rc = h->j->comm->all_reduce(h->comm, &h->call, err);
  }
  *out_seconds = (bs_clock_s() - start) / (double)h->j->calls;
  return rc;
}

/* Name of the matmul that the layer uses, out of the world's list "matmul@cpu/packed (...)\n...". */
static int32_t find_impl(job *j, bs_error *err) {
  static const char prefix[] = "matmul@cpu/";
  const char *at = strstr(bs_world_algorithms(j->world), prefix);
  if (at == NULL) return bs_fail(err, BS_INTERNAL, "BS-BENCH-KERNEL", "the layer used no matmul of cpu");
  at += strlen(prefix);
  const size_t length = strcspn(at, " (\n");
  snprintf(j->impl, sizeof j->impl, "%.*s", (int)length, at);
  j->gathers = strstr(bs_world_algorithms(j->world), "gather_columns@") != NULL;
  return BS_OK;
}

/* The rank's product by the bare kernel: its run of columns of x in place, all of x when the kernel picks, or
 * as many columns side by side when the layer gathers (which ones is the same to the clock). */
static int32_t make_kernel(hand *h, bs_error *err) {
  const job *j = h->j;
  const bs_partition *p = h->columns;
  const int list = p != NULL && p->kind == BS_PARTITION_GATHER, picks = list && !j->gathers;
  bs_tensor_desc x = bs_desc_2d(BS_F32, j->b, p != NULL && !picks ? p->count : j->k);
  const bs_tensor_desc y = bs_desc_2d(BS_F32, j->b, j->n);
  if (!list || picks) x.strides[0] = j->k;
  const bs_tensor_desc *const args[4] = {&x, NULL, NULL, &y};
  const bs_op_query query = {.struct_size = sizeof query,
                             .nargs = 4,
                             .op = "matmul",
                             .args = args,
                             .partition = p,
                             .flags = BS_QUERY_DETERMINISTIC | (picks ? (uint32_t)BS_QUERY_X_FULL : 0u),
                             .weight_dtype = BS_F32};
  h->x_own = h->x;
  h->x_own.dims[1] = x.dims[1];
  h->x_own.strides[0] = x.strides[0];
  if (p != NULL && !list) {
    h->x_own.data = (float *)h->x.data + p->begin;
    h->x_own.bytes -= (uint64_t)p->begin * sizeof(float);
  }
  bench_team_make(j->plugin, NULL, 1, &h->team);
  return bench_kernel_make(j->plugin, &h->team, j->impl, &query, &j->w, &h->kernel, err);
}

static void fill_call(hand *h) {
  h->call = (bs_coll_call){.struct_size = sizeof h->call,
                           .kind = BS_COLL_ALL_REDUCE,
                           .dtype_in = BS_F32,
                           .dtype_out = BS_F32,
                           .reduce_dtype = BS_F32,
                           .reduce_op = BS_REDUCE_SUM,
                           .rows = (uint64_t)h->j->b,
                           .count = (uint64_t)h->j->n,
                           .in = h->y.data,
                           .out = h->y.data,
                           .in_stride = h->j->n,
                           .out_stride = h->j->n,
                           .fingerprint = 1,
                           .site = "bench.host",
                           .timeout_ns = INT64_C(60000000000)};
}

static int32_t build(hand *h, bs_error *err) {
  job *j = h->j;
  const bs_rank_api *api = bs_rank_get_api();
  const bs_layer_spec spec = {.struct_size = sizeof spec,
                              .B = j->b,
                              .N = j->n,
                              .K = j->k,
                              .x_dtype = BS_F32,
                              .w_dtype = BS_F32,
                              .y_dtype = BS_F32,
                              .mask = strcmp(j->method, "blockshock") == 0 ? &j->mask : NULL};
  const bs_tensor_desc x = bs_desc_2d(BS_F32, j->b, j->k), y = bs_desc_2d(BS_F32, j->b, j->n);
  bs_ownership owns = {.struct_size = sizeof owns};
  int32_t rc = api->tensor_alloc(h->rank, &x, BS_LIFE_ACTIVATION, &h->x, err);
  if (rc == BS_OK) rc = api->tensor_read(h->rank, &j->x, 0, NULL, &h->x, err);
  if (rc == BS_OK) rc = api->tensor_alloc(h->rank, &y, BS_LIFE_ACTIVATION, &h->y, err);
  if (rc == BS_OK) rc = bs_layer_build(h->rank, j->method, &spec, &j->w, NULL, &h->layer, err);
  if (rc == BS_OK) rc = bs_layer_owns(h->layer, &owns, err);
  h->columns = owns.columns;
  if (rc == BS_OK) rc = bs_rank_barrier(h->rank, "bench.built", err);
  if (rc == BS_OK && api->rank(h->rank) == 0) rc = find_impl(j, err);
  if (rc == BS_OK) rc = bs_rank_barrier(h->rank, "bench.named", err);
  if (rc == BS_OK) rc = make_kernel(h, err);
  if (rc == BS_OK && j->comm_world != NULL)
    rc = j->comm->rank_open(j->comm_world, api->rank(h->rank), &h->comm, err);
  fill_call(h);
  return rc;
}

static int32_t measure(hand *h, double *whole, double *bare, bs_error *err) {
  int32_t rc = BS_OK;
  for (int64_t i = -WARM_BATCHES; rc == BS_OK && i < h->j->pairs; ++i) {
    const int64_t at = i < 0 ? 0 : i;
    const int bare_first = (i & 1) != 0;
    if (bare_first) rc = bare_batch(h, &bare[at], err);
    if (rc == BS_OK) rc = whole_batch(h, &whole[at], err);
    if (rc == BS_OK && !bare_first) rc = bare_batch(h, &bare[at], err);
  }
  return rc;
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  job *j = arg;
  const bs_rank_api *api = bs_rank_get_api();
  const uint32_t me = api->rank(rank);
  hand h;
  memset(&h, 0, sizeof h);
  h.j = j;
  h.rank = rank;
  int32_t rc = build(&h, err);
  if (rc == BS_OK) rc = measure(&h, j->whole[me], j->bare[me], err);
  if (rc != BS_OK && j->comm_world != NULL) j->comm->abort(j->comm_world, me, rc, "bench_host failed");
  if (h.comm != NULL) j->comm->rank_close(h.comm);
  bench_kernel_free(&h.kernel);
  bench_team_free(&h.team);
  bs_layer_free(h.layer);
  if (h.y.data != NULL) api->tensor_free(rank, &h.y);
  if (h.x.data != NULL) api->tensor_free(rank, &h.x);
  return rc;
}

/* ---- one case --------------------------------------------------------------------------------- */

static int print_case(const job *j, int json) {
  double whole = 0.0, bare = 0.0, cost = -1e30, most = 0.0;
  double *cost_of = malloc((size_t)j->pairs * sizeof *cost_of);
  if (cost_of == NULL) return 10;
  for (uint32_t r = 0; r < j->ranks; ++r) {
    for (int64_t i = 0; i < j->pairs; ++i) cost_of[i] = j->whole[r][i] - j->bare[r][i];
    const double median = bs_median(cost_of, (size_t)j->pairs);
    if (median < cost) continue;
    cost = median;
    most = bs_percentile(cost_of, (size_t)j->pairs, 0.9);
    whole = bs_median(j->whole[r], (size_t)j->pairs);
    bare = bs_median(j->bare[r], (size_t)j->pairs);
  }
  free(cost_of);
  if (json)
    printf(
        "{\"bench\":\"host\",\"method\":\"%s\",\"ranks\":%u,\"n\":%lld,\"k\":%lld,\"b\":%lld,\"impl\":\"%s%"
        "s\","
        "\"pairs\":%lld,\"forward_s\":%.4g,\"bare_s\":%.4g,\"cost_s\":%.4g,\"cost_p90_s\":%.4g}\n",
        j->method, j->ranks, (long long)j->n, (long long)j->k, (long long)j->b, j->impl,
        j->gathers ? " after a gather" : "", (long long)j->pairs, whole, bare, cost, most);
  else
    printf("%-13s %5u  %-8s%s %10.3f %10.3f %10.3f %10.3f\n", j->method, j->ranks, j->impl,
           j->gathers ? " after a gather" : "", whole * 1e6, bare * 1e6, cost * 1e6, most * 1e6);
  return 0;
}

static int32_t run_world(job *j, bs_context *context, bs_error *err) {
  void *state = NULL;
  const bs_world_options options = {.struct_size = sizeof options,
                                    .world_size = j->ranks,
                                    .backend = "cpu",
                                    .threads_per_rank = 1,
                                    .bind = 1};
  const bs_world_request request = {.struct_size = sizeof request, .world_size = j->ranks};
  int32_t rc = bs_find_comm(context, "threads", &j->comm, &state, err);
  if (rc == BS_OK && j->ranks > 1) rc = j->comm->world_open(state, &request, &j->comm_world, err);
  if (rc == BS_OK) rc = bs_world_create(context, &options, &j->world, err);
  if (rc == BS_OK) rc = bs_world_run(j->world, rank_main, j, err);
  bs_world_destroy(j->world);
  if (j->comm_world != NULL) j->comm->world_close(j->comm_world);
  j->world = NULL;
  j->comm_world = NULL;
  return rc;
}

static int run_case(job *j, bs_context *context, int json) {
  bs_error err = {.struct_size = sizeof err};
  int32_t rc = BS_OK;
  for (uint32_t r = 0; r < j->ranks; ++r) {
    j->whole[r] = calloc((size_t)j->pairs, sizeof(double));
    j->bare[r] = calloc((size_t)j->pairs, sizeof(double));
    if (j->whole[r] == NULL || j->bare[r] == NULL)
      rc = bs_fail(&err, BS_NO_MEMORY, "BS-BENCH-MEMORY", "no memory for samples");
  }
  if (rc == BS_OK) rc = run_world(j, context, &err);
  const int code = rc == BS_OK ? print_case(j, json) : bench_fail("bench_host", &err);
  for (uint32_t r = 0; r < j->ranks; ++r) {
    free(j->whole[r]);
    free(j->bare[r]);
  }
  return code;
}

/* ---- empty runs of a world -------------------------------------------------------------------- */

static int32_t do_nothing(bs_rank *rank, void *arg, bs_error *err) {
  (void)rank, (void)arg, (void)err;
  return BS_OK;
}

static int32_t time_runs(bs_context *context, uint32_t ranks, double *seconds, int64_t runs, bs_error *err) {
  const bs_world_options options = {
      .struct_size = sizeof options, .world_size = ranks, .backend = "cpu", .threads_per_rank = 1, .bind = 1};
  bs_world *world = NULL;
  int32_t rc = bs_world_create(context, &options, &world, err);
  for (int64_t i = -WARM_RUNS; rc == BS_OK && i < runs; ++i) {
    const double start = bs_clock_s();
    rc = bs_world_run(world, do_nothing, NULL, err);
    seconds[i < 0 ? 0 : i] = bs_clock_s() - start;
  }
  bs_world_destroy(world);
  return rc;
}

static int print_runs(bs_context *context, int64_t runs, int json) {
  bs_error err = {.struct_size = sizeof err};
  double *seconds = calloc((size_t)runs, sizeof *seconds);
  int32_t rc = BS_OK;
  if (seconds == NULL) return 10;
  if (!json) printf("%5s %10s %10s %10s   (us a run)\n", "ranks", "p10", "median", "p90");
  for (uint32_t ranks = 1; ranks <= 4 && rc == BS_OK; ranks *= 2) {
    rc = time_runs(context, ranks, seconds, runs, &err);
    if (rc != BS_OK) break;
    const double median = bs_median(seconds, (size_t)runs);
    const double least = bs_percentile(seconds, (size_t)runs, 0.1);
    const double most = bs_percentile(seconds, (size_t)runs, 0.9);
    if (json)
      printf(
          "{\"bench\":\"run\",\"ranks\":%u,\"runs\":%lld,\"run_s\":%.4g,\"run_p10_s\":%.4g,"
          "\"run_p90_s\":%.4g}\n",
          ranks, (long long)runs, median, least, most);
    else
      printf("%5u %10.3f %10.3f %10.3f\n", ranks, least * 1e6, median * 1e6, most * 1e6);
  }
  free(seconds);
  return rc == BS_OK ? 0 : bench_fail("bench_host", &err);
}

int main(int argc, char **argv) {
  int64_t ranks = 2, runs = 0;
  const char *output = "table";
  job j;
  memset(&j, 0, sizeof j);
  j.n = j.k = 64;
  j.b = 1;
  j.pairs = 100;
  j.calls = 2000;
  const bench_option options[] = {{"--n", 'i', &j.n, 1, 65536},
                                  {"--k", 'i', &j.k, 4, 65536},
                                  {"--b", 'i', &j.b, 1, 65536},
                                  {"--pairs", 'i', &j.pairs, 5, 10000},
                                  {"--calls", 'i', &j.calls, 1, 10000000},
                                  {"--ranks", 'i', &ranks, 2, MAX_RANKS},
                                  {"--runs", 'i', &runs, 1, 10000000},
                                  {"-o", 's', &output, 0, 0}};
  if (!bench_parse("bench_host", argc, argv, options, sizeof options / sizeof options[0])) return 2;
  const int json = strcmp(output, "json") == 0;
  bench_matrix x = {1, j.b, j.k}, w = {2, j.n, j.k};
  bs_error err = {.struct_size = sizeof err};
  bs_context *context = NULL;
  bench_plugin *plugin = NULL;
  int32_t rc = bs_mask_parse("complement_1100_0011", NULL, NULL, &j.mask, &err);
  if (rc == BS_OK) rc = bench_context(&context, &err);
  if (rc == BS_OK && runs > 0) {
    const int ended = print_runs(context, runs, json);
    bs_context_close(context);
    return ended;
  }
  if (rc == BS_OK) rc = bench_plugin_open(context, "cpu", NULL, &plugin, &err);
  int code = rc == BS_OK ? 0 : bench_fail("bench_host", &err);
  j.x = bench_source(&x, BS_F32);
  j.w = bench_source(&w, BS_F32);
  j.plugin = plugin;
  static const char *const methods[3] = {"dense", "row_parallel", "blockshock"};
  if (code == 0 && !json)
    printf("%-13s %5s  %-8s %10s %10s %10s %10s   (us a call)\n", "method", "ranks", "kernel", "forward",
           "bare", "cost", "p90");
  for (int i = 0; i < 3 && code == 0; ++i) {
    j.method = methods[i];
    j.ranks = i == 0 ? 1 : (uint32_t)ranks;
    code = run_case(&j, context, json);
  }
  bench_plugin_close(plugin);
  bs_context_close(context);
  return code;
}
