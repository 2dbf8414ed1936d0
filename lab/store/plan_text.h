/* SPDX-License-Identifier: MIT
 * plan_text.h - the content of plan.jsonl in a sweep's folder: a header, a line a point, and a last line {n,
 * sha256} over all bytes before it. lab/sweep/plan.h lists the fields of a point. */
#ifndef BS_LAB_STORE_PLAN_TEXT_H
#define BS_LAB_STORE_PLAN_TEXT_H
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "blockshock/abi.h"

enum { BS_PLAN_BYTES = 64 << 20, BS_PLAN_POINTS = 4096, BS_PLAN_FORMAT = 1 };

/* The header and the points of a plan's text, both the caller's; NULL on failure. BS_CORRUPT: the plan is
 * incomplete, BS_INPUT: it has another format. *out_why, a constant text, has the reason, and err is not set.
 * BS_NO_MEMORY. */
int32_t bs_plan_text_read(const char *text, size_t size, json_t **out_header, json_t **out_points,
                          const char **out_why, bs_error *err);
#endif
