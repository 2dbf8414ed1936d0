/* SPDX-License-Identifier: MIT
 * device_fields.h - what a record says of the device that a run was on: whose clock timed it, what the host
 * took to queue a forward, the most memory. */
#ifndef BS_LAB_PHASE_DEVICE_FIELDS_H
#define BS_LAB_PHASE_DEVICE_FIELDS_H
#include "lab/phase/case.h"

/* The field `device`; null where the device tells nothing and its events time nothing. `slowest`: the rank
 * that the times are of. NULL: no memory. */
json_t *bs_record_device(const bs_case_result *result, uint32_t slowest);
/* 1 and a sentence where the host takes about as long to queue a forward as the device to do it: the figures
 * are then the host's. */
int bs_launch_bound(const bs_case_rank *rank, char *out_text, size_t size);
#endif
