/* SPDX-License-Identifier: MIT
 * step.h - judges training, each step separately. Inputs are the weights read back before the step, X, and
 * the gradient of Y given to backward. From these fp64 computes the right weights after the step. The state
 * of the optimiser is followed in fp64 from the first step. Bounds come from the roundings of the layer
 * (docs/gates.md). After the last step forward is judged with the current weights, and the bias by the output
 * of forward for zeros. */
#ifndef BS_LAB_GATE_STEP_H
#define BS_LAB_GATE_STEP_H
#include "lab/case/train.h"
#include "lab/gate/faults.h"
#include "lab/gate/verdict.h"

typedef struct bs_step_verdict {
  uint32_t n_gates;
  bs_gate gates[12];  /* "W.T3", "b.T3", "T4", then "y.T1" ... */
  double relative;    /* error of the worst rank's weights */
  uint64_t inexact;   /* weights and biases that are not exactly the reference's */
  uint64_t judged;    /* weights, all steps */
  uint64_t nonfinite; /* weights, biases and outputs after the last step that are NaN or Inf */
} bs_step_verdict;

int32_t bs_step_judge(const bs_case *c, const bs_train_options *options, const bs_train_result *result,
                      bs_step_verdict *out, bs_error *err);
/* T5: SGD on small integers with numbers that are powers of two, compared exactly. Skipped for AdamW. */
int32_t bs_step_integer_gate(const bs_case *like, const bs_train_options *options, bs_gate *out_gate,
                             bs_error *err);
/* T6: each fault of enum bs_train_fault that can be made, on a small shape. */
int32_t bs_step_fault_gate(const bs_case *like, const bs_train_options *options, bs_fault_tally *out,
                           bs_error *err);
#endif
