/* SPDX-License-Identifier: MIT
 * frame.h - the common part of phases 0, 2 and 3: they open the subject, judge one case by gates, and
 * close. */
#ifndef BS_LAB_PHASE_FRAME_H
#define BS_LAB_PHASE_FRAME_H
#include "lab/case/case.h"
#include "lab/gate/faults.h"
#include "lab/lab.h"

/* Runs and judges the case: adds gates to out, and fields to out->record. */
typedef int32_t (*bs_phase_judge_fn)(bs_case *c, const bs_experiment *experiment, const bs_subject *subject,
                                     bs_phase_result *out, bs_error *err);
/* Calls judge with the case of the experiment's method. After an error out is empty. */
int32_t bs_phase_run_judged(bs_context *context, const bs_experiment *experiment, bs_progress_fn progress,
                            void *user, bs_phase_judge_fn judge, bs_phase_result *out, bs_error *err);

/* An empty result with its record. */
int32_t bs_phase_result_open(bs_phase_result *out, bs_error *err);
void bs_phase_add_gates(bs_phase_result *out, const bs_gate *gates, uint32_t count);
void bs_phase_add_skipped(bs_phase_result *out, const char *name, const char *why);
/* Gate T6 of the phases with a backward pass, and which gates caught which fault. */
void bs_phase_add_fault_gate(bs_phase_result *out, const bs_fault_tally *tally);
#endif
