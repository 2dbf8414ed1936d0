/* SPDX-License-Identifier: MIT
 *
 * park.c - the threads of a world's ranks, kept between runs. The first run starts them, pinned to their
 * cores when asked. After a run they wait for the next one: they look for a bounded while, and leave their
 * core to others between two looks, then they sleep on a futex. The caller's thread looks for the end of a
 * run in the same way, and then sleeps on a condition: signals of the process are handled there, and
 * ThreadSanitizer runs their handlers in calls that it knows alone. Two words say everything: `turn` moves
 * when a run begins, `news` when one has ended or a rank has failed. No lock is held after a run, so that the
 * process may fork there. The child has no threads of its parent: its next run starts others. Used by
 * launch.c.
 */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "core/world/wait.h"
#include "core/world/world.h"

#define LOOKS 16u /* between two of which others may have the core */

typedef struct parked {
  bs_park *park;
  uint32_t index;         /* of the rank */
  _Atomic uint32_t ended; /* the last turn that it has come back from */
  pthread_t thread;
} parked;

struct bs_park {
  bs_world *world;
  void (*life)(bs_world *world, uint32_t index);
  pid_t pid;                          /* of the process that has the threads */
  uint32_t count;                     /* threads that exist */
  _Alignas(64) _Atomic uint32_t turn; /* futex: moves when there is a run or an end */
  _Atomic uint32_t sleepers;
  _Atomic uint32_t stop;
  _Alignas(64) _Atomic uint32_t left; /* ranks that have not come back */
  _Atomic uint32_t news;
  _Atomic uint32_t caller_sleeps;
  pthread_mutex_t lock; /* of the caller's sleep */
  pthread_cond_t woken;
  parked ranks[];
};

/* Spins until *word is not `seen`, for a bounded while. Another thread that wants this core gets it between
 * two looks: with as many ranks as cores that is the caller, or the rank that the caller waits for. */
static int look_for(_Atomic uint32_t *word, uint32_t seen, int64_t spin_ns) {
  int64_t end = 0;
  for (;;) {
    if (bs_wait_look(word, seen, LOOKS)) return 1;
    if (spin_ns == 0) return 0;
    const int64_t now = bs_wait_now_ns();
    if (end == 0) end = now + spin_ns;
    if (now >= end) return 0;
    sched_yield();
  }
}

/* ---- a rank's thread -------------------------------------------------------------------------- */

/* A thread that sleeps takes no signal that asks the process to end: another one has the handler run. */
static void await_turn(bs_park *park, uint32_t seen) {
  sigset_t ends, before;
  if (look_for(&park->turn, seen, park->world->spin_ns)) return;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &ends, &before);
  atomic_fetch_add(&park->sleepers, 1u);
  while (atomic_load(&park->turn) == seen) bs_wait_sleep(&park->turn, seen);
  atomic_fetch_sub(&park->sleepers, 1u);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void tell(bs_park *park) {
  atomic_fetch_add(&park->news, 1u); /* sequentially consistent: ordered before the look at who sleeps */
  if (atomic_load(&park->caller_sleeps) == 0) return;
  pthread_mutex_lock(
      &park->lock); /* it looks at the news with the lock, so that it sleeps by now or sees them */
  pthread_cond_broadcast(&park->woken);
  pthread_mutex_unlock(&park->lock);
}

static void *thread_main(void *arg) {
  parked *me = arg;
  bs_park *park = me->park;
  bs_log_set_rank((int32_t)me->index);
  if (park->world->pinned) bs_world_pin_rank(park->world, me->index);
  for (uint32_t seen = 0;;) {
    await_turn(park, seen);
    seen++; /* the next turn begins only when all ranks have come back from this one, or ends them */
    if (atomic_load(&park->stop)) return NULL;
    park->life(park->world, me->index);
    atomic_store(&me->ended, seen);
    if (atomic_fetch_sub(&park->left, 1u) == 1u) tell(park);
  }
}

/* ---- the caller's thread ---------------------------------------------------------------------- */

static void next_turn(bs_park *park) {
  atomic_fetch_add(&park->turn, 1u);
  if (atomic_load(&park->sleepers) != 0) bs_wait_wake(&park->turn);
}

static int32_t start(bs_park *park, uint32_t first, uint32_t count, uint32_t *out_rank, bs_error *err) {
  for (; park->count < count; ++park->count) {
    parked *p = &park->ranks[park->count];
    p->park = park;
    p->index = *out_rank = first + park->count;
    const int failure = pthread_create(&p->thread, NULL, thread_main, p);
    if (failure != 0)
      return bs_error_errno(err, BS_NO_MEMORY, "BS-WORLD-THREAD", failure,
                            "cannot start the thread of rank %u of %u", p->index, park->world->size);
  }
  return BS_OK;
}

/* Deadlines are those of bs_wait_now_ns. 0: done. */
static int init_sleep(bs_park *park) {
  pthread_condattr_t monotonic;
  if (pthread_mutex_init(&park->lock, NULL) != 0) return -1;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  const int failure = pthread_cond_init(&park->woken, &monotonic);
  pthread_condattr_destroy(&monotonic);
  if (failure != 0) pthread_mutex_destroy(&park->lock);
  return failure;
}

int32_t bs_park_ready(bs_world *world, void (*life)(bs_world *world, uint32_t index), uint32_t *out_rank,
                      bs_error *err) {
  const int attached = world->own != BS_WORLD_ALL_RANKS;
  const uint32_t first = attached ? world->own : 0, count = attached ? 1 : world->size;
  void *memory = NULL;
  *out_rank = first;
  if (world->park != NULL && world->park->pid == getpid()) return BS_OK;
  bs_park_end(world);
  if (posix_memalign(&memory, 64, sizeof(bs_park) + count * sizeof(parked)) != 0)
    return bs_error_set(err, BS_NO_MEMORY, "BS-WORLD-MEMORY", "no memory for %u threads", count);
  bs_park *park = memset(memory, 0, sizeof(bs_park) + count * sizeof(parked));
  if (init_sleep(park) != 0) {
    free(park);
    return bs_error_set(err, BS_NO_MEMORY, "BS-WORLD-MEMORY", "no mutex for %u threads", count);
  }
  park->world = world;
  park->life = life;
  park->pid = getpid();
  world->park = park;
  const int32_t rc = start(park, first, count, out_rank, err);
  if (rc != BS_OK) bs_park_end(world);
  return rc;
}

void bs_park_tell(bs_world *world) {
  if (world->park != NULL) tell(world->park);
}

/* Until there is news after `seen`, or until_ns; 0: no end. */
static void await_news(bs_park *park, uint32_t seen, int64_t until_ns) {
  const struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
  int late = 0;
  pthread_mutex_lock(&park->lock);
  atomic_store(&park->caller_sleeps, 1u);
  while (atomic_load(&park->news) == seen && late == 0)
    late = until_ns == 0 ? pthread_cond_wait(&park->woken, &park->lock)
                         : pthread_cond_timedwait(&park->woken, &park->lock, &until);
  atomic_store(&park->caller_sleeps, 0u);
  pthread_mutex_unlock(&park->lock);
}

int bs_park_run(bs_world *world, int64_t (*until)(bs_world *world)) {
  bs_park *park = world->park;
  const uint32_t before = atomic_load(&park->news);
  atomic_store(&park->left, park->count);
  next_turn(park);
  look_for(&park->news, before, world->spin_ns);
  for (;;) {
    const uint32_t seen = atomic_load(&park->news); /* before the looks at what it tells */
    if (atomic_load(&park->left) == 0) return 1;
    const int64_t until_ns = until(world);
    if (until_ns != 0 && bs_wait_now_ns() >= until_ns) return 0;
    await_news(park, seen, until_ns);
  }
}

/* Joins a thread whose rank came back from the last run. Another one is still in its call: it is left there
 * and ends when the call returns. 1: it was left. */
static int end_thread(const bs_park *park, parked *p, uint32_t last) {
  if (atomic_load(&p->ended) == last) {
    pthread_join(p->thread, NULL);
    return 0;
  }
  pthread_detach(p->thread);
  bs_log_write(park->world->logger, BS_LOG_WARN, "", (int32_t)p->index,
               "this rank is inside a call that does not return: it is left behind");
  return 1;
}

void bs_park_end(bs_world *world) {
  bs_park *park = world->park;
  int stuck = 0;
  if (park == NULL) return;
  if (park->pid == getpid()) {
    const uint32_t last = atomic_load(&park->turn);
    atomic_store(&park->stop, 1u);
    next_turn(park);
    for (uint32_t i = 0; i < park->count; ++i) stuck |= end_thread(park, &park->ranks[i], last);
  }
  if (stuck) return;           /* its thread still has it */
  if (park->pid == getpid()) { /* a child of the process has copies */
    pthread_cond_destroy(&park->woken);
    pthread_mutex_destroy(&park->lock);
  }
  world->park = NULL;
  free(park);
}
