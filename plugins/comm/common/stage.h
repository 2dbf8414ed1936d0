/* SPDX-License-Identifier: MIT
 * stage.h - the collectives of ranks that show each other data in shared memory. A collective is a sequence
 * of rounds. Each rank has two halves of staging there. In round k it writes half k & 1, publishes k, waits
 * until the others have, and reads theirs. Half k & 1 is written again for round k + 2: by then every rank
 * has published k + 1, which it does after it has read round k. No rank reads another's private memory, so a
 * rank that fails may leave immediately. Additions are always in rank order, so the bits depend neither on
 * the size nor on the communicator. Used by shm and mpi. */
#ifndef BS_COMM_STAGE_H
#define BS_COMM_STAGE_H
#include "../threads/threads.h"

#define COMM_EVERY UINT32_MAX /* every member, not one */

/* The data that the members show in a round: those of member r are at base + r * stride. */
typedef struct comm_shown {
  const unsigned char *base;
  uint64_t stride;
} comm_shown;

/* Operations of a group on several machines. Ranks of one machine meet in memory; what they show is indexed
 * by their numbers on the machine. The smallest number of ranks on a machine is the number of lanes. */
typedef struct comm_far {
  uint32_t lanes, lane;
  /* A round after which `bytes` of each member, or only of the root, are shown to all. */
  int32_t (*share)(void *comm, const bs_coll_call *call, uint64_t bytes, uint32_t root, comm_shown *out,
                   bs_error *err);
  /* Reduces a slice of n elements over all machines; `offset`: the place of its inputs in the halves of the
   * current round. */
  int32_t (*chain)(void *comm, const bs_coll_call *call, uint64_t offset, uint64_t n, void *result,
                   bs_error *err);
  /* Like chain, for the elements [begin, end) of this lane's blocks in the areas, into the same areas of the
   * next round. */
  int32_t (*chain_areas)(void *comm, const bs_coll_call *call, uint64_t begin, uint64_t end, uint64_t area,
                         bs_error *err);
  /* Swaps areas with members of other machines; and gives the place of member r's area. */
  int32_t (*swap)(void *comm, const bs_coll_call *call, uint64_t area, bs_error *err);
  const unsigned char *(*block)(void *comm, uint32_t r, uint64_t area);
} comm_far;

typedef struct comm_stage {
  void *comm;
  const thr_world *math; /* its kernels and host */
  uint32_t n, me;
  uint64_t half;       /* bytes that a rank shows in a round */
  uint64_t part;       /* bytes of it that `share` shows */
  uint64_t inline_max; /* bytes: every rank reduces an all_reduce up to this size itself, with one meeting */
  unsigned char *(*room)(void *comm); /* my half of the coming round */
  /* The round: shows the data that have been written. */
  int32_t (*meet)(void *comm, const bs_coll_call *call, comm_shown *out, bs_error *err);
  /* Reports that two members' calls differ, with their texts. */
  int32_t (*mismatch)(void *comm, uint32_t member_a, const char *a, uint32_t member_b, const char *b,
                      bs_error *err);
  const comm_far *far; /* NULL: one machine */
} comm_stage;

/* Refuses impossible calls before any rank waits: all ranks see the same call. */
int32_t comm_stage_check(const comm_stage *stage, const bs_coll_call *call, bs_error *err);
/* The collective of call->kind. */
int32_t comm_stage_run(const comm_stage *stage, const bs_coll_call *call, bs_error *err);
#endif
