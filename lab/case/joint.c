/* SPDX-License-Identifier: MIT
 * joint.c - see joint.h. Called by case.c. */
#include "lab/case/joint.h"

#include <stdlib.h>
#include <string.h>

#include "lab/case/owners.h"
#include "lab/error.h"

static void put_rank(bs_parcel *p, const bs_case_rank *rank) {
  const bs_partition *columns = rank->owns.columns;
  const uint64_t listed =
      columns && columns->kind == BS_PARTITION_GATHER ? (uint64_t)columns->count * sizeof(uint32_t) : 0;
  char *timings = rank->timings ? json_dumps(rank->timings, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
  bs_parcel_put(p, rank, sizeof *rank); /* numbers; pointers are replaced */
  bs_parcel_put_block(p, rank->y, rank->y_bytes);
  bs_parcel_put_block(p, columns, columns ? sizeof *columns : 0);
  bs_parcel_put_block(p, listed ? (const void *)columns->columns : NULL, listed);
  bs_parcel_put_block(p, rank->kept, rank->owns.kept ? bs_owners_kept_bytes(rank->owns.kept) : 0);
  bs_parcel_put_block(p, timings, timings ? strlen(timings) : 0);
  free(timings);
}

static int32_t get_rank(bs_parcel *p, bs_case_rank *out, bs_error *err) {
  bs_parcel_get(p, out, sizeof *out);
  const int by_row = out->owns.kept != NULL;
  out->owns.columns = NULL;
  out->owns.kept = NULL;
  out->y = bs_parcel_get_block(p, NULL);
  bs_partition *columns = bs_parcel_get_block(p, NULL);
  out->columns = bs_parcel_get_block(p, NULL);
  out->kept = bs_parcel_get_block(p, NULL);
  if (by_row && out->kept != NULL) bs_owners_take(out, &out->kept_storage);
  char *timings = bs_parcel_get_block(p, NULL);
  out->timings = timings ? json_loads(timings, 0, NULL) : NULL;
  free(timings);
  if (columns != NULL) {
    out->columns_storage = *columns;
    out->columns_storage.columns = out->columns;
    out->owns.columns = &out->columns_storage;
  }
  free(columns);
  return p->failed ? bs_no_memory(err, "the results of the ranks") : BS_OK;
}

int32_t bs_joint_gather(bs_world *world, uint32_t ranks, bs_parcel *mine, bs_joint_get_fn get, void *user,
                        bs_error *err) {
  bs_parcel *of_rank = calloc(ranks, sizeof *of_rank);
  if (of_rank == NULL) mine->failed = 1;
  int32_t rc = bs_exchange_parcels(world, mine, of_rank, err);
  for (uint32_t r = 1; rc == BS_OK && bs_world_own_rank(world) == 0 && of_rank && r < ranks; ++r)
    rc = get(user, r, &of_rank[r], err);
  for (uint32_t r = 0; of_rank && r < ranks; ++r) bs_parcel_free(&of_rank[r]);
  free(of_rank);
  bs_parcel_free(mine);
  return rc;
}

static int32_t get_result(void *user, uint32_t rank, bs_parcel *p, bs_error *err) {
  bs_case_result *result = user;
  uint64_t peak = 0;
  bs_parcel_get(p, &peak, sizeof peak);
  result->memory_peak += peak;
  return get_rank(p, &result->ranks[rank], err);
}

int32_t bs_joint_collect(bs_world *world, bs_case_result *result, bs_error *err) {
  bs_parcel mine = {0};
  if (!bs_exchange_joint(world)) return BS_OK;
  bs_parcel_put(&mine, &result->memory_peak, sizeof result->memory_peak);
  put_rank(&mine, &result->ranks[bs_world_own_rank(world)]);
  return bs_joint_gather(world, result->world_size, &mine, get_result, result, err);
}
