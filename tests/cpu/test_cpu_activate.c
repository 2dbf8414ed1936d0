/* SPDX-License-Identifier: MIT
 *
 * test_cpu_activate.c - activate of the cpu plugin: the formulas in f64 beside it, over rows longer than a
 * piece of work and a team, with row strides, fewer rows than prepared, in place, on both instruction sets.
 */
#include <math.h>

#include "cpu_fixture.h"
#include "tests/run_tests.h"

static const char *const isas[] = {"portable", "auto"};
static const uint32_t dtypes[] = {BS_F32, BS_BF16, BS_F16, BS_F64};

static double formula(uint32_t activation, double v) {
  if (activation == BS_ACT_RELU) return v < 0 ? 0 : v;
  if (activation == BS_ACT_GELU) return 0.5 * v * erfc(-v / sqrt(2.0));
  if (activation == BS_ACT_SILU) return v / (1 + exp(-v));
  if (activation == BS_ACT_GELU_TANH)
    return v / (1 + exp(-2 * 0.79788456080286535588 * (v + 0.044715 * v * v * v)));
  return v;
}

static uint32_t ask(const cx *c, const bs_op_query *q, const bs_op_impl **out_impl, void **out_state) {
  bs_op_answer answer = {.struct_size = sizeof answer};
  *out_impl = cx_impl(c, "activate", "cpu", out_state);
  ck_assert_ptr_nonnull(*out_impl);
  ck_assert_int_eq((*out_impl)->supports(*out_state, q, &answer), BS_OK);
  return answer.level;
}

static void run_op(const cx *c, uint32_t activation, const cx_matrix *in, const cx_matrix *out,
                   int64_t rows) {
  void *state = NULL, *plan = NULL;
  bs_error err = {.struct_size = sizeof err};
  const bs_op_impl *impl;
  const bs_tensor_desc *args[2] = {&in->d, &out->d};
  const bs_op_query q = {
      .struct_size = sizeof q, .nargs = 2, .op = "activate", .args = args, .activation = activation};
  ck_assert_uint_eq(ask(c, &q, &impl, &state), BS_LEVEL_NATIVE);
  ck_assert_int_eq(impl->prepare(state, &c->exec, &q, NULL, &plan, &err), BS_OK);
  bs_tensor a = in->t, b = out->t, *call[2] = {&a, &b};
  a.dims[0] = b.dims[0] = rows;
  ck_assert_int_eq(impl->run(plan, call, 2, NULL, &err), BS_OK);
  impl->plan_free(plan);
}

static void check(const cx *c, uint32_t from, uint32_t to, uint32_t activation) {
  const int64_t rows = 5, cols = 4099;
  cx_matrix in, out;
  cx_matrix_make(&in, from, rows, cols, cols + 3);
  cx_matrix_make(&out, to, rows, cols, cols + 1);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < cols; i++) cx_set(&in, r, i, (double)((r * cols + i) * 7 % 1601 - 800) / 100);
  for (int64_t i = 0; i < cols; i++) cx_set(&out, rows - 1, i, 77);
  run_op(c, activation, &in, &out, rows - 1);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < cols; i++) {
      const double v = cx_get(&in, r, i), want = r == rows - 1 ? 77 : formula(activation, v);
      const double slack = bs_dtype_unit_roundoff(to) * fabs(want) + (to == BS_F64 ? 1e-15 : 8 * 0x1p-24);
      if (!(fabs(cx_get(&out, r, i) - want) <= slack))
        ck_abort_msg("%s -> %s, %u: [%lld,%lld] %g gave %g, want %g", bs_dtype_name(from), bs_dtype_name(to),
                     activation, (long long)r, (long long)i, v, cx_get(&out, r, i), want);
    }
  cx_guards(&out, "activate");
  cx_matrix_free(&in);
  cx_matrix_free(&out);
}

START_TEST(every_pair) {
  cx c;
  cx_open(&c, isas[_i], "off", 2);
  for (size_t a = 0; a < 4; a++)
    for (size_t b = 0; b < 4; b++)
      for (uint32_t activation = 0; activation <= BS_ACT_GELU_TANH; activation++)
        if ((dtypes[a] == BS_F64) == (dtypes[b] == BS_F64)) check(&c, dtypes[a], dtypes[b], activation);
  cx_close(&c);
}
END_TEST

START_TEST(in_place_and_nan) {
  cx c;
  cx_matrix m;
  cx_open(&c, isas[_i], "off", 1);
  for (uint32_t activation = BS_ACT_RELU; activation <= BS_ACT_GELU_TANH; activation++) {
    cx_matrix_make(&m, BS_F32, 1, 3, 0);
    cx_set(&m, 0, 0, -2), cx_set(&m, 0, 1, NAN), cx_set(&m, 0, 2, 2);
    run_op(&c, activation, &m, &m, 1);
    ck_assert_double_eq_tol(cx_get(&m, 0, 0), formula(activation, -2), 1e-6);
    ck_assert(isnan(cx_get(&m, 0, 1)));
    ck_assert_double_eq_tol(cx_get(&m, 0, 2), formula(activation, 2), 1e-6);
    cx_matrix_free(&m);
  }
  cx_close(&c);
}
END_TEST

/* What it cannot do it refuses with a reason: the rest is nobody's on this backend. */
START_TEST(refusals) {
  cx c;
  void *state;
  const bs_op_impl *impl;
  cx_open(&c, "auto", "off", 1);
  bs_tensor_desc in = bs_desc_2d(BS_F64, 2, 4), out = bs_desc_2d(BS_F32, 2, 4);
  const bs_tensor_desc *args[2] = {&in, &out};
  bs_op_query q = {.struct_size = sizeof q, .nargs = 2, .op = "activate", .args = args};
  ck_assert_uint_eq(ask(&c, &q, &impl, &state), BS_LEVEL_NO);
  in.dtype = BS_F32;
  ck_assert_uint_eq(ask(&c, &q, &impl, &state), BS_LEVEL_NATIVE);
  q.activation = BS_ACT_GELU_TANH + 1;
  ck_assert_uint_eq(ask(&c, &q, &impl, &state), BS_LEVEL_NO);
  q.activation = 0;
  out.strides[0] = 8;
  out.strides[1] = 2;
  ck_assert_uint_eq(ask(&c, &q, &impl, &state), BS_LEVEL_NO);
  cx_close(&c);
}
END_TEST

int main(void) {
  const test_case tests[] = {{every_pair, 2}, {in_place_and_nan, 2}, {refusals}, {0}};
  return run_tests("cpu_activate", tests, (test_setup){.timeout = 60});
}
