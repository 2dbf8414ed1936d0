/* SPDX-License-Identifier: MIT
 * row.c - layer normalisation and activations of a row (row.h). */
#include "row.h"

#include <math.h>

#include "core/base/math.h"

void models_normalise(double *x, int64_t n, double eps) {
  double sum = 0.0, squares = 0.0;
  for (int64_t i = 0; i < n; i++) sum += x[i];
  double mean = sum / (double)n;
  for (int64_t i = 0; i < n; i++) {
    x[i] -= mean;
    squares += x[i] * x[i];
  }
  double divisor = sqrt(squares / (double)(n - 1)) + eps; /* sqrt is one IEEE operation */
  for (int64_t i = 0; i < n; i++) x[i] = divisor > 0.0 ? x[i] / divisor : 0.0;
}

void models_activate(uint32_t activation, double *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    switch (activation) {
      case MODELS_RELU:
        x[i] = x[i] > 0.0 ? x[i] : 0.0;
        break;
      case MODELS_GELU:
        x[i] = bs_gelu(x[i]);
        break;
      case MODELS_SILU:
        x[i] = bs_silu(x[i]);
        break;
      default:
        return;
    }
  }
}

void models_swiglu(double *x1, const double *x2, int64_t n) {
  for (int64_t i = 0; i < n; i++) x1[i] = bs_silu(x1[i]) * x2[i];
}
