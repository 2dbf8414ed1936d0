/* SPDX-License-Identifier: MIT
 * record_fields.h - the record fields that all phases share: sizes, timings, allocated bytes, what ran. */
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

/* The field `device`; null if the device reports nothing and its events time nothing. `slowest`: the rank of
 * the times. NULL: no memory. */
json_t *bs_record_device(const bs_case_result *result, uint32_t slowest);
/* 1 and a sentence if the host takes about as long to queue a forward as the device to run it: then the times
 * measure the host. */
int bs_launch_bound(const bs_case_rank *rank, char *out_text, size_t size);
#endif
