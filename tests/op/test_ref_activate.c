/* SPDX-License-Identifier: MIT
 * test_ref_activate.c - activate of ref in place: known values, NaN and infinities, integers. The kit has the
 * formulas for every pair of dtypes (kit_ref). */
#include <math.h>
#include <string.h>

#include "op_fixture.h"
#include "tests/run_tests.h"

static void run_activate(fx *f, uint32_t activation, fx_tensor *in, fx_tensor *out) {
  const bs_tensor_desc *descs[2] = {&in->d, &out->d};
  bs_tensor *args[2] = {&in->t, &out->t};
  bs_op_query q = fx_query("activate", descs, 2);
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  q.activation = activation;
  ck_assert_msg(bs_dispatch_prepare(&f->ops, &q, NULL, &plan, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_dispatch_run(plan, args, 2, NULL, &err) == BS_OK, "%s", err.message);
  bs_dispatch_release(plan);
}

static double formula(uint32_t activation, double v) {
  if (activation == BS_ACT_RELU) return v < 0 ? 0 : v;
  if (activation == BS_ACT_GELU) return 0.5 * v * erfc(-v / sqrt(2.0));
  if (activation == BS_ACT_SILU) return v / (1 + exp(-v));
  if (activation == BS_ACT_GELU_TANH)
    return v / (1 + exp(-2 * 0.79788456080286535588 * (v + 0.044715 * v * v * v)));
  return v;
}

START_TEST(in_place_and_special_values) {
  static const double values[6] = {-3, 5, NAN, INFINITY, -INFINITY, 0};
  const int64_t dims[2] = {1, 6};
  fx f;
  fx_open(&f, 2, 1);
  for (uint32_t activation = BS_ACT_RELU; activation <= BS_ACT_GELU_TANH; activation++) {
    fx_tensor t;
    fx_tensor_make(&t, BS_F32, 2, dims, NULL);
    for (int i = 0; i < 6; i++) bs_store_f64(BS_F32, t.t.data, i, values[i]);
    run_activate(&f, activation, &t, &t);
    ck_assert_double_eq_tol(fx_get(&t, 0, 0), formula(activation, -3), 1e-6);
    ck_assert_double_eq_tol(fx_get(&t, 0, 1), formula(activation, 5), 1e-6);
    ck_assert(isnan(fx_get(&t, 0, 2)) && isinf(fx_get(&t, 0, 3)));
    ck_assert(activation == BS_ACT_RELU ? fx_get(&t, 0, 4) == 0 : isnan(fx_get(&t, 0, 4)));
    ck_assert_double_eq(fx_get(&t, 0, 5), 0.0);
    fx_tensor_free(&t);
  }
  fx_close(&f);
}
END_TEST

START_TEST(integers) {
  static const int32_t values[4] = {INT32_MIN, -1, 0, INT32_MAX};
  const int64_t dims[2] = {2, 2};
  fx f;
  fx_open(&f, 1, 1);
  fx_tensor t;
  fx_tensor_make(&t, BS_I32, 2, dims, NULL);
  memcpy(t.t.data, values, sizeof values);
  run_activate(&f, BS_ACT_RELU, &t, &t);
  const int32_t want[4] = {0, 0, 0, INT32_MAX};
  ck_assert_mem_eq(t.t.data, want, sizeof want);
  fx_tensor_free(&t);
  fx_close(&f);
}
END_TEST

int main(void) {
  const test_case tests[] = {{in_place_and_special_values}, {integers}, {0}};
  return run_tests("ref_activate", tests, (test_setup){.timeout = 60});
}
