/* SPDX-License-Identifier: MIT
 * ncu_start.h - runs a command of this program under Nsight Compute and reads what it says of the kernels. */
#ifndef BS_LAB_PROFILE_NCU_START_H
#define BS_LAB_PROFILE_NCU_START_H
#include "lab/profile/ncu.h"

/* Runs `words` (NULL at the end; words[0] is a path) under ncu, which is searched in PATH and then in the
 * folders of the toolkit. Some launches after the first ones are profiled; `take` gets each kernel (ncu.h).
 * silence_s: ncu is killed where it has printed nothing for so long. BS_UNAVAILABLE: there is no ncu, it may
 * not read the counters of this machine (BS-NCU-PERMISSION), it failed (BS-NCU-FAILED, with its last words),
 * or too few kernels were launched (BS-NCU-KERNELS). BS_DEADLINE: it hung. */
int32_t bs_ncu_start(char *const *words, double silence_s, bs_ncu_take take, void *user, bs_error *err);
#endif
