/* SPDX-License-Identifier: MIT
 * test_ref_loss.c - loss_gradient of ref in place. The kit has its values (kit_ref). */
#include <math.h>
#include <string.h>

#include "op_fixture.h"
#include "tests/run_tests.h"

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

int main(void) {
  const test_case tests[] = {{dy_may_be_in_y}, {0}};
  return run_tests("ref_loss", tests, (test_setup){0});
}
