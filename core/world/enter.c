/* SPDX-License-Identifier: MIT
 * enter.c - a rank on the caller's own thread: that of a world of one, or the own rank where ranks are
 * processes. No thread is started for it, and the caller comes and goes between other work. The counterpart
 * of bs_world_run (launch.c). */
#include <string.h>

#include "core/world/executor.h"
#include "core/world/world.h"

static int32_t refuse(bs_error *err, const char *why, const char *hint) {
  bs_error_set(err, BS_INVALID_ARGUMENT, "BS-WORLD-ENTER", "%s", why);
  bs_error_hint(err, "%s", hint);
  return BS_INVALID_ARGUMENT;
}

static int32_t check(const bs_world *world, bs_error *err) {
  const int one = world->size == 1 || world->own != BS_WORLD_ALL_RANKS;
  if (!one || world->comm->launch == BS_LAUNCH_DRIVEN)
    return refuse(err, "only a world with one rank in this process can be entered, and no simulated one",
                  "use bs_world_run");
  if (world->entered) return refuse(err, "this world is entered already", "call bs_world_leave first");
  if (world->failed) return refuse(err, "this world failed before", "destroy it and create another");
  return BS_OK;
}

static uint32_t own_rank(const bs_world *world) {
  return world->own == BS_WORLD_ALL_RANKS ? 0 : world->own;
}

/* The caller's thread to the rank's first core, until bs_world_leave. Both ways cost about a microsecond: a
 * thread that is bound to this core alone stays as it is. */
static void pin_caller(bs_world *world) {
  const uint32_t own = own_rank(world);
  world->unpinned = 0;
  if (!world->pinned) return;
  const int known = pthread_getaffinity_np(pthread_self(), sizeof world->affinity, &world->affinity) == 0;
  if (known && CPU_COUNT(&world->affinity) == 1 && CPU_ISSET(*bs_world_cores(world, own), &world->affinity))
    return;
  world->unpinned = (uint32_t)known;
  bs_world_pin_rank(world, own);
}

static void give_back(bs_world *world) {
  if (world->unpinned) pthread_setaffinity_np(pthread_self(), sizeof world->affinity, &world->affinity);
  bs_log_take_rank(world->log_rank);
  world->entered = 0;
}

int32_t bs_world_enter(bs_world *world, bs_rank **out_rank, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  *out_rank = NULL;
  int32_t rc = check(world, err);
  if (rc != BS_OK) return rc;
  bs_rank *rank = world->ranks[own_rank(world)];
  world->log_rank = bs_log_rank();
  bs_log_take_rank((int32_t)rank->index);
  pin_caller(world);
  rank->thread = pthread_self();
  world->entered = 1;
  rc = bs_rank_open(rank, &why);
  if (rc == BS_OK) {
    *out_rank = rank;
    return BS_OK;
  }
  if (world->comm_world != NULL) bs_world_report(world, rank->index, rc, &why); /* the others wait for it */
  give_back(world);
  if (err != NULL) *err = why;
  return rc;
}

void bs_world_fail(bs_world *world, int32_t code, const bs_error *err) {
  if (world->entered) bs_world_report(world, own_rank(world), code, err);
}

int32_t bs_world_leave(bs_world *world, bs_error *err) {
  if (!world->entered) return refuse(err, "this world is not entered", "bs_world_enter comes first");
  bs_rank *rank = world->ranks[own_rank(world)];
  bs_error why = BS_ERROR_INIT;
  if (!world->failed)
    bs_rank_ends(rank, BS_OK, &why);
  else if (rank->line != NULL)
    bs_coll_settle(rank);
  give_back(world);
  return world->failed ? bs_world_first(world, err) : BS_OK;
}
