/* SPDX-License-Identifier: MIT
 * fsck_plan.h - the plans of sweeps against the runs that are there. */
#ifndef BS_LAB_STORE_FSCK_PLAN_H
#define BS_LAB_STORE_FSCK_PLAN_H
#include "lab/store/fsck.h"

/* Checks root and each folder in it that has a plan.jsonl; each becomes a row of out->sweeps. keys: [{run,
 * request_key}] of the whole runs below root. A damaged plan is a row of out->rows and counts as damage. */
int32_t bs_fsck_plans(const char *root, const json_t *keys, bs_fsck *out, bs_error *err);
#endif
