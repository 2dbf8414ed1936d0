/* SPDX-License-Identifier: MIT
 *
 * test_cpu_workspace.c - a matmul says how much it works in and keeps a limit: with room for one member of
 * the team only that one works, with less it refuses. Scratch follows the shape. */
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

/* The bytes of scratch that an op of dense f32 arguments reserves; shapes[i][0] is the rank, 0: absent. */
static uint64_t reserved(ch *c, const char *op, const char *impl, uint32_t nargs,
                         const int64_t shapes[][BS_MAX_DIMS]) {
  bs_tensor_desc descs[BS_MAX_OP_ARGS];
  const bs_tensor_desc *args[BS_MAX_OP_ARGS];
  const bs_op_query q = {
      .struct_size = (uint32_t)sizeof q, .op = op, .args = args, .nargs = nargs, .numbers = {1}};
  bs_error err = {.struct_size = sizeof err};
  void *plan = NULL;
  kit_actor a;
  for (uint32_t i = 0; i < nargs; i++) {
    descs[i] = (bs_tensor_desc){
        .struct_size = (uint32_t)sizeof descs[i], .dtype = BS_F32, .rank = (uint32_t)shapes[i][0]};
    int64_t stride = 1;
    for (uint32_t d = descs[i].rank; d-- > 0; stride *= descs[i].dims[d]) {
      descs[i].dims[d] = shapes[i][d + 1];
      descs[i].strides[d] = stride;
    }
    args[i] = shapes[i][0] != 0 ? &descs[i] : NULL;
  }
  ch_actor(c, &a, op, impl, 1);
  ck_assert_msg(a.impl->prepare(a.state, &a.exec, &q, NULL, &plan, &err) == BS_OK, "%s: %s", op, err.message);
  const uint64_t bytes = a.scratch_bytes;
  a.impl->plan_free(plan);
  kit_actor_close(&a);
  return bytes;
}

/* Of one row and of blocks of them: a token asks for the scratch of a token. */
START_TEST(scratch_follows_the_shape) {
  static const int64_t row[4][BS_MAX_DIMS] = {{2, 1, 64}, {2, 64, 32}, {0}, {2, 1, 32}};
  static const int64_t block[4][BS_MAX_DIMS] = {{2, 96, 256}, {2, 256, 128}, {0}, {2, 96, 128}};
  static const int64_t more[4][BS_MAX_DIMS] = {{2, 960, 512}, {2, 512, 640}, {0}, {2, 960, 640}};
  static const int64_t query[8][BS_MAX_DIMS] = {
      {4, 1, 4, 1, 64}, {4, 1, 4, 99, 64}, {4, 1, 4, 99, 64}, {0}, {0}, {0}, {4, 1, 4, 1, 64}, {0}};
  static const int64_t queries[8][BS_MAX_DIMS] = {
      {4, 1, 4, 192, 64}, {4, 1, 4, 99, 64}, {4, 1, 4, 99, 64}, {0}, {0}, {0}, {4, 1, 4, 192, 64}, {0}};
  static ch c;
  ch_open(&c, "auto", "off");
  const uint64_t small = reserved(&c, "contract", "panels", 4, row);
  const uint64_t large = reserved(&c, "contract", "panels", 4, block);
  ck_assert_uint_gt(small, 0);
  ck_assert_uint_lt(8 * small, large);
  ck_assert_uint_eq(large, reserved(&c, "contract", "panels", 4, more));
  ck_assert_uint_gt(reserved(&c, "attention", "online", 8, queries),
                    reserved(&c, "attention", "online", 8, query) + (192 - 16) * 256 * sizeof(float));
  ch_close(&c);
}
END_TEST

int main(void) {
  const test_case tests[] = {{limits_are_kept, 4}, {scratch_follows_the_shape, 1}, {0}};
  return run_tests("cpu_workspace", tests, (test_setup){0});
}
