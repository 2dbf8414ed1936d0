/* SPDX-License-Identifier: MIT
 *
 * ring.c - the algorithm "ring": each rank sends to the next one. An all-reduce is a reduce-scatter and an
 * all-gather of p - 1 rounds each, one block of the vector a round. It moves the fewest bytes that there can
 * be, 2 (p - 1) / p of the vector a rank, and waits for 2 (p - 1) latencies.
 */
#include "steps.h"

static const uint64_t kinds =
    KIND(BS_COLL_ALL_REDUCE) | KIND(BS_COLL_ALL_GATHER) | KIND(BS_COLL_REDUCE_SCATTER);

/* The sum of a block travels through two slots of SCRATCH, since IN is read only and OUT holds one block:
 * what comes is added to the rank's own elements and sent on. */
static void reduce_scatter(steps *s, uint64_t slot) {
  const uint32_t p = s->shape->world_size, me = s->rank, next = (me + 1) % p, before = (me + p - 1) % p;
  for (uint32_t step = steps_skip(s, p - 1); step + 1 < p && s->rc == 0; ++step, ++s->round) {
    const range out = range_block(s->shape, (me + 2 * p - step - 1) % p);
    const range in = range_block(s->shape, (me + 2 * p - step - 2) % p);
    const range from = {(step + 1) % 2 * slot, out.count}, to = {step % 2 * slot, in.count};
    const range own = {0, in.count};
    if (step == 0) {
      steps_send(s, next, BS_BUFFER_IN, out);
    } else {
      steps_send(s, next, BS_BUFFER_SCRATCH, from);
    }
    if (step + 2 < p) {
      steps_recv(s, before, BS_BUFFER_SCRATCH, to);
      steps_add(s, BS_BUFFER_IN, in.first, BS_BUFFER_SCRATCH, to);
    } else {
      steps_recv(s, before, BS_BUFFER_OUT, own);
      steps_add(s, BS_BUFFER_IN, in.first, BS_BUFFER_OUT, own);
    }
  }
}

static uint64_t largest_block(const bs_coll_shape *shape) {
  uint64_t most = 0;
  for (uint32_t b = 0; b < shape->world_size; ++b) {
    const range r = range_block(shape, b);
    if (r.count > most) most = r.count;
  }
  return most;
}

static int32_t scratch(void *state, const bs_coll_shape *shape, uint32_t rank, uint64_t *out_elements,
                       bs_error *err) {
  (void)state;
  (void)rank;
  (void)err;
  *out_elements = shape->kind == BS_COLL_REDUCE_SCATTER ? 2 * largest_block(shape) : 0;
  return BS_OK;
}

static int32_t schedule(void *state, const bs_coll_shape *shape, uint32_t rank,
                        int32_t (*emit)(void *user, const bs_coll_step *step), void *user, bs_error *err) {
  steps s = {.shape = shape, .rank = rank, .emit = emit, .user = user};
  party world = party_world(&s);
  const int32_t rc = need_kind("ring", kinds, shape, err);
  (void)state;
  if (rc != BS_OK) return rc;
  if (shape->kind == BS_COLL_ALL_REDUCE) {
    steps_copy_in(&s);
    party_reduce_scatter(&s, &world);
    party_all_gather(&s, &world);
  } else if (shape->kind == BS_COLL_ALL_GATHER) {
    world.blocks = shape;
    steps_copy(&s, BS_BUFFER_IN, 0, BS_BUFFER_OUT, range_block(shape, rank));
    party_all_gather(&s, &world);
  } else {
    const range own = {0, range_block(shape, rank).count};
    if (shape->world_size == 1) steps_copy(&s, BS_BUFFER_IN, 0, BS_BUFFER_OUT, own);
    reduce_scatter(&s, largest_block(shape));
  }
  return s.rc;
}

static int32_t cost(void *state, const bs_coll_shape *shape, const bs_link *link, double *out_seconds,
                    bs_error *err) {
  const int32_t rc = need_kind("ring", kinds, shape, err);
  (void)state;
  if (rc != BS_OK) return rc;
  const double both = cost_ring(shape->world_size, cost_bytes(shape), link);
  *out_seconds = shape->kind == BS_COLL_ALL_REDUCE ? both : both / 2;
  return BS_OK;
}

const bs_algorithm algorithm_ring = {
    .struct_size = (uint32_t)sizeof(bs_algorithm),
    .flags = BS_ALGORITHM_SAME_ORDER,
    .name = "ring",
    .summary = "blocks go round a ring: fewest bytes, 2 (p - 1) latencies",
    .kinds = KIND(BS_COLL_ALL_REDUCE) | KIND(BS_COLL_ALL_GATHER) | KIND(BS_COLL_REDUCE_SCATTER),
    .schedule = schedule,
    .scratch = scratch,
    .cost = cost,
};
