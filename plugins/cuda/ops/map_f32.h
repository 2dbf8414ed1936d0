/* SPDX-License-Identifier: MIT
 * map_f32.h - the steps of f32 programs. Functions are computed in double, as in activations.h, and rounded
 * once: they are within a unit in the last place. */
#ifndef BS_PLUGIN_CUDA_MAP_F32_H
#define BS_PLUGIN_CUDA_MAP_F32_H
#include "activations.h"
#include "map.h"

typedef float map_number;
enum { MAP_EACH = 4 };

/* One value of each of a thread's elements. */
typedef struct map_values {
  map_number v[MAP_EACH];
} map_values;

#include "map_float.h"

/* ---- numbers ----------------------------------------------------------------------------------- */

CUDA_FN float map_of_bits(uint64_t bits) {
  return cuda_f32_bits((uint32_t)bits);
}
CUDA_FN float map_of_raw(const cuda_raw *raw, const int i) {
  return cuda_f32_bits(raw->word[i]);
}
CUDA_FN cuda_raw map_to_raw(const float *v, const int count) {
  cuda_raw raw = {{0, 0, 0, 0}};
  CUDA_UNROLL
  for (int i = 0; i < count; i++) raw.word[i] = cuda_bits_f32(v[i]);
  return raw;
}
CUDA_FN float map_of_index(int64_t index) {
  return (float)index;
}
CUDA_FN void map_widen(uint32_t dtype, const cuda_raw *raw, float *v, const int count) {
  cuda_widen_f32(dtype, raw, v, count);
}
/* As an output: integers get what is before the point. */
CUDA_FN cuda_raw map_narrow(uint32_t dtype, const float *v, const int count) {
  const int whole = dtype == BS_I64 || dtype == BS_I32 || dtype == BS_I8 || dtype == BS_U8;
  float of[4];
  CUDA_UNROLL
  for (int i = 0; i < count; i++) of[i] = whole ? truncf(v[i]) : v[i];
  return cuda_narrow_f32(dtype, of, count);
}

CUDA_FN float map_abs(float x) {
  return fabsf(x);
}
CUDA_FN float map_fma(float x, float y, float z) {
  return fmaf(x, y, z);
}

/* ---- functions ---------------------------------------------------------------------------------- */

#define MAP_LOG2_E 1.4426950408889634
#define MAP_LN_2 0.69314718055994530942

/* e^a. Beyond -110 and 100 it is 0 and infinity as f32; NaN stays. */
CUDA_FN double map_exp(double a) {
  return cuda_exp2(a < -110.0 ? -110.0 : a > 100.0 ? 100.0 : a, MAP_LOG2_E);
}

/* log(1 + f), f from -0.3 to 0.42: 2 artanh(f / (2 + f)). */
CUDA_FN double map_log_near(double f) {
  const double s = f * cuda_reciprocal(2.0 + f), q = s * s;
  double p = 1.0 / 15.0;
  p = fma(p, q, 1.0 / 13.0);
  p = fma(p, q, 1.0 / 11.0);
  p = fma(p, q, 1.0 / 9.0);
  p = fma(p, q, 1.0 / 7.0);
  p = fma(p, q, 1.0 / 5.0);
  p = fma(p, q, 1.0 / 3.0);
  return 2.0 * fma(p * q, s, s);
}
/* Of an f32 above 0 that is finite. */
CUDA_FN double map_log(double x) {
  const uint64_t bits = cuda_bits_f64(x), fraction = bits & (UINT64_MAX >> 12);
  const double m = cuda_f64_bits(fraction | UINT64_C(1023) << 52);
  const int large = m > 1.41421356237309504880;
  const double power = (double)((int)(bits >> 52) - 1023 + large);
  return fma(power, MAP_LN_2, map_log_near((large ? 0.5 * m : m) - 1.0));
}
CUDA_FN float map_log_f32(float v) {
  if (v == 0.0f) return -INFINITY;
  if (v < 0.0f) return NAN;
  return v < INFINITY ? (float)map_log((double)v) : v;
}

CUDA_FN float map_softplus(float v) {
  const double x = (double)v, e = map_exp(-fabs(x));
  const double tail = e > 0.41421356237309504880 ? map_log_near(0.5 * (e - 1.0)) + MAP_LN_2 : map_log_near(e);
  return (float)((x > 0.0 ? x : 0.0) + tail);
}

/* An odd series below 0.25, else (1 - e) / (1 + e), e = exp(-2 |x|). */
CUDA_FN float map_tanh(float v) {
  const double size = fabs((double)v), q = size * size;
  double p = -1382.0 / 155925.0;
  p = fma(p, q, 62.0 / 2835.0);
  p = fma(p, q, -17.0 / 315.0);
  p = fma(p, q, 2.0 / 15.0);
  p = fma(p, q, -1.0 / 3.0);
  const double e = map_exp(-2.0 * size), far = (1.0 - e) * cuda_reciprocal(1.0 + e);
  return copysignf((float)(size < 0.25 ? fma(p * q, size, size) : far), v);
}

/* An odd series below 0.6, else 1 - 2 Phi(-sqrt(2) |x|). */
CUDA_FN float map_erf(float v) {
  const double size = fabs((double)v), q = size * size;
  double p = -1.0 / 75600.0;
  p = fma(p, q, 1.0 / 9360.0);
  p = fma(p, q, -1.0 / 1320.0);
  p = fma(p, q, 1.0 / 216.0);
  p = fma(p, q, -1.0 / 42.0);
  p = fma(p, q, 1.0 / 10.0);
  p = fma(p, q, -1.0 / 3.0);
  if (size < 0.6) return copysignf((float)(1.12837916709551257390 * fma(p * q, size, size)), v);
  const double far = -1.41421356237309504880 * size, y = far < -14.0 ? -14.0 : far;
  const double phi = cuda_gelu_phi(y) * cuda_gelu_exp(y, y), t = 1.0 - phi - phi;
  return copysignf((float)t, v);
}

/* C's pow: |x|^y by the logarithm, then the cases that it lacks. */
CUDA_FN float map_pow(float x, float y) {
  if (x == 1.0f || y == 0.0f) return 1.0f;
  if (x != x || y != y) return x + y;
  const float size = fabsf(x), half = 0.5f * y;
  const int whole = rintf(y) == y, odd = whole && rintf(half) != half, negative = cuda_bits_f32(x) >> 31 != 0;
  const double log = size == 0.0f ? -INFINITY : size < INFINITY ? map_log((double)size) : INFINITY;
  const float power = (float)map_exp(size == 1.0f ? 0.0 : (double)y * log);
  if (!negative) return power;
  if (!whole && x < 0.0f && size < INFINITY) return NAN;
  return odd ? -power : power;
}

/* ---- sine and cosine ---------------------------------------------------------------------------- */

/* |x| = (4 k + quadrant) pi / 2 + rest, |rest| < 0.8. */
typedef struct map_angle {
  double rest;
  uint32_t quadrant;
} map_angle;

/* Below 2^28: pi / 2 in two parts, and both products are exact enough by fma. */
CUDA_FN map_angle map_turn_small(double size) {
  const double t = fma(size, 0.63661977236758134308, 0x1.8p52), n = t - 0x1.8p52;
  map_angle at;
  at.quadrant = (uint32_t)cuda_bits_f64(t) & 3u;
  at.rest = fma(-n, 0x1.1a62633145c07p-54, fma(-n, 0x1.921fb54442d18p+0, size));
  return at;
}

/* From 2^5 on: the bits of 2 / pi whose product with the significand is below 4, and 126 after them. */
CUDA_FN map_angle map_turn_large(uint32_t bits) {
  const uint32_t from = (bits >> 23) - 152u, shift = from & 63u;
  const uint64_t a = from < 64u ? UINT64_C(0xa2f9836e4e441529) : UINT64_C(0xfc2757d1f534ddc0);
  const uint64_t b = from < 64u ? UINT64_C(0xfc2757d1f534ddc0) : UINT64_C(0xdb6295993c439041);
  const uint64_t c = from < 64u ? UINT64_C(0xdb6295993c439041) : UINT64_C(0xfe5163abdebbc561);
  const uint64_t high = a << shift | b >> 1 >> (63u - shift), low = b << shift | c >> 1 >> (63u - shift);
  const uint64_t significand = (bits & 0x7fffffu) | 0x800000u;
  const uint64_t turns = significand * high + cuda_high_product(significand, low);
  const uint64_t quadrant = (turns + (UINT64_C(1) << 61)) >> 62;
  map_angle at;
  at.quadrant = (uint32_t)quadrant;
  at.rest = (double)(int64_t)(turns - (quadrant << 62)) * 0x1p-62 * 1.57079632679489661923;
  return at;
}

/* The sine of x, or with 1 more quadrant the cosine. */
CUDA_FN float map_wave(float v, uint32_t more) {
  const uint32_t bits = cuda_bits_f32(fabsf(v));
  if (bits >= 0x7f800000u) return v - v;
  const map_angle at = bits < (155u << 23) ? map_turn_small((double)fabsf(v)) : map_turn_large(bits);
  const uint32_t quadrant = at.quadrant + more;
  const double r = at.rest, q = r * r;
  double s = -1.0 / 39916800.0, c = -1.0 / 3628800.0;
  s = fma(s, q, 1.0 / 362880.0);
  s = fma(s, q, -1.0 / 5040.0);
  s = fma(s, q, 1.0 / 120.0);
  s = fma(s, q, -1.0 / 6.0);
  c = fma(c, q, 1.0 / 40320.0);
  c = fma(c, q, -1.0 / 720.0);
  c = fma(c, q, 1.0 / 24.0);
  c = fma(c, q, -0.5);
  const float wave = (float)((quadrant & 1u) != 0 ? fma(c, q, 1.0) : fma(s * q, r, r));
  const int turned = (quadrant & 2u) != 0, negative = more == 0 && cuda_bits_f32(v) >> 31 != 0;
  return turned != negative ? -wave : wave;
}

/* ---- steps -------------------------------------------------------------------------------------- */

CUDA_FN void map_function(uint32_t op, map_values *io) {
  map_values out = *io;
  switch (op) {
    MAP_CASE(BS_EXPR_FLOOR, floorf(out.v[i]));
    MAP_CASE(BS_EXPR_CEIL, ceilf(out.v[i]));
    MAP_CASE(BS_EXPR_ROUND, rintf(out.v[i]));
    MAP_CASE(BS_EXPR_SQRT, sqrtf(out.v[i]));
    MAP_CASE(BS_EXPR_RSQRT, 1.0f / sqrtf(out.v[i]));
    MAP_CASE(BS_EXPR_RECIP, 1.0f / out.v[i]);
    MAP_CASE(BS_EXPR_EXP, (float)map_exp((double)out.v[i]));
    MAP_CASE(BS_EXPR_LOG, map_log_f32(out.v[i]));
    MAP_CASE(BS_EXPR_SIN, map_wave(out.v[i], 0));
    MAP_CASE(BS_EXPR_COS, map_wave(out.v[i], 1));
    MAP_CASE(BS_EXPR_TANH, map_tanh(out.v[i]));
    MAP_CASE(BS_EXPR_ERF, map_erf(out.v[i]));
    MAP_CASE(BS_EXPR_SIGMOID, (float)cuda_logistic((double)out.v[i]));
    MAP_CASE(BS_EXPR_SOFTPLUS, map_softplus(out.v[i]));
    MAP_CASE(BS_EXPR_GELU, cuda_gelu_f32(out.v[i]));
    MAP_CASE(BS_EXPR_GELU_TANH, cuda_gelu_tanh_f32(out.v[i]));
    MAP_CASE(BS_EXPR_SILU, cuda_silu_f32(out.v[i]));
    MAP_CASE(BS_EXPR_ISNAN, out.v[i] != out.v[i]);
    MAP_CASE(BS_EXPR_ISINF, fabsf(out.v[i]) == INFINITY);
    default: /* BS_EXPR_MOV */
      break;
  }
  *io = out;
}

CUDA_FN void map_function_of_two(uint32_t op, map_values *io, const map_values *y) {
  map_values out = *io;
  switch (op) {
    MAP_CASE(BS_EXPR_DIV, out.v[i] / y->v[i]);
    MAP_CASE(BS_EXPR_FMOD, fmodf(out.v[i], y->v[i]));
    default: /* BS_EXPR_POW */
      CUDA_UNROLL
      for (int i = 0; i < MAP_EACH; i++) out.v[i] = map_pow(out.v[i], y->v[i]);
      break;
  }
  *io = out;
}

#undef MAP_LOG2_E
#undef MAP_LN_2
#endif
