/* SPDX-License-Identifier: MIT
 * test_tree_sum.c - the order in which tree_sum of ref adds is the query's, and what the schema refuses. */
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

static void refused(fx *f, uint32_t from, uint32_t to, int64_t in_cols, int64_t n, const int64_t *attrs,
                    const char *id) {
  const int64_t in_dims[2] = {2, in_cols}, out_dims[2] = {2, n};
  fx_tensor in, out;
  fx_tensor_make(&in, from, 2, in_dims, NULL);
  fx_tensor_make(&out, to, 2, out_dims, NULL);
  const bs_tensor_desc *descs[2] = {&in.d, &out.d};
  bs_op_query q = fx_query("tree_sum", descs, 2);
  if (attrs != NULL) memcpy(q.attrs, attrs, 4 * sizeof *attrs);
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(run_tree(f, &q, &in, &out, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, id);
  fx_tensor_free(&in);
  fx_tensor_free(&out);
}

START_TEST(what_the_schema_refuses) {
  static const int64_t twice[4] = {0, 1, 1, 3}, beyond[4] = {0, 1, 2, 4};
  fx f;
  fx_open(&f, 1, 1);
  refused(&f, BS_F32, BS_F32, 12, 4, NULL, "BS-OP-SHAPE"); /* three blocks */
  refused(&f, BS_F32, BS_F32, 64, 4, NULL, "BS-OP-SHAPE"); /* sixteen */
  refused(&f, BS_F32, BS_F32, 9, 4, NULL, "BS-OP-SHAPE");
  refused(&f, BS_F32, BS_F32, 3, 4, NULL, "BS-OP-SHAPE");
  refused(&f, BS_F32, BS_I32, 8, 4, NULL, "BS-OP-DTYPE");
  refused(&f, BS_I8, BS_I8, 8, 4, NULL, "BS-OP-DTYPE");
  refused(&f, BS_F32, BS_F32, 16, 4, twice, "BS-OP-ATTR");
  refused(&f, BS_F32, BS_F32, 16, 4, beyond, "BS-OP-ATTR");
  fx_close(&f);
}
END_TEST

int main(void) {
  const test_case tests[] = {{the_order_is_the_query_s}, {what_the_schema_refuses}, {0}};
  return run_tests("tree_sum", tests, (test_setup){0});
}
