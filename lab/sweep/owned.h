/* SPDX-License-Identifier: MIT
 * owned.h - whose plan it is that a sweep goes on with, and what of it is code. */
#ifndef BS_LAB_SWEEP_OWNED_H
#define BS_LAB_SWEEP_OWNED_H
#include "lab/sweep/plan.h"

/* Marks the plan in the folder as this user's (lab/store/own.h), in the file plan.own in that folder. Without
 * a key or disk space there is no mark. */
void bs_plan_own(const bs_sweep_folder *folder, const char *key_path);
/* Refuses a plan that names code or a command (bs_config_code) in its base or in a point, and that bears no
 * mark of this user: BS_CONFIG (BS-SWEEP-CODE), which names them. *out_code, the caller's: what a plan
 * without the mark names, {"key=value": null}, also when trusted, where it is no error; NULL: no memory. */
int32_t bs_plan_judge(const bs_sweep_folder *folder, const char *key_path, int trusted, const json_t *header,
                      const json_t *points, json_t **out_code, bs_error *err);
#endif
