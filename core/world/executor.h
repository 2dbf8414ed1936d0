/* SPDX-License-Identifier: MIT
 * executor.h - what an executor that runs many plans of one rank asks of it beyond blockshock.h: where their
 * scratch is, and the end of its world. Called from the rank's thread, between runs. */
#ifndef BS_CORE_WORLD_EXECUTOR_H
#define BS_CORE_WORLD_EXECUTOR_H
#include "core/op/watch.h"

/* Plans work in `block` from now on, in the place of the rank's own scratch: memory of the backend, 64-byte
 * aligned, as large as bs_dispatch_scratch says of each plan that runs meanwhile (core/op/dispatch.h). NULL:
 * in the rank's own again. The block stays the caller's. */
BS_API void bs_rank_lend_scratch(bs_rank *rank, void *block);
/* Bytes of the rank's own scratch: the most that any of its plans reserved so far. */
BS_API uint64_t bs_rank_scratch_bytes(const bs_rank *rank);
/* Plans, waits and copies of the rank are counted there from now on; NULL: no longer. The caller's. */
BS_API void bs_rank_watch(bs_rank *rank, bs_watch *watch);
/* Fails an entered world, as an error of rank_main fails one that runs: ranks that are other processes are
 * woken and get the error, and bs_world_leave returns it. An error without a message gets one. */
BS_API void bs_world_fail(bs_world *world, int32_t code, const bs_error *err);
#endif
