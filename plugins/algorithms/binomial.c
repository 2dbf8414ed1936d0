/* SPDX-License-Identifier: MIT
 *
 * binomial.c - the algorithm "binomial": a tree in which rank r gets the vector from the rank without r's
 * lowest bit. A broadcast goes down the tree; an all-reduce is a reduction up to rank 0 and a broadcast.
 */
#include "steps.h"

static const uint64_t kinds = KIND(BS_COLL_ALL_REDUCE) | KIND(BS_COLL_BROADCAST);

/* place: of the rank in the tree; rank of a place: (place + root) mod p. */
static void reduce_up(steps *s) {
  const uint32_t p = s->shape->world_size, r = s->rank;
  const range all = range_all(s->shape);
  for (uint32_t d = 1; d < p; d *= 2, ++s->round) {
    if (r % (2 * d) == d) steps_send(s, r - d, BS_BUFFER_OUT, all);
    if (r % (2 * d) == 0 && r + d < p) steps_reduce(s, r + d, BS_BUFFER_OUT, all);
  }
}

static void broadcast_down(steps *s, uint32_t root) {
  const uint32_t p = s->shape->world_size, place = (s->rank + p - root) % p;
  const range all = range_all(s->shape);
  uint32_t d = 1u << ceil_log2(p);
  for (d /= 2; d > 0; d /= 2, ++s->round) {
    if (place % (2 * d) == d) steps_recv(s, (place - d + root) % p, BS_BUFFER_OUT, all);
    if (place % (2 * d) == 0 && place + d < p) steps_send(s, (place + d + root) % p, BS_BUFFER_OUT, all);
  }
}

static int32_t schedule(void *state, const bs_coll_shape *shape, uint32_t rank,
                        int32_t (*emit)(void *user, const bs_coll_step *step), void *user, bs_error *err) {
  steps s = {.shape = shape, .rank = rank, .emit = emit, .user = user};
  const int32_t rc = need_kind("binomial", kinds, shape, err);
  (void)state;
  if (rc != BS_OK) return rc;
  if (shape->kind == BS_COLL_ALL_REDUCE) {
    steps_copy_in(&s);
    reduce_up(&s);
    broadcast_down(&s, 0);
  } else {
    if (rank == shape->root) steps_copy_in(&s);
    broadcast_down(&s, shape->root);
  }
  return s.rc;
}

static int32_t cost(void *state, const bs_coll_shape *shape, const bs_link *link, double *out_seconds,
                    bs_error *err) {
  const int32_t rc = need_kind("binomial", kinds, shape, err);
  (void)state;
  if (rc != BS_OK) return rc;
  *out_seconds = (shape->kind == BS_COLL_ALL_REDUCE ? 2 : 1) * (double)ceil_log2(shape->world_size) *
                 (link->latency_s + cost_bytes(shape) * cost_byte(link));
  return BS_OK;
}

const bs_algorithm algorithm_binomial = {
    .struct_size = (uint32_t)sizeof(bs_algorithm),
    .flags = BS_ALGORITHM_SAME_ORDER,
    .name = "binomial",
    .summary = "up a tree of log2 p levels to rank 0, and down again",
    .kinds = KIND(BS_COLL_ALL_REDUCE) | KIND(BS_COLL_BROADCAST),
    .schedule = schedule,
    .cost = cost,
};
