/* SPDX-License-Identifier: MIT
 * test_devlocal.c - collectives of device memory between ranks that share one device (the stand-in's): bit
 * for bit what the same calls give through host memory, ordered by events, refused where they cannot be, and
 * ended by the inner communicator's deadline and fingerprints. */
#include "tests/cuda/comm_case.h"
#include "tests/run_tests.h"

static cc_run run;

static const cc_case sum = {.kind = BS_COLL_ALL_REDUCE,
                            .dtype_in = BS_F32,
                            .dtype_out = BS_F32,
                            .reduce_dtype = BS_F32,
                            .rows = 4,
                            .count = 100,
                            .seed = 9};

/* Over three ranks, four and two: shares of rows, of columns, and of none. */
START_TEST(bits_are_those_of_host_memory) {
  const uint32_t n = (uint32_t)_i;
  const over o = over_open(NULL, NULL);
  cc_world got = cc_open(o, "devlocal:threads", n, 60.0), want = cc_open(o, "threads", n, 60.0);
  if (n == 3) cc_every_sum(&got, &want);
  cc_every_kind(&got, &want, n);
  cc_do(&got, &sum, &run);
  ck_assert_str_eq(run.notes, "collectives@cuda/devlocal\noverlap@cuda/stream");
  cc_do(&want, &sum, &run);
  ck_assert_str_eq(run.notes, "collectives@host/staged");
  cc_close(&got);
  cc_close(&want);
  nothing_lives();
  over_close(&o);
}
END_TEST

/* No byte of the data passes the host. */
START_TEST(nothing_is_staged) {
  const over o = over_open(NULL, NULL);
  cc_world w = cc_open(o, "devlocal:threads", 2, 60.0);
  cc_do(&w, &sum, &run);
  const uint64_t once = calls_of("cuMemcpyDtoHAsync_v2") + calls_of("cuMemcpyHtoDAsync_v2");
  cc_case often = sum;
  often.repeat = 20;
  cc_do(&w, &often, &run);
  ck_assert_int_eq(run.rc, BS_OK);
  ck_assert_uint_eq(calls_of("cuMemcpyDtoHAsync_v2") + calls_of("cuMemcpyHtoDAsync_v2"), 2 * once);
  cc_close(&w);
  bs_context_close(o.context);
}
END_TEST

/* Only what a deadline must end has a short one, and that has room for ranks that begin apart. */
static void ends(const cc_case *c, const char *setup, int32_t code, const char *message) {
  const over o = over_open(NULL, setup);
  cc_world w = cc_open(o, "devlocal:threads", 2, code == BS_DEADLINE ? 0.8 : 60.0);
  cc_do(&w, c, &run);
  ck_assert_msg(run.rc == code && strstr(run.err.message, message) != NULL, "%d %s: %s", run.rc, run.err.id,
                run.err.message);
  cc_close(&w);
  nothing_lives();
  over_close(&o);
}

START_TEST(who_does_not_come_is_named) {
  cc_case c = sum;
  c.absent = 2;
  ends(&c, NULL, BS_DEADLINE, "all_reduce f32 4x100 of case'; missing: rank 1");
}
END_TEST

START_TEST(other_calls_are_a_mismatch) {
  cc_case c = sum;
  c.site[0] = "here";
  c.site[1] = "there";
  ends(&c, NULL, BS_MISMATCH, "of there");
}
END_TEST

START_TEST(other_shares_are_a_mismatch) {
  cc_case c = sum;
  c.kind = BS_COLL_ALL_TO_ALL;
  c.has_counts = 1;
  for (int r = 0; r < 2; r++)
    for (int q = 0; q < 2; q++) c.counts[r][q] = c.recv[r][q] = 4;
  c.counts[1][0] = 5;
  ends(&c, NULL, BS_MISMATCH, "rank 1 sends 5 columns to rank 0, which takes 4");
}
END_TEST

/* The driver's refusals end the rank that meets them, and wake the others. */
START_TEST(a_driver_that_fails) {
  static const char *const plans[] = {"plan=cuStreamWaitEvent:1=999", "plan=cuEventRecord:3=999"};
  ends(&sum, plans[_i], BS_RANK_FAILED, "CUDA_ERROR_UNKNOWN (999)");
}
END_TEST

/* Ranks on two devices cannot: their data go through the host, and it is said. */
START_TEST(two_devices_are_staged) {
  const over o = over_open(NULL, "devices=2");
  cc_world got = cc_open(o, "devlocal:threads", 2, 60.0), want = cc_open(o, "threads", 2, 60.0);
  cc_same(&got, &want, &sum, "staged");
  cc_do(&got, &sum, &run);
  ck_assert_str_eq(run.notes, "collectives@host/staged");
  cc_close(&got);
  cc_close(&want);
  bs_context_close(o.context);
}
END_TEST

/* Groups are bound as their world is, and outlive none of it. */
static int32_t group_main(bs_rank *rank, void *arg, bs_error *err) {
  static const uint32_t pairs[2][2] = {{0, 2}, {1, 3}};
  const bs_rank_api *api = bs_rank_get_api();
  const uint32_t me = api->rank(rank);
  float host[8], *all = arg;
  bs_group *group = NULL;
  int32_t rc = BS_OK;
  for (int round = 0; rc == BS_OK && round < 3; round++) {
    bs_tensor t = {.struct_size = sizeof t};
    bs_coll_plan *plan = NULL;
    rc = api->group_open(rank, pairs[me % 2], 2, &group, err);
    const bs_collective what = {.struct_size = sizeof what,
                                .kind = BS_COLL_ALL_REDUCE,
                                .dtype_in = BS_F32,
                                .rows = 1,
                                .count = 8,
                                .site = "pair",
                                .group = group};
    for (int i = 0; i < 8; i++) host[i] = (float)(10 * (int)me + i);
    if (rc == BS_OK) rc = cc_tensor(rank, BS_F32, 1, 8, 0, &t, err);
    if (rc == BS_OK) rc = cc_copy(rank, t.data, host, sizeof host, BS_COPY_HOST_TO_DEVICE, err);
    if (rc == BS_OK) rc = api->collective_prepare(rank, &what, &plan, err);
    if (rc == BS_OK) rc = api->collective_run(plan, &t, &t, NULL, err);
    if (rc == BS_OK) rc = cc_copy(rank, host, t.data, sizeof host, BS_COPY_DEVICE_TO_HOST, err);
    api->collective_release(plan);
    api->tensor_free(rank, &t);
    api->group_close(group);
  }
  memcpy(all + 8 * me, host, sizeof host);
  return rc;
}
START_TEST(groups_are_bound) {
  static float all[4 * 8];
  const over o = over_open(NULL, NULL);
  cc_world w = cc_open(o, "devlocal:threads", 4, 60.0);
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_world_run(w.world, group_main, all, &err) == BS_OK, "%s: %s", err.id, err.message);
  for (int r = 0; r < 4; r++)
    for (int i = 0; i < 8; i++) ck_assert(all[8 * r + i] == (float)(10 * (r % 2) + i + 10 * (r % 2 + 2) + i));
  ck_assert_str_eq(bs_world_algorithms(w.world), "collectives@cuda/devlocal");
  cc_close(&w);
  nothing_lives();
  over_close(&o);
}
END_TEST

int main(void) {
  const test_case tests[] = {{bits_are_those_of_host_memory, 5, 2},
                             {nothing_is_staged},
                             {who_does_not_come_is_named},
                             {other_calls_are_a_mismatch},
                             {other_shares_are_a_mismatch},
                             {a_driver_that_fails, 2},
                             {two_devices_are_staged},
                             {groups_are_bound},
                             {0}};
  return run_tests("devlocal", tests, (test_setup){.timeout = 60});
}
