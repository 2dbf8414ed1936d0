/* SPDX-License-Identifier: MIT
 * test_dtype.c - conversions against an oracle that knows only the formats' definitions: every 8- and
 * 16-bit code, and around every midpoint of neighbours (tie to even, one step below, one above). */
#include <math.h>
#include <stdio.h>

#include "core/base/dtype.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

typedef struct format {
  uint32_t dtype;
  int mantissa, exponent_bits, bias;
  int has_infinity;
  uint32_t max_finite; /* code */
  uint32_t sign;       /* bit of the sign */
} format;

static const format formats[] = {{BS_F16, 10, 5, 15, 1, 0x7bff, 0x8000},
                                 {BS_BF16, 7, 8, 127, 1, 0x7f7f, 0x8000},
                                 {BS_F8E4M3, 3, 4, 7, 0, 0x7e, 0x80},
                                 {BS_F8E5M2, 2, 5, 15, 1, 0x7b, 0x80}};
enum { FORMATS = 4 };

/* libcheck writes to a pipe at each of its assertions: too slow for loops over millions of values. */
#define EXPECT(condition, ...)                   \
  do {                                           \
    if (!(condition)) ck_abort_msg(__VA_ARGS__); \
  } while (0)

/* The value of a finite non-negative code, from the definition. One more than max_finite is the value that
 * would follow if exponents went on. */
static double value_of(const format *f, uint32_t code) {
  uint32_t fraction = code & ((1u << f->mantissa) - 1), exponent = code >> f->mantissa;
  if (exponent == 0) return ldexp((double)fraction, 1 - f->bias - f->mantissa);
  return ldexp((double)(fraction + (1u << f->mantissa)), (int)exponent - f->bias - f->mantissa);
}

static double decode(const format *f, uint32_t code) {
  uint16_t wide = (uint16_t)code;
  uint8_t narrow = (uint8_t)code;
  return bs_load_f64(f->dtype, BS_DTYPE_BYTES(f->dtype) == 2 ? (void *)&wide : (void *)&narrow, 0);
}

static uint32_t encode_f64(const format *f, double v) {
  uint16_t wide = 0;
  uint8_t narrow = 0;
  int two = BS_DTYPE_BYTES(f->dtype) == 2;
  bs_store_f64(f->dtype, two ? (void *)&wide : (void *)&narrow, 0, v);
  return two ? wide : narrow;
}

static uint32_t encode_f32(const format *f, float v) {
  switch (f->dtype) {
    case BS_F16:
      return bs_f32_to_f16(v);
    case BS_BF16:
      return bs_f32_to_bf16(v);
    case BS_F8E4M3:
      return bs_f32_to_f8e4m3(v);
    default:
      return bs_f32_to_f8e5m2(v);
  }
}

START_TEST(decode_every_code) {
  const format *f = &formats[_i];
  for (uint32_t code = 0; code <= f->max_finite; code++) {
    double want = value_of(f, code), plus = decode(f, code), minus = decode(f, code | f->sign);
    EXPECT(plus == want && !signbit(plus), "code %x: %a, not %a", code, plus, want);
    EXPECT(minus == -want && signbit(minus), "code -%x: %a, not %a", code, minus, -want);
    EXPECT((encode_f64(f, want)) == (code), "code %x", code);
    EXPECT((encode_f64(f, -want)) == (code | f->sign), "code %x", code);
    EXPECT((encode_f32(f, (float)want)) == (code), "code %x", code);
    EXPECT((encode_f32(f, (float)-want)) == (code | f->sign), "code %x", code);
  }
  uint32_t first_nan = f->max_finite + 1;
  if (f->has_infinity) {
    ck_assert(isinf(decode(f, first_nan)) && decode(f, first_nan) > 0);
    ck_assert(isinf(decode(f, first_nan | f->sign)) && decode(f, first_nan | f->sign) < 0);
    first_nan++;
  }
  /* Every NaN stays a NaN with its sign, quiet, and keeps what the quiet bit leaves of its code. */
  uint32_t quiet = f->has_infinity ? 1u << (f->mantissa - 1) : 0;
  for (uint32_t code = first_nan; code < f->sign; code++) {
    for (uint32_t s = 0; s <= f->sign; s += f->sign) {
      double v = decode(f, code | s);
      EXPECT(isnan(v), "code %x", code);
      EXPECT((signbit(v) != 0) == (s != 0), "code %x", code);
      EXPECT((encode_f64(f, v)) == (code | s | quiet), "code %x", code);
    }
  }
}
END_TEST

static void check_both(const format *f, double v, uint32_t code) {
  EXPECT(encode_f64(f, v) == code, "%a: code %x, not %x", v, encode_f64(f, v), code);
  EXPECT(encode_f64(f, -v) == (code | f->sign), "%a: code %x", -v, encode_f64(f, -v));
}

static void check_both_f32(const format *f, float v, uint32_t code) {
  EXPECT(encode_f32(f, v) == code, "%a: code %x, not %x", (double)v, encode_f32(f, v), code);
  EXPECT(encode_f32(f, -v) == (code | f->sign), "%a: code %x", (double)-v, encode_f32(f, -v));
}

START_TEST(midpoints_go_to_even) {
  const format *f = &formats[_i];
  for (uint32_t code = 0; code < f->max_finite; code++) {
    double low = value_of(f, code), high = value_of(f, code + 1), mid = (low + high) / 2;
    uint32_t even = (code & 1) == 0 ? code : code + 1;
    check_both(f, mid, even);
    check_both(f, nextafter(mid, 0.0), code);
    check_both(f, nextafter(mid, INFINITY), code + 1);
    float mid32 = (float)mid;
    EXPECT((double)mid32 == mid, "code %x", code);
    check_both_f32(f, mid32, even);
    check_both_f32(f, nextafterf(mid32, 0.0f), code);
    check_both_f32(f, nextafterf(mid32, INFINITY), code + 1);
  }
}
END_TEST

START_TEST(overflow_and_specials) {
  const format *f = &formats[_i];
  double largest = value_of(f, f->max_finite), next = value_of(f, f->max_finite + 1),
         mid = (largest + next) / 2;
  uint32_t beyond = f->has_infinity ? f->max_finite + 1 : f->max_finite;
  check_both(f, nextafter(mid, 0.0), f->max_finite);
  check_both(f, mid, beyond);
  check_both(f, next, beyond);
  check_both(f, 1e300, beyond);
  check_both(f, INFINITY, beyond);
  check_both_f32(f, nextafterf((float)mid, 0.0f), f->max_finite);
  check_both_f32(f, (float)mid, beyond);
  check_both_f32(f, 3e38f, f->dtype == BS_BF16 ? 0x7f62 : beyond);
  check_both_f32(f, INFINITY, beyond);
  check_both(f, 0.0, 0);
  check_both(f, 5e-324, 0);
  check_both(f, 1e-300, 0);
  check_both_f32(f, 1e-45f, 0);
  double least = value_of(f, 1);
  check_both(f, least / 2, 0);
  check_both(f, nextafter(least / 2, 1.0), 1);
  check_both(f, least * 0.25, 0);
}
END_TEST

/* 1 + 2^-11 + 2^-40 lies above the f16 midpoint, but f32 rounds it onto the midpoint: rounding twice
 * would give 1. */
START_TEST(f64_is_rounded_once) {
  ck_assert_uint_eq(bs_f64_to_f16(1 + 0x1p-11 + 0x1p-40), 0x3c01);
  ck_assert_uint_eq(bs_f32_to_f16((float)(1 + 0x1p-11 + 0x1p-40)), 0x3c00);
  ck_assert_uint_eq(bs_f64_to_bf16(1 + 0x1p-8 + 0x1p-40), 0x3f81);
  ck_assert_uint_eq(bs_f32_to_bf16((float)(1 + 0x1p-8 + 0x1p-40)), 0x3f80);
  ck_assert_uint_eq(bs_f64_to_bf16(-0.0), 0x8000);
}
END_TEST

START_TEST(known_values) {
  ck_assert_float_eq(bs_f8e4m3_to_f32(0x7e), 448.0f);
  ck_assert_float_eq(bs_f8e5m2_to_f32(0x7b), 57344.0f);
  ck_assert_float_eq(bs_f16_to_f32(0x7bff), 65504.0f);
  ck_assert_uint_eq(bs_f32_to_f16(65519.996f), 0x7bff);
  ck_assert_uint_eq(bs_f32_to_f16(65520.0f), 0x7c00);
  ck_assert_uint_eq(bs_f32_to_f8e4m3(1e9f), 0x7e);
  ck_assert_uint_eq(bs_f32_to_f8e4m3(-INFINITY), 0xfe);
  ck_assert_uint_eq(bs_f32_to_f8e4m3(NAN) & 0x7f, 0x7f);
  ck_assert_double_eq(bs_dtype_unit_roundoff(BS_F32), 0x1p-24);
  ck_assert_double_eq(bs_dtype_unit_roundoff(BS_I32), 0.0);
  /* u is half the gap after 1 in each format */
  for (int i = 0; i < FORMATS; i++) {
    const format *f = &formats[i];
    uint32_t one = encode_f64(f, 1.0);
    ck_assert_double_eq(bs_dtype_unit_roundoff(f->dtype), (value_of(f, one + 1) - 1.0) / 2);
  }
}
END_TEST

static const uint32_t all_dtypes[] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_F8E4M3, BS_F8E5M2,
                                      BS_I64, BS_I32, BS_I8,  BS_U8,   BS_BOOL};
enum { DTYPES = 11 };

START_TEST(names) {
  static const struct {
    const char *name;
    uint32_t dtype;
  } rows[] = {{"bf16", BS_BF16},
              {"bfloat16", BS_BF16},
              {"fp16", BS_F16},
              {"float16", BS_F16},
              {"half", BS_F16},
              {"fp32", BS_F32},
              {"float32", BS_F32},
              {"float", BS_F32},
              {"f32", BS_F32},
              {"f64", BS_F64},
              {"float64", BS_F64},
              {"fp64", BS_F64},
              {"double", BS_F64},
              {"f8e4m3", BS_F8E4M3},
              {"F8_E5M2", BS_F8E5M2},
              {"BF16", BS_BF16},
              {"int64", BS_I64},
              {"uint8", BS_U8},
              {"bool", BS_BOOL},
              {"", 0},
              {"bf", 0},
              {"bf166", 0},
              {"float8_e4m3fn", BS_F8E4M3},
              {"f33", 0}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    ck_assert_msg(bs_dtype_parse(rows[i].name) == rows[i].dtype, "'%s'", rows[i].name);
  }
  ck_assert_uint_eq(bs_dtype_parse(NULL), 0);
  for (int i = 0; i < DTYPES; i++) {
    ck_assert_uint_eq(bs_dtype_parse(bs_dtype_name(all_dtypes[i])), all_dtypes[i]);
    ck_assert(bs_dtype_known(all_dtypes[i]));
    ck_assert_int_eq(bs_dtype_is_float(all_dtypes[i]), i < 6);
  }
  ck_assert_str_eq(bs_dtype_name(BS_F8E4M3), "f8e4m3");
  ck_assert_str_eq(bs_dtype_name(77), "?");
  char text[96];
  snprintf(text, sizeof text, "arg 0 of dtype 0x%04x: 0x%04x wanted, not 0x1234 or 0x22, at 0x", BS_F32,
           BS_F8E4M3);
  bs_dtype_name_codes(text); /* as plugins write them */
  ck_assert_str_eq(text, "arg 0 of dtype f32: f8e4m3 wanted, not 0x1234 or 0x22, at 0x");
  ck_assert(!bs_dtype_known(0));
}
END_TEST

int main(void) {
  const test_case tests[] = {{decode_every_code, FORMATS},
                             {midpoints_go_to_even, FORMATS},
                             {overflow_and_specials, FORMATS},
                             {f64_is_rounded_once},
                             {known_values},
                             {names},
                             {0}};
  return run_tests("dtype", tests, (test_setup){0});
}
