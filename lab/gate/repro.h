/* SPDX-License-Identifier: MIT
 * repro.h - checks a layer's promises on bits in the run: R2 by running tokens without the others, R3 and R4
 * by the same tokens on another number of ranks. */
#ifndef BS_LAB_GATE_REPRO_H
#define BS_LAB_GATE_REPRO_H
#include "lab/case/case.h"
#include "lab/gate/judge.h"

const char *bs_repro_name(uint32_t repro); /* "R0" .. "R4" */
/* The class that every rank's proposal promises. */
uint32_t bs_repro_of(const bs_case_result *result);
/* Up to two gates, "R2" and "R3", of a finished case that promises them; R0 and R1 are T4. */
int32_t bs_repro_gates(const bs_case *c, const bs_case_result *result, bs_gate *out_gates,
                       uint32_t *out_count, bs_error *err);
#endif
