/* SPDX-License-Identifier: MIT
 * test_nccl.c - collectives of device memory by NCCL's stand-in, a device a rank: bit for bit what the same
 * calls give through host memory; what NCCL refuses, breaks later, or never ends is told within the deadline.
 */
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

static over open_with(const char *setup, const char *nccl, const char *plan) {
  setenv("BS_CUDA_NCCL", nccl != NULL ? nccl : NCCL_STANDIN, 1);
  setenv("BS_NCCL_STANDIN", plan, 1);
  return over_open(NULL, setup);
}

START_TEST(bits_are_those_of_host_memory) {
  const uint32_t n = (uint32_t)_i;
  const over o = open_with("devices=4", NULL, "");
  cc_world got = cc_open(o, "nccl:threads", n, 60.0), want = cc_open(o, "threads", n, 60.0);
  if (n == 3) cc_every_sum(&got, &want);
  cc_every_kind(&got, &want, n);
  /* Above what is sent whole: shares of rows and of columns, dense and with gaps. */
  for (uint64_t rows = 1; rows < 20; rows += 9) {
    cc_case c = sum;
    c.rows = rows;
    c.dtype_in = BS_F64;
    c.reduce_dtype = BS_F32;
    c.count = 9000 / rows;
    cc_same(&got, &want, &c, "shares of dense rows");
    c.gap_in = 3;
    c.gap_out = 5;
    c.count = 8900 / rows;
    c.dtype_out = BS_BF16;
    cc_same(&got, &want, &c, "shares of rows with gaps");
  }
  cc_do(&got, &sum, &run);
  ck_assert_str_eq(run.notes, "collectives@cuda/nccl 2.28.9\noverlap@cuda/stream");
  cc_close(&got);
  cc_close(&want);
  nothing_lives();
  over_close(&o);
}
END_TEST

/* Only what a deadline must end has a short one, and that has room for ranks that begin apart. */
static void ends(const char *setup, const char *nccl, const char *plan, const cc_case *c, int32_t code,
                 const char *message) {
  const over o = open_with(setup, nccl, plan);
  cc_world w = cc_open(o, "nccl:threads", 2, code == BS_DEADLINE ? 0.8 : 60.0);
  cc_do(&w, c, &run);
  ck_assert_msg(run.rc == code && strstr(run.err.message, message) != NULL, "%d %s: %s", run.rc, run.err.id,
                run.err.message);
  cc_close(&w);
  bs_context_close(o.context);
}

/* Refusals at once, errors that come later, and what never ends: at the first and at a later call. */
START_TEST(what_goes_wrong_is_told) {
  static const struct {
    const char *plan, *message;
    int32_t code;
    uint32_t start;
  } of[] = {
      {"plan=ncclGetUniqueId:1=2", "ncclGetUniqueId: 2 (unhandled system error)", BS_RANK_FAILED, 0},
      {"plan=ncclCommInitRankConfig:1=3", "ncclCommInitRankConfig: 3 (internal error)", BS_RANK_FAILED, 0},
      {"plan=ncclCommInitRankConfig:2=late6", "ncclCommInitRankConfig: 6 (remote process exited)",
       BS_RANK_FAILED, 0},
      {"plan=ncclCommInitRankConfig:2=hang", "0.8 s passed", BS_DEADLINE, 0},
      {"plan=ncclGroupEnd:2=1", "all_reduce f32 4x100 of case: 1 (unhandled cuda error)", BS_RANK_FAILED, 0},
      {"plan=ncclGroupEnd:2=late6", "all_reduce f32 4x100 of case: 6 (remote process exited)", BS_RANK_FAILED,
       0},
      {"plan=ncclGroupEnd:1=hang", "0.8 s passed on the device of rank", BS_DEADLINE, 0},
      {"plan=ncclGroupEnd:2=hang", "in all_reduce f32 4x100 of case", BS_DEADLINE, 0},
      {"plan=ncclGroupEnd:2=hang", "in all_reduce f32 4x100 of case", BS_DEADLINE, 1},
      {"plan=ncclGroupEnd:2=late6", "all_reduce f32 4x100 of case: 6 (remote process exited)", BS_RANK_FAILED,
       1},
  };
  cc_case c = sum;
  c.start = of[_i].start;
  ends("devices=2", NULL, of[_i].plan, &c, of[_i].code, of[_i].message);
}
END_TEST

START_TEST(who_does_not_come_is_named) {
  cc_case c = sum;
  c.absent = 2;
  ends("devices=2", NULL, "", &c, BS_DEADLINE, "all_reduce f32 4x100 of case'; missing: rank 1");
}
END_TEST

START_TEST(other_calls_are_a_mismatch) {
  cc_case c = sum;
  c.site[0] = "here";
  c.site[1] = "there";
  ends("devices=2", NULL, "", &c, BS_MISMATCH, "of there");
}
END_TEST

START_TEST(other_shares_are_a_mismatch) {
  cc_case c = sum;
  c.kind = BS_COLL_ALL_TO_ALL;
  c.has_counts = 1;
  for (int r = 0; r < 2; r++)
    for (int q = 0; q < 2; q++) c.counts[r][q] = c.recv[r][q] = 4;
  c.counts[1][0] = 5;
  ends("devices=2", NULL, "", &c, BS_MISMATCH, "rank 1 sends 5 columns to rank 0, which takes 4");
}
END_TEST

START_TEST(a_library_that_is_not_there) {
  ends("devices=2", "/nowhere/libnccl.so.2", "", &sum, BS_UNAVAILABLE, "NCCL cannot be opened");
  ends("devices=2", NULL, "version=21703", &sum, BS_UNAVAILABLE, "is NCCL 2.17.3");
}
END_TEST

/* Ranks that share a device: staged, or NCCL 2.30's own way, which it may refuse. */
START_TEST(a_device_that_is_shared) {
  const over o = open_with("devices=1", NULL, "");
  cc_world w = cc_open(o, "nccl:threads", 2, 60.0);
  cc_do(&w, &sum, &run);
  ck_assert_str_eq(run.notes, "collectives@host/staged");
  cc_close(&w);
  bs_context_close(o.context);
}
END_TEST
START_TEST(a_device_that_nccl_shares) {
  const over o = open_with("devices=1", NULL, _i == 0 ? "version=23001;shared=1" : "version=23001");
  cc_world got = cc_open(o, "nccl:threads", 2, 60.0), want = cc_open(o, "threads", 2, 60.0);
  if (_i == 0) {
    cc_same(&got, &want, &sum, "shared");
  } else {
    cc_do(&got, &sum, &run);
    ck_assert_int_eq(run.rc, BS_RANK_FAILED);
    ck_assert_ptr_nonnull(strstr(run.err.message, "5 (invalid usage): Duplicate GPU detected"));
  }
  cc_close(&got);
  cc_close(&want);
  bs_context_close(o.context);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {bits_are_those_of_host_memory, 5, 2}, {what_goes_wrong_is_told, 10}, {who_does_not_come_is_named},
      {other_calls_are_a_mismatch},          {other_shares_are_a_mismatch}, {a_device_that_is_shared},
      {a_device_that_nccl_shares, 2},        {a_library_that_is_not_there}, {0}};
  return run_tests("nccl", tests, (test_setup){.timeout = 20});
}
