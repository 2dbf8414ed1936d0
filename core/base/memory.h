/* SPDX-License-Identifier: MIT
 * memory.h - how much memory is free for this process: of the machine, and of the control groups (cgroups,
 * v1 and v2) that it runs in, whose limits end it without a word. Swap does not count. */
#ifndef BS_CORE_BASE_MEMORY_H
#define BS_CORE_BASE_MEMORY_H
#include "blockshock/blockshock.h"

/* The least of MemAvailable and of what each group from the process's own up to the root has left: its limit
 * less what is in use, without file pages, which the kernel drops. 0: not known. prefix: "", or a folder that
 * has another proc and sys, for tests. */
BS_API uint64_t bs_memory_available(const char *prefix);

/* BS_NO_MEMORY with this id, the numbers and what to do, where `bytes` for `what` ("the intermediate values
 * of the model") are more than what is free. Less than 4 MiB is not compared. */
BS_API int32_t bs_memory_fits(uint64_t bytes, const char *id, const char *what, bs_error *err);
#endif
