/* SPDX-License-Identifier: MIT
 * half.h - judges a layer that runs only one half of a mask. Other gates judge its product. This gate checks
 * that its weights are those of the requested half. It also measures how far its product is from the whole
 * one and reports this next to the method's own figure. */
#ifndef BS_LAB_GATE_HALF_H
#define BS_LAB_GATE_HALF_H
#include "lab/case/case.h"
#include "lab/gate/reference.h"
#include "lab/result.h"

#define BS_REL_EPS_HALF 1e-12

/* The method's figure for the relative error of the whole product; 0: no weight is left out. */
int32_t bs_half_figure(const bs_case *c, double *out_error, bs_error *err);
/* The relative error of a run against the full product, with every feature once: that of rank 0 if all ranks
 * have all features. */
int32_t bs_half_measure(const bs_case *c, const bs_case_result *result, int64_t max_features,
                        double *out_error, double *out_outputs, bs_error *err);
/* Gate HALF: the weights that some rank owns are those of the half. Skipped without method.half. */
int32_t bs_half_gate(const bs_case *c, const bs_case_result *result, bs_gate *out_gate, bs_error *err);
#endif
