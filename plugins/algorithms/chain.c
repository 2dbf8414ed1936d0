/* SPDX-License-Identifier: MIT
 *
 * chain.c - the algorithm "chain": a broadcast from rank to rank, cut into chunks that follow each other.
 */
#include "steps.h"

static const bs_param_desc chunks = {.struct_size = (uint32_t)sizeof(bs_param_desc),
                                     .type = BS_PARAM_INT,
                                     .name = "chunks",
                                     .default_text = "16",
                                     .choices = "1..65536",
                                     .doc = "parts of the vector that follow each other down the chain"};
static const bs_param_desc *const params[] = {&chunks, NULL};

/* Place q of the chain receives chunk c in round q - 1 + c and sends it on in the next. */
static int32_t schedule(void *state, const bs_coll_shape *shape, uint32_t rank,
                        int32_t (*emit)(void *user, const bs_coll_step *step), void *user, bs_error *err) {
  steps s = {.shape = shape, .rank = rank, .emit = emit, .user = user};
  const uint32_t p = shape->world_size, place = (rank + p - shape->root % p) % p;
  const int32_t rc = need_kind("chain", KIND(BS_COLL_BROADCAST), shape, err);
  (void)state;
  if (rc != BS_OK) return rc;
  const uint32_t n = (uint32_t)shape->options[0].i, before = (rank + p - 1) % p, next = (rank + 1) % p;
  if (place == 0) steps_copy_in(&s);
  for (uint32_t i = shape->from_round > place ? shape->from_round - place : 0; i <= n && s.rc == 0; ++i) {
    s.round = place == 0 ? i : place - 1 + i;
    if (i > 0 && place + 1 < p) steps_send(&s, next, BS_BUFFER_OUT, range_part(range_all(shape), i - 1, n));
    if (i < n && place > 0) steps_recv(&s, before, BS_BUFFER_OUT, range_part(range_all(shape), i, n));
  }
  return s.rc;
}

/* The latency of a message overlaps with the bytes of the next (a_port = 0). */
static int32_t cost(void *state, const bs_coll_shape *shape, const bs_link *link, double *out_seconds,
                    bs_error *err) {
  const double p = shape->world_size;
  const int32_t rc = need_kind("chain", KIND(BS_COLL_BROADCAST), shape, err);
  (void)state;
  if (rc != BS_OK) return rc;
  const double n = (double)shape->options[0].i, chunk = cost_bytes(shape) / n * cost_byte(link);
  *out_seconds = p < 2 ? 0 : (p - 1) * (link->latency_s + chunk) + (n - 1) * chunk;
  return BS_OK;
}

const bs_algorithm algorithm_chain = {
    .struct_size = (uint32_t)sizeof(bs_algorithm),
    .flags = BS_ALGORITHM_SAME_ORDER,
    .name = "chain",
    .summary = "a broadcast from rank to rank in chunks that follow each other",
    .kinds = KIND(BS_COLL_BROADCAST),
    .schedule = schedule,
    .params = params,
    .cost = cost,
};
