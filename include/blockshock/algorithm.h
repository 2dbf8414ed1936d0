/* SPDX-License-Identifier: MIT
 *
 * algorithm.h - collective algorithms: who sends which elements to whom, in which round. An algorithm is data
 * only: the host runs the rounds over bs_comm.exchange of any communicator, and a checker or a simulator
 * reads them without running anything.
 *
 * Units: counts and places in buffers are in elements of element_bytes bytes, costs in seconds.
 * Ownership: an algorithm keeps nothing. Shapes and steps are valid during the call.
 * Threads: all functions are pure and may be called from any thread.
 * Errors: functions return an enum bs_status and fill err. BS_UNSUPPORTED comes with a reason. A number
 * other than 0 that `emit` returns is returned as it is.
 */
#ifndef BLOCKSHOCK_ALGORITHM_H
#define BLOCKSHOCK_ALGORITHM_H

#include "comm.h"
#include "topology.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Most options of an algorithm. */
#define BS_ALGORITHM_MAX_OPTIONS 8

/* One collective over a vector of `count` elements, which is cut into one block a rank. A rank's buffers hold
 * these elements, counted from 0 in each:
 *   all_reduce       IN: all count;                       OUT: all count
 *   all_gather       IN: the rank's own block;            OUT: all count, blocks in rank order
 *   reduce_scatter   IN: all count;                       OUT: the rank's own block
 *   broadcast        IN: on root all count, else nothing; OUT: all count
 *   all_to_all       IN: all count, block r for rank r;   OUT: P times the rank's own block, by source
 * In a call in place IN and OUT overlap: a write to OUT then changes IN. */
typedef struct bs_coll_shape {
  uint32_t struct_size;
  uint32_t kind; /* enum bs_coll_kind */
  uint32_t world_size;
  uint32_t root; /* broadcast */
  uint64_t count;
  uint64_t element_bytes;
  /* Since 0.8. first element of each block, world_size + 1 of them, ascending from 0 to count; NULL: the
   * blocks are even. bs_coll_first of plugin.h reads both. */
  const uint64_t *firsts;
  const bs_value *options; /* one for each of bs_algorithm.params, in their order; never NULL if it has any */
  uint32_t from_round; /* steps of rounds before it are not used: schedule may leave them out; 0: all are */
  uint32_t reserved;
} bs_coll_shape;

/* The action of a rank in one step. */
enum bs_step_action {
  BS_STEP_SEND = 1,   /* elements first .. first + count - 1 of `buffer` to `peer` */
  BS_STEP_RECV = 2,   /* from `peer` over those elements of `buffer` */
  BS_STEP_REDUCE = 3, /* from `peer`, and reduced into those elements of `buffer`; the rank itself as peer:
                       * from `from_buffer`, from_first, without a message */
  BS_STEP_COPY = 4    /* elements from_first .. of `from_buffer` over those of `buffer`; no peer */
};
enum bs_step_buffer {
  BS_BUFFER_IN = 0, /* read only */
  BS_BUFFER_OUT = 1,
  BS_BUFFER_SCRATCH = 2 /* as many elements as `scratch` says, not cleared */
};

/* Rounds ascend from 0; a rank need not have steps in each. A round of a rank is done in this order: its
 * COPYs, as emitted; all its sends and receives, in flight together, so no RECV of a round may overlap what
 * the round sends or another RECV of it; its REDUCEs, as emitted, each of which adds what has come to what
 * lies there, so a RECV and REDUCEs of one round into the same elements are a sum in the order emitted. The
 * k-th send of a rank to another, over all rounds, is received by the k-th RECV or REDUCE of that one from
 * it, which has the same count; their rounds may differ. No SEND or RECV has the rank itself as its peer. A
 * step of 0 elements is allowed, on both sides alike, and does nothing. */
typedef struct bs_coll_step {
  uint32_t struct_size;
  uint32_t round;
  uint32_t action;      /* enum bs_step_action */
  uint32_t peer;        /* COPY: 0 */
  uint32_t buffer;      /* enum bs_step_buffer */
  uint32_t from_buffer; /* enum bs_step_buffer, of COPY and of REDUCE from the rank itself */
  uint64_t first;
  uint64_t count;
  uint64_t from_first;
} bs_coll_step;

/* Values of bs_algorithm.flags. SAME_ORDER: each element is reduced in one order on every rank, so that all
 * ranks get equal bits. */
enum bs_algorithm_flags { BS_ALGORITHM_SAME_ORDER = 1u << 0 };

/* Required: name, kinds, and schedule or cost. With cost alone it can be predicted and simulated, not run.
 * All functions are pure and thread-safe, and answer BS_UNSUPPORTED with a reason for a shape that the
 * algorithm cannot do. */
typedef struct bs_algorithm {
  uint32_t struct_size;
  uint32_t flags; /* enum bs_algorithm_flags */
  const char *name;
  const char *aliases;
  const char *summary;
  uint64_t kinds; /* bit set of (1 << enum bs_coll_kind): those that it serves for some shape */
  /* Calls emit for each step of `rank` in order of rounds; ends with what emit returns when that is not 0. */
  int32_t (*schedule)(void *state, const bs_coll_shape *shape, uint32_t rank,
                      int32_t (*emit)(void *user, const bs_coll_step *step), void *user, bs_error *err);
  /* Since 0.8. Its options, NULL-terminated, at most BS_ALGORITHM_MAX_OPTIONS; NULL: none. */
  const bs_param_desc *const *params;
  /* Elements of SCRATCH that `rank` needs; NULL: none. */
  int32_t (*scratch)(void *state, const bs_coll_shape *shape, uint32_t rank, uint64_t *out_elements,
                     bs_error *err);
  /* Seconds of the whole collective by a closed form, where every pair of ranks has a separate `link`. NULL:
   * the algorithm has no formula. */
  int32_t (*cost)(void *state, const bs_coll_shape *shape, const bs_link *link, double *out_seconds,
                  bs_error *err);
} bs_algorithm;

#ifdef __cplusplus
}
#endif
#endif
