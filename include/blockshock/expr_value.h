/* SPDX-License-Identifier: MIT
 *
 * expr_value.h - what one step of a program computes, for one element: the scalar form of the table in
 * expr.h. ref, cpu (f64, i64) and the passes of graphs use it; a plugin may. It needs the C library's
 * mathematics (-lm).
 *
 * Units: values have none; angles are in radians.
 * Ownership: the functions take and return numbers alone.
 * Threads: they are pure and may be called from any thread.
 * Errors: they have none. A step outside of its domain gives NaN or an infinity, as the C library does.
 */
#ifndef BLOCKSHOCK_EXPR_VALUE_H
#define BLOCKSHOCK_EXPR_VALUE_H

#include <math.h>
#include <string.h>

#include "expr.h"

#ifdef __cplusplus
extern "C" {
#endif

/* 1 / (1 + e^-x). No intermediate result overflows, and a large x keeps all its digits. */
static inline double bs_expr_sigmoid(double x) {
  if (x >= 0.0) return 1.0 / (1.0 + exp(-x));
  const double e = exp(x);
  return e / (1.0 + e);
}

/* x (1 + erf(x / sqrt 2)) / 2. For x << 0 it loses as many digits as its exponent has: long double. */
static inline double bs_expr_gelu(double x) {
  return (double)(0.5L * (long double)x * erfcl(-(long double)x * 0.707106781186547524400844362104849039L));
}
/* x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, likewise. */
static inline double bs_expr_gelu_tanh(double x) {
  const long double v = (long double)x,
                    u = 0.797884560802865355879892119868763737L * (v + 0.044715L * v * v * v);
  return (double)(v / (1.0L + expl(-2.0L * u))); /* (1 + tanh(u)) / 2, without cancellation */
}

/* A step of an F32 or F64 program with one operand, in f64. The caller rounds F32 results to f32. */
static inline double bs_expr_value_unary(uint32_t op, double x) {
  switch (op) {
    case BS_EXPR_NEG:
      return -x;
    case BS_EXPR_ABS:
      return fabs(x);
    case BS_EXPR_SIGN:
      return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x == 0.0 ? 0.0 : x;
    case BS_EXPR_FLOOR:
      return floor(x);
    case BS_EXPR_CEIL:
      return ceil(x);
    case BS_EXPR_ROUND:
      return rint(x);
    case BS_EXPR_SQRT:
      return sqrt(x);
    case BS_EXPR_RSQRT:
      return 1.0 / sqrt(x);
    case BS_EXPR_RECIP:
      return 1.0 / x;
    case BS_EXPR_EXP:
      return exp(x);
    case BS_EXPR_LOG:
      return log(x);
    case BS_EXPR_SIN:
      return sin(x);
    case BS_EXPR_COS:
      return cos(x);
    case BS_EXPR_TANH:
      return tanh(x);
    case BS_EXPR_ERF:
      return erf(x);
    case BS_EXPR_SIGMOID:
      return bs_expr_sigmoid(x);
    case BS_EXPR_SOFTPLUS:
      return x > 0.0 ? x + log1p(exp(-x)) : log1p(exp(x));
    case BS_EXPR_GELU:
      return bs_expr_gelu(x);
    case BS_EXPR_GELU_TANH:
      return bs_expr_gelu_tanh(x);
    case BS_EXPR_SILU:
      return x * bs_expr_sigmoid(x);
    case BS_EXPR_NOT:
      return x == 0.0 ? 1.0 : 0.0;
    case BS_EXPR_ISNAN:
      return isnan(x) ? 1.0 : 0.0;
    case BS_EXPR_ISINF:
      return isinf(x) ? 1.0 : 0.0;
    default:
      return x;
  }
}

/* A step of an F32 or F64 program in f64: op (enum bs_expr_op) of x, y, z; operands that op lacks are not
 * read. TO and INDEX, which need more than their operands, return x. */
static inline double bs_expr_value(uint32_t op, double x, double y, double z) {
  switch (op) {
    case BS_EXPR_ADD:
      return x + y;
    case BS_EXPR_SUB:
      return x - y;
    case BS_EXPR_MUL:
      return x * y;
    case BS_EXPR_DIV:
      return x / y;
    case BS_EXPR_FMOD:
      return fmod(x, y);
    case BS_EXPR_POW:
      return pow(x, y);
    case BS_EXPR_MIN:
      return x < y || isnan(x) ? x : y;
    case BS_EXPR_MAX:
      return x > y || isnan(x) ? x : y;
    case BS_EXPR_LT:
      return x < y ? 1.0 : 0.0;
    case BS_EXPR_LE:
      return x <= y ? 1.0 : 0.0;
    case BS_EXPR_EQ:
      return x == y ? 1.0 : 0.0;
    case BS_EXPR_AND:
      return x != 0.0 && y != 0.0 ? 1.0 : 0.0;
    case BS_EXPR_OR:
      return x != 0.0 || y != 0.0 ? 1.0 : 0.0;
    case BS_EXPR_XOR:
      return (x != 0.0) != (y != 0.0) ? 1.0 : 0.0;
    case BS_EXPR_FMA:
      return fma(x, y, z);
    case BS_EXPR_SELECT:
      return x != 0.0 ? y : z;
    default:
      return bs_expr_value_unary(op, x);
  }
}

/* The number that has these bits. */
static inline int64_t bs_expr_low_bits(uint64_t bits) {
  int64_t v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

/* x^y modulo 2^64, by squaring. */
static inline int64_t bs_expr_power(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 == 0 ? 1 : -1) : 0;
  uint64_t base = (uint64_t)x, power = 1;
  for (uint64_t left = (uint64_t)y; left > 0; left /= 2) {
    if (left % 2 == 1) power *= base;
    base *= base;
  }
  return bs_expr_low_bits(power);
}

/* A step of an I64 program, modulo 2^64. TO, INDEX and steps of floats return x. */
static inline int64_t bs_expr_value_i64(uint32_t op, int64_t x, int64_t y, int64_t z) {
  const uint64_t ux = (uint64_t)x, uy = (uint64_t)y;
  switch (op) {
    case BS_EXPR_NEG:
      return bs_expr_low_bits(0 - ux);
    case BS_EXPR_ABS:
      return x < 0 ? bs_expr_low_bits(0 - ux) : x;
    case BS_EXPR_SIGN:
      return (x > 0) - (x < 0);
    case BS_EXPR_NOT:
      return x == 0;
    case BS_EXPR_ADD:
      return bs_expr_low_bits(ux + uy);
    case BS_EXPR_SUB:
      return bs_expr_low_bits(ux - uy);
    case BS_EXPR_MUL:
      return bs_expr_low_bits(ux * uy);
    case BS_EXPR_DIV:
      return y == 0 ? 0 : y == -1 ? bs_expr_low_bits(0 - ux) : x / y;
    case BS_EXPR_FMOD:
      return y == 0 || y == -1 ? 0 : x % y;
    case BS_EXPR_POW:
      return bs_expr_power(x, y);
    case BS_EXPR_MIN:
      return x < y ? x : y;
    case BS_EXPR_MAX:
      return x > y ? x : y;
    case BS_EXPR_LT:
      return x < y;
    case BS_EXPR_LE:
      return x <= y;
    case BS_EXPR_EQ:
      return x == y;
    case BS_EXPR_AND:
      return bs_expr_low_bits(ux & uy);
    case BS_EXPR_OR:
      return bs_expr_low_bits(ux | uy);
    case BS_EXPR_XOR:
      return bs_expr_low_bits(ux ^ uy);
    case BS_EXPR_FMA:
      return bs_expr_low_bits(ux * uy + (uint64_t)z);
    case BS_EXPR_SELECT:
      return x != 0 ? y : z;
    default:
      return x;
  }
}

#ifdef __cplusplus
}
#endif
#endif
