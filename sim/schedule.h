/* SPDX-License-Identifier: MIT
 * schedule.h - runs the schedule of a collective algorithm on the engine: a state machine without a stack a
 * rank. Steps are asked of the algorithm a window of rounds at a time, so that a long schedule is never
 * kept as a whole. Messages may carry data (sim_data): values, columns, sets. */
#ifndef BS_SIM_SCHEDULE_H
#define BS_SIM_SCHEDULE_H
#include "sim/closed.h"
#include "sim/engine.h"

/* A step as it is kept; fields as in bs_coll_step. */
typedef struct sim_step {
  uint32_t round, peer;
  uint8_t action, buffer, from_buffer, unused;
  uint64_t first, count, from_first;
  void *held; /* a payload that waits for its round's end, or to be sent */
} sim_step;

/* The contents of the ranks' memory and of messages. `pack` makes a payload of the elements that a SEND
 * reads; `put` is a RECV, `add` a REDUCE (payload NULL: from the rank's own memory), `copy` a COPY. Codes as
 * everywhere. The runner drops each payload once. All functions are required; there are no values where data
 * is NULL. */
typedef struct sim_data {
  void *user;
  int32_t (*pack)(void *user, uint32_t rank, const sim_step *step, void **out_payload, bs_error *err);
  int32_t (*put)(void *user, uint32_t rank, const sim_step *step, const void *payload, bs_error *err);
  int32_t (*add)(void *user, uint32_t rank, const sim_step *step, const void *payload, bs_error *err);
  int32_t (*copy)(void *user, uint32_t rank, const sim_step *step, bs_error *err);
  void (*drop)(void *user, void *payload);
} sim_data;

typedef struct sim_schedule_config {
  const bs_algorithm *algorithm;
  void *state;
  const bs_coll_shape *shape;
  uint32_t order; /* enum sim_order */
  uint32_t late_rank;
  uint64_t late_ps; /* when late_rank begins; all others begin at 0 */
  sim_link link;
  uint64_t gamma_q32; /* ps per byte that is reduced */
  uint32_t (*route)(void *user, uint32_t from, uint32_t to, sim_hop *out_hops); /* as of the engine */
  void *route_user;
  const sim_data *data;
  uint32_t follow;         /* 1: the critical path is followed, for latency_ps and reduce_ps */
  uint32_t window;         /* steps kept a rank; 0: chosen by the number of ranks */
  struct sim_trace *trace; /* of its messages (trace.h); may be NULL */
  uint64_t *out_ends;      /* when each rank has ended; may be NULL */
  /* Asked before each round of a rank; another answer than BS_OK ends the run with it. May be NULL. */
  int32_t (*stop)(bs_error *err);
} sim_schedule_config;

typedef struct sim_schedule_result {
  uint64_t ps;         /* the end of the last rank */
  uint64_t latency_ps; /* of the critical path: latencies, and reducing; the rest are bytes and waiting */
  uint64_t reduce_ps;
  uint64_t messages, bytes;
  uint64_t most_steps; /* of a rank */
  uint32_t rounds;     /* the highest number + 1 */
  uint32_t last_rank;
} sim_schedule_result;

/* BS_UNSUPPORTED: what the algorithm said of the shape. BS_PLUGIN: a step that is against algorithm.h
 * (BS-ALG-STEP). Else the engine's errors: BS_DEADLINE when it is stuck, BS_MISMATCH, messages left over. */
int32_t sim_schedule_run(const sim_schedule_config *config, sim_schedule_result *out_result, bs_error *err);

/* Elements of a buffer of a rank; scratch: what the algorithm said for this rank. */
uint64_t sim_buffer_elements(const bs_coll_shape *shape, uint64_t scratch, uint32_t rank, uint32_t buffer);
int32_t sim_scratch_of(const bs_algorithm *algorithm, void *state, const bs_coll_shape *shape, uint32_t rank,
                       uint64_t *out_elements, bs_error *err);
/* The algorithm's formula, or BS_UNSUPPORTED where it has none or says so. BS_PLUGIN (BS-CCL-COST): it is no
 * number of seconds, or below 0, or more than a thousand times what P * P messages of the whole vector, cut
 * into as many chunks as an option may mean, take one after the other. */
int32_t sim_cost_of(const bs_algorithm *algorithm, void *state, const bs_coll_shape *shape,
                    const bs_link *link, double *out_seconds, bs_error *err);
/* One step against algorithm.h: action, peer, buffers, ranges. BS_PLUGIN with the step named. */
int32_t sim_step_check(const bs_coll_shape *shape, uint64_t scratch, uint32_t rank, const bs_coll_step *step,
                       bs_error *err);
/* "rank 3 round 2: REDUCE from 1 into OUT[0..16)". */
void sim_step_text(uint32_t rank, const bs_coll_step *step, char *out_text, size_t size);
#endif
