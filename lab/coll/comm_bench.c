/* SPDX-License-Identifier: MIT
 * comm_bench.c - see comm_bench.h. Values are small whole numbers, which every dtype and every order of
 * summation keeps. */
#include "lab/coll/comm_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/plugin/registry.h"
#include "lab/case/case.h"
#include "lab/clock.h"
#include "lab/error.h"
#include "lab/measure/stats.h"
#include "lab/peers/exchange.h"
#include "lab/stop.h"

enum { CALLS_MAX = 2000, SAMPLES_MAX = 200, VALUES = 7 };
enum { VIRTUAL_CALLS = 16 };         /* with a virtual clock, where all samples are equal */
static const double SAMPLE_S = 2e-3; /* the least time of a sample, if CALLS_MAX allows it */
static const char *const site = "bench.comm";

typedef struct job {
  bs_case_kept kept;
  bs_comm_bench bench;
  int is_virtual;
} job;

/* One cell on one rank. */
typedef struct cell {
  const job *j;
  bs_rank *rank;
  uint32_t kind, me, P;
  uint64_t share; /* the value of bs_collective.count */
  uint64_t n_in, n_out;
  void *in, *out;
  float *values; /* max(n_in, n_out) of them */
  bs_tensor x, y;
  bs_coll_plan *plan, *back; /* back: send_recv only */
} cell;

/* send and recv are measured as one. */
int bs_comm_bench_kind(const char *name) {
  uint32_t kind = BS_COLL_COUNT_;
  if (strcmp(name, "send_recv") == 0) return BS_BENCH_SEND_RECV;
  return bs_name_read(BS_NAMES_COLL, name, &kind) && kind <= BS_COLL_ALL_TO_ALL ? (int)kind : -1;
}

const char *bs_comm_bench_name(uint32_t kind) {
  return kind == BS_BENCH_SEND_RECV ? "send_recv" : bs_name_of(BS_NAMES_COLL, kind);
}

double bs_bus_factor(uint32_t kind, uint32_t ranks) {
  const double p = ranks;
  if (kind == BS_COLL_ALL_REDUCE) return 2 * (p - 1) / p;
  return kind == BS_COLL_ALL_GATHER || kind == BS_COLL_REDUCE_SCATTER || kind == BS_COLL_ALL_TO_ALL
             ? (p - 1) / p
             : 1;
}

/* ---- values --------------------------------------------------------------------------------- */

static float value(uint32_t rank, uint64_t i) {
  return (float)((i + 3u * rank) % VALUES);
}

static float sum(uint32_t P, uint64_t i) {
  float total = 0;
  for (uint32_t r = 0; r < P; ++r) total += value(r, i);
  return total;
}

/* The right value of element i in the result of rank `me`. */
static float expected(const cell *c, uint64_t i) {
  switch (c->kind) {
    case BS_COLL_ALL_REDUCE:
      return sum(c->P, i);
    case BS_COLL_REDUCE_SCATTER:
      return sum(c->P, c->me * c->share + i);
    case BS_COLL_ALL_GATHER:
      return value((uint32_t)(i / c->share), i % c->share);
    case BS_COLL_ALL_TO_ALL:
      return value((uint32_t)(i / c->share), c->me * c->share + i % c->share);
    default: /* broadcast, send_recv: rank 0's */
      return value(0, i);
  }
}

static void fill(const cell *c) {
  for (uint64_t i = 0; i < c->n_in; ++i) c->values[i] = value(c->me, i);
  bs_convert(c->j->bench.dtype, c->in, BS_F32, c->values, c->n_in);
  memset(c->out, 0x7f, (size_t)(c->n_out * BS_DTYPE_BYTES(c->j->bench.dtype)));
}

static uint64_t count_wrong(const cell *c) {
  uint64_t wrong = 0;
  if (c->kind == BS_BENCH_SEND_RECV && c->me > 1) return 0;
  bs_convert(BS_F32, c->values, c->j->bench.dtype, c->out, c->n_out);
  for (uint64_t i = 0; i < c->n_out; ++i) wrong += c->values[i] != expected(c, i);
  return wrong;
}

/* ---- one call ------------------------------------------------------------------------------- */

static int32_t call(const cell *c, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  bs_tensor x = c->x, y = c->y;
  if (c->kind != BS_BENCH_SEND_RECV) return api->collective_run(c->plan, &x, &y, NULL, err);
  if (c->me > 1) return BS_OK;
  /* rank 0: in there, out back; rank 1: into out, out back */
  int32_t rc = api->collective_run(c->plan, c->me == 0 ? &x : NULL, c->me == 0 ? NULL : &y, NULL, err);
  if (rc == BS_OK)
    rc = api->collective_run(c->back, c->me == 0 ? NULL : &y, c->me == 0 ? &y : NULL, NULL, err);
  return rc;
}

static int32_t prepare(cell *c, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const uint32_t dtype = c->j->bench.dtype;
  if (c->kind != BS_BENCH_SEND_RECV) {
    const bs_collective what = bs_exchange_of(c->kind, dtype, c->share, 0, site);
    return api->collective_prepare(c->rank, &what, &c->plan, err);
  }
  if (c->me > 1) return BS_OK;
  const uint32_t first = c->me == 0 ? BS_COLL_SEND : BS_COLL_RECV;
  const bs_collective there = bs_exchange_of(first, dtype, c->share, 1 - c->me, "bench.comm.there");
  const bs_collective back = bs_exchange_of(first == BS_COLL_SEND ? BS_COLL_RECV : BS_COLL_SEND, dtype,
                                            c->share, 1 - c->me, "bench.comm.back");
  int32_t rc = api->collective_prepare(c->rank, &there, &c->plan, err);
  if (rc == BS_OK) rc = api->collective_prepare(c->rank, &back, &c->back, err);
  return rc;
}

static bs_tensor vector(void *data, uint32_t dtype, uint64_t n) {
  return (bs_tensor){.struct_size = sizeof(bs_tensor),
                     .dtype = dtype,
                     .rank = 2,
                     .dims = {1, (int64_t)n},
                     .strides = {(int64_t)n, 1},
                     .data = data,
                     .bytes = n * BS_DTYPE_BYTES(dtype)};
}

static int32_t cell_open(cell *c, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const uint32_t dtype = c->j->bench.dtype;
  const uint64_t size = BS_DTYPE_BYTES(dtype), all = c->share * c->P;
  c->n_in = c->kind == BS_COLL_REDUCE_SCATTER || c->kind == BS_COLL_ALL_TO_ALL ? all : c->share;
  c->n_out = c->kind == BS_COLL_ALL_GATHER || c->kind == BS_COLL_ALL_TO_ALL ? all : c->share;
  const uint64_t most = c->n_in > c->n_out ? c->n_in : c->n_out;
  c->in = api->alloc(c->rank, c->n_in * size);
  c->out = api->alloc(c->rank, c->n_out * size);
  c->values = api->alloc(c->rank, most * sizeof *c->values);
  if (c->in == NULL || c->out == NULL || c->values == NULL)
    return bs_no_memory(err, "messages of %llu elements", (unsigned long long)most);
  c->x = vector(c->in, dtype, c->n_in);
  c->y = vector(c->out, dtype, c->n_out);
  return prepare(c, err);
}

static void cell_close(cell *c) {
  const bs_rank_api *api = bs_rank_get_api();
  if (c->plan != NULL) api->collective_release(c->plan);
  if (c->back != NULL) api->collective_release(c->back);
  api->free(c->rank, c->in);
  api->free(c->rank, c->out);
  api->free(c->rank, c->values);
}

/* ---- samples -------------------------------------------------------------------------------- */

static int32_t time_calls(const cell *c, uint64_t calls, double *out_seconds, bs_error *err) {
  int32_t rc = bs_rank_barrier(c->rank, "bench.comm.start", err);
  const uint64_t begin = bs_rank_clock_ns(c->rank);
  for (uint64_t k = 0; rc == BS_OK && k < calls; ++k) rc = call(c, err);
  *out_seconds = (double)(bs_rank_clock_ns(c->rank) - begin) * 1e-9 / (double)calls;
  return rc;
}

/* values[i] becomes the largest of all ranks' values[i]. */
static int32_t largest(const cell *c, double *values, uint64_t n, bs_error *err) {
  bs_collective what = bs_exchange_of(BS_COLL_ALL_REDUCE, BS_F64, n, 0, "bench.comm.slowest");
  what.reduce_op = BS_REDUCE_MAX;
  return bs_rank_collective_host(c->rank, &what, values, n, values, n, err);
}

static int32_t add_wrong(const cell *c, uint64_t wrong, uint64_t *out_wrong, bs_error *err) {
  double total = (double)wrong;
  const bs_collective what = bs_exchange_of(BS_COLL_ALL_REDUCE, BS_F64, 1, 0, "bench.comm.wrong");
  const int32_t rc = bs_rank_collective_host(c->rank, &what, &total, 1, &total, 1, err);
  *out_wrong = (uint64_t)total;
  return rc;
}

static int32_t measure(const cell *c, bs_comm_cell *out, bs_error *err) {
  const uint32_t asked = c->j->is_virtual ? 1 : c->j->bench.samples;
  const uint32_t samples = asked < SAMPLES_MAX ? asked : SAMPLES_MAX,
                 most = c->j->is_virtual ? VIRTUAL_CALLS : CALLS_MAX;
  double seconds[SAMPLES_MAX] = {0}, once = 0;
  int32_t rc = call(c, err);
  if (rc == BS_OK) rc = add_wrong(c, count_wrong(c), &out->wrong, err);
  if (rc == BS_OK) rc = time_calls(c, c->j->bench.warmup, &once, err);
  if (rc == BS_OK) rc = largest(c, &once, 1, err); /* so that all ranks make as many calls */
  const double calls = once > 0 ? ceil(SAMPLE_S / once) : most;
  out->calls = calls < 1 ? 1 : calls > most ? most : (uint64_t)calls;
  for (uint32_t s = 0; rc == BS_OK && s < samples; ++s) rc = time_calls(c, out->calls, &seconds[s], err);
  if (rc == BS_OK) rc = largest(c, seconds, samples, err);
  const double half = c->kind == BS_BENCH_SEND_RECV ? 0.5 : 1;
  out->samples = samples;
  out->median_s = half * bs_median(seconds, samples);
  out->p10_s = half * bs_percentile(seconds, samples, 0.1);
  out->p90_s = half * bs_percentile(seconds, samples, 0.9);
  return rc;
}

static int32_t run_cell(const job *j, bs_rank *rank, uint32_t kind, uint64_t bytes, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const uint64_t size = BS_DTYPE_BYTES(j->bench.dtype);
  const int split =
      kind == BS_COLL_ALL_GATHER || kind == BS_COLL_REDUCE_SCATTER || kind == BS_COLL_ALL_TO_ALL;
  cell c = {.j = j, .rank = rank, .kind = kind, .me = api->rank(rank), .P = api->world_size(rank)};
  c.share = bytes / size / (split ? c.P : 1);
  if (c.share == 0) c.share = 1;
  bs_comm_cell out = {.kind = kind, .count = c.share * (split ? c.P : 1)};
  out.bytes = out.count * size;
  int32_t rc = cell_open(&c, err);
  if (rc == BS_OK) {
    fill(&c);
    rc = measure(&c, &out, err);
  }
  if (rc == BS_OK && c.me == 0 && j->bench.each != NULL) j->bench.each(j->bench.user, &out);
  cell_close(&c);
  return rc;
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  const job *j = arg;
  int32_t rc = BS_OK;
  for (uint32_t k = 0; rc == BS_OK && k < j->bench.n_kinds; ++k) {
    const uint32_t kind = (uint32_t)bs_comm_bench_kind(j->bench.kinds[k]);
    double size = (double)j->bench.min_bytes;
    uint64_t last = 0;
    while (rc == BS_OK && size <= (double)j->bench.max_bytes) {
      rc = bs_stop_check(err); /* of one rank: the others end with it */
      if (rc == BS_OK && (uint64_t)size != last) rc = run_cell(j, rank, kind, (uint64_t)size, err);
      last = (uint64_t)size; /* a small factor, rounded down, gives it again */
      size *= j->bench.factor;
    }
  }
  return rc;
}

static int32_t check_kinds(bs_context *context, const bs_comm_bench *b, bs_error *err) {
  const bs_comm *c = NULL;
  void *state = NULL;
  int32_t rc = bs_find_comm(context, b->comm, &c, &state, err);
  if (rc != BS_OK) return rc;
  for (uint32_t k = 0; k < b->n_kinds; ++k) {
    const int kind = bs_comm_bench_kind(b->kinds[k]);
    const int has = kind == BS_COLL_ALL_REDUCE       ? c->all_reduce != NULL
                    : kind == BS_COLL_ALL_GATHER     ? c->all_gather != NULL
                    : kind == BS_COLL_REDUCE_SCATTER ? c->reduce_scatter != NULL
                    : kind == BS_COLL_BROADCAST      ? c->broadcast != NULL
                    : kind == BS_COLL_ALL_TO_ALL     ? c->all_to_all != NULL
                                                     : c->send != NULL && c->recv != NULL;
    if (kind >= 0 && !has)
      return bs_error_set(err, BS_UNSUPPORTED, "BS-BENCH-KIND", "the communicator %s has no %s", b->comm,
                          b->kinds[k]);
  }
  return BS_OK;
}

int32_t bs_comm_bench_run(bs_context *context, const bs_comm_bench *bench, bs_error *err) {
  bs_world *world = NULL;
  job *j = calloc(1, sizeof *j);
  if (j == NULL) return bs_no_memory(err, "a benchmark");
  j->bench = *bench;
  j->is_virtual = bs_clock_is_virtual(context, bench->comm);
  const bs_world_options options = {.struct_size = sizeof options,
                                    .world_size = bench->ranks,
                                    .backend = "ref",
                                    .comm = bench->comm,
                                    .threads_per_rank = 1,
                                    .bind = bench->bind,
                                    .sync_mode = BS_SYNC_NONE,
                                    .timeout_s = bench->timeout_s,
                                    .algorithm = bench->algorithm};
  int32_t rc = check_kinds(context, bench, err);
  if (rc == BS_OK) rc = bs_world_create(context, &options, &world, err);
  if (rc == BS_OK) rc = bs_world_run(world, rank_main, j, err);
  bs_world_destroy(world);
  if (bs_context_stuck(context) > 0)
    bs_case_keep(&j->kept);
  else
    free(j);
  return rc;
}
