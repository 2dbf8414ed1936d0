/* SPDX-License-Identifier: MIT
 * record_fields.h - the fields of a record that every phase shares: sizes, timings, bytes that exist, what
 * ran. */
#ifndef BS_LAB_PHASE_RECORD_FIELDS_H
#define BS_LAB_PHASE_RECORD_FIELDS_H
#include "lab/case/case.h"
#include "lab/gate/mixed.h"
#include "lab/lab.h"
/* Adds the fields of a case to `record` (docs/runs.md lists them). */
int32_t bs_record_case_fields(json_t *record, const bs_case *c, const bs_case_result *result,
                              const bs_subject *s, bs_error *err);
/* Adds these fields and the verdict of a judged phase, and sets out->passed. valid: every judged number is
 * finite. */
int32_t bs_record_judged(bs_phase_result *out, const bs_case *c, const bs_case_result *result,
                         const bs_subject *s, uint32_t loss, int valid, bs_error *err);
/* The segments of a layer in two precisions: their errors, predicted and measured. */
int32_t bs_record_mixed(json_t *record, const bs_mixed_error *mixed, bs_error *err);

/* The field `device`; null where the device tells nothing and its events time nothing. `slowest`: the rank
 * that the times are of. NULL: no memory. */
json_t *bs_record_device(const bs_case_result *result, uint32_t slowest);
/* 1 and a sentence where the host takes about as long to queue a forward as the device to do it: the figures
 * are then the host's. */
int bs_launch_bound(const bs_case_rank *rank, char *out_text, size_t size);
#endif
