/* SPDX-License-Identifier: MIT
 * repro.h - checks a layer's promises on bits in the run: R2 by running tokens without the others, R3 and R4
 * by the same tokens on another number of ranks. Of a backward pass and of steps R3 is checked on 1, 2, 4 and
 * 8 ranks. */
#ifndef BS_LAB_GATE_REPRO_H
#define BS_LAB_GATE_REPRO_H
#include "lab/case/gradient.h"
#include "lab/case/train.h"
#include "lab/gate/judge.h"

const char *bs_repro_name(uint32_t repro); /* "R0" .. "R4" */
/* The class that every rank's proposal promises. */
uint32_t bs_repro_of(const bs_case_result *result);
/* Up to two gates, "R2" and "R3", of a finished case that promises them; R0 and R1 are T4. */
int32_t bs_repro_gates(const bs_case *c, const bs_case_result *result, bs_gate *out_gates,
                       uint32_t *out_count, bs_error *err);
/* At most one gate, "R3", of a finished backward pass that promises it: dX, dW and db have the same bits on
 * 1, 2, 4 and 8 ranks. Ranks that are processes, or of a topology, are compared with one rank. */
int32_t bs_repro_gradient_gate(const bs_case *c, uint32_t loss, const bs_source *target,
                               const bs_gradient_result *result, bs_gate *out_gate, uint32_t *out_count,
                               bs_error *err);
/* The same of training, where `promising` promises it: weights after each of three steps. A fault of the
 * options is in the run on the case's ranks alone. */
int32_t bs_repro_step_gate(const bs_case *c, const bs_train_options *options, const bs_case_result *promising,
                           bs_gate *out_gate, uint32_t *out_count, bs_error *err);
#endif
