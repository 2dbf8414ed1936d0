/* SPDX-License-Identifier: MIT
 *
 * pairwise.c - the algorithm "pairwise": an all-to-all in p - 1 rounds; in round i rank r sends to r + i and
 * receives from r - i, so that each rank has one message at a time.
 */
#include "steps.h"

static int32_t schedule(void *state, const bs_coll_shape *shape, uint32_t rank,
                        int32_t (*emit)(void *user, const bs_coll_step *step), void *user, bs_error *err) {
  steps s = {.shape = shape, .rank = rank, .emit = emit, .user = user};
  const uint32_t p = shape->world_size;
  const int32_t rc = need_kind("pairwise", KIND(BS_COLL_ALL_TO_ALL), shape, err);
  (void)state;
  if (rc != BS_OK) return rc;
  const range mine = range_block(shape, rank);
  const range own = {rank * mine.count, mine.count};
  steps_copy(&s, BS_BUFFER_IN, mine.first, BS_BUFFER_OUT, own);
  for (uint32_t i = 1 + steps_skip(&s, p - 1); i < p && s.rc == 0; ++i, ++s.round) {
    const uint32_t to = (rank + i) % p, from = (rank + p - i) % p;
    const range slot = {from * mine.count, mine.count};
    steps_send(&s, to, BS_BUFFER_IN, range_block(shape, to));
    steps_recv(&s, from, BS_BUFFER_OUT, slot);
  }
  return s.rc;
}

static int32_t cost(void *state, const bs_coll_shape *shape, const bs_link *link, double *out_seconds,
                    bs_error *err) {
  const double p = shape->world_size;
  const int32_t rc = need_kind("pairwise", KIND(BS_COLL_ALL_TO_ALL), shape, err);
  (void)state;
  if (rc != BS_OK) return rc;
  *out_seconds = (p - 1) * (link->latency_s + cost_bytes(shape) / p * cost_byte(link));
  return BS_OK;
}

const bs_algorithm algorithm_pairwise = {
    .struct_size = (uint32_t)sizeof(bs_algorithm),
    .name = "pairwise",
    .summary = "an all-to-all in p - 1 rounds, one partner each way a round",
    .kinds = KIND(BS_COLL_ALL_TO_ALL),
    .schedule = schedule,
    .cost = cost,
};
