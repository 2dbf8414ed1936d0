/* SPDX-License-Identifier: MIT
 *
 * test_cpu_workspace.c - a matmul says how much it works in and keeps a limit: with room for one member of
 * the team only that one works, with less it refuses. */
#include "cpu_host.h"
#include "tests/run_tests.h"

START_TEST(limits_are_kept) {
  static const uint32_t types[4] = {BS_F32, BS_BF16, BS_F16, BS_BF16};
  const int tiles = _i == 3;
  const kit_shape s = {
      .x = types[_i], .w = types[_i], .y = types[_i], .B = 50, .N = 300, .K = 400, .seed = 3};
  static ch c;
  bs_error err = {.struct_size = sizeof err};
  const char *stage = "";
  bs_op_answer answer;
  kit_actor a;
  kit_data d;
  ch_open(&c, tiles ? "amx_model" : "auto", "off");
  ch_actor(&c, &a, "matmul", tiles ? "amx" : "packed", 4);
  kit_data_make(&d, "matmul", &s);
  kit_data_ask(&a, &d, &answer);
  ck_assert_uint_ge(answer.workspace, 50 * 256); /* a block of X at least */
  const uint64_t one = answer.workspace;
  for (uint64_t members = 1; members <= 5; members++) {
    d.query.workspace_limit = members * one;
    const uint64_t scratch = ch_scratch(&a, &d);
    ck_assert_uint_le(scratch, members * one);
    ck_assert_uint_ge(scratch, one);
  }
  d.query.workspace_limit = one - 1;
  kit_data_ask(&a, &d, &answer);
  ck_assert_uint_eq(answer.level, BS_LEVEL_NO);
  ck_assert_uint_eq(answer.reason, BS_REASON_WORKSPACE);
  ck_assert_int_eq(kit_data_run(&a, &d, &stage, &err), BS_UNSUPPORTED);
  kit_data_free(&a, &d);
  kit_actor_close(&a);
  ch_close(&c);
}
END_TEST

int main(void) {
  const test_case tests[] = {{limits_are_kept, 4}, {0}};
  return run_tests("cpu_workspace", tests, (test_setup){0});
}
