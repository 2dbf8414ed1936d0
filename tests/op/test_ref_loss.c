/* SPDX-License-Identifier: MIT
 * test_ref_loss.c - loss_gradient of ref: both losses with and without a target by the formulas of
 * docs/ops.md, rounded once to each dtype, strided, in place, of no tokens and no outputs; and what is
 * refused. */
#include <math.h>
#include <string.h>

#include "op_fixture.h"
#include "tests/run_tests.h"

static const uint32_t floats[6] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_F8E4M3, BS_F8E5M2};

static bs_op_query query_of(const bs_tensor_desc *const descs[4], int64_t kind, int64_t count) {
  bs_op_query q = fx_query("loss_gradient", descs, 4);
  q.attrs[0] = kind;
  q.attrs[1] = count;
  return q;
}

static void run(fx *f, const bs_op_query *q, bs_tensor *const args[4]) {
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_dispatch_prepare(&f->ops, q, NULL, &plan, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_dispatch_run(plan, args, 4, NULL, &err) == BS_OK, "%s", err.message);
  bs_dispatch_release(plan);
}

static double rounded(uint32_t dtype, double v) {
  unsigned char cell[8];
  bs_store_f64(dtype, cell, 0, v);
  return bs_load_f64(dtype, cell, 0);
}

/* kind 2: squares with a target. */
static void check(fx *f, uint32_t from, uint32_t to, int kind, int64_t rows, int64_t cols, uint64_t *seed) {
  const int64_t dims[2] = {rows, cols}, strides[2] = {cols * 2 + 1, 2}, count = 3 * rows * cols + 7;
  fx_tensor y, t, dy, loss;
  fx_tensor_make(&y, from, 2, dims, rows % 2 ? strides : NULL);
  fx_matrix(&t, BS_F64, rows, cols);
  fx_tensor_make(&dy, to, 2, dims, rows % 3 ? strides : NULL);
  fx_matrix(&loss, BS_F64, rows, 1);
  fx_fill(&y, seed);
  fx_fill(&t, seed);
  const bs_tensor_desc *descs[4] = {&y.d, kind == 2 ? &t.d : NULL, &dy.d, &loss.d};
  bs_tensor *args[4] = {&y.t, kind == 2 ? &t.t : NULL, &dy.t, &loss.t};
  const bs_op_query q = query_of(descs, kind > 0, count);
  run(f, &q, args);
  for (int64_t r = 0; r < rows; r++) {
    double sum = 0.0;
    for (int64_t c = 0; c < cols; c++) {
      const double d = fx_get(&y, r, c) - (kind == 2 ? fx_get(&t, r, c) : 0.0);
      sum += kind == 0 ? d : d * d;
      ck_assert_double_eq(fx_get(&dy, r, c), rounded(to, kind == 0 ? 1.0 : d * (2.0 / (double)count)));
    }
    ck_assert_double_eq(fx_get(&loss, r, 0), sum);
  }
  fx_tensor *const all[] = {&y, &t, &dy, &loss};
  for (int i = 0; i < 4; i++) {
    fx_check_guards(all[i], "a matrix");
    fx_tensor_free(all[i]);
  }
}

START_TEST(both_losses) {
  static const int64_t sizes[][2] = {{1, 1}, {3, 300}, {6, 17}, {0, 4}, {4, 0}};
  uint64_t seed = 29;
  fx f;
  fx_open(&f, 3, 1);
  f.threads = 1;
  for (int from = 0; from < 6; from++)
    for (int to = 0; to < 6; to++)
      for (int kind = 0; kind < 3; kind++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
          check(&f, floats[from], floats[to], kind, sizes[s][0], sizes[s][1], &seed);
  fx_close(&f);
}
END_TEST

START_TEST(dy_may_be_in_y) {
  uint64_t seed = 31;
  fx f;
  fx_open(&f, 2, 1);
  fx_tensor y, was, loss;
  fx_matrix(&y, BS_F32, 5, 200);
  fx_matrix(&was, BS_F32, 5, 200);
  fx_matrix(&loss, BS_F64, 5, 1);
  fx_fill(&y, &seed);
  for (int64_t r = 0; r < 5; r++)
    for (int64_t c = 0; c < 200; c++) fx_set(&was, r, c, fx_get(&y, r, c));
  const bs_tensor_desc *descs[4] = {&y.d, NULL, &y.d, &loss.d};
  bs_tensor *args[4] = {&y.t, NULL, &y.t, &loss.t};
  const bs_op_query q = query_of(descs, 1, 1000);
  run(&f, &q, args);
  for (int64_t r = 0; r < 5; r++)
    for (int64_t c = 0; c < 200; c++)
      ck_assert_double_eq(fx_get(&y, r, c), rounded(BS_F32, fx_get(&was, r, c) * 0.002));
  fx_tensor_free(&y);
  fx_tensor_free(&was);
  fx_tensor_free(&loss);
  fx_close(&f);
}
END_TEST

static const struct {
  uint32_t y, target, loss;
  int64_t target_cols, loss_cols, kind, count;
  const char *id;
} refused[] = {
    {BS_F32, 0, BS_F64, 8, 1, 2, 8, "BS-OP-ATTR"},       {BS_F32, 0, BS_F64, 8, 1, 1, 0, "BS-OP-ATTR"},
    {BS_F32, BS_F32, BS_F64, 8, 1, 0, 8, "BS-OP-ARG"},   {BS_I32, 0, BS_F64, 8, 1, 1, 8, "BS-OP-DTYPE"},
    {BS_F32, BS_F32, BS_F64, 7, 1, 1, 8, "BS-OP-SHAPE"}, {BS_F32, 0, BS_F32, 8, 1, 1, 8, "BS-OP-DTYPE"},
    {BS_F32, 0, BS_F64, 8, 2, 1, 8, "BS-OP-SHAPE"},
};
START_TEST(what_does_not_fit_is_refused) {
  bs_error err = BS_ERROR_INIT;
  const bs_tensor_desc y = bs_desc_2d(refused[_i].y, 4, 8), dy = bs_desc_2d(BS_F32, 4, 8);
  const bs_tensor_desc target = bs_desc_2d(refused[_i].target, 4, refused[_i].target_cols);
  const bs_tensor_desc loss = bs_desc_2d(refused[_i].loss, 4, refused[_i].loss_cols);
  const bs_tensor_desc *descs[4] = {&y, refused[_i].target != 0 ? &target : NULL, &dy, &loss};
  const bs_op_query q = query_of(descs, refused[_i].kind, refused[_i].count);
  ck_assert_int_eq(bs_op_check(&q, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, refused[_i].id);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {both_losses}, {dy_may_be_in_y}, {what_does_not_fit_is_refused, TEST_COUNT(refused)}, {0}};
  return run_tests("ref_loss", tests, (test_setup){0});
}
