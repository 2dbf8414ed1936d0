/* SPDX-License-Identifier: MIT
 * remask.h - computes the mask again from the current weights. The ranks write the weights that they own into
 * one matrix of the weights' dtype. That matrix is the source of the layers that are built next. */
#ifndef BS_LAB_CASE_REMASK_H
#define BS_LAB_CASE_REMASK_H
#include "lab/case/case.h"

typedef struct bs_remask {
  void *weights;   /* [N,K] of the weights' dtype; NULL: not needed */
  double *of_bias; /* [N] */
  bs_source w, bias;
  int64_t N, K;
  uint32_t dtype;
  uint32_t joint; /* 1: the ranks are processes with separate matrices, which exchange the weights that they
                   * own */
  uint32_t split; /* 1: there is a bias, and each rank has only the bias of the features that it owns */
} bs_remask;

int32_t bs_remask_open(bs_remask *remask, const bs_case *c, bs_error *err);
void bs_remask_close(bs_remask *remask);
/* Writes the rank's part of W. Every rank calls it, after bs_remask_bias; it ends with a barrier or an
 * exchange. The part is timed as `decompress`; the op expand24 makes 2:4 halves dense. */
int32_t bs_remask_gather(bs_remask *remask, bs_rank *rank, bs_layer *layer, const bs_ownership *own,
                         bs_error *err);
/* values [B, y_cols]: the output of forward for zeros, which is the bias of a layer without an activation. */
int32_t bs_remask_bias(bs_remask *remask, const bs_case *c, const bs_case_rank *mine, const void *values,
                       bs_error *err);
#endif
