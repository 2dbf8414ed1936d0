/* SPDX-License-Identifier: MIT
 *
 * halving_doubling.c - the algorithm "halving_doubling" (Rabenseifner): a reduce-scatter that exchanges half
 * as many bytes each round, then an all-gather that goes the same way back. The bytes of a ring and 2 log2 p
 * latencies. Where p is no power of two, pairs of ranks act as one, which moves all bytes twice more.
 */
#include "steps.h"

static int32_t schedule(void *state, const bs_coll_shape *shape, uint32_t rank,
                        int32_t (*emit)(void *user, const bs_coll_step *step), void *user, bs_error *err) {
  steps s = {.shape = shape, .rank = rank, .emit = emit, .user = user};
  const int32_t rc = need_kind("halving_doubling", KIND(BS_COLL_ALL_REDUCE), shape, err);
  (void)state;
  if (rc != BS_OK) return rc;
  const party world = party_world(&s);
  steps_copy_in(&s);
  party_halving_doubling(&s, &world);
  return s.rc;
}

static int32_t cost(void *state, const bs_coll_shape *shape, const bs_link *link, double *out_seconds,
                    bs_error *err) {
  const int32_t rc = need_kind("halving_doubling", KIND(BS_COLL_ALL_REDUCE), shape, err);
  (void)state;
  if (rc == BS_OK) *out_seconds = cost_halving_doubling(shape->world_size, cost_bytes(shape), link);
  return rc;
}

const bs_algorithm algorithm_halving_doubling = {
    .struct_size = (uint32_t)sizeof(bs_algorithm),
    .flags = BS_ALGORITHM_SAME_ORDER,
    .name = "halving_doubling",
    .aliases = "rabenseifner",
    .summary = "half as many bytes each round, and back: a ring's bytes in 2 log2 p latencies",
    .kinds = KIND(BS_COLL_ALL_REDUCE),
    .schedule = schedule,
    .cost = cost,
};
