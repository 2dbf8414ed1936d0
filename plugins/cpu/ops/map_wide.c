/* SPDX-License-Identifier: MIT
 *
 * map_wide.c - the steps of f64 and i64 programs as blockshock/expr.h has them, one element after the other.
 * Speed is not their point: f32 programs have isa/map.h. */
#include <math.h>

#include "map.h"

/* ---- f64 ------------------------------------------------------------------------------------ */

/* Nothing overflows on the way, and a large |x| keeps all its digits. */
static double sigmoid(double x) {
  if (x >= 0.0) return 1.0 / (1.0 + exp(-x));
  const double e = exp(x);
  return e / (1.0 + e);
}

/* Of x << 0 as many digits are lost as the exponent has: in long double. */
static double gelu(double x) {
  const long double v = (long double)x;
  return (double)(0.5L * v * erfcl(-v * 0.707106781186547524400844362104849039L));
}

static double gelu_tanh(double x) {
  const long double v = (long double)x;
  const long double u = 0.797884560802865355879892119868763737L * (v + 0.044715L * v * v * v);
  return (double)(v / (1.0L + expl(-2.0L * u)));
}

static double unary_f64(uint32_t op, double x) {
  switch (op) {
    case BS_EXPR_NEG:
      return -x;
    case BS_EXPR_ABS:
      return fabs(x);
    case BS_EXPR_SIGN:
      return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x;
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
      return sigmoid(x);
    case BS_EXPR_SOFTPLUS:
      return x > 0.0 ? x + log1p(exp(-x)) : log1p(exp(x));
    case BS_EXPR_GELU:
      return gelu(x);
    case BS_EXPR_GELU_TANH:
      return gelu_tanh(x);
    case BS_EXPR_SILU:
      return x * sigmoid(x);
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

static double step_f64(uint32_t op, double x, double y, double z) {
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
      return unary_f64(op, x);
  }
}

/* ---- i64, mod 2^64 ---------------------------------------------------------------------------- */

static int64_t low(uint64_t bits) {
  int64_t v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

static int64_t power(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 == 0 ? 1 : -1) : 0;
  uint64_t base = (uint64_t)x, product = 1;
  for (uint64_t left = (uint64_t)y; left > 0; left /= 2, base *= base)
    if (left % 2 == 1) product *= base;
  return low(product);
}

static int64_t step_i64(uint32_t op, int64_t x, int64_t y, int64_t z) {
  switch (op) {
    case BS_EXPR_NEG:
      return low(0u - (uint64_t)x);
    case BS_EXPR_ABS:
      return x < 0 ? low(0u - (uint64_t)x) : x;
    case BS_EXPR_SIGN:
      return (x > 0) - (x < 0);
    case BS_EXPR_NOT:
      return x == 0;
    case BS_EXPR_ADD:
      return low((uint64_t)x + (uint64_t)y);
    case BS_EXPR_SUB:
      return low((uint64_t)x - (uint64_t)y);
    case BS_EXPR_MUL:
      return low((uint64_t)x * (uint64_t)y);
    case BS_EXPR_DIV:
      return y == 0 ? 0 : y == -1 ? low(0u - (uint64_t)x) : x / y;
    case BS_EXPR_FMOD:
      return y == 0 || y == -1 ? 0 : x % y;
    case BS_EXPR_POW:
      return power(x, y);
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
      return low((uint64_t)x & (uint64_t)y);
    case BS_EXPR_OR:
      return low((uint64_t)x | (uint64_t)y);
    case BS_EXPR_XOR:
      return low((uint64_t)x ^ (uint64_t)y);
    case BS_EXPR_FMA:
      return low((uint64_t)x * (uint64_t)y + (uint64_t)z);
    case BS_EXPR_SELECT:
      return x != 0 ? y : z;
    default:
      return x;
  }
}

/* b and c may be any values that are there: a step looks at those that it has. */
void cpu_map_wide(uint32_t compute, uint32_t op, void *out, const void *a, const void *b, const void *c,
                  int64_t n) {
  if (compute == BS_F64) {
    const double *x = a, *y = b, *z = c;
    double *v = out;
    for (int64_t i = 0; i < n; i++) v[i] = step_f64(op, x[i], y[i], z[i]);
  } else {
    const int64_t *x = a, *y = b, *z = c;
    int64_t *v = out;
    for (int64_t i = 0; i < n; i++) v[i] = step_i64(op, x[i], y[i], z[i]);
  }
}
