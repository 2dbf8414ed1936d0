/* SPDX-License-Identifier: MIT
 *
 * doubling.c - the algorithm "doubling" (recursive doubling): in round i each rank exchanges the whole vector
 * with the one at distance 2^i and adds what comes. ceil(log2 p) latencies, and as many times all bytes: for
 * short vectors. Where p is no power of two, pairs of ranks act as one.
 */
#include "steps.h"

static int32_t schedule(void *state, const bs_coll_shape *shape, uint32_t rank,
                        int32_t (*emit)(void *user, const bs_coll_step *step), void *user, bs_error *err) {
  steps s = {.shape = shape, .rank = rank, .emit = emit, .user = user};
  const int32_t rc = need_kind("doubling", KIND(BS_COLL_ALL_REDUCE), shape, err);
  (void)state;
  if (rc != BS_OK) return rc;
  const party world = party_world(&s);
  const folded f = fold(&world);
  steps_copy_in(&s);
  fold_in(&s, &world, &f);
  for (uint32_t d = 1; d < f.active; d *= 2, ++s.round) {
    if (f.me == UINT32_MAX) continue;
    const uint32_t partner = fold_member(&f, f.me ^ d);
    steps_send(&s, partner, BS_BUFFER_OUT, world.all);
    steps_reduce(&s, partner, BS_BUFFER_OUT, world.all);
  }
  fold_out(&s, &world, &f);
  return s.rc;
}

static int32_t cost(void *state, const bs_coll_shape *shape, const bs_link *link, double *out_seconds,
                    bs_error *err) {
  const int32_t rc = need_kind("doubling", KIND(BS_COLL_ALL_REDUCE), shape, err);
  const uint32_t lg = floor_log2(shape->world_size);
  (void)state;
  if (rc != BS_OK) return rc;
  const uint32_t rounds = shape->world_size > 1u << lg ? lg + 2 : lg;
  *out_seconds = rounds * (link->latency_s + cost_bytes(shape) * cost_byte(link));
  return BS_OK;
}

const bs_algorithm algorithm_doubling = {
    .struct_size = (uint32_t)sizeof(bs_algorithm),
    .flags = BS_ALGORITHM_SAME_ORDER,
    .name = "doubling",
    .aliases = "recursive_doubling",
    .summary = "all bytes with a partner at twice the distance each round: fewest latencies",
    .kinds = KIND(BS_COLL_ALL_REDUCE),
    .schedule = schedule,
    .cost = cost,
};
