/* SPDX-License-Identifier: MIT
 *
 * group.c - sub-worlds: every member opens the same ascending list of world ranks, in the same order.
 * Called through the rank table.
 */
#include <stdlib.h>
#include <string.h>

#include "core/world/world.h"

int32_t bs_group_open(bs_rank *rank, const uint32_t *ranks, uint32_t nranks, bs_group **out_group,
                      bs_error *err) {
  const bs_world *world = rank->world;
  uint32_t me = UINT32_MAX;
  for (uint32_t i = 0; i < nranks; ++i) {
    if (ranks[i] >= world->size || (i > 0 && ranks[i] <= ranks[i - 1]))
      return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GROUP-RANKS",
                          "ranks of a group must ascend and be below %u; entry %u is %u", world->size, i,
                          ranks[i]);
    if (ranks[i] == rank->index) me = i;
  }
  if (me == UINT32_MAX)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GROUP-RANKS",
                        "rank %u opens a group of %u ranks that it is not in", rank->index, nranks);
  bs_group *group = calloc(1, sizeof *group + (size_t)nranks * sizeof *ranks);
  if (group == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-GROUP-MEMORY", "no memory for a group");
  group->rank = rank;
  memcpy(group->ranks, ranks, (size_t)nranks * sizeof *ranks);
  group->n = nranks;
  group->me = me;
  if (rank->line != NULL) bs_coll_settle(rank);
  if (nranks > 1) {
    int32_t rc = world->comm->group_open != NULL
                     ? world->comm->group_open(rank->comm, ranks, nranks, &group->comm, err)
                     : bs_error_set(err, BS_UNSUPPORTED, "BS-GROUP-KIND", "communicator %s has no groups",
                                    world->comm->name);
    if (rc != BS_OK) {
      free(group);
      return rc;
    }
  }
  *out_group = group;
  return BS_OK;
}

void bs_group_close(bs_group *group) {
  if (group == NULL) return;
  if (group->rank->line != NULL) bs_coll_settle(group->rank);
  if (group->comm != NULL) group->rank->world->comm->rank_close(group->comm);
  free(group);
}
