/* SPDX-License-Identifier: MIT
 * gradient.h - one layer run forward and backward on one world, for phase 2. The gradient of Y comes from the
 * workload's loss and the computed outputs, rounded to Y's dtype. So the judge of dX and dW starts from the
 * values that the backward pass received. */
#ifndef BS_LAB_CASE_GRADIENT_H
#define BS_LAB_CASE_GRADIENT_H
#include "lab/case/case.h"

typedef struct bs_gradient_rank {
  void *dw;                           /* [row_count, own columns] of `wide` */
  void *db;                           /* [row_count] of `wide`; NULL without a bias */
  uint64_t counters[BS_COUNT_COUNT_]; /* of one backward */
  int64_t dy_begin, dy_cols;          /* the features of dY that it was given */
} bs_gradient_rank;

typedef struct bs_gradient_result {
  /* The result of a case, except that ranks[r].y is dX: [B, K], or the rank's own columns of a split x.
   * Counters are those of one forward pass; timings have the regions forward and backward. */
  bs_case_result run;
  bs_gradient_rank *ranks;
  void *dy;      /* [B, N] of y_dtype: the gradient of Y that every rank was given its part of */
  void *y;       /* the same of the Y that the loss was taken of */
  uint32_t wide; /* dtype of dw and db */
} bs_gradient_result;

/* Builds a world, runs c.warmup + c.iterations forwards and backwards, and copies all results out. target:
 * [B,N], only for mse_target. The caller frees the result. */
int32_t bs_gradient_run(const bs_case *c, uint32_t loss, const bs_source *target,
                        bs_gradient_result *out_result, bs_error *err);
void bs_gradient_result_free(bs_gradient_result *result);
/* dw of all ranks as one [N,K], and db as one [N] (NULL without a bias); the caller frees both. BS_INTERNAL
 * when the ranks do not own every weight once. */
int32_t bs_gradient_assemble(const bs_case *c, const bs_gradient_result *result, void **out_dw, void **out_db,
                             bs_error *err);
#endif
