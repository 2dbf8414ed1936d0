/* SPDX-License-Identifier: MIT
 * kernels.h - the one inner loop of attention and convolution, for the baseline CPU and for AVX2. Both give
 * the same bits: products and sums are rounded one by one, in the same order. */
#ifndef BS_WORKLOADS_MODELS_KERNELS_H
#define BS_WORKLOADS_MODELS_KERNELS_H
#include <stdint.h>

/* sums[i] += a[0] x[i] + a[1] x[ld + i] + ... + a[rows-1] x[(rows-1) ld + i] for 0 <= i < n, row by row: each
 * product and each sum is rounded to double. sums does not overlap a and x. */
typedef struct models_kernels {
  void (*add_rows)(double *sums, const double *a, const float *x, int64_t ld, int64_t rows, int64_t n);
} models_kernels;

const models_kernels *models_kernels_portable(void);
/* NULL where the CPU (or the build) has no AVX2. */
const models_kernels *models_kernels_avx2(void);
#endif
