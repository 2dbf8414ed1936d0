/* SPDX-License-Identifier: MIT
 * test_tree_sum.c - tree_sum of ref: the order that attrs tells, by a known answer; and what the schema
 * refuses. The kit has its values (kit_ref). */
#include <math.h>
#include <string.h>

#include "op_fixture.h"
#include "tests/run_tests.h"

static int32_t run_tree(fx *f, const bs_op_query *q, fx_tensor *in, fx_tensor *out, bs_error *err) {
  bs_tensor *args[2] = {&in->t, &out->t};
  bs_plan *plan = NULL;
  int32_t rc = bs_dispatch_prepare(&f->ops, q, NULL, &plan, err);
  if (rc != BS_OK) return rc;
  rc = bs_dispatch_run(plan, args, 2, NULL, err);
  bs_dispatch_release(plan);
  return rc;
}

/* 1e8 + 1 - 1e8 - 1 in f32: the order decides what is left. */
START_TEST(the_order_is_the_query_s) {
  static const double values[4] = {1e8, 1, -1e8, -1};
  const int64_t in_dims[2] = {1, 4}, out_dims[2] = {1, 1};
  fx f;
  fx_open(&f, 1, 1);
  fx_tensor in, out;
  fx_tensor_make(&in, BS_F32, 2, in_dims, NULL);
  fx_tensor_make(&out, BS_F32, 2, out_dims, NULL);
  for (int i = 0; i < 4; i++) fx_set(&in, 0, i, values[i]);
  const bs_tensor_desc *descs[2] = {&in.d, &out.d};
  bs_op_query q = fx_query("tree_sum", descs, 2);
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(run_tree(&f, &q, &in, &out, &err), BS_OK);
  ck_assert_double_eq(fx_get(&out, 0, 0), 0.0);
  const int64_t near[4] = {0, 2, 1, 3};
  memcpy(q.attrs, near, sizeof near);
  fx_set(&in, 0, 3, 3);
  ck_assert_int_eq(run_tree(&f, &q, &in, &out, &err), BS_OK);
  ck_assert_double_eq(fx_get(&out, 0, 0), 4.0);
  q.activation = BS_ACT_RELU;
  fx_set(&in, 0, 3, -3);
  ck_assert_int_eq(run_tree(&f, &q, &in, &out, &err), BS_OK);
  ck_assert_double_eq(fx_get(&out, 0, 0), 0.0);
  fx_tensor_free(&in);
  fx_tensor_free(&out);
  fx_close(&f);
}
END_TEST

int main(void) {
  const test_case tests[] = {{the_order_is_the_query_s}, {0}};
  return run_tests("tree_sum", tests, (test_setup){0});
}
