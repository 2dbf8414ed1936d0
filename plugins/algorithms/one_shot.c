/* SPDX-License-Identifier: MIT
 *
 * one_shot.c - the algorithm "one_shot": every rank sends what each other rank needs straight to it, all in
 * one round. One latency; an all-reduce moves p - 1 times the vector and sums in rank order, so its bits are
 * those of the communicators' own all_reduce. For short vectors. SCRATCH holds what came from each rank.
 */
#include "steps.h"

static const uint64_t kinds = KIND(BS_COLL_ALL_REDUCE) | KIND(BS_COLL_ALL_GATHER) |
                              KIND(BS_COLL_REDUCE_SCATTER) | KIND(BS_COLL_BROADCAST) |
                              KIND(BS_COLL_ALL_TO_ALL);

/* Elements that come from each rank; 0: nothing is kept in SCRATCH. */
static uint64_t slot_of(const bs_coll_shape *shape, uint32_t rank) {
  if (shape->kind == BS_COLL_ALL_REDUCE) return shape->count;
  return shape->kind == BS_COLL_REDUCE_SCATTER ? range_block(shape, rank).count : 0;
}

/* The elements of IN that `from` sends to `to`. */
static range sent(const bs_coll_shape *shape, uint32_t from, uint32_t to) {
  const range nothing = {0, 0}, own = {0, range_block(shape, from).count};
  switch (shape->kind) {
    case BS_COLL_ALL_REDUCE:
      return range_all(shape);
    case BS_COLL_ALL_GATHER:
      return own;
    case BS_COLL_BROADCAST:
      return from == shape->root ? range_all(shape) : nothing;
    default:
      return range_block(shape, to);
  }
}

/* The place where `rank` stores the data from `from`. */
static range placed(const bs_coll_shape *shape, uint32_t rank, uint32_t from, uint32_t *out_buffer) {
  range r = {0, sent(shape, from, rank).count};
  *out_buffer = slot_of(shape, rank) > 0 ? BS_BUFFER_SCRATCH : BS_BUFFER_OUT;
  if (shape->kind == BS_COLL_ALL_GATHER) {
    r = range_block(shape, from);
  } else if (shape->kind != BS_COLL_BROADCAST) {
    r.first = from * r.count;
  }
  return r;
}

/* Rank r's sends begin with r + 1 and its receives with r - 1, so no two ranks send to one at the same time.
 */
static int32_t schedule(void *state, const bs_coll_shape *shape, uint32_t rank,
                        int32_t (*emit)(void *user, const bs_coll_step *step), void *user, bs_error *err) {
  steps s = {.shape = shape, .rank = rank, .emit = emit, .user = user};
  const uint32_t p = shape->world_size;
  const int32_t rc = need_kind("one_shot", kinds, shape, err);
  uint32_t buffer = 0;
  (void)state;
  if (rc != BS_OK) return rc;
  const range own = placed(shape, rank, rank, &buffer);
  steps_copy(&s, BS_BUFFER_IN, sent(shape, rank, rank).first, buffer, own);
  for (uint32_t i = 1; i < p && s.rc == 0; ++i) {
    const uint32_t to = (rank + i) % p, from = (rank + p - i) % p;
    const range in = placed(shape, rank, from, &buffer);
    steps_send(&s, to, BS_BUFFER_IN, sent(shape, rank, to));
    steps_recv(&s, from, buffer, in);
  }
  if (slot_of(shape, rank) == 0) return s.rc;
  const range out = {0, slot_of(shape, rank)};
  s.round = 1;
  steps_copy(&s, BS_BUFFER_SCRATCH, 0, BS_BUFFER_OUT, out);
  for (uint32_t from = 1; from < p && s.rc == 0; ++from)
    steps_add(&s, BS_BUFFER_SCRATCH, from * out.count, BS_BUFFER_OUT, out);
  return s.rc;
}

static int32_t scratch(void *state, const bs_coll_shape *shape, uint32_t rank, uint64_t *out_elements,
                       bs_error *err) {
  const uint64_t slot = slot_of(shape, rank);
  (void)state;
  if (slot > UINT64_MAX / shape->world_size)
    return bs_fail(err, BS_OVERFLOW, "BS-ALG-SIZE", "one_shot: the vectors of all ranks do not fit");
  *out_elements = slot * shape->world_size;
  return BS_OK;
}

static int32_t cost(void *state, const bs_coll_shape *shape, const bs_link *link, double *out_seconds,
                    bs_error *err) {
  const double p = shape->world_size, bytes = cost_bytes(shape);
  const int32_t rc = need_kind("one_shot", kinds, shape, err);
  const int whole = shape->kind == BS_COLL_ALL_REDUCE || shape->kind == BS_COLL_BROADCAST;
  (void)state;
  if (rc != BS_OK) return rc;
  *out_seconds = p < 2 ? 0 : link->latency_s + (p - 1) * (whole ? bytes : bytes / p) * cost_byte(link);
  return BS_OK;
}

const bs_algorithm algorithm_one_shot = {
    .struct_size = (uint32_t)sizeof(bs_algorithm),
    .flags = BS_ALGORITHM_SAME_ORDER,
    .name = "one_shot",
    .aliases = "direct",
    .summary = "everything straight to everyone in one round, summed in rank order",
    .kinds = KIND(BS_COLL_ALL_REDUCE) | KIND(BS_COLL_ALL_GATHER) | KIND(BS_COLL_REDUCE_SCATTER) |
             KIND(BS_COLL_BROADCAST) | KIND(BS_COLL_ALL_TO_ALL),
    .schedule = schedule,
    .scratch = scratch,
    .cost = cost,
};
