/* SPDX-License-Identifier: MIT
 * generated.h - a matrix whose element (row, col) is a pure function of (seed, stream, row * cols + col). */
#ifndef BS_WORKLOADS_COMMON_GENERATED_H
#define BS_WORKLOADS_COMMON_GENERATED_H
#include "panel.h"

enum bs_gen_law {
  BS_GEN_ZERO = 0,
  BS_GEN_NORMAL = 1,  /* a = mean, b = std */
  BS_GEN_UNIFORM = 2, /* [a, a + b) before rounding */
  BS_GEN_TERNARY = 3, /* 0, or with probability threshold / 2^31 one of -1, 1 */
  BS_GEN_INTEGER = 4, /* -bound .. bound, equally likely */
  BS_GEN_CLIPPED = 5  /* normal times b, then held between -a and a */
};

typedef struct bs_generated {
  const bs_host *host;
  int64_t rows, cols;
  uint64_t seed;
  uint32_t stream; /* enum bs_stream_id */
  uint32_t law;    /* enum bs_gen_law */
  uint32_t dtype;  /* model dtype that values are rounded to */
  uint32_t threshold;
  uint32_t bound;
  float a, b;
  /* Columns, ascending, whose values are so much larger: outlier features of activations. NULL: none. */
  const uint32_t *outliers;
  uint32_t n_outliers;
  float outlier_scale;
} bs_generated;

/* A source over `part`, which must outlive it. */
void bs_generated_source(bs_generated *part, bs_source *out_source);
#endif
