/* SPDX-License-Identifier: MIT
 * generated.h - a matrix whose element (row, col) is a pure function of (seed, stream, row * cols + col). */
#ifndef BS_WORKLOADS_COMMON_GENERATED_H
#define BS_WORKLOADS_COMMON_GENERATED_H
#include "panel.h"

typedef struct bs_generated {
  const bs_host *host;
  int64_t rows, cols;
  uint32_t dtype; /* model dtype that values are rounded to */
  uint32_t reserved;
  bs_generator by;
  /* Columns, ascending, whose values are multiplied by outlier_scale: outlier features of activations. NULL:
   * none. */
  const uint32_t *outliers;
  uint32_t n_outliers;
  float outlier_scale;
} bs_generated;

/* A matrix of law ZERO; the law and its numbers are set in `by` from here on. */
void bs_generated_make(bs_generated *part, const bs_host *host, int64_t rows, int64_t cols, uint64_t seed,
                       uint32_t stream, uint32_t dtype);
/* A source over `part`, which must outlive it. It describes its generator, unless columns are outliers. */
void bs_generated_source(bs_generated *part, bs_source *out_source);
#endif
