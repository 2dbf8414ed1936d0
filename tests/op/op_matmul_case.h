/* SPDX-License-Identifier: MIT
 * op_matmul_case.h - one matmul on generated data, run through the dispatcher and compared with loops over
 * doubles that share nothing with the plugin. */
#ifndef BS_TESTS_OP_MATMUL_CASE_H
#define BS_TESTS_OP_MATMUL_CASE_H
#include "op_fixture.h"

typedef struct fx_case {
  uint32_t x, w, y; /* dtypes */
  int64_t rows, outputs, columns;
  uint32_t period, bits;   /* gather partition; period 0: none */
  int64_t begin, count;    /* contiguous partition when count >= 0; -1: none */
  uint32_t x_full;         /* X holds all columns */
  uint32_t bias, residual; /* dtypes, 0: absent */
  uint32_t activation, accumulate;
  uint32_t spread; /* 1: rows padded, 2: also two elements between columns */
  uint64_t seed;
} fx_case;

/* Every value of Y must be that of the documented order of rounding, and lie within the textbook bound of the
 * exact sum; guard bytes must be untouched; counters must match. Fails the test otherwise. */
void fx_matmul_check(fx *f, const fx_case *c);
/* The case in words, in a static buffer. */
const char *fx_case_text(const fx_case *c);
#endif
