/* SPDX-License-Identifier: MIT
 * math.c - exp, erfc, gelu and silu (math.h). Built, as the whole tree, with -ffp-contract=off: every product
 * and sum below is rounded once, in the order written. */
#include "core/base/math.h"

#include <stdint.h>
#include <string.h>

/* 2^k for -1022 <= k <= 1023. */
static double power_of_two(int64_t k) {
  uint64_t bits = (uint64_t)(k + 1023) << 52;
  double p;
  memcpy(&p, &bits, sizeof p);
  return p;
}

/* x = k ln 2 + r with |r| <= ln 2 / 2; exp r by its series up to r^13 / 13!, whose rest is below 2^-57. */
double bs_exp(double x) {
  static const double series[] = {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0,
                                  1.0 / 362880.0,     1.0 / 40320.0,     1.0 / 5040.0,     1.0 / 720.0,
                                  1.0 / 120.0,        1.0 / 24.0,        1.0 / 6.0,        0.5};
  static const double round_to_integer = 0x1.8p52;     /* adding and subtracting it rounds to an integer */
  static const double ln2_high = 0x1.62e42fee00000p-1; /* 32 bits: k ln2_high is exact */
  static const double ln2_low = 0x1.a39ef35793c76p-33;
  if (x != x) return x;
  if (x > 709.782712893384) return __builtin_inf();
  if (x < -745.1332191019412) return 0.0;
  double k = (x * 0x1.71547652b82fep0 + round_to_integer) - round_to_integer;
  double r = (x - k * ln2_high) - k * ln2_low;
  double p = series[0];
  for (int i = 1; i < 12; i++) p = p * r + series[i];
  p = p * r * r + r + 1.0;
  /* Scales in two steps: k reaches 1024 and, for a subnormal result, -1075. */
  int64_t whole = (int64_t)k, half = whole / 2;
  return p * power_of_two(half) * power_of_two(whole - half);
}

/* (1 + 2x) exp(x^2) erfc(x) as a polynomial of t = (x - 15/4) / (x + 15/4), x >= 0: the Chebyshev expansion
 * of Shepherd and Laframboise (Math. Comp. 36, 1981), computed again to degree 24 and written in powers of
 * t. */
static double scaled_erfc(double x) {
  static const double powers[] = {
      0x1.d3744857e262bp-32, 0x1.561b105822235p-32,  -0x1.638dcc665be8dp-28, -0x1.014cd7201b5adp-28,
      0x1.4c37f59c36e71p-25, 0x1.8fa9fe49c359bp-26,  -0x1.15be4201dc721p-22, -0x1.eb803840c0574p-25,
      0x1.d6339f66a50f8p-20, -0x1.055686d42aa63p-20, -0x1.800077b775cf3p-17, 0x1.778b933adcce7p-16,
      0x1.b1439865f8d9ep-15, -0x1.303fa4966bc38p-12, 0x1.33fb2968decd9p-12,  0x1.cc3a0e7d2150cp-10,
      -0x1.3f603c398c6c5p-7, 0x1.d0b0037d167adp-6,   -0x1.e0d0fa6ddfe85p-5,  0x1.7a14188a9ce2ap-4,
      -0x1.bda9309a2949ap-4, 0x1.510169d09665bp-4,   0x1.d5f294815a405p-9,   -0x1.1f367683f89a5p-3,
      0x1.3ccda0b5d5dc2p+0};
  double t = (x - 3.75) / (x + 3.75), g = powers[0];
  for (int i = 1; i < 25; i++) g = g * t + powers[i];
  return g / (1.0 + 2.0 * x);
}

/* exp(-x^2) for 0 <= x < 27.3: x^2 = high^2 + rest with high^2 exact, so that its rounding is not multiplied
 * by the slope of exp. rest is below 2^-15. */
static double exp_minus_square(double x) {
  uint64_t bits;
  double high;
  memcpy(&bits, &x, sizeof bits);
  bits &= ~UINT64_C(0x7ffffff);
  memcpy(&high, &bits, sizeof high);
  double rest = (x - high) * (x + high);
  double near_one = 1.0 - rest * (1.0 - rest * (0.5 - rest * (1.0 / 6.0)));
  return bs_exp(-(high * high)) * near_one;
}

double bs_erfc(double x) {
  double a = x < 0.0 ? -x : x;
  if (x != x) return x;
  double upper = a < 27.3 ? exp_minus_square(a) * scaled_erfc(a) : 0.0;
  return x < 0.0 ? 2.0 - upper : upper;
}

double bs_gelu(double x) {
  return 0.5 * x * bs_erfc(x * -0x1.6a09e667f3bcdp-1);
}

double bs_silu(double x) {
  return x / (1.0 + bs_exp(-x));
}
