/* SPDX-License-Identifier: MIT
 * owned.h - the owner of a plan that a sweep resumes, and the code in it. */
#ifndef BS_LAB_SWEEP_OWNED_H
#define BS_LAB_SWEEP_OWNED_H
#include "lab/sweep/plan.h"

/* Marks the plan in the folder as this user's (lab/store/own.h), in the file plan.own in that folder. Without
 * a key or disk space there is no mark. */
void bs_plan_own(const bs_sweep_folder *folder, const char *key_path);
/* Refuses a plan that names code or a command (bs_config_code) in its base or in a point, and has no mark of
 * this user: BS_CONFIG (BS-SWEEP-CODE), which lists them. *out_code, the caller's: the code in a plan without
 * the mark, {"key=value": null}, also if it is trusted and not an error; NULL: no memory. */
int32_t bs_plan_judge(const bs_sweep_folder *folder, const char *key_path, int trusted, const json_t *header,
                      const json_t *points, json_t **out_code, bs_error *err);
#endif
