/* SPDX-License-Identifier: MIT
 *
 * algorithm.c - what a world is asked to run its collectives by, and what lies between its ranks: names with
 * options, found among the plugins when the world is made.
 */
#include <string.h>

#include "core/base/text.h"
#include "core/world/world.h"

static int given(const char *text) {
  return text != NULL && text[0] != '\0';
}

/* "nativ" is near to no algorithm. */
static int32_t unknown(const char *name, int32_t code, bs_error *err) {
  static const char *const words[] = {"native"};
  if (code == BS_NOT_FOUND && err != NULL && bs_nearest(name, words, 1) != NULL)
    bs_error_hint(err, "did you mean 'native', the communicator's own in any order?");
  return code;
}

static int32_t can_run(const bs_algorithm *a, const bs_comm *comm, uint32_t world_size, bs_error *err) {
  if (a->schedule == NULL) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-COLL-ALGORITHM", "algorithm %s is a cost alone: it cannot be run",
                 a->name);
    bs_error_hint(err, "bsrun coll list shows those that have a schedule");
    return BS_UNSUPPORTED;
  }
  if (comm->exchange != NULL || world_size == 1) return BS_OK;
  bs_error_set(err, BS_UNSUPPORTED, "BS-COLL-ALGORITHM",
               "communicator %s has no exchange, over which the host runs algorithm %s", comm->name, a->name);
  bs_error_hint(err, "another communicator, or hardware.algorithm=native");
  return BS_UNSUPPORTED;
}

int32_t bs_algorithm_choose(bs_context *context, const bs_comm *comm, uint32_t world_size, const char *text,
                            bs_world_algorithm *a, bs_error *err) {
  const bs_algorithm *table = NULL;
  if (!given(text)) return BS_OK;
  if (strcmp(text, "native") == 0) {
    a->any_order = 1;
    return BS_OK;
  }
  int32_t rc = bs_named_read(text, &a->named, err);
  if (rc == BS_OK)
    rc = unknown(a->named.name, bs_find_algorithm(context, a->named.name, &table, &a->state, err), err);
  if (rc == BS_OK) rc = bs_algorithm_options(table, &a->named, a->options, err);
  if (rc == BS_OK) rc = can_run(table, comm, world_size, err);
  if (rc == BS_OK) a->table = table;
  return rc;
}

int32_t bs_world_open_topology(bs_world *world, const char *text, bs_error *err) {
  bs_named named;
  const bs_topology *table = NULL;
  void *state = NULL;
  if (!given(text)) return BS_OK;
  int32_t rc = bs_named_read(text, &named, err);
  if (rc != BS_OK) return rc;
  rc = bs_find_topology(world->context, named.name, &table, &state, err);
  const bs_topology_request request = {.struct_size = (uint32_t)sizeof request,
                                       .world_size = world->size,
                                       .n_options = named.n,
                                       .option_keys = named.keys,
                                       .option_values = named.values};
  if (rc == BS_OK) rc = table->open(state, &request, &world->topology.opened, err);
  if (rc == BS_OK) world->topology.table = table;
  bs_named_free(&named);
  return rc;
}

void bs_world_close_choices(bs_world *world) {
  if (world->topology.table != NULL) world->topology.table->close(world->topology.opened);
  world->topology.table = NULL;
  bs_named_free(&world->algorithm.named);
}

/* Sums of leaves (R3, R4) are gathered as they are. */
uint32_t bs_world_repro(const bs_world *world, uint32_t promised) {
  const bs_algorithm *a = world->algorithm.table;
  const int ordered = a == NULL && !world->algorithm.any_order;
  if (ordered || world->size == 1 || promised >= BS_REPRO_R3) return promised;
  const uint32_t most = a != NULL && (a->flags & BS_ALGORITHM_SAME_ORDER) != 0 ? BS_REPRO_R1 : BS_REPRO_R0;
  return promised < most ? promised : most;
}
