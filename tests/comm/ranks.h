/* SPDX-License-Identifier: MIT
 *
 * ranks.h - runs a function on P threads, each with an open rank of the communicator "threads". Used by
 * the tests of this folder.
 */
#ifndef BS_TESTS_COMM_RANKS_H
#define BS_TESTS_COMM_RANKS_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "blockshock/blockshock.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "tests/marks.h"

typedef struct test_rank {
  const bs_comm *comm;
  void *world;
  void *handle;
  uint32_t rank;
  uint32_t size;
  int32_t rc;
  bs_error err;
  void *arg;
  void (*body)(struct test_rank *t);
} test_rank;

static bs_context *test_context;
static const bs_comm *test_comm;
static void *test_state;

static inline void open_comm(void) {
  bs_context_options o = {.struct_size = sizeof o};
  bs_error err;
  ck_assert_int_eq(bs_context_open(&o, &test_context, &err), BS_OK);
  ck_assert_int_eq(bs_find_comm(test_context, "threads", &test_comm, &test_state, &err), BS_OK);
}
static inline void close_comm(void) {
  bs_context_close(test_context);
}

static inline void *rank_thread(void *arg) {
  test_rank *t = arg;
  t->body(t);
  return NULL;
}

/* Outcomes stay in ranks[0..size). */
static inline void run_ranks(uint32_t size, void (*body)(test_rank *t), void *arg, test_rank *ranks) {
  bs_world_request request = {.struct_size = sizeof request, .world_size = size};
  pthread_t threads[16];
  void *world = NULL;
  bs_error err;
  ck_assert_uint_le(size, 16);
  ck_assert_int_eq(test_comm->world_open(test_state, &request, &world, &err), BS_OK);
  for (uint32_t r = 0; r < size; ++r) {
    test_rank *t = &ranks[r];
    memset(t, 0, sizeof *t);
    t->comm = test_comm;
    t->world = world;
    t->rank = r;
    t->size = size;
    t->arg = arg;
    t->body = body;
    ck_assert_int_eq(test_comm->rank_open(world, r, &t->handle, &t->err), BS_OK);
  }
  for (uint32_t r = 0; r < size; ++r)
    ck_assert_int_eq(pthread_create(&threads[r], NULL, rank_thread, &ranks[r]), 0);
  for (uint32_t r = 0; r < size; ++r) pthread_join(threads[r], NULL);
  for (uint32_t r = 0; r < size; ++r) test_comm->rank_close(ranks[r].handle);
  test_comm->world_close(world);
}

static inline uint64_t text_hash(const char *text) {
  uint64_t h = 1469598103934665603u;
  for (; *text; ++text) h = (h ^ (unsigned char)*text) * 1099511628211u;
  return h;
}

static inline bs_coll_call make_call(uint32_t kind, uint32_t dtype, uint64_t rows, uint64_t count,
                                     const char *site) {
  bs_coll_call c;
  memset(&c, 0, sizeof c);
  c.struct_size = sizeof c;
  c.kind = kind;
  c.dtype_in = c.dtype_out = c.reduce_dtype = dtype;
  c.rows = rows;
  c.count = count;
  c.in_stride = c.out_stride = (int64_t)count;
  c.fingerprint = text_hash(site) + dtype;
  c.site = site;
  c.timeout_ns = INT64_C(60000000000);
  return c;
}

/* Element i of rank r: small enough that integers of 8 bits do not wrap over 8 ranks. */
static inline double value_of(uint32_t dtype, uint32_t rank, uint64_t i) {
  int64_t k = (int64_t)((i * 7u + rank * 13u) % 21u) - 10;
  return bs_dtype_is_float(dtype) ? (double)k * 0.37 : (double)k;
}
static inline void fill(uint32_t dtype, void *data, uint32_t rank, uint64_t rows, uint64_t cols,
                        int64_t stride) {
  for (uint64_t row = 0; row < rows; ++row)
    for (uint64_t col = 0; col < cols; ++col)
      bs_store_f64(dtype, data, (int64_t)row * stride + (int64_t)col,
                   value_of(dtype, rank, row * cols + col));
}
/* One value rounded to a dtype. */
static inline double rounded(uint32_t dtype, double value) {
  uint64_t room = 0;
  bs_store_f64(dtype, &room, 0, value);
  return bs_load_f64(dtype, &room, 0);
}
/* What the reduction in rank order must give for element i. */
static inline double reduced(uint32_t in, uint32_t reduce, uint32_t out, uint32_t size, uint64_t i) {
  double sum = 0.0;
  for (uint32_t r = 0; r < size; ++r) {
    double v = rounded(reduce, rounded(in, value_of(in, r, i)));
    sum = r == 0 ? v : rounded(reduce, sum + v);
  }
  return rounded(out, sum);
}
static inline uint64_t step_for(uint64_t n) {
  return n > 2000 ? 97 : 1;
}

/* When ranks begin a call that a deadline will end, by the clock of all. A machine that keeps one of them
 * away for long shows nothing: the call is made again, in another world. */
#define FAIR_TURNS 20
static inline int64_t clock_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static inline int together(int64_t a_ns, int64_t b_ns, int64_t timeout_ns) {
  const int64_t apart = a_ns > b_ns ? a_ns - b_ns : b_ns - a_ns;
  return 2 * apart < timeout_ns;
}

static inline void must(test_rank *t, int32_t rc) {
  if (rc != BS_OK) {
    t->rc = rc;
    ck_abort_msg("rank %u: %s %s", t->rank, t->err.id, t->err.message);
  }
}

#endif
