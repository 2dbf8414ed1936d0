/* SPDX-License-Identifier: MIT
 * verdict.h - from a finished case to gates: every rank judged by T1 to T3, ranks compared by T4, integers by
 * T5, the gates themselves by T6. */
#ifndef BS_LAB_GATE_VERDICT_H
#define BS_LAB_GATE_VERDICT_H
#include "lab/case/case.h"
#include "lab/gate/judge.h"

typedef struct bs_verdict {
  uint32_t n_gates;
  bs_gate gates[8]; /* worst rank of T1, T2.feature, T2.token, T3; T4 */
  double predicted; /* relative Frobenius error */
  double max_abs_error, mean_abs_error, max_rel_error, relative_error; /* of the worst rank */
  uint64_t overflow, nonfinite, propagated, nonfinite_inputs;
  int64_t features; /* judged */
} bs_verdict;

/* Judge a finished run of c. max_features 0: all. */
int32_t bs_verdict_make(const bs_case *c, const bs_case_result *result, int64_t max_features, bs_verdict *out,
                        bs_error *err);
/* Errors of inputs as products: the largest error of each output is bound_x bound_w^T, squared as if each
 * were one standard deviation. */
typedef struct bs_carried {
  const bs_source *bound_x, *bound_w;
} bs_carried;

/* The limits for outputs whose inputs are known only to within given errors. */
typedef struct bs_verdict_within {
  const double *bias_error;  /* [features] how far the bias may be from c's */
  int gaps;                  /* 1: the rows of c's W are not adjacent: they are taken from a larger W */
  const bs_carried *carried; /* NULL: x and w are exact */
} bs_verdict_within;
int32_t bs_verdict_make_within(const bs_case *c, const bs_case_result *result, int64_t max_features,
                               const bs_verdict_within *within, bs_verdict *out, bs_error *err);
/* How far the exact outputs of `other` (the same layer with other inputs or options) are from c's: the
 * largest share of a limit of T1 to T3. Above 2 the gates must distinguish the two, because a right output
 * has an error below the limit. */
int32_t bs_verdict_shift(const bs_case *c, const bs_case *other, const bs_case_result *result,
                         double *out_share, bs_error *err);
/* Every gate that ran passed, and at least one ran. */
int bs_verdict_passed(const bs_gate *gates, uint32_t count);

/* T5: the same case on small integers (workload `integer`), compared exactly with the reference, which is
 * exact too. A fault may be injected (kind BS_FAULT_COUNT_: none). */
int32_t bs_integer_gate(const bs_case *like, uint32_t fault_kind, int64_t max_features, bs_gate *out_gate,
                        bs_error *err);
struct bs_owners;
/* The request for the reference of a finished case, all features without an activation. The arguments must
 * outlive the request. */
bs_reference_request bs_verdict_request(const bs_case *c, const bs_case_result *result,
                                        const uint32_t *column_rank, struct bs_owners *owners,
                                        bs_case *teller);
/* The arithmetic of a layer spec; of a run, with the reports of its products on their sums. */
bs_arithmetic bs_arithmetic_of(const bs_layer_spec *spec);
bs_arithmetic bs_arithmetic_of_run(const bs_layer_spec *spec, const bs_case_result *run);
#endif
