/* SPDX-License-Identifier: MIT
 *
 * algorithm.h - collective algorithms: who sends which elements to whom, in which round. Data only: a
 * communicator or a simulator runs the steps.
 */
#ifndef BLOCKSHOCK_ALGORITHM_H
#define BLOCKSHOCK_ALGORITHM_H

#include "comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One collective over a vector of `count` elements. Block r of it, of all_gather, reduce_scatter and
 * all_to_all, is [r * count / P, (r + 1) * count / P), rounded down. */
typedef struct bs_coll_shape {
  uint32_t struct_size;
  uint32_t kind; /* enum bs_coll_kind */
  uint32_t world_size;
  uint32_t root; /* broadcast */
  uint64_t count;
  uint64_t element_bytes;
} bs_coll_shape;

/* What a rank does in a step. */
enum bs_step_action {
  BS_STEP_SEND = 1,  /* elements first .. first + count - 1 of this rank to `peer` */
  BS_STEP_RECV = 2,  /* from `peer` over those elements */
  BS_STEP_REDUCE = 3 /* from `peer`, reduced into those elements */
};

/* Rounds ascend from 0. What a round sends are the values before the round; it ends on a rank when all of its
 * steps there have. A send has exactly one receive or reduce of the same round and elements on its peer. */
typedef struct bs_coll_step {
  uint32_t struct_size;
  uint32_t round;
  uint32_t action; /* enum bs_step_action */
  uint32_t peer;
  uint64_t first;
  uint64_t count;
} bs_coll_step;

/* Required: name, kinds, schedule. */
typedef struct bs_algorithm {
  uint32_t struct_size;
  uint32_t flags; /* 0 */
  const char *name;
  const char *aliases;
  const char *summary;
  uint64_t kinds; /* bit set of (1 << enum bs_coll_kind): those that schedule serves for some shape */
  /* Pure: calls emit for each step of `rank` in order of rounds; ends with what emit returns when that is not
   * 0. BS_UNSUPPORTED with a reason for a shape that it cannot do. */
  int32_t (*schedule)(void *state, const bs_coll_shape *shape, uint32_t rank,
                      int32_t (*emit)(void *user, const bs_coll_step *step), void *user, bs_error *err);
} bs_algorithm;

#ifdef __cplusplus
}
#endif
#endif
