/* SPDX-License-Identifier: MIT
 *
 * two_shot.c - the algorithm "two_shot": rank r gets block r of every rank's vector, sums it in rank order,
 * and sends the sum to every rank. Two latencies and the bytes of a ring; the bits of the communicators' own
 * all_reduce.
 */
#include "steps.h"

static int32_t schedule(void *state, const bs_coll_shape *shape, uint32_t rank,
                        int32_t (*emit)(void *user, const bs_coll_step *step), void *user, bs_error *err) {
  steps s = {.shape = shape, .rank = rank, .emit = emit, .user = user};
  const uint32_t p = shape->world_size;
  const int32_t rc = need_kind("two_shot", KIND(BS_COLL_ALL_REDUCE), shape, err);
  (void)state;
  if (rc != BS_OK) return rc;
  const party world = party_world(&s);
  const range mine = party_block(&world, rank);
  const range own = {rank * mine.count, mine.count};
  steps_copy(&s, BS_BUFFER_IN, mine.first, BS_BUFFER_SCRATCH, own);
  for (uint32_t i = 1; i < p && s.rc == 0; ++i) {
    const uint32_t to = (rank + i) % p, from = (rank + p - i) % p;
    const range slot = {from * mine.count, mine.count};
    steps_send(&s, to, BS_BUFFER_IN, party_block(&world, to));
    steps_recv(&s, from, BS_BUFFER_SCRATCH, slot);
  }
  s.round = 1;
  steps_copy(&s, BS_BUFFER_SCRATCH, 0, BS_BUFFER_OUT, mine);
  for (uint32_t from = 1; from < p && s.rc == 0; ++from)
    steps_add(&s, BS_BUFFER_SCRATCH, from * mine.count, BS_BUFFER_OUT, mine);
  s.round = 2;
  for (uint32_t i = 1; i < p && s.rc == 0; ++i) {
    const uint32_t to = (rank + i) % p, from = (rank + p - i) % p;
    steps_send(&s, to, BS_BUFFER_OUT, mine);
    steps_recv(&s, from, BS_BUFFER_OUT, party_block(&world, from));
  }
  return s.rc;
}

static int32_t scratch(void *state, const bs_coll_shape *shape, uint32_t rank, uint64_t *out_elements,
                       bs_error *err) {
  const range mine = range_part(range_all(shape), rank, shape->world_size);
  (void)state;
  (void)err;
  *out_elements = mine.count * shape->world_size; /* below count + world_size */
  return BS_OK;
}

static int32_t cost(void *state, const bs_coll_shape *shape, const bs_link *link, double *out_seconds,
                    bs_error *err) {
  const double p = shape->world_size;
  const int32_t rc = need_kind("two_shot", KIND(BS_COLL_ALL_REDUCE), shape, err);
  (void)state;
  if (rc != BS_OK) return rc;
  *out_seconds = p < 2 ? 0 : 2 * link->latency_s + 2 * (p - 1) / p * cost_bytes(shape) * cost_byte(link);
  return BS_OK;
}

const bs_algorithm algorithm_two_shot = {
    .struct_size = (uint32_t)sizeof(bs_algorithm),
    .flags = BS_ALGORITHM_SAME_ORDER,
    .name = "two_shot",
    .summary = "blocks straight to their owner, sums straight to everyone: 2 latencies, a ring's bytes",
    .kinds = KIND(BS_COLL_ALL_REDUCE),
    .schedule = schedule,
    .scratch = scratch,
    .cost = cost,
};
