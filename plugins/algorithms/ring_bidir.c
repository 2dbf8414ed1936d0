/* SPDX-License-Identifier: MIT
 *
 * ring_bidir.c - the algorithm "ring_bidir": two rings, one each way, each with half of the vector. Where the
 * two directions of a ring are wires of their own it takes half the time for the bytes; where a rank has one
 * port for both it takes the time of one ring.
 */
#include "steps.h"

static void two_parties(const steps *s, party out[2]) {
  out[0] = out[1] = party_world(s);
  out[0].all = range_part(range_all(s->shape), 0, 2);
  out[1].all = range_part(range_all(s->shape), 1, 2);
  out[1].mirrored = 1;
  out[1].me = s->shape->world_size - 1 - s->rank;
}

static int32_t schedule(void *state, const bs_coll_shape *shape, uint32_t rank,
                        int32_t (*emit)(void *user, const bs_coll_step *step), void *user, bs_error *err) {
  steps s = {.shape = shape, .rank = rank, .emit = emit, .user = user};
  party ways[2];
  const uint32_t rounds = shape->world_size - 1;
  const int32_t rc = need_kind("ring_bidir", KIND(BS_COLL_ALL_REDUCE), shape, err);
  (void)state;
  if (rc != BS_OK) return rc;
  two_parties(&s, ways);
  steps_copy_in(&s);
  for (uint32_t step = steps_skip(&s, rounds); step < rounds && s.rc == 0; ++step, ++s.round)
    for (int way = 0; way < 2; ++way) party_reduce_scatter_step(&s, &ways[way], step);
  for (uint32_t step = steps_skip(&s, rounds); step < rounds && s.rc == 0; ++step, ++s.round)
    for (int way = 0; way < 2; ++way) party_all_gather_step(&s, &ways[way], step);
  return s.rc;
}

/* Two ranks have one pair of links: the two messages of a round go one after the other. */
static int32_t cost(void *state, const bs_coll_shape *shape, const bs_link *link, double *out_seconds,
                    bs_error *err) {
  const int32_t rc = need_kind("ring_bidir", KIND(BS_COLL_ALL_REDUCE), shape, err);
  (void)state;
  if (rc == BS_OK) *out_seconds = cost_ring(shape->world_size, cost_bytes(shape), link);
  return rc;
}

const bs_algorithm algorithm_ring_bidir = {
    .struct_size = (uint32_t)sizeof(bs_algorithm),
    .flags = BS_ALGORITHM_SAME_ORDER,
    .name = "ring_bidir",
    .summary = "two rings, one each way, each with half of the vector",
    .kinds = KIND(BS_COLL_ALL_REDUCE),
    .schedule = schedule,
    .cost = cost,
};
