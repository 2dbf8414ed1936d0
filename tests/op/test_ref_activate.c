/* SPDX-License-Identifier: MIT
 * test_ref_activate.c - activate of ref: the formulas of docs/ops.md rounded once to the output's dtype, for
 * strided views, zero dims, any team width and in place; NaN and infinities; integers. */
#include <math.h>
#include <string.h>

#include "op_fixture.h"
#include "tests/run_tests.h"

static const uint32_t floats[6] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_F8E4M3, BS_F8E5M2};

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

static double rounded(uint32_t dtype, double v) {
  unsigned char cell[8];
  bs_store_f64(dtype, cell, 0, v);
  return bs_load_f64(dtype, cell, 0);
}

static void check_pair(fx *f, uint32_t from, uint32_t to, uint32_t activation, int shape, uint64_t *seed) {
  const int64_t rows = shape == 3 ? 0 : 1 + fx_below(seed, 6),
                cols = shape == 0 ? 300 : 1 + fx_below(seed, 20);
  const int64_t dims[2] = {rows, cols}, in_strides[2] = {cols * 2 + 1, 2}, out_strides[2] = {cols * 3 + 2, 3};
  const int wide = from == BS_F64 || to == BS_F64;
  fx_tensor in, out;
  fx_tensor_make(&in, from, 2, dims, shape >= 1 ? in_strides : NULL);
  fx_tensor_make(&out, to, 2, dims, shape >= 2 ? out_strides : NULL);
  fx_fill(&in, seed);
  run_activate(f, activation, &in, &out);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c++) {
      const double v = fx_get(&in, r, c), value = formula(activation, v);
      const double want = rounded(to, wide ? value : (double)(float)value), got = fx_get(&out, r, c);
      const double slack = activation > BS_ACT_RELU ? fabs(value) * 2 * bs_dtype_unit_roundoff(to) + 1e-6 : 0;
      if (!(fabs(got - want) <= slack))
        ck_abort_msg("%s -> %s, %u: %g gave %g, want %g", bs_dtype_name(from), bs_dtype_name(to), activation,
                     v, got, want);
    }
  fx_check_guards(&in, "in");
  fx_check_guards(&out, "out");
  fx_tensor_free(&in);
  fx_tensor_free(&out);
}

START_TEST(every_pair_of_floats) {
  uint64_t seed = 29;
  fx f;
  fx_open(&f, 3, 1);
  f.threads = 1;
  for (int from = 0; from < 6; from++)
    for (int to = 0; to < 6; to++)
      for (uint32_t activation = 0; activation <= BS_ACT_GELU_TANH; activation++)
        for (int shape = 0; shape < 4; shape++)
          check_pair(&f, floats[from], floats[to], activation, shape, &seed);
  fx_close(&f);
}
END_TEST

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
  const test_case tests[] = {{every_pair_of_floats}, {in_place_and_special_values}, {integers}, {0}};
  return run_tests("ref_activate", tests, (test_setup){.timeout = 60});
}
