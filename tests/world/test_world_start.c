/* SPDX-License-Identifier: MIT
 * Started collectives: the same results and counters as run, the order, what is refused, failures that reach
 * the waits, ranks that leave without waiting, worlds without a thread for it. */
#include "tests/run_tests.h"
#include "world_help.h"

#define FLOATS 4096

static const bs_rank_api *api;
static void open_all(void) {
  open_context();
  api = bs_rank_get_api();
}

static bs_tensor row_of(float *data, int64_t cols) {
  return view_of(data, BS_F32, 1, cols, cols);
}
static bs_coll_plan *reduction(bs_rank *rank, uint64_t count, const char *site) {
  const bs_collective d = collective_of(BS_COLL_ALL_REDUCE, 1, count, site);
  bs_coll_plan *plan = NULL;
  bs_error e = {.struct_size = sizeof e};
  ck_assert_msg(api->collective_prepare(rank, &d, &plan, &e) == BS_OK, "%s", e.message);
  return plan;
}

/* More at a time than the line has places; waits in the other order; a run and a barrier come after them. */
enum { MANY = 100 };
static int32_t order_main(bs_rank *rank, void *arg, bs_error *e) {
  static const char *const site[2] = {"even", "odd"};
  bs_coll_plan *plan[MANY];
  float *x = calloc(MANY + 1, FLOATS * sizeof *x);
  uint32_t r = rank_of(rank);
  (void)arg;
  for (int round = 0; round < 3; ++round) {
    bs_rank_counters_reset(rank);
    for (int i = 0; i < MANY; ++i) {
      bs_tensor t = row_of(x + (size_t)i * FLOATS, i % 2 ? FLOATS : 5);
      for (int64_t k = 0; k < t.dims[1]; ++k)
        x[(size_t)i * FLOATS + (size_t)k] = (float)(i + k) * (float)(r + 1);
      plan[i] = reduction(rank, (uint64_t)t.dims[1], site[i % 2]);
      ck_assert_int_eq(api->collective_start(plan[i], &t, &t, NULL, e), BS_OK);
    }
    float *last = x + (size_t)MANY * FLOATS;
    bs_tensor t = row_of(last, 3);
    bs_coll_plan *now = reduction(rank, 3, "now");
    last[0] = last[1] = last[2] = 1.0f;
    ck_assert_int_eq(bs_rank_barrier(rank, "between", e), BS_OK);
    ck_assert_int_eq(api->collective_run(now, &t, &t, NULL, e), BS_OK);
    ck_assert_float_eq(last[2], 3.0f);
    ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_COLLECTIVES), 1); /* started ones count at their wait */
    for (int i = MANY; i-- > 0;) {
      ck_assert_int_eq(api->collective_wait(plan[i], e), BS_OK);
      ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_COLLECTIVES), (uint64_t)(1 + MANY - i));
      const int64_t n = i % 2 ? FLOATS : 5;
      int64_t wrong = 0;
      for (int64_t k = 0; k < n; ++k) wrong += x[(size_t)i * FLOATS + (size_t)k] != (float)(6 * (i + k));
      ck_assert_int_eq(wrong, 0);
      api->collective_release(plan[i]);
    }
    ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_PAYLOAD_BYTES), 12 + MANY / 2 * 4 * (5 + FLOATS));
    api->collective_release(now);
  }
  free(x);
  return BS_OK;
}
START_TEST(test_order) {
  bs_world_options o = options(3, "ref");
  o.bind = (uint32_t)_i;
  bs_world *world = world_of(&o);
  run(world, order_main, NULL, BS_OK);
  run(world, order_main, NULL, BS_OK); /* the line stays from one run to the next */
  bs_world_destroy(world);
}
END_TEST

/* No thread in these: start does the work, wait gives the result and counts. */
static int32_t alone_main(bs_rank *rank, void *arg, bs_error *e) {
  float x[2] = {1.0f, 2.0f}, y[2] = {0, 0};
  bs_tensor in = row_of(x, 2), out = row_of(y, 2);
  bs_coll_plan *plan = reduction(rank, 2, "alone");
  (void)arg;
  ck_assert_int_eq(api->collective_start(plan, &in, &out, NULL, e), BS_OK);
  ck_assert_float_eq(y[1], 2.0f);
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_COLLECTIVES), 0);
  ck_assert_int_eq(api->collective_wait(plan, e), BS_OK);
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_COLLECTIVES), 1);
  api->collective_release(plan);
  return BS_OK;
}
START_TEST(test_alone) {
  bs_world_options o = options(1, "ref");
  if (_i == 1) o.comm = "driven";
  run_by(&o, alone_main, NULL, BS_OK);
}
END_TEST

static int32_t refused_main(bs_rank *rank, void *arg, bs_error *e) {
  float x[2] = {1.0f, 2.0f};
  bs_tensor t = row_of(x, 2), wide = row_of(x, 1);
  bs_coll_plan *plan = reduction(rank, 2, "site");
  (void)arg;
  ck_assert_int_eq(api->collective_wait(plan, e), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(e->id, "BS-COLL-WAIT");
  ck_assert_int_eq(api->collective_start(plan, &wide, &t, NULL, e), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(e->id, "BS-COLL-TENSOR");
  ck_assert_int_eq(api->collective_start(plan, &t, &t, NULL, e), BS_OK);
  ck_assert_int_eq(api->collective_start(plan, &t, &t, NULL, e), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(e->id, "BS-COLL-STARTED");
  ck_assert_int_eq(api->collective_run(plan, &t, &t, NULL, e), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(e->id, "BS-COLL-STARTED");
  ck_assert_int_eq(api->collective_wait(plan, e), BS_OK);
  ck_assert_float_eq(x[1], 4.0f);
  api->collective_release(plan);
  return BS_OK;
}
START_TEST(test_refused) {
  run_once(2, "ref", refused_main, NULL, BS_OK);
}
END_TEST

/* Rank 1 comes to another site: both waits of both ranks fail, the later one with the same error. */
static int32_t failing_main(bs_rank *rank, void *arg, bs_error *e) {
  float x[2] = {0}, y[2] = {0};
  bs_tensor a = row_of(x, 2), b = row_of(y, 2);
  bs_coll_plan *first = reduction(rank, 2, rank_of(rank) == 0 ? "here" : "there");
  bs_coll_plan *second = reduction(rank, 2, "both");
  (void)arg;
  ck_assert_int_eq(api->collective_start(first, &a, &a, NULL, e), BS_OK);
  ck_assert_int_eq(api->collective_start(second, &b, &b, NULL, e), BS_OK);
  int32_t rc = api->collective_wait(second, e);
  ck_assert_int_eq(rc, BS_MISMATCH);
  ck_assert(strstr(e->message, "here") != NULL && strstr(e->message, "there") != NULL);
  ck_assert_int_eq(api->collective_wait(first, e), BS_MISMATCH);
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_COLLECTIVES), 0);
  api->collective_release(first);
  api->collective_release(second);
  return rc;
}
START_TEST(test_failing) {
  run_once(2, "ref", failing_main, NULL, BS_MISMATCH);
}
END_TEST

/* Rank 0 leaves, or releases, what no other rank will ever join; or fails beside it: named, and no hang. */
static bs_coll_plan *volatile left; /* nobody is left to release it: it stays in reach */
static float left_data[2];
static int32_t leaving_main(bs_rank *rank, void *arg, bs_error *e) {
  bs_tensor t = row_of(left_data, 2);
  const int how = *(const int *)arg;
  if (rank_of(rank) == 1) return how == 2 || how == 3 ? BS_OK : bs_rank_barrier(rank, "never", e);
  left = reduction(rank, 2, "left");
  ck_assert_int_eq(api->collective_start(left, &t, &t, NULL, e), BS_OK);
  if (how == 2 || how == 4) {
    snprintf(e->message, sizeof e->message, "an op failed");
    return e->code = BS_IO;
  }
  return BS_OK;
}
START_TEST(test_leaving) {
  bs_world_options o = options(2, "ref");
  o.timeout_s = 60;
  int how = _i;
  bs_world *world = world_of(&o);
  bs_world_run(world, leaving_main, &how, &err);
  if (how == 2)
    ck_assert_int_eq(err.code, BS_IO);
  else if (how == 4) /* unless the barrier has met what rank 0 started before that fails */
    ck_assert(err.code == BS_IO || err.code == BS_MISMATCH);
  else if (how == 3) {
    ck_assert_str_eq(err.id, "BS-COLL-UNWAITED");
    ck_assert_msg(strstr(err.message, "rank 0") != NULL, "%s", err.message);
  }
  ck_assert_int_ne(err.code, BS_OK);
  bs_world_destroy(world);
}
END_TEST

static int32_t released_main(bs_rank *rank, void *arg, bs_error *e) {
  bs_tensor t = row_of((float *)arg + 2 * rank_of(rank), 2);
  bs_coll_plan *plan = reduction(rank, 2, "released");
  ck_assert_int_eq(api->collective_start(plan, &t, &t, NULL, e), BS_OK);
  api->collective_release(plan);
  return BS_OK;
}
START_TEST(test_released) {
  float x[4] = {0};
  run_once(2, "ref", released_main, x, BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-COLL-UNWAITED");
}
END_TEST

/* The world's hook sees and multiplies started ones too. */
static uint32_t twice(void *user, uint32_t rank, const bs_coll_call *call) {
  (void)user, (void)rank;
  return strcmp(call->site, "hooked") == 0 ? 2u : 1u;
}
static int32_t hooked_main(bs_rank *rank, void *arg, bs_error *e) {
  float x[2] = {1.0f, 1.0f};
  bs_tensor t = row_of(x, 2);
  bs_coll_plan *plan = reduction(rank, 2, "hooked");
  (void)arg;
  ck_assert_int_eq(api->collective_start(plan, &t, &t, NULL, e), BS_OK);
  ck_assert_int_eq(api->collective_wait(plan, e), BS_OK);
  ck_assert_float_eq(x[0], 4.0f);
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_COLLECTIVES), 2);
  api->collective_release(plan);
  return BS_OK;
}
START_TEST(test_hooked) {
  bs_collective_hook hook = {.before = twice};
  bs_world_options o = options(2, "ref");
  o.hook = &hook;
  run_by(&o, hooked_main, NULL, BS_OK);
}
END_TEST

int main(void) {
  const test_case tests[] = {{test_order, 2},      {test_alone, 2}, {test_refused}, {test_failing},
                             {test_leaving, 5, 1}, {test_released}, {test_hooked},  {0}};
  return run_tests("world_start", tests, (test_setup){open_all, close_context, 15});
}
