/* SPDX-License-Identifier: MIT
 * whole.h - the output that a loss is taken of: where the ranks hold partial sums, their sum over ranks on
 * every rank, as the next layer would make it; else what the rank has. */
#ifndef BS_LAB_PHASE_WHOLE_H
#define BS_LAB_PHASE_WHOLE_H
#include "lab/phase/case.h"

#define BS_LAB_SITES "lab." /* call sites of the lab's own collectives begin so */

typedef struct bs_whole {
  bs_coll_plan *plan; /* NULL: y is the whole already */
  bs_tensor y;
} bs_whole;

int32_t bs_whole_open(bs_whole *whole, const bs_case *c, bs_rank *rank, bs_error *err);
/* The whole of y into host memory; a collective where it is summed. */
int32_t bs_whole_read(bs_whole *whole, bs_rank *rank, const bs_tensor *y, void *out_values, bs_error *err);
void bs_whole_close(bs_whole *whole, bs_rank *rank);
#endif
