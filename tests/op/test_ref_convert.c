/* SPDX-License-Identifier: MIT
 * test_ref_convert.c - convert of ref: known values for each rule of docs/numbers.md, and integers that no
 * double holds. The kit has every pair of dtypes (kit_ref). */
#include <math.h>
#include <string.h>

#include "op_fixture.h"
#include "tests/run_tests.h"

static void run_convert(fx *f, fx_tensor *in, fx_tensor *out) {
  const bs_tensor_desc *descs[2] = {&in->d, &out->d};
  bs_tensor *args[2] = {&in->t, &out->t};
  const bs_op_query q = fx_query("convert", descs, 2);
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_dispatch_prepare(&f->ops, &q, NULL, &plan, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_dispatch_run(plan, args, 2, NULL, &err) == BS_OK, "%s", err.message);
  bs_dispatch_release(plan);
}

/* One value a row of the table, converted alone. */
static double convert_one(uint32_t from, double value, uint32_t to) {
  fx f;
  fx_tensor in, out;
  fx_open(&f, 1, 1);
  fx_matrix(&in, from, 1, 1);
  fx_matrix(&out, to, 1, 1);
  fx_set(&in, 0, 0, value);
  run_convert(&f, &in, &out);
  const double got = fx_get(&out, 0, 0);
  fx_tensor_free(&in);
  fx_tensor_free(&out);
  fx_close(&f);
  return got;
}

START_TEST(known_roundings) {
  static const struct {
    uint32_t from;
    double value;
    uint32_t to;
    double want;
  } rows[] = {
      {BS_F32, 1.0 + 0x1p-8, BS_BF16, 1.0},              /* half a unit: to even */
      {BS_F32, 1.0 + 3 * 0x1p-8, BS_BF16, 1.0 + 0x1p-6}, /* half a unit: to even, upwards */
      {BS_F32, 65520.0, BS_F16, INFINITY},
      {BS_F32, 65519.0, BS_F16, 65504.0},
      {BS_F32, 0x1p-24, BS_F16, 0x1p-24}, /* least subnormal */
      {BS_F32, 1000.0, BS_F8E4M3, 448.0}, /* saturates */
      {BS_F32, 1e6, BS_F8E5M2, INFINITY},
      {BS_F32, 2.5, BS_I32, 2.0},
      {BS_F32, 3.5, BS_I32, 4.0},
      {BS_F32, -2.5, BS_I8, -2.0},
      {BS_F32, 300.0, BS_I8, 127.0},
      {BS_F64, -1e30, BS_I64, -0x1p63},
      /* u8 and bool */
      {BS_F32, -3.0, BS_U8, 0.0},
      {BS_F32, 255.5, BS_U8, 255.0},
      {BS_F32, 254.5, BS_U8, 254.0},
      {BS_I32, 256.0, BS_U8, 255.0},
      {BS_I8, -1.0, BS_U8, 0.0},
      {BS_U8, 200.0, BS_I8, 127.0},
      {BS_U8, 200.0, BS_F8E4M3, 192.0}, /* half way between 192 and 208: to even */
      {BS_U8, 255.0, BS_BF16, 255.0},
      {BS_F32, 0.25, BS_BOOL, 1.0}, /* not rounded first */
      {BS_F32, -0.0, BS_BOOL, 0.0},
      {BS_F64, 1e-300, BS_BOOL, 1.0},
      {BS_I64, -7.0, BS_BOOL, 1.0},
      {BS_U8, 0.0, BS_BOOL, 0.0},
      {BS_BOOL, 1.0, BS_F16, 1.0},
      {BS_BOOL, 1.0, BS_U8, 1.0},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const double got = convert_one(rows[i].from, rows[i].value, rows[i].to);
    ck_assert_msg(got == rows[i].want, "%s %g -> %s gave %g, want %g", bs_dtype_name(rows[i].from),
                  rows[i].value, bs_dtype_name(rows[i].to), got, rows[i].want);
  }
  ck_assert_double_eq(convert_one(BS_F32, NAN, BS_I32), 0.0);
  ck_assert_double_eq(convert_one(BS_F32, NAN, BS_U8), 0.0);
  ck_assert_double_eq(convert_one(BS_F32, NAN, BS_BOOL), 1.0);
  ck_assert(isnan(convert_one(BS_F64, NAN, BS_F8E4M3)));
  ck_assert(isnan(convert_one(BS_F32, NAN, BS_BF16)));
}
END_TEST

/* i64 values beyond 2^53 must not pass through a double. */
START_TEST(wide_integers_stay_exact) {
  fx f;
  fx_tensor in, out;
  const int64_t value = (INT64_C(1) << 62) + 1;
  int64_t got = 0;
  fx_open(&f, 1, 1);
  fx_matrix(&in, BS_I64, 1, 2);
  const int64_t dims[2] = {1, 2}, strides[2] = {4, 2};
  fx_tensor_make(&out, BS_I64, 2, dims, strides);
  memcpy(in.t.data, &value, sizeof value);
  memcpy((unsigned char *)in.t.data + 8, &value, sizeof value);
  run_convert(&f, &in, &out);
  memcpy(&got, (unsigned char *)out.t.data + 16, sizeof got);
  ck_assert_int_eq(got, value);
  fx_tensor_free(&in);
  fx_tensor_free(&out);
  fx_close(&f);
}
END_TEST

int main(void) {
  const test_case tests[] = {{known_roundings}, {wide_integers_stay_exact}, {0}};
  return run_tests("ref_convert", tests, (test_setup){0});
}
