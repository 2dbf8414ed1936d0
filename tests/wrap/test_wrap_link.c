/* SPDX-License-Identifier: MIT
 * test_wrap_link.c - the slow link: results are the inner communicator's, a call takes at least what its
 * bytes and the latency take, an abort ends the wait, a call that can never be in time says so, and what it
 * does not wrap. Times are only held from below. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "blockshock/blockshock.h"
#include "core/base/error.h"
#include "core/plugin/registry.h"
#include "tests/marks.h"
#include "tests/run_tests.h"
#include "tests/slow.h"

#define FLOATS 25000 /* an all-reduce on two ranks: 100 kB on the wire */

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bs_context *open_with(const char *const *params, uint32_t n) {
  bs_context_options o = {
      .struct_size = sizeof o, .log_level = BS_LOG_ERROR, .params = params, .n_params = n};
  bs_context *context = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_context_open(&o, &context, &err) == BS_OK, "%s", err.message);
  return context;
}

typedef struct call {
  double least; /* of the rank's two calls */
  int fail;     /* rank 1 fails meanwhile */
} call;

static int32_t sum_main(bs_rank *rank, void *arg, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const call *c = arg;
  const uint32_t me = api->rank(rank);
  bs_coll_plan *plan = NULL;
  float *x = calloc(FLOATS, sizeof *x);
  bs_collective d = {.struct_size = sizeof d,
                     .kind = BS_COLL_ALL_REDUCE,
                     .dtype_in = BS_F32,
                     .rows = 1,
                     .count = FLOATS,
                     .site = "sum"};
  bs_tensor t = {.struct_size = sizeof t,
                 .dtype = BS_F32,
                 .rank = 2,
                 .dims = {1, FLOATS},
                 .strides = {FLOATS, 1},
                 .data = x,
                 .bytes = FLOATS * sizeof *x};
  for (int i = 0; i < FLOATS; ++i) x[i] = (float)(me + 1);
  int32_t rc = api->collective_prepare(rank, &d, &plan, err);
  if (rc == BS_OK) rc = bs_rank_barrier(rank, "begin", err);
  const double start = seconds();
  if (rc == BS_OK) rc = api->collective_run(plan, &t, &t, NULL, err);
  if (rc == BS_OK && c->fail && me == 1) rc = bs_error_set(err, BS_IO, "BS-TEST-OP", "an op failed");
  if (rc == BS_OK) rc = api->collective_run(plan, &t, &t, NULL, err);
  if (rc == BS_OK) {
    ck_assert_float_eq(x[FLOATS - 1], 6.0f);
    ck_assert_double_ge(seconds() - start, c->least);
  }
  api->collective_release(plan);
  free(x);
  return rc;
}

static int32_t run(bs_context *context, call *c, double timeout_s, bs_error *err) {
  bs_world_options o = {.struct_size = sizeof o,
                        .world_size = 2,
                        .backend = "ref",
                        .comm = "link:threads",
                        .threads_per_rank = 1,
                        .timeout_s = timeout_s};
  bs_world *world = NULL;
  ck_assert_msg(bs_world_create(context, &o, &world, err) == BS_OK, "%s", err->message);
  const int32_t rc = bs_world_run(world, sum_main, c, err);
  bs_world_destroy(world);
  return rc;
}

/* Defaults: 1 GB/s and 20 us. */
START_TEST(takes_its_time) {
  const char *const params[] = {"link.bandwidth=2e6", "link.latency=0.01"};
  call plain = {.least = 2 * (100e3 / 1e9 + 20e-6)}, slow = {.least = 2 * (100e3 / 2e6 + 0.01)};
  bs_error err = BS_ERROR_INIT;
  bs_context *context = open_with(NULL, 0);
  ck_assert_msg(run(context, &plain, 10.0, &err) == BS_OK, "%s", err.message);
  bs_context_close(context);
  context = open_with(params, 2);
  ck_assert_msg(run(context, &slow, 10.0, &err) == BS_OK, "%s", err.message);
  bs_context_close(context);
}
END_TEST

/* Ten minutes on the wire: the failing rank wakes the other, whichever call that is in. */
START_TEST(an_abort_ends_the_wait) {
  const char *const params[] = {"link.bandwidth=1e3", "link.latency=0"};
  call c = {.fail = 1};
  bs_error err = BS_ERROR_INIT;
  bs_context *context = open_with(params, 2);
  const double start = seconds();
  ck_assert_int_ne(run(context, &c, BS_SLOW ? 2.0 : 0.8, &err), BS_OK);
  ck_assert_str_eq(err.id, "BS-LINK-DEADLINE");
  ck_assert(strstr(err.hint, "plugins.link.bandwidth") != NULL);
  ck_assert_double_lt(seconds() - start, 300.0);
  bs_context_close(context);
}
END_TEST

START_TEST(a_wrong_parameter_is_told) {
  const char *const params[] = {"link.bandwidth=0"};
  bs_context_options o = {
      .struct_size = sizeof o, .log_level = BS_LOG_ERROR, .params = params, .n_params = 1};
  bs_context *context = NULL;
  const bs_comm *comm = NULL;
  void *state = NULL;
  bs_error err = BS_ERROR_INIT;
  int32_t rc = bs_context_open(&o, &context, &err);
  if (rc == BS_OK) rc = bs_find_comm(context, "link:threads", &comm, &state, &err);
  ck_assert_int_eq(rc, BS_CONFIG);
  ck_assert_msg(strstr(err.message, "bandwidth") != NULL, "%s", err.message);
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{takes_its_time}, {an_abort_ends_the_wait}, {a_wrong_parameter_is_told}, {0}};
  return run_tests("wrap_link", tests, (test_setup){.timeout = 15});
}
