/* SPDX-License-Identifier: MIT
 * enter.c - the rank of a world of one on the caller's own thread: no thread is started for it, and the
 * caller comes and goes between other work. The counterpart of bs_world_run (launch.c). */
#include <string.h>

#include "core/world/world.h"

static int32_t refuse(bs_error *err, const char *why, const char *hint) {
  bs_error_set(err, BS_INVALID_ARGUMENT, "BS-WORLD-ENTER", "%s", why);
  bs_error_hint(err, "%s", hint);
  return BS_INVALID_ARGUMENT;
}

static int32_t check(const bs_world *world, bs_error *err) {
  if (world->size != 1 || world->comm->launch == BS_LAUNCH_DRIVEN)
    return refuse(err, "only a world of one rank that is a thread can be entered", "use bs_world_run");
  if (world->entered) return refuse(err, "this world is entered already", "call bs_world_leave first");
  if (world->failed) return refuse(err, "this world failed before", "destroy it and create another");
  return BS_OK;
}

/* The caller's thread to the rank's first core, until bs_world_leave. Both ways cost about a microsecond: a
 * thread that is bound to this core alone stays as it is. */
static void pin_caller(bs_world *world) {
  world->unpinned = 0;
  if (!world->pinned) return;
  const int known = pthread_getaffinity_np(pthread_self(), sizeof world->affinity, &world->affinity) == 0;
  if (known && CPU_COUNT(&world->affinity) == 1 && CPU_ISSET(*bs_world_cores(world, 0), &world->affinity))
    return;
  world->unpinned = (uint32_t)known;
  bs_world_pin_rank(world, 0);
}

int32_t bs_world_enter(bs_world *world, bs_rank **out_rank, bs_error *err) {
  *out_rank = NULL;
  int32_t rc = check(world, err);
  if (rc != BS_OK) return rc;
  bs_rank *rank = world->ranks[0];
  world->log_rank = bs_log_rank();
  bs_log_take_rank(0);
  pin_caller(world);
  rank->thread = pthread_self();
  rc = bs_rank_open(rank, err);
  world->entered = 1;
  if (rc != BS_OK) {
    bs_world_leave(world, NULL);
    return rc;
  }
  *out_rank = rank;
  return BS_OK;
}

int32_t bs_world_leave(bs_world *world, bs_error *err) {
  if (!world->entered) return refuse(err, "this world is not entered", "bs_world_enter comes first");
  const bs_rank *rank = world->ranks[0];
  if (world->unpinned) pthread_setaffinity_np(pthread_self(), sizeof world->affinity, &world->affinity);
  bs_log_take_rank(world->log_rank);
  world->entered = 0;
  if (rank->sticky.code == BS_OK) return BS_OK;
  world->failed = 1;
  world->first = rank->sticky;
  if (err != NULL) *err = rank->sticky;
  return rank->sticky.code;
}
