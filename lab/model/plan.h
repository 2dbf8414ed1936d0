/* SPDX-License-Identifier: MIT
 * plan.h - `bsrun model plan`: a bare problem of arena planning, as a CSV file in the form of minimalloc:
 * columns id, lower, upper, size in any order; a block is in use in the steps lower .. upper - 1. */
#ifndef BS_LAB_MODEL_PLAN_H
#define BS_LAB_MODEL_PLAN_H
#include <jansson.h>

#include "graph/plan/plan.h"

typedef struct bs_plan_file {
  uint32_t n;
  gplan_block *blocks; /* n */
  const char **ids;    /* n; they point into `text` */
  char *text;
} bs_plan_file;

/* Reads a problem. BS_INPUT names the line: no such column, not a number, lower not below upper. The caller
 * frees in every case (bs_plan_file_free). */
int32_t bs_plan_file_read(const char *path, bs_plan_file *out, bs_error *err);
void bs_plan_file_free(bs_plan_file *file);

/* Plans it, checks the plan, and makes {blocks, alignment, arena, bound, ratio, by, proven, naive, peak_step,
 * largest: [..], steps, seconds, placements: [{id, lower, upper, size, offset}]}. The caller releases. */
int32_t bs_plan_solve(const bs_plan_file *file, uint64_t alignment, uint64_t exact_steps, json_t **out,
                      bs_error *err);
#endif
