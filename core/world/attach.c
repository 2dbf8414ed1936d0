/* SPDX-License-Identifier: MIT
 *
 * attach.c - ranks that are processes: asks the communicator which rank this one is, once a process, and
 * gives a world its one rank and its share of the machine. Called by bs_world_create and the lab.
 */
#include <string.h>

#include "core/base/text.h"
#include "core/plugin/plugins.h"
#include "core/world/world.h"

extern char **environ;

/* A wrapper leaves attaching to what it wraps. */
static int32_t ask(bs_context *context, const char *name, bs_attachment *out, bs_error *err) {
  const bs_comm *comm = NULL;
  void *state = NULL;
  int32_t rc = bs_find_comm(context, bs_innermost(name), &comm, &state, err);
  if (rc != BS_OK) return rc;
  if (comm->attach == NULL)
    return bs_error_set(err, BS_PLUGIN, "BS-WORLD-LAUNCH", "communicator %s lacks attach", comm->name);
  rc = comm->attach(state, (const char *const *)environ, out, err);
  if (rc != BS_OK) return rc;
  if (out->world_size > 0 && out->rank < out->world_size && out->local_size > 0 &&
      out->local_rank < out->local_size)
    return BS_OK;
  return bs_error_set(err, BS_PLUGIN, "BS-WORLD-ATTACH",
                      "communicator %s says rank %u of %u, %u of %u on this machine", comm->name, out->rank,
                      out->world_size, out->local_rank, out->local_size);
}

int32_t bs_context_attach(bs_context *context, const char *name, bs_attachment *out, bs_error *err) {
  const bs_comm *comm = NULL;
  void *state = NULL;
  bs_attachment told = {.struct_size = (uint32_t)sizeof told};
  memset(out, 0, sizeof *out);
  int32_t rc = bs_find_comm(context, name != NULL ? name : "threads", &comm, &state, err);
  if (rc != BS_OK || comm->launch != BS_LAUNCH_ATTACHED) return rc;
  bs_context_lock(context);
  if (context->attachment.world_size == 0) {
    rc = ask(context, comm->name, &told, err);
    if (rc == BS_OK) context->attachment = told;
  }
  *out = context->attachment;
  bs_context_unlock(context);
  return rc;
}

uint32_t bs_context_rank(const bs_context *context) {
  return context->attachment.rank;
}

int32_t bs_world_attach(bs_world *world, uint32_t *out_sharers, bs_error *err) {
  bs_attachment here;
  if (world->comm->launch != BS_LAUNCH_ATTACHED || world->size == 1)
    return BS_OK; /* one rank needs no other process */
  const int32_t rc = bs_context_attach(world->context, world->comm->name, &here, err);
  if (rc != BS_OK) return rc;
  if (here.world_size != world->size) {
    bs_error_set(err, BS_CONFIG, "BS-WORLD-SIZE", "a world of %u ranks, but %u processes were started",
                 world->size, here.world_size);
    bs_error_hint(err, "-P %u, or start as many processes", here.world_size);
    return BS_CONFIG;
  }
  world->own = here.rank;
  world->local_rank = here.local_rank;
  world->bound = here.bound != 0;
  *out_sharers = world->bound ? 1u : here.local_size;
  return BS_OK;
}
