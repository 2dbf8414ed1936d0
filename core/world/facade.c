/* SPDX-License-Identifier: MIT
 *
 * facade.c - a group that a method sees as its world: the table of rank.h once more, for a rank that is a
 * member of a group. rank, world_size, groups and collectives are the group's; everything else is done by the
 * rank itself. Called by bs_layer_build_in (layer.c); methods get the table and the facade in the place of
 * the rank's own, and see no difference.
 */
#include <stdlib.h>
#include <string.h>

#include "core/world/world.h"

struct bs_facade {
  bs_rank *rank;
  bs_group *group;
};

/* The facade that the method holds as its rank. */
static const bs_facade *facade_of(const bs_rank *rank) {
  return (const bs_facade *)(const void *)rank;
}
static bs_rank *real(bs_rank *rank) {
  return facade_of(rank)->rank;
}

static uint32_t facade_rank(const bs_rank *rank) {
  return facade_of(rank)->group->me;
}
static uint32_t facade_world_size(const bs_rank *rank) {
  return facade_of(rank)->group->n;
}

static int32_t facade_op_supports(bs_rank *rank, const bs_op_query *query, bs_op_answer *out_answer,
                                  bs_error *err) {
  return bs_rank_get_api()->op_supports(real(rank), query, out_answer, err);
}
static int32_t facade_pack(bs_rank *rank, const bs_op_query *query, const bs_source *weights,
                           bs_packed **out_packed, bs_error *err) {
  return bs_rank_get_api()->pack(real(rank), query, weights, out_packed, err);
}
static int32_t facade_op_prepare(bs_rank *rank, const bs_op_query *query, bs_packed *weights,
                                 bs_plan **out_plan, bs_error *err) {
  return bs_rank_get_api()->op_prepare(real(rank), query, weights, out_plan, err);
}

static int32_t facade_tensor_alloc(bs_rank *rank, const bs_tensor_desc *desc, uint32_t lifetime,
                                   bs_tensor *out_tensor, bs_error *err) {
  return bs_memory_tensor_alloc(real(rank), desc, lifetime, out_tensor, err);
}
static void facade_tensor_free(bs_rank *rank, bs_tensor *tensor) {
  bs_memory_tensor_free(real(rank), tensor);
}
static int32_t facade_tensor_read(bs_rank *rank, const bs_source *source, int64_t row,
                                  const bs_partition *cols, bs_tensor *out, bs_error *err) {
  return bs_memory_tensor_read(real(rank), source, row, cols, out, err);
}

static int32_t facade_partition_make(bs_rank *rank, const bs_mask *mask, int64_t total, uint32_t rank_index,
                                     uint32_t world_size, const bs_partition **out_partition, bs_error *err) {
  return bs_rank_get_api()->partition_make(real(rank), mask, total, rank_index, world_size, out_partition,
                                           err);
}
static int32_t facade_kept_make(bs_rank *rank, const bs_mask *mask, int64_t rows, int64_t cols,
                                const bs_source *weights, uint32_t half, const bs_kept **out_kept,
                                bs_error *err) {
  return bs_rank_get_api()->kept_make(real(rank), mask, rows, cols, weights, half, out_kept, err);
}
static int32_t facade_parallel_for(bs_rank *rank, void (*body)(void *arg, uint32_t member, uint32_t width),
                                   void *arg) {
  return bs_rank_get_api()->parallel_for(real(rank), body, arg);
}

/* The method names ranks of its world, the group; the communicator knows those of the world. */
static int32_t facade_group_open(bs_rank *rank, const uint32_t *ranks, uint32_t nranks, bs_group **out_group,
                                 bs_error *err) {
  const bs_group *group = facade_of(rank)->group;
  uint32_t *world_ranks = calloc(nranks > 0 ? nranks : 1, sizeof *world_ranks);
  if (world_ranks == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-GROUP-MEMORY", "no memory for a group of %u ranks", nranks);
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < nranks && rc == BS_OK; ++i) {
    if (ranks[i] >= group->n)
      rc = bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GROUP-RANKS",
                        "rank %u of a group within a group of %u ranks", ranks[i], group->n);
    else
      world_ranks[i] = group->ranks[ranks[i]];
  }
  if (rc == BS_OK) rc = bs_group_open(real(rank), world_ranks, nranks, out_group, err);
  free(world_ranks);
  return rc;
}

static int32_t facade_collective_prepare(bs_rank *rank, const bs_collective *desc, bs_coll_plan **out_plan,
                                         bs_error *err) {
  bs_collective d;
  memset(&d, 0, sizeof d);
  memcpy(&d, desc, desc->struct_size < sizeof d ? desc->struct_size : sizeof d);
  d.struct_size = (uint32_t)sizeof d;
  if (d.group == NULL) d.group = facade_of(rank)->group;
  return bs_coll_prepare(real(rank), &d, out_plan, err);
}

static uint32_t facade_region_named(bs_rank *rank, const char *name) {
  return bs_region_named(real(rank), name);
}
static void facade_region_begin(bs_rank *rank, uint32_t region) {
  bs_region_begin(real(rank), region);
}
static void facade_region_end(bs_rank *rank, uint32_t region) {
  bs_region_end(real(rank), region);
}
static void facade_count(bs_rank *rank, uint32_t counter, uint64_t n) {
  bs_rank_get_api()->count(real(rank), counter, n);
}
static void *facade_alloc(bs_rank *rank, uint64_t bytes) {
  return bs_memory_host_alloc(real(rank), bytes);
}
static void facade_free(bs_rank *rank, void *ptr) {
  bs_memory_host_free(real(rank), ptr);
}

_Static_assert(sizeof(bs_rank_api) == offsetof(bs_rank_api, collective_wait) + sizeof(void (*)(void)),
               "a slot was appended to bs_rank_api: add it to the table below");

const bs_rank_api *bs_facade_api(void) {
  static const bs_rank_api api = {
      .struct_size = (uint32_t)sizeof(bs_rank_api),
      .rank = facade_rank,
      .world_size = facade_world_size,
      .op_supports = facade_op_supports,
      .pack = facade_pack,
      .packed_update = bs_dispatch_packed_update,
      .packed_read = bs_dispatch_packed_read,
      .packed_bytes = bs_dispatch_packed_bytes,
      .packed_release = bs_dispatch_packed_release,
      .op_prepare = facade_op_prepare,
      .op_run = bs_dispatch_run,
      .op_release = bs_dispatch_release,
      .tensor_alloc = facade_tensor_alloc,
      .tensor_free = facade_tensor_free,
      .tensor_read = facade_tensor_read,
      .partition_make = facade_partition_make,
      .partition_free = bs_partition_free,
      .parallel_for = facade_parallel_for,
      .group_open = facade_group_open,
      .group_close = bs_group_close,
      .collective_prepare = facade_collective_prepare,
      .collective_run = bs_coll_run,
      .collective_release = bs_coll_release,
      .region_named = facade_region_named,
      .region_begin = facade_region_begin,
      .region_end = facade_region_end,
      .count = facade_count,
      .alloc = facade_alloc,
      .free = facade_free,
      .kept_make = facade_kept_make,
      .kept_free = bs_kept_free,
      .collective_start = bs_coll_start,
      .collective_wait = bs_coll_wait,
  };
  return &api;
}

bs_facade *bs_facade_new(bs_group *group) {
  bs_facade *facade = calloc(1, sizeof *facade);
  if (facade == NULL) return NULL;
  facade->rank = group->rank;
  facade->group = group;
  return facade;
}
