/* SPDX-License-Identifier: MIT
 *
 * hierarchical.c - the algorithm "hierarchical": reduce-scatter in each node by a ring, an all-reduce of each
 * block over the nodes, an all-gather in each node. A node is `group` ranks that follow each other, so the
 * slow links between nodes carry 1/group of the bytes.
 */
#include "steps.h"

static const bs_param_desc group = {.struct_size = (uint32_t)sizeof(bs_param_desc),
                                    .type = BS_PARAM_INT,
                                    .name = "group",
                                    .default_text = "0",
                                    .choices = "0..1048576",
                                    .doc = "ranks of a node; 0: the largest divisor of p up to 8"};
static const bs_param_desc outer = {.struct_size = (uint32_t)sizeof(bs_param_desc),
                                    .type = BS_PARAM_STRING,
                                    .name = "outer",
                                    .default_text = "halving_doubling",
                                    .choices = "halving_doubling|ring",
                                    .doc = "how each block is reduced over the nodes"};
static const bs_param_desc *const params[] = {&group, &outer, NULL};

static int32_t group_of(const bs_coll_shape *shape, uint32_t *out_group, bs_error *err) {
  const uint32_t p = shape->world_size;
  uint32_t g = (uint32_t)shape->options[0].i;
  if (g == 0)
    for (g = p < 8 ? p : 8; p % g != 0;) --g;
  *out_group = g;
  if (p % g == 0) return BS_OK;
  return bs_fail(err, BS_UNSUPPORTED, "BS-ALG-GROUP",
                 "hierarchical: %u ranks are no whole number of nodes of %u; set group to a divisor", p, g);
}

static int is_ring(const bs_coll_shape *shape) {
  return strcmp(shape->options[1].s, "ring") == 0;
}

static int32_t schedule(void *state, const bs_coll_shape *shape, uint32_t rank,
                        int32_t (*emit)(void *user, const bs_coll_step *step), void *user, bs_error *err) {
  steps s = {.shape = shape, .rank = rank, .emit = emit, .user = user};
  uint32_t g = 1;
  int32_t rc = need_kind("hierarchical", KIND(BS_COLL_ALL_REDUCE), shape, err);
  (void)state;
  if (rc == BS_OK) rc = group_of(shape, &g, err);
  if (rc != BS_OK) return rc;
  const party node = {.base = rank / g * g, .stride = 1, .size = g, .me = rank % g, .all = range_all(shape)};
  const party nodes = {.base = rank % g,
                       .stride = g,
                       .size = shape->world_size / g,
                       .me = rank / g,
                       .all = party_block(&node, rank % g)};
  steps_copy_in(&s);
  party_reduce_scatter(&s, &node);
  if (is_ring(shape)) {
    party_reduce_scatter(&s, &nodes);
    party_all_gather(&s, &nodes);
  } else {
    party_halving_doubling(&s, &nodes);
  }
  party_all_gather(&s, &node);
  return s.rc;
}

/* One class of links: in a node as between nodes. */
static int32_t cost(void *state, const bs_coll_shape *shape, const bs_link *link, double *out_seconds,
                    bs_error *err) {
  uint32_t g = 1;
  int32_t rc = need_kind("hierarchical", KIND(BS_COLL_ALL_REDUCE), shape, err);
  (void)state;
  if (rc == BS_OK) rc = group_of(shape, &g, err);
  if (rc != BS_OK) return rc;
  const double bytes = cost_bytes(shape);
  const uint32_t n = shape->world_size / g;
  *out_seconds = cost_ring(g, bytes, link) +
                 (is_ring(shape) ? cost_ring(n, bytes / g, link) : cost_halving_doubling(n, bytes / g, link));
  return BS_OK;
}

const bs_algorithm algorithm_hierarchical = {
    .struct_size = (uint32_t)sizeof(bs_algorithm),
    .flags = BS_ALGORITHM_SAME_ORDER,
    .name = "hierarchical",
    .summary = "a ring in each node around an all-reduce over the nodes",
    .kinds = KIND(BS_COLL_ALL_REDUCE),
    .schedule = schedule,
    .params = params,
    .cost = cost,
};
