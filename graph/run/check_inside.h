/* SPDX-License-Identifier: MIT
 * check_inside.h - what check.c needs of check_wide.c. */
#ifndef BS_GRAPH_RUN_CHECK_INSIDE_H
#define BS_GRAPH_RUN_CHECK_INSIDE_H
#include "graph/run/session.h"

/* The computation in f64 differs from the step by these. */
typedef struct gcheck_change {
  const bs_tensor *x; /* the first input: all columns of a layer S; NULL: as the step has it */
  double factor;      /* of a value that a program rounds; 1: as it is */
  double moved;       /* inputs are off by so much of themselves; 0: as they are */
  double terms;       /* inputs that are too large for sums of so many become NaN (verify.h); 0: they stay */
} gcheck_change;

/* Computes a step's node in f64 from the values that it reads now. out_data[i] is output i, dense; the caller
 * frees it, on errors too. */
int32_t gcheck_wide(bs_session *s, const gstep *step, const gcheck_change *change, double **out_data,
                    bs_error *err);
/* The elements of a tensor as f64, dense; the caller frees them. BS_NO_MEMORY. */
int32_t gcheck_copy(const bs_tensor *t, double **out_values, bs_error *err);
#endif
