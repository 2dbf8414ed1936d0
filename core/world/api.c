/* SPDX-License-Identifier: MIT
 *
 * api.c - the table that methods and workloads are given (rank.h): each slot is a core function or a
 * short wrapper over the op dispatch, partitions, memory, collectives and timers.
 */
#include <string.h>

#include "core/world/executor.h"
#include "core/world/world.h"

static uint32_t api_rank(const bs_rank *rank) {
  return rank->index;
}
static uint32_t api_world_size(const bs_rank *rank) {
  return rank->world->size;
}

/* The query with the flags that the rank requires, in `room` where it has others. */
static const bs_op_query *required(const bs_rank *rank, const bs_op_query *query, bs_op_query *room) {
  if (rank->required == 0) return query;
  memset(room, 0, sizeof *room);
  memcpy(room, query, query->struct_size < sizeof *room ? query->struct_size : sizeof *room);
  room->struct_size = (uint32_t)sizeof *room;
  room->flags |= rank->required;
  return room;
}

static int32_t api_op_supports(bs_rank *rank, const bs_op_query *query, bs_op_answer *out_answer,
                               bs_error *err) {
  bs_op_query room;
  return bs_dispatch_supports(&rank->ops, required(rank, query, &room), out_answer, err);
}

static int32_t api_pack(bs_rank *rank, const bs_op_query *query, const bs_source *weights,
                        bs_packed **out_packed, bs_error *err) {
  int timed = !bs_region_running(rank, BS_REGION_PACK); /* unless the method times it */
  if (timed) bs_region_begin(rank, BS_REGION_PACK);
  bs_op_query room;
  int32_t rc = bs_dispatch_pack(&rank->ops, required(rank, query, &room), weights, out_packed, err);
  if (timed) bs_region_end(rank, BS_REGION_PACK);
  return rc;
}

static int32_t api_op_prepare(bs_rank *rank, const bs_op_query *query, bs_packed *weights, bs_plan **out_plan,
                              bs_error *err) {
  bs_op_query room;
  return bs_dispatch_prepare(&rank->ops, required(rank, query, &room), weights, out_plan, err);
}

static int32_t api_partition_make(bs_rank *rank, const bs_mask *mask, int64_t total, uint32_t rank_index,
                                  uint32_t world_size, const bs_partition **out_partition, bs_error *err) {
  (void)rank;
  return bs_partition_make(mask, total, rank_index, world_size, out_partition, err);
}

static int32_t api_kept_make(bs_rank *rank, const bs_mask *mask, int64_t rows, int64_t cols,
                             const bs_source *weights, uint32_t half, const bs_kept **out_kept,
                             bs_error *err) {
  (void)rank;
  return bs_kept_make(mask, rows, cols, weights, half, out_kept, err);
}

static int32_t api_parallel_for(bs_rank *rank, void (*body)(void *arg, uint32_t member, uint32_t width),
                                void *arg) {
  return bs_team_run(rank->team, body, arg);
}

static void api_count(bs_rank *rank, uint32_t counter, uint64_t n) {
  if (counter < BS_COUNT_COUNT_) rank->counters[counter] += n;
}

const bs_rank_api *bs_rank_get_api(void) {
  static const bs_rank_api api = {
      .struct_size = (uint32_t)sizeof(bs_rank_api),
      .rank = api_rank,
      .world_size = api_world_size,
      .op_supports = api_op_supports,
      .pack = api_pack,
      .packed_update = bs_dispatch_packed_update,
      .packed_read = bs_dispatch_packed_read,
      .packed_bytes = bs_dispatch_packed_bytes,
      .packed_release = bs_dispatch_packed_release,
      .op_prepare = api_op_prepare,
      .op_run = bs_dispatch_run,
      .op_release = bs_dispatch_release,
      .tensor_alloc = bs_memory_tensor_alloc,
      .tensor_free = bs_memory_tensor_free,
      .tensor_read = bs_memory_tensor_read,
      .partition_make = api_partition_make,
      .partition_free = bs_partition_free,
      .parallel_for = api_parallel_for,
      .group_open = bs_group_open,
      .group_close = bs_group_close,
      .collective_prepare = bs_coll_prepare,
      .collective_run = bs_coll_run,
      .collective_release = bs_coll_release,
      .region_named = bs_region_named,
      .region_begin = bs_region_begin,
      .region_end = bs_region_end,
      .count = api_count,
      .alloc = bs_memory_host_alloc,
      .free = bs_memory_host_free,
      .kept_make = api_kept_make,
      .kept_free = bs_kept_free,
      .collective_start = bs_coll_start,
      .collective_wait = bs_coll_wait,
  };
  return &api;
}

void bs_rank_require(bs_rank *rank, uint32_t query_flags) {
  rank->required = query_flags;
}

void bs_rank_set_alone(bs_rank *rank) {
  rank->alone = 1;
}

int bs_rank_is_alone(const bs_rank *rank) {
  return rank->alone != 0;
}

bs_world *bs_rank_world(const bs_rank *rank) {
  return rank->world;
}

const char *bs_rank_backend(const bs_rank *rank) {
  return rank->world->backend->name;
}
