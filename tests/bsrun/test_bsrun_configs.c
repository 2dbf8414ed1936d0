/* SPDX-License-Identifier: MIT
 * test_bsrun_configs.c - our configuration files run on a CPU, by name. test_bsrun_original.c has the
 * original's. */
#include "tests/bsrun/spawn.h"
#include "tests/run_tests.h"

static const char *dir;
static void setup(void) {
  dir = scratch_dir();
}
static void teardown(void) {
  remove_dir(dir);
}

START_TEST(ours_are_found_by_name) {
  static const char *const ours[] = {"dense", "column_parallel", "row_parallel", "masked_split",
                                     "blockshock"};
  for (size_t i = 0; i < 5; i++) {
    ran r = bsrun(dir, "--method", ours[i], "--workload", i % 2 ? "uniform" : "integer", "--hardware", "cpu",
                  "--phase", "0", SMALL, NULL);
    must_be(&r, 0);
    ck_assert(strstr(r.out, "RIGHT") != NULL);
    ck_assert_str_eq(r.err, ""); /* nobody typed a key without effect */
    ran_free(&r);
  }
  ran r =
      bsrun(dir, "--method", "blockshock", "--mask", "interleave", "-P", "3", "--phase", "0", SMALL, NULL);
  must_be(&r, 0);
  ran_free(&r);
  r = bsrun(dir, "--method", "blockshock", "--mask", "random_2of4", "-P", "3", "--phase", "0", SMALL, NULL);
  must_be(&r, 3);
  ran_free(&r);
}
END_TEST

/* Masks by row on two and four ranks, forward and backward, and fixed ones the original's way; one column of
 * each four on four ranks. */
START_TEST(halves_run_in_every_phase) {
  static const char *const runs[][4] = {
      {"random_2of4", "2", "blockshock", "method.slices=auto"},
      {"magnitude", "4", "blockshock", "method.slices=row"},
      {"transposable", "4", "blockshock", "method.slices=column"},
      {"1001", "2", "blockshock_sparse24", "method.slices=auto"},
      {"interleave", "4", "blockshock", "method.kernel=gather"},
  };
  for (size_t i = 0; i < 10; i++) {
    const char *const *r = runs[i / 2];
    ran got = bsrun(dir, "--method", r[2], "--mask", r[0], "-P", r[1], "--set", r[3], "--threads-per-rank",
                    "1", "--phase", i % 2 ? "2" : "0", SMALL, NULL);
    must_be(&got, 0);
    ck_assert_msg(strstr(got.out, "RIGHT") != NULL, "%s: %s", r[0], got.out);
    ran_free(&got);
  }
}
END_TEST

/* One half alone says how wrong it will be, and is never called right. */
START_TEST(a_half_alone_is_told) {
  for (int i = 0; i < 2; i++) {
    ran r = bsrun(dir, "--method", "blockshock", "--mask", "magnitude", "-P", i ? "2" : "1", "--set",
                  i ? "method.half=1" : "method.half=0", "--phase", "0", SMALL, NULL);
    must_be(&r, 0);
    ck_assert_msg(strstr(r.out, "HALF ALONE") != NULL && strstr(r.out, "RIGHT") == NULL, "%s", r.out);
    ck_assert_msg(strstr(r.err, "half alone: a relative error of 0.") != NULL, "%s", r.err);
    ran_free(&r);
  }
}
END_TEST

/* By order and by shares, forward and backward, on a number of ranks that halves cannot have. */
START_TEST(masks_by_importance_and_speed_run) {
  static const char *const ordered[][2] = {{"importance", "mask.importance=weights"},
                                           {"importance", "mask.importance=inputs"},
                                           {"importance", "mask.speeds=[1, 5, 2]"},
                                           {"uneven", "mask.speeds=[1, 5, 2]"}};
  for (size_t i = 0; i < 4; i++) {
    ran r = bsrun(dir, "--method", i % 2 ? "blockshock" : "masked_split", "--mask", ordered[i][0], "--set",
                  ordered[i][1], "-P", "3", "--phase", i == 0 || i == 3 ? "0" : "2", "--threads-per-rank",
                  "1", SMALL, NULL);
    must_be(&r, 0);
    ck_assert_msg(strstr(r.out, "RIGHT") != NULL && strstr(r.out, ordered[i][0]) != NULL, "%s", r.out);
    ran_free(&r);
  }
  ran r = bsrun(dir, "--method", "blockshock", "--mask", "uneven", "-P", "3", "--phase", "0", SMALL, NULL);
  must_be(&r, 3);
  ck_assert_ptr_nonnull(strstr(r.err, "BS-MASK-SHARES"));
  ran_free(&r);
  r = bsrun(dir, "--method", "masked_split", "--mask", "magnitude", "-P", "3", "--phase", "0", SMALL, NULL);
  must_be(&r, 3);
  ck_assert_ptr_nonnull(strstr(r.err, "BS-MASK-WORLD"));
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{ours_are_found_by_name},
                             {masks_by_importance_and_speed_run},
                             {halves_run_in_every_phase},
                             {a_half_alone_is_told},
                             {0}};
  return run_tests("bsrun_configs", tests, (test_setup){setup, teardown});
}
