/* SPDX-License-Identifier: MIT
 * peak.h - loops that do nothing but multiply and add: the most arithmetic one core can do with an
 * instruction set. */
#ifndef BS_LAB_MEASURE_PEAK_H
#define BS_LAB_MEASURE_PEAK_H
#include <stdint.h>

typedef struct bs_peak {
  const char *name; /* "avx2", "avx512", "avx512_bf16", "portable" */
  double flops_per_iteration;
  float (*run)(uint64_t iterations);
} bs_peak;

/* The loops that this CPU can run for products of `dtype` (enum bs_dtype) summed in fp32; returns how many,
 * at most max. */
uint32_t bs_peak_loops(uint32_t dtype, bs_peak *out, uint32_t max);
#endif
