/* SPDX-License-Identifier: MIT
 *
 * coll_plan.h - a prepared collective, as coll.c (prepare, run) and coll_start.c (start, wait) share it.
 */
#ifndef BS_CORE_WORLD_COLL_PLAN_H
#define BS_CORE_WORLD_COLL_PLAN_H

#include "core/world/world.h"

typedef int32_t (*bs_coll_fn)(void *comm, const bs_coll_call *call, bs_error *err);

typedef struct bs_coll_rounds bs_coll_rounds;

struct bs_coll_plan {
  bs_rank *rank;
  bs_coll_fn fn;
  void *comm;
  bs_coll_call call;    /* all but the data */
  uint64_t fingerprint; /* but rows */
  uint64_t in_cols;
  uint64_t out_cols;
  uint64_t rows;      /* most rows; a run may have fewer */
  uint64_t row_bytes; /* payload of a row */
  uint64_t wire_num, wire_den;
  uint32_t has_in, has_out;
  uint32_t by_rounds;     /* the host runs it by an algorithm */
  bs_coll_rounds *rounds; /* coll_rounds.h; NULL: the communicator's own */
  uint32_t hooked;
  uint32_t me, n;                       /* place and size of the group */
  bs_coll_counts *counts, *recv_counts; /* shared; of kinds with blocks, and of all_to_all */
  char *site;
  /* For a backend without host memory (coll_stage.c): dense data of the call in host memory, and the
   * destination of the result. */
  uint32_t staged;
  char *stage_in, *stage_out;
  void *device_out;
  int64_t device_stride;
  /* State of a started collective (coll_start.c). */
  uint32_t started; /* until its wait; the rank's thread only */
  uint32_t ticket;  /* its place in the line */
  uint32_t calls;   /* that succeeded: counted by wait, on the rank's thread */
  int32_t status;
  bs_error *failure; /* made by the first start */
  /* State of one that runs on the rank's stream for started collectives (coll_side.c). */
  uint32_t aside;
  bs_stream *started_from;
  bs_event *ready, *done;
};

/* The data of a call: checks the tensors against the plan. */
int32_t bs_coll_bind(bs_coll_plan *plan, const bs_tensor *in, const bs_tensor *out, bs_stream *stream,
                     bs_error *err);
/* Call the communicator, as often as the hook says; any thread, one at a time. Counts nothing. */
int32_t bs_coll_execute(bs_coll_plan *plan, uint32_t *out_calls, bs_error *err);
/* Makes room for a call's data in host memory, for a backend whose memory is not host memory. */
int32_t bs_coll_stage_prepare(bs_coll_plan *plan, bs_error *err);
void bs_coll_stage_free(bs_coll_plan *plan);
/* Copy a call's data: down after bind and before execute, up after execute. Both wait for the stream and are
 * called by the rank's own thread. */
int32_t bs_coll_stage_down(bs_coll_plan *plan, bs_error *err);
int32_t bs_coll_stage_up(bs_coll_plan *plan, bs_error *err);
/* coll_side.c. enter, after the bind of a start, on the rank's thread: the call moves to the rank's stream
 * for started collectives, which waits for the stream it was started from. done, after execute: records the
 * event of the result. leave, in the wait: the first stream waits for that event. */
int32_t bs_coll_side_enter(bs_coll_plan *plan, bs_error *err);
int32_t bs_coll_side_done(bs_coll_plan *plan, bs_error *err);
int32_t bs_coll_side_leave(bs_coll_plan *plan, bs_error *err);
void bs_coll_side_release(bs_coll_plan *plan); /* its events */
/* coll_algorithm.c. serve: 1 when the world's algorithm serves a collective of n ranks. prepare, last of all:
 * makes the plan run by that algorithm. */
int bs_rounds_serve(const bs_world *world, uint32_t kind, uint32_t n);
int32_t bs_rounds_prepare(bs_coll_plan *plan, bs_error *err);
void bs_rounds_free(bs_coll_rounds *rounds);
/* Count `calls` of what is bound; the rank's own thread. */
void bs_coll_count(bs_coll_plan *plan, uint32_t calls);

#endif
