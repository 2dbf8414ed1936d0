/* SPDX-License-Identifier: MIT
 * activations.h - relu, two gelus, silu and slopes in kernels: in f64 by the formulas of docs/ops.md, for
 * f32 by polynomials in double. NaN, infinities and zeros give the results of IEEE 754 for the formulas.
 *
 * The f32 forms are those of the cpu plugin (plugins/cpu/isa/activate.h, which explains the fit of the
 * coefficients): gelu within 0.77, silu within 0.54 units in the last place. They use double because the
 * exponential multiplies the rounding of its argument by up to 100. fma is fused on both sides, so a twin's
 * bits are the kernel's. */
#ifndef BS_PLUGIN_CUDA_ACTIVATIONS_H
#define BS_PLUGIN_CUDA_ACTIVATIONS_H
#include "numbers.h"

#define CUDA_ROUND 0x1.8p52 /* added to a small number: its nearest integer is in the low bits */
#define CUDA_LOG2_E 1.4426950408889634

/* 1 / d for d in [1, 2^1022], within a unit of f64 in the last place: enough for results in f32, and the
 * exact division is a function call. */
CUDA_FN double cuda_reciprocal(double d) {
#if defined(__CUDACC__)
  double r;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(d)); /* 20 bits */
  r = fma(r, fma(-d, r, 1.0), r);
  return fma(r, fma(-d, r, 1.0), r);
#else
  return 1.0 / d;
#endif
}

/* 2^(a scale) between 2^-1022 and 2^1023; zero down to -1023, infinity up to 1024. */
CUDA_FN double cuda_exp2(double a, double scale) {
  const double t = fma(a, scale, CUDA_ROUND);
  const double r = fma(a, scale, CUDA_ROUND - t);
  double p = 0.000153532995805;
  p = fma(p, r, 0.00133989518012);
  p = fma(p, r, 0.00961843810297);
  p = fma(p, r, 0.0555033228639);
  p = fma(p, r, 0.240226479036);
  p = fma(p, r, 0.693147202933);
  p = fma(p, r, 1.0);
  return p * cuda_f64_bits((cuda_bits_f64(t) + 1023u) << 52);
}

/* (k - y) exp(y^2 / 2) Phi(y) at t = (k + y) / (k - y), k = 3.75, -14.6 <= y <= 0. */
CUDA_FN double cuda_tail(double t) {
  double g = 0.000443448745222;
  g = fma(g, t, -0.000509627328029);
  g = fma(g, t, -0.00416901763087);
  g = fma(g, t, -0.00120007427749);
  g = fma(g, t, 0.037492506368);
  g = fma(g, t, 0.151520835214);
  g = fma(g, t, 0.352939604253);
  g = fma(g, t, 0.588188277658);
  return fma(g, t, 0.750294074215);
}

/* -|x|, limited to values for which the exponential below is a normal number: beyond them the result is 0 in
 * f32. */
CUDA_FN double cuda_gelu_at(double x) {
  return fabs(x) > 37.6 ? -37.6 : -fabs(x);
}
/* exp(-y^2 / 2) at y of x, and zero where that of x is; Phi(y) without it. */
CUDA_FN double cuda_gelu_exp(double x, double y) {
  return fabs(x) > 38.6 ? 0.0 : cuda_exp2(y * y, -0.5 * CUDA_LOG2_E);
}
CUDA_FN double cuda_gelu_phi(double y) {
  const double w = cuda_reciprocal(3.75 - y);
  return cuda_tail((3.75 + y) * w) * w;
}

/* x Phi(x) = max(x, 0) - |x| Phi(-|x|). The exponential is zero beyond the range of y. */
CUDA_FN float cuda_gelu_f32(float v) {
  if (v != v) return v;
  const double x = (double)v, y = cuda_gelu_at(x);
  const double least = x < y ? x : y, most = x > 0.0 ? x : least == x && x == 0.0 ? x : -0.0;
  return (float)fma(least * cuda_gelu_phi(y), cuda_gelu_exp(x, y), most);
}
/* 1 / (1 + exp(-x)); zero if that exponential is infinite. */
CUDA_FN double cuda_logistic(double x) {
  const double v = x > 700.0 ? 700.0 : x < -708.0 ? -708.0 : x;
  return x < -709.782712893384 ? 0.0 : cuda_reciprocal(1.0 + cuda_exp2(v, -CUDA_LOG2_E));
}
CUDA_FN float cuda_silu_f32(float v) {
  if (v != v) return v;
  return (float)((double)v * cuda_logistic((double)v));
}

/* x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3), which is x (1 + tanh(u)) / 2. */
CUDA_FN float cuda_gelu_tanh_f32(float v) {
  if (v != v) return v;
  const double x = (double)v, u = 0.79788456080286535588 * x * fma(0.044715, x * x, 1.0);
  return (float)(x * cuda_logistic(2.0 * u));
}

/* One of enum bs_activation, of one value; NaN stays. */
CUDA_FN double cuda_activation(uint32_t activation, double v) {
  switch (activation) {
    case BS_ACT_RELU:
      return v < 0.0 ? 0.0 : v;
    case BS_ACT_GELU:
      return 0.5 * v * erfc(-v * 0.70710678118654752440);
    case BS_ACT_SILU:
      return v / (1.0 + exp(-v));
    case BS_ACT_GELU_TANH:
      return v / (1.0 + exp(-2.0 * 0.79788456080286535588 * (v + 0.044715 * v * v * v)));
    default:
      return v;
  }
}
CUDA_FN float cuda_activation_f32(uint32_t activation, float v) {
  switch (activation) {
    case BS_ACT_RELU:
      return v < 0.0f ? 0.0f : v;
    case BS_ACT_GELU:
      return cuda_gelu_f32(v);
    case BS_ACT_SILU:
      return cuda_silu_f32(v);
    case BS_ACT_GELU_TANH:
      return cuda_gelu_tanh_f32(v);
    default:
      return v;
  }
}

CUDA_FN double cuda_relu_slope(double z) {
  return z > 0.0 ? 1.0 : z <= 0.0 ? 0.0 : z; /* NaN stays */
}
/* The slope of an activation at z, relu's at 0 is 0. */
CUDA_FN double cuda_slope(uint32_t activation, double z) {
  switch (activation) {
    case BS_ACT_RELU:
      return cuda_relu_slope(z);
    case BS_ACT_GELU:
      return 0.5 * erfc(-z * 0.70710678118654752440) + z * 0.39894228040143267794 * exp(-0.5 * z * z);
    default: {
      const double s = 1.0 / (1.0 + exp(-z));
      return s + z * (s * (1.0 - s));
    }
  }
}
/* Like cuda_slope with f32's precision: Phi(x) + x phi(x), from Phi(-|x|); s (1 + x (1 - s)). */
CUDA_FN double cuda_slope_f32(uint32_t activation, float z) {
  const double x = (double)z;
  if (z != z) return x;
  if (activation == BS_ACT_RELU) return cuda_relu_slope(x);
  if (activation == BS_ACT_GELU) {
    const double y = cuda_gelu_at(x), e = cuda_gelu_exp(x, y), low = cuda_gelu_phi(y) * e;
    return fma(x * 0.39894228040143267794, e, x > 0.0 ? 1.0 - low : low);
  }
  const double s = cuda_logistic(x);
  return s * fma(x, 1.0 - s, 1.0);
}

#undef CUDA_ROUND
#undef CUDA_LOG2_E
#endif
