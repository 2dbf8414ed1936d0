/* SPDX-License-Identifier: MIT
 * expr_values.h - the steps of f64 and i64 programs as blockshock/expr.h has them, of one element. Plugins
 * that have no faster way use it: ref for all programs, cpu for those that are not of f32. */
#ifndef BS_PLUGINS_EXPR_VALUES_H
#define BS_PLUGINS_EXPR_VALUES_H
#include <math.h>
#include <string.h>

#include "blockshock/expr.h"

/* No intermediate result overflows, and x of large size keeps all its digits. */
static inline double expr_sigmoid(double x) {
  if (x >= 0.0) return 1.0 / (1.0 + exp(-x));
  const double e = exp(x);
  return e / (1.0 + e);
}

/* For x << 0 both lose as many digits as their exponent has, so that they are made in long double. */
static inline double expr_gelu(double x) {
  return (double)(0.5L * (long double)x * erfcl(-(long double)x * 0.707106781186547524400844362104849039L));
}
static inline double expr_gelu_tanh(double x) {
  const long double v = (long double)x,
                    u = 0.797884560802865355879892119868763737L * (v + 0.044715L * v * v * v);
  return (double)(v / (1.0L + expl(-2.0L * u))); /* (1 + tanh(u)) / 2, without cancellation */
}

static inline double expr_unary_f64(uint32_t op, double x) {
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
      return expr_sigmoid(x);
    case BS_EXPR_SOFTPLUS:
      return x > 0.0 ? x + log1p(exp(-x)) : log1p(exp(x));
    case BS_EXPR_GELU:
      return expr_gelu(x);
    case BS_EXPR_GELU_TANH:
      return expr_gelu_tanh(x);
    case BS_EXPR_SILU:
      return x * expr_sigmoid(x);
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

static inline double expr_step_f64(uint32_t op, double x, double y, double z) {
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
      return expr_unary_f64(op, x);
  }
}

static inline int64_t expr_of_bits(uint64_t bits) {
  int64_t v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

/* By squaring, modulo 2^64. */
static inline int64_t expr_power(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 == 0 ? 1 : -1) : 0;
  uint64_t base = (uint64_t)x, power = 1;
  for (uint64_t left = (uint64_t)y; left > 0; left /= 2) {
    if (left % 2 == 1) power *= base;
    base *= base;
  }
  return expr_of_bits(power);
}

static inline int64_t expr_step_i64(uint32_t op, int64_t x, int64_t y, int64_t z) {
  const uint64_t ux = (uint64_t)x, uy = (uint64_t)y;
  switch (op) {
    case BS_EXPR_NEG:
      return expr_of_bits(0 - ux);
    case BS_EXPR_ABS:
      return x < 0 ? expr_of_bits(0 - ux) : x;
    case BS_EXPR_SIGN:
      return (x > 0) - (x < 0);
    case BS_EXPR_NOT:
      return x == 0;
    case BS_EXPR_ADD:
      return expr_of_bits(ux + uy);
    case BS_EXPR_SUB:
      return expr_of_bits(ux - uy);
    case BS_EXPR_MUL:
      return expr_of_bits(ux * uy);
    case BS_EXPR_DIV:
      return y == 0 ? 0 : y == -1 ? expr_of_bits(0 - ux) : x / y;
    case BS_EXPR_FMOD:
      return y == 0 || y == -1 ? 0 : x % y;
    case BS_EXPR_POW:
      return expr_power(x, y);
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
      return expr_of_bits(ux & uy);
    case BS_EXPR_OR:
      return expr_of_bits(ux | uy);
    case BS_EXPR_XOR:
      return expr_of_bits(ux ^ uy);
    case BS_EXPR_FMA:
      return expr_of_bits(ux * uy + (uint64_t)z);
    case BS_EXPR_SELECT:
      return x != 0 ? y : z;
    default:
      return x;
  }
}
#endif
