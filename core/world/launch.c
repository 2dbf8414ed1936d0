/* SPDX-License-Identifier: MIT
 *
 * launch.c - how ranks come to run: P threads of this process, one such thread where the ranks are processes
 * (park.c keeps them between runs), or a communicator that drives the ranks (coroutines). The first failing
 * rank's error ends the world and wakes the others. A rank that hangs inside a plugin cannot be woken:
 * bs_world_run stops waiting for it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/plugin/registry.h"
#include "core/world/wait.h"
#include "core/world/world.h"

#define LATE_NS INT64_C(500000000) /* a rank that missed a deadline has had its time, and this */

/* Keep the first error that is not an echo of another rank's, and wake everybody. */
void bs_world_report(bs_world *world, uint32_t rank, int32_t code, const bs_error *err) {
  bs_error mine = *err;
  if (mine.code == BS_OK || mine.message[0] == '\0')
    bs_error_set(&mine, code, "BS-RANK-FAILED", "rank %u ended with status %s and no message", rank,
                 bs_status_name(code));
  mine.code = code;
  const int elsewhere = world->own != BS_WORLD_ALL_RANKS && (code == BS_RANK_FAILED || code == BS_ABORTED);
  if (!elsewhere || mine.rank < 0) mine.rank = (int32_t)rank;
  pthread_mutex_lock(&world->lock);
  if (!world->failed || (world->first.code == BS_ABORTED && code != BS_ABORTED)) world->first = mine;
  if (!world->failed) world->failed_ns = bs_wait_now_ns();
  world->failed = 1;
  pthread_mutex_unlock(&world->lock);
  bs_park_tell(world);
  if (world->comm_world == NULL) return;
  char why[sizeof mine.id + sizeof mine.message + 8];
  snprintf(why, sizeof why, "[%s] %s", mine.id, mine.message);
  world->comm->abort(world->comm_world, rank, code, why);
}

int32_t bs_rank_ends(bs_rank *rank, int32_t rc, bs_error *err) {
  if (rc == BS_OK && rank->sticky.code != BS_OK) {
    *err = rank->sticky;
    rc = err->code;
  }
  if (rc == BS_OK) rc = bs_coll_leave(rank, err);
  if (rc != BS_OK) bs_world_report(rank->world, rank->index, rc, err);
  if (rank->line != NULL) bs_coll_settle(rank); /* after the report, which wakes it */
  return rc;
}

/* The life of one rank in one run, the same for every way of launching. */
static void rank_life(bs_world *world, uint32_t index) {
  bs_rank *rank = world->ranks[index];
  bs_error err = BS_ERROR_INIT;
  rank->thread = pthread_self();
  int32_t rc = bs_rank_open(rank, &err);
  if (rc == BS_OK) rc = world->rank_main(rank, world->arg, &err);
  bs_rank_ends(rank, rc, &err);
}

/* The rank's own thread is member 0 of its team: the first of its cores. */
void bs_world_pin_rank(const bs_world *world, uint32_t index) {
  if (bs_pin_to_core(*bs_world_cores(world, index)) != 0)
    bs_log_write(world->logger, BS_LOG_WARN, "", (int32_t)index, "cannot pin this rank to its cores");
}

/* When the ranks that have not come back have had the time that a rank has after a failure: after a deadline
 * half a second, after another error the deadline of the wait that it may be in. 0: no rank has failed. */
static int64_t patience(bs_world *world) {
  pthread_mutex_lock(&world->lock);
  const int64_t grace = world->first.code == BS_DEADLINE ? LATE_NS : world->timeout_ns + LATE_NS;
  const int64_t until = world->failed ? world->failed_ns + grace : 0;
  pthread_mutex_unlock(&world->lock);
  return until;
}

static int has_failed(bs_world *world) {
  return patience(world) != 0;
}

/* Stops waiting for ranks that are stuck. Memory that they may still touch is kept, on a list, so that it is
 * not reported as a leak. */
static void leave_behind(bs_world *world) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static bs_world *kept;
  world->stuck = 1;
  bs_context_leave_stuck(world->context);
  pthread_mutex_lock(&lock);
  world->next_stuck = kept;
  kept = world;
  pthread_mutex_unlock(&lock);
}

/* A failed world never runs again: its threads end. */
static void run_threads(bs_world *world) {
  bs_error err = BS_ERROR_INIT;
  uint32_t rank = 0;
  const int32_t rc = bs_park_ready(world, rank_life, &rank, &err);
  if (rc != BS_OK)
    bs_world_report(world, rank, rc, &err);
  else if (!bs_park_run(world, patience))
    leave_behind(world);
  if (has_failed(world)) bs_park_end(world);
}

static void driven_main(void *arg, uint32_t rank) {
  bs_world *world = arg;
  if (rank < world->size) rank_life(world, rank);
}

int32_t bs_world_first(bs_world *world, bs_error *err) {
  pthread_mutex_lock(&world->lock); /* a rank that is still in a call may report late */
  bs_error first = world->first;
  pthread_mutex_unlock(&world->lock);
  /* Only the abort of another process's failure is known here; native_code holds its code (comm.h). */
  if (world->own != BS_WORLD_ALL_RANKS && first.code == BS_ABORTED && first.native_code > 0)
    first.code = (int32_t)first.native_code;
  if (err != NULL) *err = first;
  return first.code;
}

int32_t bs_launch_run(bs_world *world, bs_error *err) {
  int32_t rc = BS_OK;
  if (world->comm->launch == BS_LAUNCH_DRIVEN)
    rc = world->comm->world_drive(world->comm_world, driven_main, world, err);
  else
    run_threads(world);
  const int failed = has_failed(world);
  if (!failed && rc == BS_OK) return BS_OK;
  if (!failed) { /* the launcher itself failed */
    world->failed = 1;
    if (err != NULL) world->first = *err;
    return rc;
  }
  return bs_world_first(world, err);
}
