/* SPDX-License-Identifier: MIT
 * activation.c - see activation.h. */
#include "lab/activation.h"

#include <math.h>

static const double SQRT_HALF = 0.70710678118654752440;
static const double GELU_TOP = 1.41421356237309504880; /* where gelu'' = 0: gelu' is largest there, and
                                                        * smallest at - this */
static const double SILU_TOP = 2.39935728052451;       /* the same of silu */
/* The points other than 0 where |gelu''| and |silu''| have a local maximum. */
static const double GELU_BEND = 2.0, SILU_BEND = 3.43584099353511;
/* These two points of gelu by tanh, with u = K (z + C z^3). */
static const double TANH_K = 0.79788456080286535588, TANH_C = 0.044715;
static const double TANH_TOP = 1.4185040087908283, TANH_BEND = 2.0134807149185203;

double bs_activation_value(uint32_t activation, double z) {
  switch (activation) {
    case BS_ACT_RELU:
      return z < 0.0 ? 0.0 : z;
    case BS_ACT_GELU:
      return 0.5 * z * erfc(-z * SQRT_HALF);
    case BS_ACT_SILU:
      return z / (1.0 + exp(-z));
    case BS_ACT_GELU_TANH: /* z (1 + tanh(u)) / 2, without cancellation where z << 0 */
      return z / (1.0 + exp(-2.0 * TANH_K * (z + TANH_C * z * z * z)));
    default:
      return z;
  }
}

/* s = 1 / (1 + e^-2u) and its first two derivatives by z, at points where they are not 0. */
static double tanh_parts(double z, double *out_first, double *out_second) {
  const double u = TANH_K * (z + TANH_C * z * z * z), by = TANH_K * (1.0 + 3.0 * TANH_C * z * z);
  const double s = 1.0 / (1.0 + exp(-2.0 * u)), power = 2.0 * s * (1.0 - s);
  *out_first = power == 0.0 ? 0.0 : power * by;
  *out_second = power == 0.0 ? 0.0 : power * (6.0 * TANH_K * TANH_C * z + 2.0 * (1.0 - 2.0 * s) * by * by);
  return s;
}

static double slope_at(uint32_t activation, double z) {
  if (activation == BS_ACT_GELU_TANH) {
    double first = 0.0, second = 0.0;
    if (!isfinite(z)) return z > 0 ? 1.0 : 0.0;
    const double s = tanh_parts(z, &first, &second);
    return s + z * first;
  }
  if (activation == BS_ACT_GELU) {
    if (!isfinite(z)) return z > 0 ? 1.0 : 0.0;
    return 0.5 * erfc(-z * SQRT_HALF) + z * exp(-0.5 * z * z) * 0.39894228040143267794;
  }
  const double s = 1.0 / (1.0 + exp(-z)); /* silu */
  return s * (1.0 - s) == 0.0 ? s : s + z * s * (1.0 - s);
}

double bs_activation_slope(uint32_t activation, double low, double high) {
  if (activation == BS_ACT_NONE) return 1.0;
  if (activation == BS_ACT_RELU) return high >= 0.0 || isnan(high) ? 1.0 : 0.0;
  const double top = activation == BS_ACT_GELU ? GELU_TOP : activation == BS_ACT_SILU ? SILU_TOP : TANH_TOP;
  double most = fmax(fabs(slope_at(activation, low)), fabs(slope_at(activation, high)));
  if (!(low > top || high < top)) most = fmax(most, slope_at(activation, top));
  if (!(low > -top || high < -top)) most = fmax(most, fabs(slope_at(activation, -top)));
  return most;
}

double bs_activation_slope_at(uint32_t activation, double z) {
  if (activation == BS_ACT_NONE) return 1.0;
  if (activation == BS_ACT_RELU) return z > 0.0 ? 1.0 : z <= 0.0 ? 0.0 : z; /* NaN stays */
  return isfinite(z) ? slope_at(activation, z) : NAN;
}

static double bend_at(uint32_t activation, double z) {
  if (isinf(z)) return 0.0;
  if (activation == BS_ACT_GELU) return exp(-0.5 * z * z) * 0.39894228040143267794 * fabs(2.0 - z * z);
  if (activation == BS_ACT_GELU_TANH) {
    double first = 0.0, second = 0.0;
    tanh_parts(z, &first, &second);
    return fabs(2.0 * first + z * second);
  }
  const double s = 1.0 / (1.0 + exp(-z)); /* silu */
  return s * (1.0 - s) * fabs(2.0 + z * (1.0 - 2.0 * s));
}

double bs_activation_bend(uint32_t activation, double low, double high) {
  if (activation < BS_ACT_GELU || activation > BS_ACT_GELU_TANH) return 0.0;
  const double far = activation == BS_ACT_GELU   ? GELU_BEND
                     : activation == BS_ACT_SILU ? SILU_BEND
                                                 : TANH_BEND;
  const double tops[3] = {0.0, far, -far};
  double most = fmax(bend_at(activation, low), bend_at(activation, high));
  for (int i = 0; i < 3; ++i)
    if (!(low > tops[i] || high < tops[i])) most = fmax(most, bend_at(activation, tops[i]));
  return most;
}

double bs_activation_slope_error(uint32_t activation, double slope, double u) {
  if (activation == BS_ACT_NONE || activation == BS_ACT_RELU) return 0.0;
  return 16.0 * u * (1.2 + fabs(slope));
}

double bs_activation_error(uint32_t activation, double z, double u) {
  if (activation == BS_ACT_NONE || activation == BS_ACT_RELU) return 0.0;
  return 8.0 * u * fabs(bs_activation_value(activation, z));
}

double bs_activation_tail_error(uint32_t activation, double z, double u) {
  if (activation == BS_ACT_NONE || activation == BS_ACT_RELU || !(z < 0.0)) return 0.0;
  if (activation == BS_ACT_SILU) return fabs(z) * (u < 0x1p-24 ? 0x1p-1022 : 0x1p-126);
  return z < -9.0 ? fabs(bs_activation_value(activation, z)) : 8.0 * u * fabs(z);
}
