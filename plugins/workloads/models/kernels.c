/* SPDX-License-Identifier: MIT
 * kernels.c - one loop compiled twice (kernels.h). No fma: the AVX2 version is compiled without it, and the
 * tree without contraction. */
#include "kernels.h"

/* Four rows at a time, so that a sum is read and written a quarter as often; the order of its terms is the
 * rows'. */
static inline __attribute__((always_inline)) void add_rows(double *restrict sums, const double *restrict a,
                                                           const float *restrict x, int64_t ld, int64_t rows,
                                                           int64_t n) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const float *x0 = x + r * ld, *x1 = x0 + ld, *x2 = x1 + ld, *x3 = x2 + ld;
    double a0 = a[r], a1 = a[r + 1], a2 = a[r + 2], a3 = a[r + 3];
    for (int64_t i = 0; i < n; i++) {
      double s = sums[i];
      s += a0 * (double)x0[i];
      s += a1 * (double)x1[i];
      s += a2 * (double)x2[i];
      s += a3 * (double)x3[i];
      sums[i] = s;
    }
  }
  for (; r < rows; r++)
    for (int64_t i = 0; i < n; i++) sums[i] += a[r] * (double)x[r * ld + i];
}

static void add_rows_portable(double *sums, const double *a, const float *x, int64_t ld, int64_t rows,
                              int64_t n) {
  add_rows(sums, a, x, ld, rows, n);
}

const models_kernels *models_kernels_portable(void) {
  static const models_kernels kernels = {add_rows_portable};
  return &kernels;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void add_rows_avx2(double *sums, const double *a, const float *x,
                                                          int64_t ld, int64_t rows, int64_t n) {
  add_rows(sums, a, x, ld, rows, n);
}

const models_kernels *models_kernels_avx2(void) {
  static const models_kernels kernels = {add_rows_avx2};
  return __builtin_cpu_supports("avx2") ? &kernels : (const models_kernels *)0;
}
#else
const models_kernels *models_kernels_avx2(void) {
  return (const models_kernels *)0;
}
#endif
