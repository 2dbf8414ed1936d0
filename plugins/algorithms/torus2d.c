/* SPDX-License-Identifier: MIT
 *
 * torus2d.c - the algorithm "torus2d": ranks in rows of `width`. A ring reduce-scatter in each row, a ring
 * all-reduce in each column, a ring all-gather in each row: 2 (a - 1 + b - 1) latencies.
 */
#include "steps.h"

static const bs_param_desc width = {.struct_size = (uint32_t)sizeof(bs_param_desc),
                                    .type = BS_PARAM_INT,
                                    .name = "width",
                                    .default_text = "0",
                                    .choices = "0..1048576",
                                    .doc = "ranks of a row; 0: the largest divisor of p up to its root"};
static const bs_param_desc *const params[] = {&width, NULL};

static int32_t width_of(const bs_coll_shape *shape, uint32_t *out_width, bs_error *err) {
  const uint32_t p = shape->world_size;
  uint32_t a = (uint32_t)shape->options[0].i;
  if (a == 0) {
    a = 1;
    for (uint32_t d = 2; (uint64_t)d * d <= p; ++d)
      if (p % d == 0) a = d;
  }
  *out_width = a;
  if (p % a == 0) return BS_OK;
  return bs_fail(err, BS_UNSUPPORTED, "BS-ALG-WIDTH",
                 "torus2d: %u ranks are no whole number of rows of %u; set width to a divisor", p, a);
}

static int32_t schedule(void *state, const bs_coll_shape *shape, uint32_t rank,
                        int32_t (*emit)(void *user, const bs_coll_step *step), void *user, bs_error *err) {
  steps s = {.shape = shape, .rank = rank, .emit = emit, .user = user};
  uint32_t a = 1;
  int32_t rc = need_kind("torus2d", KIND(BS_COLL_ALL_REDUCE), shape, err);
  (void)state;
  if (rc == BS_OK) rc = width_of(shape, &a, err);
  if (rc != BS_OK) return rc;
  const party row = {.base = rank / a * a, .stride = 1, .size = a, .me = rank % a, .all = range_all(shape)};
  const party column = {.base = rank % a,
                        .stride = a,
                        .size = shape->world_size / a,
                        .me = rank / a,
                        .all = party_block(&row, rank % a)};
  steps_copy_in(&s);
  party_reduce_scatter(&s, &row);
  party_reduce_scatter(&s, &column);
  party_all_gather(&s, &column);
  party_all_gather(&s, &row);
  return s.rc;
}

static int32_t cost(void *state, const bs_coll_shape *shape, const bs_link *link, double *out_seconds,
                    bs_error *err) {
  uint32_t a = 1;
  int32_t rc = need_kind("torus2d", KIND(BS_COLL_ALL_REDUCE), shape, err);
  (void)state;
  if (rc == BS_OK) rc = width_of(shape, &a, err);
  if (rc != BS_OK) return rc;
  *out_seconds =
      cost_ring(a, cost_bytes(shape), link) + cost_ring(shape->world_size / a, cost_bytes(shape) / a, link);
  return BS_OK;
}

const bs_algorithm algorithm_torus2d = {
    .struct_size = (uint32_t)sizeof(bs_algorithm),
    .flags = BS_ALGORITHM_SAME_ORDER,
    .name = "torus2d",
    .summary = "rings along the rows and columns of a torus",
    .kinds = KIND(BS_COLL_ALL_REDUCE),
    .schedule = schedule,
    .params = params,
    .cost = cost,
};
