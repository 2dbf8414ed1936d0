/* SPDX-License-Identifier: MIT
 * remask.h - making the mask anew from weights as they are now: the ranks of one process put what they own
 * into one matrix in the weights' dtype, which is the source of the layers that are built next. */
#ifndef BS_LAB_PHASE_REMASK_H
#define BS_LAB_PHASE_REMASK_H
#include "lab/phase/case.h"

typedef struct bs_remask {
  void *weights;   /* [N,K] of the weights' dtype; NULL: never asked for */
  double *of_bias; /* [N] */
  bs_source w, bias;
  int64_t N, K;
  uint32_t dtype;
} bs_remask;

int32_t bs_remask_open(bs_remask *remask, const bs_layer_spec *spec, bs_error *err);
void bs_remask_close(bs_remask *remask);
/* Called by every rank: its part of W, and a barrier behind it. */
int32_t bs_remask_gather(bs_remask *remask, bs_rank *rank, bs_layer *layer, const bs_ownership *own,
                         bs_error *err);
/* values [B, y_cols]: what forward gives for zeros, which is the bias of a layer without an activation. */
int32_t bs_remask_bias(bs_remask *remask, const bs_case *c, const bs_case_rank *mine, const void *values,
                       bs_error *err);
bs_source bs_remask_zeros(int64_t rows, int64_t cols);
#endif
