/* SPDX-License-Identifier: MIT
 * inside_world.h - what inside.c and inside_stuck.c share. */
#ifndef BS_SIM_INSIDE_WORLD_H
#define BS_SIM_INSIDE_WORLD_H
#include "sim/heap.h"
#include "sim/inside.h"

enum { SIM_HELD = 16 }; /* slots that a lane's ended jobs still hold */

typedef struct sim_token {
  sim_waiter waiter; /* the first member: lists of part.h are lists of tokens */
  sim_flow flow;
  uint64_t index, begin, ready;
  uint64_t commit; /* of a posted store */
  uint32_t lane, at;
  uint32_t unmet;             /* needs that have not ended */
  uint32_t lines[SIM_CACHES]; /* of each cache among its stops, that it fills; 0: none */
  uint8_t ended, queues, waits;
  /* Who needs this job: a place in the ring times SIM_NEEDS, and the number of its need, plus 1; 0: the end
   * of the list. */
  uint16_t needed_by, next[SIM_NEEDS];
  sim_job job;
} sim_token;

typedef struct sim_inside_lane {
  uint64_t issued, ended; /* all jobs below `ended` have ended */
  uint32_t over, n_held;
  struct {
    uint64_t until;
    uint32_t part;
  } held[SIM_HELD];
  sim_token ring[SIM_OPEN];
} sim_inside_lane;

typedef struct sim_inside_world {
  const sim_inside_config *config;
  sim_inside_lane *lanes;
  sim_heap heap;
  uint64_t seq;
  sim_inside_result result;
  bs_error *err;
  int32_t rc;
} sim_inside_world;

/* Fills err: who waits for whom. */
void sim_inside_stuck(const sim_inside_world *w, bs_error *err);
#endif
