/* SPDX-License-Identifier: MIT
 *
 * test_cpu_workspace.c - a matmul says how much it works in and keeps a limit: with room for one member of
 * the team only that one works, with less it refuses. */
#include <string.h>

#include "cpu_matmul_case.h"
#include "tests/run_tests.h"

START_TEST(limits_are_kept) {
  static const uint32_t types[3] = {BS_F32, BS_BF16, BS_F16};
  mc s = {.dtype = types[_i], .y_type = types[_i], .B = 50, .N = 300, .K = 400, .seed = 3};
  bs_error err = {.struct_size = sizeof err};
  bs_op_answer a;
  mc_data d;
  cx c = {0};
  cx_open(&c, "auto", "off", 4);
  mc_make(&d, &s);
  mc_ask(&c, "packed", &d, &a);
  ck_assert_uint_ge(a.workspace, 50 * 256); /* a block of X at least */
  const uint64_t one = a.workspace;
  for (uint64_t members = 1; members <= 5; members++) {
    d.shape.workspace = members * one;
    mc_run(&c, "packed", &d);
    ck_assert_uint_le(c.newest, members * one); /* the plan's scratch */
    ck_assert_uint_ge(c.newest, one);
  }
  d.shape.workspace = one - 1;
  mc_ask(&c, "packed", &d, &a);
  ck_assert_uint_eq(a.level, BS_LEVEL_NO);
  ck_assert_uint_eq(a.reason, BS_REASON_WORKSPACE);
  ck_assert_int_eq(mc_try(&c, "packed", &d, &err), BS_UNSUPPORTED);
  mc_free(&d);
  cx_close(&c);
}
END_TEST

/* oneDNN allocates as it likes: it serves no query with a limit. */
START_TEST(onednn_refuses_limits) {
  mc s = {.dtype = BS_F32, .y_type = BS_F32, .B = 50, .N = 300, .K = 400, .seed = 3, .workspace = 1u << 30};
  bs_op_answer a;
  mc_data d;
  cx c = {0};
  cx_open(&c, "auto", "auto", 1);
  mc_make(&d, &s);
  mc_ask(&c, "dnnl", &d, &a);
  ck_assert_uint_eq(a.level, BS_LEVEL_NO);
  mc_free(&d);
  cx_close(&c);
}
END_TEST

int main(void) {
  const test_case tests[] = {{limits_are_kept, 3}, {onednn_refuses_limits}, {0}};
  return run_tests("cpu_workspace", tests, (test_setup){0});
}
