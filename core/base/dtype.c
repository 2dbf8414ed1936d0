/* SPDX-License-Identifier: MIT
 * dtype.c - names and sizes of dtypes and the scalar conversions (rules: dtype.h, docs/numbers.md).
 * Everything below 32 bits is rounded from the f64 bit pattern by one integer routine, once.
 * Pure functions: thread-safe. Arrays: convert.c. */
#include "core/base/dtype.h"

#include <math.h>
#include <string.h>

#include "core/base/dtype_bits.h"

const char *bs_dtype_name(uint32_t dtype) {
  return bs_name_of(BS_NAMES_DTYPE, dtype);
}

void bs_dtype_name_codes(char *text) {
  for (char *at = text; (at = strstr(at, "0x")) != NULL; at += 2) {
    char *end = at + 2;
    uint32_t code = 0;
    for (; end < at + 6 && *end != '\0' && strchr("0123456789abcdef", *end) != NULL; end++)
      code = code * 16 + (uint32_t)(*end <= '9' ? *end - '0' : *end - 'a' + 10);
    const char *name = bs_dtype_name(code);
    const size_t length = strlen(name);
    if (end != at + 6 || name[0] == '?' || length > 6) continue; /* no name is longer than a code */
    memmove(at + length, end, strlen(end) + 1);
    for (size_t i = 0; i < length; i++) at[i] = name[i];
  }
}

uint32_t bs_dtype_parse(const char *name) {
  uint32_t dtype = 0;
  return bs_name_read(BS_NAMES_DTYPE, name, &dtype) ? dtype : 0;
}

int bs_dtype_known(uint32_t dtype) {
  return bs_dtype_name(dtype)[0] != '?';
}

int bs_dtype_is_float(uint32_t dtype) {
  return dtype == BS_F64 || dtype == BS_F32 || dtype == BS_F16 || dtype == BS_BF16 || dtype == BS_F8E4M3 ||
         dtype == BS_F8E5M2;
}

double bs_dtype_unit_roundoff(uint32_t dtype) {
  switch (dtype) {
    case BS_F64:
      return 0x1p-53;
    case BS_F32:
      return 0x1p-24;
    case BS_F16:
      return 0x1p-11;
    case BS_BF16:
      return 0x1p-8;
    case BS_F8E4M3:
      return 0x1p-4;
    case BS_F8E5M2:
      return 0x1p-3;
    default:
      return 0.0;
  }
}

/* ---- narrow floats from f64 bits --------------------------------------------------------------- */

/* A narrow binary format: significand bits (without the hidden one), exponent bias, the code of the
 * largest finite value and what a larger one becomes. */
typedef struct narrow_format {
  int mantissa;
  int bias;
  uint32_t max_finite;
  uint32_t overflow; /* code of infinity, or of the largest finite value when saturating */
  uint32_t nan;      /* quiet NaN */
  uint32_t payload;  /* bits that a NaN's payload may set */
  uint32_t sign;
} narrow_format;

static const narrow_format format_f16 = {10, 15, 0x7bff, 0x7c00, 0x7e00, 0x01ff, 0x8000};
static const narrow_format format_bf16 = {7, 127, 0x7f7f, 0x7f80, 0x7fc0, 0x003f, 0x8000};
static const narrow_format format_f8e4m3 = {3, 7, 0x7e, 0x7e, 0x7f, 0x00, 0x80};
static const narrow_format format_f8e5m2 = {2, 15, 0x7b, 0x7c, 0x7e, 0x01, 0x80};

static uint32_t round_narrow(uint64_t bits, const narrow_format *f) {
  uint32_t sign = (bits >> 63) != 0 ? f->sign : 0;
  int biased = (int)((bits >> 52) & 0x7ff);
  uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1);
  if (biased == 0x7ff) {
    if (fraction == 0) return sign | f->overflow;
    return sign | f->nan | ((uint32_t)(fraction >> (52 - f->mantissa)) & f->payload);
  }
  if (biased == 0) return sign; /* f64 zero or subnormal: far below half of any narrow subnormal */
  uint64_t significand = fraction | (UINT64_C(1) << 52);
  int exponent = biased - 1023, lowest = 1 - f->bias;
  int shift = 52 - f->mantissa + (exponent < lowest ? lowest - exponent : 0);
  if (shift > 53) return sign; /* below half of the least subnormal */
  uint64_t rest = significand & ((UINT64_C(1) << shift) - 1), half = UINT64_C(1) << (shift - 1);
  uint64_t code = significand >> shift;
  if (rest > half || (rest == half && (code & 1) != 0)) code++;
  /* The hidden bit adds one to the exponent field; a carry out of the significand does too. */
  if (exponent > lowest) code += (uint64_t)(exponent - lowest) << f->mantissa;
  return sign | (code > f->max_finite ? f->overflow : (uint32_t)code);
}

/* f32 bits as f64 bits, exactly, NaN payload included (a hardware conversion would do, too, but this one
 * does not depend on the floating-point environment). */
static uint64_t widen_f32(uint32_t bits) {
  uint32_t exponent = (bits >> 23) & 0xff, fraction = bits & 0x7fffff;
  if (exponent == 0xff) {
    return ((uint64_t)(bits >> 31) << 63) | (UINT64_C(0x7ff) << 52) | ((uint64_t)fraction << 29);
  }
  return bs_bits_of_f64((double)bs_f32_of_bits(bits));
}

uint16_t bs_f64_to_f16(double d) {
  return (uint16_t)round_narrow(bs_bits_of_f64(d), &format_f16);
}

uint16_t bs_f64_to_bf16(double d) {
  return (uint16_t)round_narrow(bs_bits_of_f64(d), &format_bf16);
}

uint8_t bs_f32_to_f8e4m3(float f) {
  return (uint8_t)round_narrow(widen_f32(bs_bits_of_f32(f)), &format_f8e4m3);
}

uint8_t bs_f32_to_f8e5m2(float f) {
  return (uint8_t)round_narrow(widen_f32(bs_bits_of_f32(f)), &format_f8e5m2);
}

uint16_t bs_f32_to_f16(float f) {
  return bs_f16_of_f32_bits(bs_bits_of_f32(f));
}

uint16_t bs_f32_to_bf16(float f) {
  return bs_bf16_of_f32_bits(bs_bits_of_f32(f));
}

float bs_f16_to_f32(uint16_t h) {
  return bs_f32_of_bits(bs_f32_bits_of_f16(h));
}

float bs_bf16_to_f32(uint16_t h) {
  return bs_f32_of_bits(bs_f32_bits_of_bf16(h));
}

/* e5m2 is the upper byte of f16. */
float bs_f8e5m2_to_f32(uint8_t v) {
  return bs_f16_to_f32((uint16_t)(v << 8));
}

float bs_f8e4m3_to_f32(uint8_t v) {
  uint32_t sign = (uint32_t)(v & 0x80) << 24, exponent = (v >> 3) & 15, fraction = v & 7;
  if ((v & 0x7f) == 0x7f) return bs_f32_of_bits(sign | 0x7fc00000);
  if (exponent == 0) {
    float magnitude = (float)fraction * 0x1p-9f;
    return bs_f32_of_bits(sign | bs_bits_of_f32(magnitude));
  }
  return bs_f32_of_bits(sign | ((exponent + 120) << 23) | (fraction << 20));
}

/* ---- one element ------------------------------------------------------------------------------- */

static int64_t round_to_integer(double value, int64_t low, int64_t high) {
  if (value != value) return 0;
  double r = rint(value);
  /* (double)INT64_MAX is 2^63: anything from there on saturates. */
  if (r >= (double)high) return high;
  if (r <= (double)low) return low;
  return (int64_t)r;
}

double bs_load_f64(uint32_t dtype, const void *base, int64_t index) {
  const unsigned char *p = (const unsigned char *)base + index * (int64_t)BS_DTYPE_BYTES(dtype);
  uint16_t u16;
  switch (dtype) {
    case BS_F64: {
      double v;
      memcpy(&v, p, sizeof v);
      return v;
    }
    case BS_F32: {
      float v;
      memcpy(&v, p, sizeof v);
      return (double)v;
    }
    case BS_F16:
      memcpy(&u16, p, sizeof u16);
      return (double)bs_f16_to_f32(u16);
    case BS_BF16:
      memcpy(&u16, p, sizeof u16);
      return (double)bs_bf16_to_f32(u16);
    case BS_F8E4M3:
      return (double)bs_f8e4m3_to_f32(*p);
    case BS_F8E5M2:
      return (double)bs_f8e5m2_to_f32(*p);
    case BS_BOOL:
      return *p != 0 ? 1.0 : 0.0;
    default:
      return (double)bs_load_i64(dtype, base, index);
  }
}

int64_t bs_load_i64(uint32_t dtype, const void *base, int64_t index) {
  const unsigned char *p = (const unsigned char *)base + index * (int64_t)BS_DTYPE_BYTES(dtype);
  switch (dtype) {
    case BS_I64: {
      int64_t v;
      memcpy(&v, p, sizeof v);
      return v;
    }
    case BS_I32: {
      int32_t v;
      memcpy(&v, p, sizeof v);
      return v;
    }
    case BS_I8: {
      int8_t v;
      memcpy(&v, p, sizeof v);
      return v;
    }
    case BS_U8:
      return *p;
    case BS_BOOL:
      return *p != 0;
    default:
      return 0;
  }
}

void bs_store_i64(uint32_t dtype, void *base, int64_t index, int64_t value) {
  unsigned char *p = (unsigned char *)base + index * (int64_t)BS_DTYPE_BYTES(dtype);
  switch (dtype) {
    case BS_I64:
      memcpy(p, &value, sizeof value);
      break;
    case BS_I32: {
      int32_t v = value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : (int32_t)value;
      memcpy(p, &v, sizeof v);
      break;
    }
    case BS_I8: {
      int8_t v = value > INT8_MAX ? INT8_MAX : value < INT8_MIN ? INT8_MIN : (int8_t)value;
      memcpy(p, &v, sizeof v);
      break;
    }
    case BS_U8:
      *p = value > UINT8_MAX ? UINT8_MAX : value < 0 ? 0 : (unsigned char)value;
      break;
    case BS_BOOL:
      *p = value != 0;
      break;
    default:
      break;
  }
}

void bs_store_f64(uint32_t dtype, void *base, int64_t index, double value) {
  unsigned char *p = (unsigned char *)base + index * (int64_t)BS_DTYPE_BYTES(dtype);
  uint64_t bits = bs_bits_of_f64(value);
  uint16_t u16;
  switch (dtype) {
    case BS_F64:
      memcpy(p, &value, sizeof value);
      break;
    case BS_F32: {
      float v = (float)value;
      memcpy(p, &v, sizeof v);
      break;
    }
    case BS_F16:
      u16 = (uint16_t)round_narrow(bits, &format_f16);
      memcpy(p, &u16, sizeof u16);
      break;
    case BS_BF16:
      u16 = (uint16_t)round_narrow(bits, &format_bf16);
      memcpy(p, &u16, sizeof u16);
      break;
    case BS_F8E4M3:
      *p = (unsigned char)round_narrow(bits, &format_f8e4m3);
      break;
    case BS_F8E5M2:
      *p = (unsigned char)round_narrow(bits, &format_f8e5m2);
      break;
    case BS_BOOL:
      *p = value != 0.0; /* as C and NumPy: any value but zero is true, NaN too */
      break;
    default:
      bs_store_i64(dtype, base, index, round_to_integer(value, INT64_MIN, INT64_MAX));
      break;
  }
}
