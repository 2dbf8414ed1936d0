/* SPDX-License-Identifier: MIT
 * ncu.h - reads CSV of Nsight Compute: `ncu --csv`, a row a metric, or `--page raw`, a row a kernel. */
#ifndef BS_LAB_PROFILE_NCU_H
#define BS_LAB_PROFILE_NCU_H
#include <jansson.h>

#include "blockshock/blockshock.h"

/* Receives {kernel, launches, ncu: {tensor_percent, dram_percent, sm_percent, warps_percent, seconds,
 * registers, bank_conflicts, long_scoreboard}}, number `at` of `all`: the means of the launches of one
 * kernel's name; metrics without a value (n/a, nan) are left out. A result other than BS_OK ends the reading.
 */
typedef int32_t (*bs_ncu_take)(void *user, const json_t *kernel, size_t at, size_t all, bs_error *err);

/* Calls `take` only after the whole file is read. BS_INPUT: not a file of ncu, or damaged (with the line), or
 * it names no kernel, or its numbers do not show whether a comma is a decimal one. */
int32_t bs_ncu_read(const char *path, bs_ncu_take take, void *user, bs_error *err);
/* The same of a file's text, which it changes; `name` is in errors. */
int32_t bs_ncu_read_text(char *text, const char *name, bs_ncu_take take, void *user, bs_error *err);
#endif
