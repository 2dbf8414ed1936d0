/* SPDX-License-Identifier: MIT
 * ncu.h - what Nsight Compute has written as CSV: `ncu --csv`, a row a metric, or `--page raw`, a row a
 * kernel. */
#ifndef BS_LAB_PROFILE_NCU_H
#define BS_LAB_PROFILE_NCU_H
#include <jansson.h>

#include "blockshock/blockshock.h"

/* [{kernel, launches, ncu: {tensor_percent, dram_percent, sm_percent, warps_percent, seconds, registers}}]: a
 * row for each kernel's name, the means of its launches; what no launch tells is left out. BS_INPUT: not a
 * file of ncu, or damaged (with the line), or it names no kernel. */
int32_t bs_ncu_read(const char *path, json_t **out_kernels, bs_error *err);
#endif
