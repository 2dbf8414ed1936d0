/* SPDX-License-Identifier: MIT
 * executor.h - what an executor that runs many plans of one rank asks of it beyond blockshock.h: where their
 * scratch is. Called from the rank's thread, between runs. */
#ifndef BS_CORE_WORLD_EXECUTOR_H
#define BS_CORE_WORLD_EXECUTOR_H
#include "core/op/watch.h"

/* Plans work in `block` from now on, in the place of the rank's own scratch: memory of the backend, 64-byte
 * aligned, as large as bs_dispatch_scratch says of each plan that runs meanwhile (core/op/dispatch.h). NULL:
 * in the rank's own again. The block stays the caller's. */
BS_API void bs_rank_lend_scratch(bs_rank *rank, void *block);
/* Bytes of the rank's own scratch: the most that any of its plans reserved so far. */
BS_API uint64_t bs_rank_scratch_bytes(const bs_rank *rank);
/* All that is asked of the rank's ops from now on, methods' queries included, has these flags
 * (enum bs_query_flags) too. 0: none. */
BS_API void bs_rank_require(bs_rank *rank, uint32_t query_flags);
/* The world of a rank, and the name of its backend. */
BS_API bs_world *bs_rank_world(const bs_rank *rank);
BS_API const char *bs_rank_backend(const bs_rank *rank);
/* Plans, waits and copies of the rank are counted there from now on; NULL: no longer. The caller's. */
BS_API void bs_rank_watch(bs_rank *rank, bs_watch *watch);
#endif
