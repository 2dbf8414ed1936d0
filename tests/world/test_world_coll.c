/* SPDX-License-Identifier: MIT
 * Collectives as methods see them: results, counters, what prepare and run refuse, groups, a world of one,
 * the hook. */
#include "tests/run_tests.h"
#include "world_help.h"

static const bs_rank_api *api;
static void open_all(void) {
  open_context();
  api = bs_rank_get_api();
}

/* ---- collectives ---------------------------------------------------------------------------- */

/* P = 3: payload and wire bytes by the table of coll.c. */
static int32_t counters_main(bs_rank *rank, void *arg, bs_error *e) {
  uint64_t counts[3] = {1, 2, 4}, r = rank_of(rank);
  float x[16], y[32];
  bs_coll_plan *plan = NULL;
  (void)arg;
  for (int i = 0; i < 16; ++i) x[i] = (float)(i + 1) * (float)(r + 1);
  bs_collective d = collective_of(BS_COLL_ALL_REDUCE, 2, 5, "reduce");
  bs_tensor in = view_of(x, BS_F32, 2, 5, 7), out = view_of(y, BS_F32, 2, 5, 5);
  ck_assert_int_eq(api->collective_prepare(rank, &d, &plan, e), BS_OK);
  ck_assert_int_eq(api->collective_run(plan, &in, &out, NULL, e), BS_OK);
  ck_assert_float_eq(y[0], 6.0f);
  ck_assert_float_eq(y[9], 12.0f * 6.0f); /* row 1, column 4 of stride 7 */
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_COLLECTIVES), 1);
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_PAYLOAD_BYTES), 40);
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_WIRE_BYTES), 53); /* 40 x 4 / 3 */
  in.dims[0] = out.dims[0] = 1;                                      /* fewer rows than prepared */
  ck_assert_int_eq(api->collective_run(plan, &in, &out, NULL, e), BS_OK);
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_PAYLOAD_BYTES), 60);
  in.dims[1] = 4;
  ck_assert_int_eq(api->collective_run(plan, &in, &out, NULL, e), BS_INVALID_ARGUMENT);
  in.dims[1] = 5;
  in.dtype = BS_F64;
  ck_assert_int_eq(api->collective_run(plan, &in, &out, NULL, e), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(e->where, "reduce");
  ck_assert_int_eq(e->rank, (int32_t)r);
  api->collective_release(plan);
  bs_rank_counters_reset(rank);

  d = collective_of(BS_COLL_ALL_GATHER, 1, 0, "gather");
  d.ncounts = 3;
  d.counts = counts;
  in = view_of(x, BS_F32, 1, (int64_t)counts[r], 16);
  out = view_of(y, BS_F32, 1, 7, 32);
  ck_assert_int_eq(api->collective_prepare(rank, &d, &plan, e), BS_OK);
  ck_assert_int_eq(api->collective_run(plan, &in, &out, NULL, e), BS_OK);
  ck_assert_float_eq(y[2], 4.0f);
  ck_assert_float_eq(y[6], 12.0f);
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_PAYLOAD_BYTES), 28);
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_WIRE_BYTES), 18);
  api->collective_release(plan);
  bs_rank_counters_reset(rank);

  d = collective_of(r == 0 ? BS_COLL_SEND : BS_COLL_RECV, 1, 5, "pair");
  d.root = r == 0 ? 2 : 0;
  if (r != 1) {
    in = view_of(x, BS_F32, 1, 5, 5);
    out = view_of(y, BS_F32, 1, 5, 5);
    ck_assert_int_eq(api->collective_prepare(rank, &d, &plan, e), BS_OK);
    ck_assert_int_eq(api->collective_run(plan, r == 0 ? &in : NULL, r == 0 ? NULL : &out, NULL, e), BS_OK);
    ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_WIRE_BYTES), r == 0 ? 20 : 0);
    if (r == 2) ck_assert_float_eq(y[4], 5.0f);
    api->collective_release(plan);
  }
  d = collective_of(BS_COLL_ALL_REDUCE, 1, 1, NULL);
  d.dtype_in = 0x1234;
  ck_assert_int_eq(api->collective_prepare(rank, &d, &plan, e), BS_INVALID_ARGUMENT);
  d = collective_of(BS_COLL_BROADCAST, 1, 1, "root");
  d.root = 3;
  ck_assert_int_eq(api->collective_prepare(rank, &d, &plan, e), BS_INVALID_ARGUMENT);
  d = collective_of(BS_COLL_ALL_REDUCE, UINT64_MAX / 4, 9, "huge");
  ck_assert_int_eq(api->collective_prepare(rank, &d, &plan, e), BS_OVERFLOW);
  d = collective_of(99, 1, 1, "kind");
  ck_assert_int_eq(api->collective_prepare(rank, &d, &plan, e), BS_INVALID_ARGUMENT);
  return bs_rank_barrier(rank, "end", e); /* not counted */
}
START_TEST(test_counters) {
  bs_world_options o = options(3, "ref");
  bs_world *world = world_of(&o);
  run(world, counters_main, NULL, BS_OK);
  ck_assert_uint_eq(bs_rank_counter(bs_world_rank(world, 1), BS_COUNT_COLLECTIVES), 0);
  ck_assert_uint_eq(bs_rank_counter(bs_world_rank(world, 0), BS_COUNT_COLLECTIVES), 1);
  bs_world_destroy(world);
}
END_TEST

/* Ranks that prepared different shapes at one site are found when they meet. */
static int32_t mismatch_main(bs_rank *rank, void *arg, bs_error *e) {
  float x[8] = {0};
  bs_coll_plan *plan = NULL;
  (void)arg;
  bs_collective d = collective_of(BS_COLL_ALL_REDUCE, 1, 3 + rank_of(rank), "layer.y");
  bs_tensor t = view_of(x, BS_F32, 1, 3 + (int64_t)rank_of(rank), 8);
  int32_t rc = api->collective_prepare(rank, &d, &plan, e);
  if (rc == BS_OK) rc = api->collective_run(plan, &t, &t, NULL, e);
  api->collective_release(plan);
  return rc;
}
START_TEST(test_mismatch) {
  run_once(2, "ref", mismatch_main, NULL, BS_MISMATCH);
  ck_assert_msg(
      strstr(err.message, "rank 0") && strstr(err.message, "rank 1") && strstr(err.message, "layer.y"), "%s",
      err.message);
}
END_TEST

/* A world of one: copies with the roundings of a reduction. */
static int32_t alone_main(bs_rank *rank, void *arg, bs_error *e) {
  float x[2] = {257.0f, 1.5f}, y[2] = {0, 0};
  bs_coll_plan *plan = NULL;
  (void)arg;
  bs_collective d = collective_of(BS_COLL_ALL_REDUCE, 1, 2, "alone");
  d.reduce_dtype = BS_BF16;
  bs_tensor in = view_of(x, BS_F32, 1, 2, 2), out = view_of(y, BS_F32, 1, 2, 2);
  ck_assert_int_eq(api->collective_prepare(rank, &d, &plan, e), BS_OK);
  ck_assert_int_eq(api->collective_run(plan, &in, &out, NULL, e), BS_OK);
  ck_assert_float_eq(y[0], 256.0f);
  ck_assert_float_eq(y[1], 1.5f);
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_WIRE_BYTES), 0);
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_PAYLOAD_BYTES), 8);
  api->collective_release(plan);
  return bs_rank_barrier(rank, "end", e);
}
START_TEST(test_alone) {
  run_once(1, "ref", alone_main, NULL, BS_OK);
}
END_TEST

/* Groups of 1, 2 and all. */
static int32_t group_main(bs_rank *rank, void *arg, bs_error *e) {
  uint32_t r = rank_of(rank), pair[2] = {0, 2}, all[3] = {0, 1, 2}, self[1] = {r}, wrong[2] = {2, 0};
  const uint32_t *lists[] = {self, all, pair};
  static const uint32_t sizes[] = {1, 3, 2};
  (void)arg;
  for (int i = 0; i < 3; ++i) {
    if (i == 2 && r == 1) continue;
    bs_group *group = NULL;
    bs_coll_plan *plan = NULL;
    float v = (float)(r + 1);
    bs_tensor t = view_of(&v, BS_F32, 1, 1, 1);
    ck_assert_int_eq(api->group_open(rank, lists[i], sizes[i], &group, e), BS_OK);
    bs_collective d = collective_of(BS_COLL_ALL_REDUCE, 1, 1, "group");
    d.group = group;
    ck_assert_int_eq(api->collective_prepare(rank, &d, &plan, e), BS_OK);
    ck_assert_int_eq(api->collective_run(plan, &t, &t, NULL, e), BS_OK);
    ck_assert_float_eq(v, i == 0 ? (float)(r + 1) : i == 1 ? 6.0f : 4.0f);
    api->collective_release(plan);
    api->group_close(group);
  }
  bs_group *none = NULL;
  ck_assert_int_eq(api->group_open(rank, wrong, 2, &none, e), BS_INVALID_ARGUMENT);
  return BS_OK;
}
START_TEST(test_groups) {
  run_once(3, "ref", group_main, NULL, BS_OK);
}
END_TEST

/* ---- hook ----------------------------------------------------------------------------------- */

typedef struct hook_log {
  uint32_t times;
  uint32_t before[2], after[2];
  float first[2];
} hook_log;
static uint32_t hook_before(void *user, uint32_t rank, const bs_coll_call *call) {
  hook_log *log = user;
  log->before[rank]++;
  log->first[rank] = *(const float *)call->in;
  return log->times;
}
static void hook_after(void *user, uint32_t rank, const bs_coll_call *call) {
  hook_log *log = user;
  log->after[rank]++;
  ((float *)call->out)[1] += 100.0f; /* an injected fault */
}
static int32_t hook_main(bs_rank *rank, void *arg, bs_error *e) {
  const hook_log *log = arg;
  float x[2] = {1.0f, 2.0f}, y[2] = {-1.0f, -1.0f};
  bs_coll_plan *plan = NULL;
  bs_collective d = collective_of(BS_COLL_ALL_REDUCE, 1, 2, "hooked");
  bs_tensor in = view_of(x, BS_F32, 1, 2, 2), out = view_of(y, BS_F32, 1, 2, 2);
  ck_assert_int_eq(api->collective_prepare(rank, &d, &plan, e), BS_OK);
  ck_assert_int_eq(api->collective_run(plan, &in, &out, NULL, e), BS_OK);
  api->collective_release(plan);
  static const float want[] = {-1.0f, 2.0f, 4.0f}; /* skipped; 1 + 1; then 2 + 2 */
  ck_assert_float_eq(y[0], want[log->times]);
  ck_assert_float_eq(y[1], (log->times == 0 ? -1.0f : 2.0f * want[log->times]) + 100.0f);
  ck_assert_float_eq(x[0], 1.0f);
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_COLLECTIVES), log->times);
  return BS_OK;
}
START_TEST(test_hook) {
  hook_log log = {.times = (uint32_t)_i};
  bs_collective_hook hook = {.user = &log, .before = hook_before, .after = hook_after};
  bs_world_options o = options(2, "ref");
  o.hook = &hook;
  run_by(&o, hook_main, &log, BS_OK);
  for (int r = 0; r < 2; ++r) {
    ck_assert_uint_eq(log.before[r], 1);
    ck_assert_uint_eq(log.after[r], 1);
    ck_assert_float_eq(log.first[r], 1.0f);
  }
}
END_TEST

/* Messages between programs have no hook, whatever the site; a site named like theirs has one. */
static int32_t control_main(bs_rank *rank, void *arg, bs_error *e) {
  float x[2] = {1.0f, 2.0f}, y[2];
  bs_collective d = collective_of(BS_COLL_ALL_REDUCE, 1, 2, "lab.peers");
  d.flags = *(const uint32_t *)arg;
  return bs_rank_collective_host(rank, &d, x, 2, y, 2, e);
}
START_TEST(test_control_has_no_hook) {
  uint32_t flags = _i == 0 ? 0 : _i == 1 ? BS_COLL_NATIVE : BS_COLL_CONTROL;
  hook_log log = {.times = 1};
  bs_collective_hook hook = {.user = &log, .before = hook_before, .after = hook_after};
  bs_world_options o = options(2, "ref");
  o.hook = &hook;
  run_by(&o, control_main, &flags, BS_OK);
  for (int r = 0; r < 2; ++r) ck_assert_uint_eq(log.before[r], flags == BS_COLL_CONTROL ? 0 : 1);
}
END_TEST

int main(void) {
  Suite *s = suite_create("world collectives");
  TCase *c = tcase_create("collectives");
  tcase_add_unchecked_fixture(c, open_all, close_context);
  tcase_add_test(c, test_counters);
  tcase_add_test(c, test_mismatch);
  tcase_add_test(c, test_alone);
  tcase_add_test(c, test_groups);
  tcase_add_loop_test(c, test_hook, 0, 3);
  tcase_add_loop_test(c, test_control_has_no_hook, 0, 3);
  suite_add_tcase(s, c);
  return run_suite(s);
}
