/* SPDX-License-Identifier: MIT
 * data.h - the numbers of inputs and constants. */
#ifndef TESTS_GRAPH_FUZZ_PASSES_DATA_H
#define TESTS_GRAPH_FUZZ_PASSES_DATA_H
#include "tests/graph/fuzz_passes/spec.h"

enum data_role {
  ROLE_X = 1,  /* anything: usual numbers, extremes, the neighbourhood of the graph's constants */
  ROLE_VALUE,  /* of attention: as X, but no finite number beyond 1e30: attention adds up powers of scores
                * times values before it divides by the sum of the powers, and may overflow earlier */
  ROLE_WEIGHT, /* of products: usual */
  ROLE_ROW,    /* biases, gammas */
  ROLE_MASK,   /* bool */
  ROLE_ADDED,  /* 0 where a key counts, a large negative number or -inf elsewhere */
  ROLE_ANGLE,  /* cosines and sines */
  ROLE_CODE,   /* of quantised weights: any whole number of the dtype */
  ROLE_SCALE,  /* of quantised weights */
};

/* Fills every input and constant that has no elements yet. */
void fill_data(spec *s);
#endif
