/* SPDX-License-Identifier: MIT
 *
 * launch.c - how ranks come to run: P threads of this process, pinned to their cores when asked, one such
 * thread where the ranks are processes, or a communicator that drives them (coroutines). The first failing
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
  pthread_cond_broadcast(&world->ended);
  pthread_mutex_unlock(&world->lock);
  if (world->comm_world == NULL) return;
  char why[sizeof mine.id + sizeof mine.message + 8];
  snprintf(why, sizeof why, "[%s] %s", mine.id, mine.message);
  world->comm->abort(world->comm_world, rank, code, why);
}

/* The life of one rank, the same for every way of launching. */
static void rank_life(bs_world *world, uint32_t index) {
  bs_rank *rank = world->ranks[index];
  bs_error err = BS_ERROR_INIT;
  rank->thread = pthread_self();
  int32_t rc = bs_rank_open(rank, &err);
  if (rc == BS_OK) rc = world->rank_main(rank, world->arg, &err);
  if (rc == BS_OK && rank->sticky.code != BS_OK) {
    err = rank->sticky;
    rc = err.code;
  }
  if (rc == BS_OK) rc = bs_coll_leave(rank, &err);
  if (rc != BS_OK) bs_world_report(world, index, rc, &err);
  if (rank->line != NULL) bs_coll_settle(rank); /* after the report, which wakes it */
}

typedef struct rank_thread {
  bs_world *world;
  uint32_t index;
  uint32_t ended; /* under the world's lock */
  pthread_t thread;
} rank_thread;

/* The rank's own thread is member 0 of its team: the first of its cores. */
void bs_world_pin_rank(const bs_world *world, uint32_t index) {
  if (bs_pin_to_core(*bs_world_cores(world, index)) != 0)
    bs_log_write(world->logger, BS_LOG_WARN, "", (int32_t)index, "cannot pin this rank to its cores");
}

static void *thread_main(void *arg) {
  rank_thread *t = arg;
  bs_log_set_rank((int32_t)t->index);
  if (t->world->pinned) bs_world_pin_rank(t->world, t->index);
  rank_life(t->world, t->index);
  pthread_mutex_lock(&t->world->lock);
  t->ended = 1;
  t->world->running--;
  pthread_cond_broadcast(&t->world->ended);
  pthread_mutex_unlock(&t->world->lock);
  return NULL;
}

/* Until all have ended, or those that have not had the time that a rank has after a failure: after a deadline
 * half a second, after another error the deadline of the wait that it may be in. 1: all have. */
static int await_ranks(bs_world *world) {
  pthread_mutex_lock(&world->lock);
  while (world->running > 0) {
    if (!world->failed) {
      pthread_cond_wait(&world->ended, &world->lock);
      continue;
    }
    const int64_t grace = world->first.code == BS_DEADLINE ? LATE_NS : world->timeout_ns + LATE_NS;
    const int64_t until = world->failed_ns + grace;
    const struct timespec end = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
    if (bs_wait_now_ns() >= until) break;
    pthread_cond_timedwait(&world->ended, &world->lock, &end);
  }
  const int all = world->running == 0;
  pthread_mutex_unlock(&world->lock);
  return all;
}

/* Stops waiting for ranks that are stuck. Memory that they may still touch is kept, on a list, so that it is
 * not reported as a leak. */
static void leave_behind(bs_world *world, rank_thread *threads, uint32_t n) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static bs_world *kept;
  world->stuck = 1;
  bs_context_leave_stuck(world->context);
  pthread_mutex_lock(&lock);
  world->next_stuck = kept;
  kept = world;
  pthread_mutex_unlock(&lock);
  for (uint32_t r = 0; r < n; ++r) {
    pthread_mutex_lock(&world->lock);
    const uint32_t ended = threads[r].ended;
    pthread_mutex_unlock(&world->lock);
    if (ended) {
      pthread_join(threads[r].thread, NULL);
      continue;
    }
    pthread_detach(threads[r].thread);
    bs_log_write(world->logger, BS_LOG_WARN, "", (int32_t)threads[r].index,
                 "this rank is inside a call that does not return: it is left behind");
  }
}

static int32_t run_threads(bs_world *world, bs_error *err) {
  const int attached = world->own != BS_WORLD_ALL_RANKS;
  const uint32_t first = attached ? world->own : 0, count = attached ? 1 : world->size;
  rank_thread *threads = calloc(count, sizeof *threads);
  if (threads == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-WORLD-MEMORY", "no memory for %u threads", count);
  uint32_t started = 0;
  world->threads = threads;
  for (; started < count; ++started) {
    rank_thread *t = &threads[started];
    t->world = world;
    t->index = first + started;
    pthread_mutex_lock(&world->lock);
    world->running++;
    pthread_mutex_unlock(&world->lock);
    int failure = pthread_create(&t->thread, NULL, thread_main, t);
    if (failure == 0) continue;
    pthread_mutex_lock(&world->lock);
    world->running--;
    pthread_mutex_unlock(&world->lock);
    bs_error mine = BS_ERROR_INIT;
    int32_t rc = bs_error_errno(&mine, BS_NO_MEMORY, "BS-WORLD-THREAD", failure,
                                "cannot start the thread of rank %u of %u", t->index, world->size);
    bs_world_report(world, t->index, rc, &mine);
    break;
  }
  if (!await_ranks(world)) {
    leave_behind(world, threads, started);
    return BS_OK;
  }
  for (uint32_t r = 0; r < started; ++r) pthread_join(threads[r].thread, NULL);
  world->threads = NULL;
  free(threads);
  return BS_OK;
}

static void driven_main(void *arg, uint32_t rank) {
  bs_world *world = arg;
  if (rank < world->size) rank_life(world, rank);
}

int32_t bs_launch_run(bs_world *world, bs_error *err) {
  int32_t rc;
  if (world->comm->launch == BS_LAUNCH_DRIVEN)
    rc = world->comm->world_drive(world->comm_world, driven_main, world, err);
  else
    rc = run_threads(world, err);
  if (!world->failed && rc == BS_OK) return BS_OK;
  if (!world->failed) { /* the launcher itself failed */
    world->failed = 1;
    if (err != NULL) world->first = *err;
    return rc;
  }
  pthread_mutex_lock(&world->lock); /* a rank that is still in a call may report late */
  bs_error first = world->first;
  pthread_mutex_unlock(&world->lock);
  /* Only the abort of another process's failure is known here; native_code holds its code (comm.h). */
  if (world->own != BS_WORLD_ALL_RANKS && first.code == BS_ABORTED && first.native_code > 0)
    first.code = (int32_t)first.native_code;
  if (err != NULL) *err = first;
  return first.code;
}
