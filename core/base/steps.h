/* SPDX-License-Identifier: MIT
 * steps.h - the schedule of one rank (algorithm.h), as a host asks for it: each step in this host's own
 * layout, and no more steps, and no longer, than any use of them has. A schedule that goes on as long as emit
 * lets it is ended; one that does not heed what emit returns is not believed. */
#ifndef BS_CORE_BASE_STEPS_H
#define BS_CORE_BASE_STEPS_H
#include "blockshock/algorithm.h"
#include "blockshock/blockshock.h"

enum { BS_STEPS_SECONDS = 60 }; /* that one schedule may take where no deadline is given */

typedef struct bs_steps_call {
  const bs_algorithm *algorithm;
  void *state;
  const bs_coll_shape *shape;
  uint32_t rank;
  int64_t timeout_ns; /* 0: BS_STEPS_SECONDS */
} bs_steps_call;

/* The most steps of a rank: 2^20, and more for many ranks, for options that may be a number of chunks, and
 * for vectors that are cut into chunks of a fixed size. */
uint64_t bs_steps_most(const bs_algorithm *algorithm, const bs_coll_shape *shape);

/* Calls `each` for the steps of the rank until it returns another value than 0, which is then the answer,
 * whatever the schedule makes of it. Else the schedule's own answer; BS_PLUGIN for a step that is missing or
 * whose struct_size leaves out fields (BS-ALG-STEP) and for more than bs_steps_most (BS-ALG-STEPS);
 * BS_DEADLINE (BS-ALG-STEPS). err may be NULL. */
int32_t bs_steps_each(const bs_steps_call *call, int32_t (*each)(void *user, const bs_coll_step *step),
                      void *user, bs_error *err);
#endif
