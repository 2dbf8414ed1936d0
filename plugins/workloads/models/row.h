/* SPDX-License-Identifier: MIT
 * row.h - layer normalisation and activations of a row of doubles, which transformer_mlp and vision_conv
 * apply after drawing. Pure; tests/workloads gives them known rows. */
#ifndef BS_WORKLOADS_MODELS_ROW_H
#define BS_WORKLOADS_MODELS_ROW_H
#include <stdint.h>

enum models_activation { MODELS_LINEAR = 0, MODELS_RELU = 1, MODELS_GELU = 2, MODELS_SILU = 3 };

/* x = (x - mean) / (std + eps), std with the divisor n - 1; n >= 2. Sums are added from the first to the
 * last. A row of equal values with eps 0 becomes zeros. */
void models_normalise(double *x, int64_t n, double eps);
/* x = f(x). */
void models_activate(uint32_t activation, double *x, int64_t n);
/* x1 = silu(x1) * x2: SwiGLU, whose gate is the first draw. */
void models_swiglu(double *x1, const double *x2, int64_t n);
#endif
