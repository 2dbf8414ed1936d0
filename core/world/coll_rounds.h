/* SPDX-License-Identifier: MIT
 *
 * coll_rounds.h - a collective that the host runs by a named algorithm (algorithm.h): what a plan holds of
 * it. coll_rounds.c makes and checks the rank's schedule, coll_algorithm.c runs it over bs_comm.exchange.
 */
#ifndef BS_CORE_WORLD_COLL_ROUNDS_H
#define BS_CORE_WORLD_COLL_ROUNDS_H

#include "core/world/coll_plan.h"

enum { BS_ROUNDS_BUFFERS = 3 }; /* enum bs_step_buffer */

/* Memory that grows: of the host, or where the backend holds no values of the device. */
typedef struct bs_rounds_room {
  char *data;
  uint64_t bytes;
} bs_rounds_room;

struct bs_coll_rounds {
  bs_coll_plan *plan;
  void *comm; /* what exchange is called on */
  const bs_algorithm *algorithm;
  void *state;
  uint32_t dtype;   /* of the elements in transfer: reduce_dtype where there is a reduction, else dtype_in */
  uint32_t size;    /* of one of them */
  uint32_t flat;    /* 1: the vector is all rows, one after the other; 0: an element is a column of rows */
  uint32_t phantom; /* 1: buffers are device memory that holds no values */
  uint64_t columns; /* of a row of the vector */
  bs_coll_shape shape;
  uint64_t *firsts;
  uint64_t elements[BS_ROUNDS_BUFFERS]; /* each buffer has so many */
  uint32_t rounds;                      /* of this rank */
  /* The steps of rounds from .. before `next`: all of them where next is UINT32_MAX and from 0. */
  bs_coll_step *steps;
  uint32_t nsteps, capacity;
  uint32_t from, next;
  bs_coll_call *calls; /* of the round with the most transfers */
  const bs_coll_call **pointers;
  uint32_t ncalls;
  uint64_t landing_elements;              /* of the round with the most that is reduced */
  bs_rounds_room work[BS_ROUNDS_BUFFERS]; /* IN, OUT: dense, of `dtype`, where the call's are not; SCRATCH */
  bs_rounds_room landing;
  uint64_t sequence; /* of runs: part of what both ends of a transfer compare */
};

/* coll_rounds.c: the schedule for `rows` rows of the plan's collective, checked: BS_PLUGIN names the step
 * that is wrong. What the algorithm refuses with otherwise. Allocates only what has become larger. */
int32_t bs_rounds_fit(bs_coll_rounds *rounds, uint64_t rows, bs_error *err);
/* The steps from round `from` on into `steps`. */
int32_t bs_rounds_load(bs_coll_rounds *rounds, uint32_t from, bs_error *err);

/* coll_algorithm.c: at least `bytes`; what was there is lost. */
int32_t bs_rounds_grow(const bs_coll_rounds *rounds, bs_rounds_room *room, uint64_t bytes, bs_error *err);

/* coll_reduce.c: acc[i] = acc[i] op src[i]. */
int32_t bs_coll_reduce(uint32_t dtype, uint32_t op, void *acc, const void *src, uint64_t n);

#endif
