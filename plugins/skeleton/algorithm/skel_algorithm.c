/* SPDX-License-Identifier: MIT
 * skel_algorithm.c - an all-reduce over one rank: every other rank sends its vector to rank 0, which adds
 * them and sends the sum to every rank. A schedule is data: `schedule` emits the steps of one rank, and
 * Block-Shock proves, simulates and runs them.
 */
#include "skel_algorithm.h"

/* The receiver of a rank's steps; rc is the first result of emit that is not 0. */
typedef struct steps {
  const bs_coll_shape *shape;
  uint32_t round;
  int32_t (*emit)(void *user, const bs_coll_step *step);
  void *user;
  int32_t rc;
} steps;

/* Moves the whole vector in OUT: sends it to `peer`, receives it, or adds it to the data there. */
static void whole(steps *s, uint32_t action, uint32_t peer) {
  bs_coll_step step;
  memset(&step, 0, sizeof step);
  step.struct_size = (uint32_t)sizeof step;
  step.round = s->round;
  step.action = action;
  step.peer = peer;
  step.buffer = BS_BUFFER_OUT;
  step.from_buffer = BS_BUFFER_IN; /* of a COPY */
  step.count = s->shape->count;
  if (s->rc == 0 && step.count > 0) s->rc = s->emit(s->user, &step);
}

static int32_t check(const bs_coll_shape *shape, bs_error *err) {
  if (shape->kind == BS_COLL_ALL_REDUCE) return BS_OK;
  return bs_fail(err, BS_UNSUPPORTED, "BS-SKEL-ALGORITHM-KIND", "only all_reduce has a schedule");
}

/* Round 0: OUT begins as a copy of IN, and the vectors go to rank 0. Round 1: the sum comes back. */
static int32_t schedule(void *state, const bs_coll_shape *shape, uint32_t rank,
                        int32_t (*emit)(void *user, const bs_coll_step *step), void *user, bs_error *err) {
  steps s;
  const int32_t rc = check(shape, err);
  (void)state;
  if (rc != BS_OK) return rc;
  memset(&s, 0, sizeof s);
  s.shape = shape;
  s.emit = emit;
  s.user = user;
  whole(&s, BS_STEP_COPY, 0);
  for (uint32_t other = 1; rank == 0 && other < shape->world_size; ++other) whole(&s, BS_STEP_REDUCE, other);
  if (rank > 0) whole(&s, BS_STEP_SEND, 0);
  s.round = 1;
  for (uint32_t other = 1; rank == 0 && other < shape->world_size; ++other) whole(&s, BS_STEP_SEND, other);
  if (rank > 0) whole(&s, BS_STEP_RECV, 0);
  return s.rc;
}

/* Seconds: the messages arrive at rank 0 one after another, and leave it one after another. */
static int32_t cost(void *state, const bs_coll_shape *shape, const bs_link *link, double *out_seconds,
                    bs_error *err) {
  const int32_t rc = check(shape, err);
  const double bytes = (double)shape->count * (double)shape->element_bytes;
  (void)state;
  if (rc != BS_OK) return rc;
  *out_seconds = 0;
  if (shape->world_size > 1)
    *out_seconds = 2 * link->latency_s + 2 * (shape->world_size - 1.0) * bytes / link->bytes_per_s;
  return BS_OK;
}

void skel_algorithm_table(bs_algorithm *out_algorithm) {
  memset(out_algorithm, 0, sizeof *out_algorithm);
  out_algorithm->struct_size = (uint32_t)sizeof *out_algorithm;
  out_algorithm->flags = BS_ALGORITHM_SAME_ORDER; /* rank 0 adds for all of them */
  out_algorithm->name = "skel_algorithm";
  out_algorithm->summary = "an all-reduce over rank 0";
  out_algorithm->kinds = UINT64_C(1) << BS_COLL_ALL_REDUCE;
  out_algorithm->schedule = schedule;
  out_algorithm->cost = cost;
}
