/* SPDX-License-Identifier: MIT
 *
 * hang.c - ranks that do not return, or return late. The world's abort wakes all threads that sleep here, so
 * an injected hang ends as soon as another rank has noticed it. If one thread drives all ranks it never
 * sleeps: a rank that hangs waits for ranks that never come, and no rank is late. */
#include <errno.h>
#include <time.h>

#include "comm.h"

#define HANG_NS INT64_C(60000000000) /* not noticed: a hang longer than this ends by itself */

int64_t wrap_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int wrap_sleep_until(wrap_world *world, int64_t ns) {
  const struct timespec end = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
  pthread_mutex_lock(&world->lock);
  while (!world->failed && pthread_cond_timedwait(&world->wake, &world->lock, &end) != ETIMEDOUT) {
  }
  const int failed = world->failed != 0;
  pthread_mutex_unlock(&world->lock);
  return failed;
}

/* 1: the world failed meanwhile. */
static int sleep_awake(wrap_world *world, int64_t ns) {
  return wrap_sleep_until(world, wrap_now_ns() + ns);
}

static int is_driven(const wrap_world *world) {
  return world->w->inner->launch == BS_LAUNCH_DRIVEN;
}

static int plan_hangs(const wrap_plan *plan) {
  for (uint32_t i = 0; i < plan->n; ++i)
    if (plan->steps[i].what == WRAP_HANG) return 1;
  return 0;
}

/* Every rank opens it first, so a program that opens a group of all ranks gets another one. A world of a
 * single rank has no peer to wait for. */
int32_t wrap_open_nowhere(const wrap_world *world, void *inner, void **out_group, bs_error *err) {
  const wrap_comm_state *w = world->w;
  const bs_host *host = wrap_host(w);
  *out_group = NULL;
  if (!is_driven(world) || world->size < 2 || w->inner->group_open == NULL || !plan_hangs(&w->plan))
    return BS_OK;
  uint32_t *ranks = host->alloc(host->ctx, world->size * sizeof *ranks, 64);
  if (ranks == NULL) return wrap_no_memory(w->plugin, err);
  for (uint32_t r = 0; r < world->size; ++r) ranks[r] = r;
  const int32_t rc = w->inner->group_open(inner, ranks, world->size, out_group, err);
  host->free(host->ctx, ranks);
  return rc;
}

/* It waits in a group whose other members never call. */
static int32_t hang_driven(const wrap_end *end, const bs_coll_call *call, bs_error *err) {
  bs_coll_call wait = {.struct_size = (uint32_t)sizeof wait, .kind = BS_COLL_BARRIER, .site = call->site};
  return end->nowhere != NULL ? end->world->w->inner->barrier(end->nowhere, &wait, err) : BS_OK;
}

/* `op`: of the call, for texts. */
int32_t wrap_hang(const wrap_end *end, const bs_coll_call *call, uint32_t op, bs_error *err) {
  wrap_world *world = end->world;
  char name[40];
  if (is_driven(world)) {
    const int32_t rc = hang_driven(end, call, err);
    if (rc != BS_OK) return rc;
  }
  const int woken =
      !is_driven(world) && sleep_awake(world, HANG_NS + (call->timeout_ns > 0 ? call->timeout_ns : 0));
  wrap_op_name(op, name);
  if (!woken)
    return bs_fail(err, BS_DEADLINE, "BS-WRAP-HANG",
                   "an injected hang of rank %lld in %s: no rank noticed it", (long long)end->calls->rank,
                   name);
  return bs_fail(err, BS_ABORTED, "BS-WRAP-HANG",
                 "an injected hang of rank %lld in %s ended: rank %u failed: %s", (long long)end->calls->rank,
                 name, world->fail_rank, world->why);
}

/* A late rank of a world that one thread drives would only make that thread late. */
void wrap_delay(const wrap_end *end, uint32_t op, int64_t ns) {
  if (ns <= 0) return;
  if (is_driven(end->world))
    wrap_warn_empty(end->world->w->plugin, end->calls, op, WRAP_DELAY);
  else
    sleep_awake(end->world, ns);
}
