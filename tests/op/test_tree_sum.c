/* SPDX-License-Identifier: MIT
 * test_tree_sum.c - tree_sum of ref: neighbours are added in the order that attrs tells, each sum rounded,
 * for every number of blocks, dtype, stride and team width; and what the schema refuses. */
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

/* The tree over one element, each sum rounded to f32, or not where the tree is f64's. */
static double tree(const fx_tensor *in, int64_t r, int64_t c, int64_t n, int64_t blocks, const int64_t *order,
                   int wide) {
  double v[8];
  for (int64_t i = 0; i < blocks; i++) v[i] = fx_get(in, r, order[i] * n + c);
  for (int64_t apart = 1; apart < blocks; apart *= 2)
    for (int64_t i = 0; i < blocks; i += 2 * apart) {
      const double sum = v[i] + v[i + apart];
      v[i] = wide ? sum : (double)(float)sum;
    }
  return v[0];
}

static void check(fx *f, uint32_t from, uint32_t to, int64_t blocks, int64_t n, int shuffled,
                  uint64_t *seed) {
  static const int64_t orders[2][8] = {{0, 1, 2, 3, 4, 5, 6, 7}, {0, 4, 2, 6, 1, 5, 3, 7}};
  int64_t order[8];
  for (int64_t i = 0, j = 0; i < 8; i++)
    if (orders[shuffled][i] < blocks) order[j++] = orders[shuffled][i];
  const int64_t in_dims[2] = {3, blocks * n}, out_dims[2] = {3, n}, apart[2] = {blocks * n * 2 + 1, 2};
  fx_tensor in, out;
  fx_tensor_make(&in, from, 2, in_dims, shuffled ? apart : NULL);
  fx_tensor_make(&out, to, 2, out_dims, NULL);
  fx_fill(&in, seed);
  if (bs_dtype_is_float(from)) fx_set(&in, 0, 0, 1e5);
  const bs_tensor_desc *descs[2] = {&in.d, &out.d};
  bs_op_query q = fx_query("tree_sum", descs, 2);
  for (int64_t i = 0; shuffled && i < blocks; i++) q.attrs[i] = order[i];
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(run_tree(f, &q, &in, &out, &err) == BS_OK, "%s", err.message);
  const int wide = from == BS_F64 || to == BS_F64 || !bs_dtype_is_float(from);
  for (int64_t r = 0; r < 3; r++)
    for (int64_t c = 0; c < n; c++) {
      unsigned char cell[8];
      bs_store_f64(to, cell, 0, tree(&in, r, c, n, blocks, order, wide));
      ck_assert_double_eq(fx_get(&out, r, c), bs_load_f64(to, cell, 0));
    }
  fx_check_guards(&in, "in");
  fx_check_guards(&out, "out");
  fx_tensor_free(&in);
  fx_tensor_free(&out);
}

START_TEST(every_number_of_blocks) {
  static const uint32_t pairs[][2] = {{BS_F32, BS_F32}, {BS_F32, BS_BF16}, {BS_F32, BS_F16},
                                      {BS_F64, BS_F64}, {BS_BF16, BS_F64}, {BS_I32, BS_I32},
                                      {BS_I64, BS_I64}};
  uint64_t seed = 5;
  fx f;
  fx_open(&f, 1 + (uint32_t)_i * 2, 1);
  f.threads = 1;
  for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++)
    for (int64_t blocks = 1; blocks <= 8; blocks *= 2)
      for (int64_t n = 1; n <= 301; n += 100)
        for (int shuffled = 0; shuffled < 2; shuffled++)
          check(&f, pairs[p][0], pairs[p][1], blocks, n, shuffled, &seed);
  fx_close(&f);
}
END_TEST

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
  const test_case tests[] = {
      {every_number_of_blocks, 3}, {the_order_is_the_query_s}, {what_the_schema_refuses}, {0}};
  return run_tests("tree_sum", tests, (test_setup){0});
}
