/* SPDX-License-Identifier: MIT
 * executor.h - what an executor that runs many plans of one rank asks of it beyond blockshock.h: where their
 * scratch is, the memory of one call of its layers, and the end of its world. Called from the rank's thread,
 * between runs. */
#ifndef BS_CORE_WORLD_EXECUTOR_H
#define BS_CORE_WORLD_EXECUTOR_H
#include "core/op/watch.h"

/* Plans work in `block` from now on, in the place of the rank's own scratch: memory of the backend, 64-byte
 * aligned, as large as bs_dispatch_scratch says of each plan that runs meanwhile (core/op/dispatch.h). NULL:
 * in the rank's own again. The block stays the caller's. */
BS_API void bs_rank_lend_scratch(bs_rank *rank, void *block);
/* Layers that are built from now on have their memory of one call (BS_LIFE_CALL) in `block`: memory of the
 * backend, 64-byte aligned at least, that at most one of them uses at a time. Each build takes from its start
 * on; what does not fit is allocated like scratch, and so is all of a layer that is built for backward. NULL:
 * no block. The block stays the caller's. It is kept until the layers that were built meanwhile are freed. */
BS_API void bs_rank_lend_calls(bs_rank *rank, void *block, uint64_t bytes);
/* A block of a proposal's workspace_bytes and these surely has room: tensors begin at multiples of 256 bytes
 * from its start, and our methods take less than 32. */
#define BS_CALLS_EDGES 8192u
/* The most bytes of a block that any build so far would have used, whether it was lent one or not. */
BS_API uint64_t bs_rank_calls_bytes(const bs_rank *rank);
/* Bytes of the rank's own scratch: the most that any of its plans reserved so far. */
BS_API uint64_t bs_rank_scratch_bytes(const bs_rank *rank);
/* Its address, or that of the block that is lent. A plan that reserves more moves it. NULL: there is none. */
BS_API const void *bs_rank_scratch(const bs_rank *rank);
/* All that is asked of the rank's ops from now on, methods' queries included, has these flags
 * (enum bs_query_flags) too. 0: none. */
BS_API void bs_rank_require(bs_rank *rank, uint32_t query_flags);
/* From here on the rank may not do what the other ranks do: something failed that they need not see. Its run
 * of rank_main must return an error, which wakes them. 1 by bs_rank_is_alone, for the rest of its life. */
BS_API void bs_rank_set_alone(bs_rank *rank);
BS_API int bs_rank_is_alone(const bs_rank *rank);
/* 1: time of the rank is that of its communicator (bs_comm.clock_ns), as of simulated machines. */
BS_API int bs_rank_clock_is_virtual(const bs_rank *rank);
/* The world of a rank, and the name of its backend. */
BS_API bs_world *bs_rank_world(const bs_rank *rank);
BS_API const char *bs_rank_backend(const bs_rank *rank);
/* Copies bytes between the host's memory and the backend's, or within the backend's (enum bs_copy_kind), in
 * the order of the rank's default stream. bs_rank_sync waits; until then host memory that is read or written
 * stays as it is. */
BS_API int32_t bs_rank_copy(bs_rank *rank, void *to, const void *from, uint64_t bytes, uint32_t kind,
                            bs_error *err);
/* Captures work of the rank. The device keeps what plans put on the rank's default stream between begin and
 * end as a graph, and does not run it (backend.h, capture_begin). run puts all of it there by one call. The
 * caller frees a capture after its last run. BS_UNSUPPORTED: the backend has no graphs, or end names what no
 * graph can keep, and nothing has run. */
BS_API int32_t bs_rank_capture_begin(bs_rank *rank, bs_error *err);
BS_API int32_t bs_rank_capture_end(bs_rank *rank, bs_capture **out_capture, bs_error *err);
BS_API int32_t bs_rank_capture_run(bs_rank *rank, bs_capture *capture, bs_error *err);
BS_API void bs_rank_capture_free(bs_rank *rank, bs_capture *capture);
/* Plans, waits and copies of the rank are counted there from now on; NULL: no longer. The caller's. */
BS_API void bs_rank_watch(bs_rank *rank, bs_watch *watch);
/* Fails an entered world, as an error of rank_main fails one that runs: ranks that are other processes are
 * woken and get the error, and bs_world_leave returns it. An error without a message gets one. */
BS_API void bs_world_fail(bs_world *world, int32_t code, const bs_error *err);
#endif
