/* SPDX-License-Identifier: MIT
 * step.h - judging training. Each step is judged alone: from the weights as they were read back before it,
 * the gradient of Y that backward was given and X, fp64 gives what the weights must be behind it; what the
 * optimiser remembers is followed in fp64 from the first step on. Bounds come from the
 * roundings on the way (docs/gates.md). Behind the last step forward is judged with the weights as they are
 * then, and the bias by what forward makes of zeros. */
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
  uint64_t nonfinite; /* weights, biases and outputs behind the last step that are NaN or Inf */
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
