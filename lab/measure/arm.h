/* SPDX-License-Identifier: MIT
 * arm.h - an arm of a comparison: a layer that is kept ready in a separate world and runs batches of forwards
 * on command. Waiting arms sleep, so the arm that runs has the machine to itself. */
#ifndef BS_LAB_MEASURE_ARM_H
#define BS_LAB_MEASURE_ARM_H
#include "blockshock/blockshock.h"
#include "lab/case/case.h"
#include "lab/measure/arm_work.h"
#include "lab/measure/clocks.h"
#include "lab/measure/sampler.h"
#include "lab/measure/span.h"
#include "lab/peers/peers.h"

typedef struct bs_arm bs_arm;

/* Starts the world's threads, builds the layer (c: sizes, sources, method; fault, hook and iteration counts
 * are not used). */
int32_t bs_arm_open(const bs_case *c, const char *name, bs_arm **out_arm, bs_error *err);
/* Like bs_arm_open, for an arm whose batches are other work than forwards (enum bs_arm_work); c.spec has its
 * flags. `number`: processes that follow distinguish several arms by it. */
int32_t bs_arm_open_work(const bs_case *c, const char *name, uint32_t work, uint32_t number, bs_arm **out_arm,
                         bs_error *err);
/* One batch on every rank: `lead` calls that are not timed, a barrier, n calls: seconds a call of the slowest
 * rank, and the involuntary switches of the threads of all ranks in that time. It fits bs_sampler_arm.batch.
 */
int32_t bs_arm_batch(void *arm, uint64_t lead, uint64_t n, bs_sample *out, bs_error *err);
/* Caches flushed before each of the n calls, outside of the time; no lead. Its calls are in the regions. */
int32_t bs_arm_batch_cold(void *arm, uint64_t lead, uint64_t n, bs_sample *out, bs_error *err);
/* Whether build number `build` (0: the first) makes the arms from the last to the first: one of two builds
 * does, and `seed` chooses which. The result is the same in every process. */
int bs_arms_backwards(uint64_t seed, uint32_t build);

/* Frees the layers and tensors of all arms, then builds them again, `backwards` from the last to the first,
 * so that each gets another place in memory. */
int32_t bs_arms_rebuild(bs_arm *const *arms, uint32_t n, int backwards, bs_error *err);
/* Executes in a follower the command that rank 0 sent (BS_WORD_BATCH). */
int32_t bs_arm_follow(bs_arm *arm, const bs_told *told, bs_error *err);
/* Threads of the host that work when `ranks` run with `threads` each: with a device one a rank, which waits.
 */
uint32_t bs_host_threads(bs_context *context, const char *backend, uint32_t ranks, uint32_t threads);
/* An arm for the sampler: its forwards, cold ones if phase is BS_TIME_COLD, with its numbers of threads and
 * processes. */
bs_sampler_arm bs_arm_sampled(bs_arm *arm, const char *name, uint32_t phase);
/* The slowest rank's time of the newest building, which includes packing; and of packing alone. */
bs_span bs_arm_build(const bs_arm *arm);
bs_span bs_arm_pack(const bs_arm *arm);
/* The clocks of this process's devices after each batch since the last reset. Call it between commands. */
const bs_clocks *bs_arm_clocks(const bs_arm *arm);
/* Bytes that are read, or on a device written, to flush the caches; 0 before the first cold batch. */
uint64_t bs_arm_flush_bytes(const bs_arm *arm);
/* Ends the world; fills the results that a record needs (timings, counters, memory; no outputs). out_result
 * may be NULL. */
int32_t bs_arm_close(bs_arm *arm, bs_case_result *out_result, bs_error *err);
/* Resets the regions and counters (after warm-up), and with `clocks` the recorded device clocks. */
int32_t bs_arm_reset(bs_arm *arm, int clocks, bs_error *err);
#endif
