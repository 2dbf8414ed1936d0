/* SPDX-License-Identifier: MIT
 * gradient.h - judging a backward pass. The three gradients of a linear layer are linear layers themselves,
 * of transposed operands: dX = dY W is the layer with inputs dY and weights W^T, dW = dY^T X the one with
 * inputs dY^T and weights X^T, db = 1 dY the one with inputs of ones. So the gates of phase 0 judge them,
 * with the same predictions and bounds, from the same sources. */
#ifndef BS_LAB_GATE_GRADIENT_H
#define BS_LAB_GATE_GRADIENT_H
#include "lab/case/gradient.h"
#include "lab/gate/faults.h"
#include "lab/gate/verdict.h"

typedef struct bs_gradient_verdict {
  uint32_t n_gates;
  bs_gate gates[24];     /* "dX.T1" ... "dX.T4", "dW.T1" ..., "db.T1" ... */
  bs_verdict dx, dw, db; /* db: all zero without a bias */
} bs_gradient_verdict;

/* max_features 0: all columns of dX. dW is judged in at most that many of its columns, and in so few that the
 * reference stays below 2^23 values. */
int32_t bs_gradient_judge(const bs_case *c, const bs_gradient_result *result, int64_t max_features,
                          bs_gradient_verdict *out, bs_error *err);

/* Runs each fault that is visible in gradients on a small shape of the same method, backend and world
 * size. */
int32_t bs_gradient_fault_gate(const bs_case *like, bs_fault_tally *out, bs_error *err);
#endif
