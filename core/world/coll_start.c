/* SPDX-License-Identifier: MIT
 *
 * coll_start.c - collectives that run beside ops. A rank that starts one has a line: a ring of plans and one
 * thread that calls the communicator for them, one after another, in the order of starts. The rank's own
 * thread hands a plan over by moving `put`, the line's moves `taken` when it is done with it; nothing else
 * is shared, so that neither locks. Both wait spinning for a while where the line's thread has a core of its
 * own, and asleep on the word then. The communicator has one caller at a time: whoever calls it from the
 * rank's thread settles the line first. Results and counters are the rank's thread's: wait takes them.
 *
 * The thread is made by the first start (a later one allocates nothing); a world of coroutines or of one
 * rank has none, and start does all the work.
 */
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/world/coll_plan.h"

#define PLACES 64u /* a start that finds no place waits for one */
#define SPIN_ROUND 64
#define SPIN_NS 50000

struct bs_coll_line {
  bs_rank *rank;
  int64_t spin_ns;
  int32_t failed; /* the line's thread only: what follows fails too */
  bs_error failure;
  bs_coll_plan *places[PLACES];
  pthread_t thread;
  _Alignas(64) _Atomic uint32_t put; /* futex: started so far */
  _Atomic uint32_t line_sleeps;
  _Atomic uint32_t stop;
  _Alignas(64) _Atomic uint32_t taken; /* futex: done so far */
  _Atomic uint32_t rank_sleeps;
};

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
static inline void cpu_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

/* Until *word is not `seen`: spinning, then asleep. */
static void await_change(_Atomic uint32_t *word, uint32_t seen, _Atomic uint32_t *sleeps, int64_t spin_ns) {
  for (int64_t end = 0;;) {
    for (int i = 0; i < SPIN_ROUND; ++i) {
      if (atomic_load_explicit(word, memory_order_acquire) != seen) return;
      cpu_relax();
    }
    const int64_t now = spin_ns > 0 ? now_ns() : 0;
    if (end == 0) end = now + spin_ns;
    if (now >= end) break;
  }
  atomic_store(sleeps, 1u);
  while (atomic_load(word) == seen)
    syscall(SYS_futex, (uint32_t *)(void *)word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
  atomic_store(sleeps, 0u);
}

static void advance(_Atomic uint32_t *word, _Atomic uint32_t *sleeps) {
  atomic_fetch_add(word, 1u); /* sequentially consistent: ordered before the look at who sleeps */
  if (atomic_load(sleeps) != 0)
    syscall(SYS_futex, (uint32_t *)(void *)word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* ---- the line's thread ------------------------------------------------------------------------ */

/* A core that no team uses, where there is one; else anywhere on the rank's own: it mostly sleeps. */
static void find_core(const bs_rank *rank) {
  const bs_world *world = rank->world;
  const size_t teams = (size_t)world->size * world->width, spare = teams + rank->index;
  if (!world->pinned) return;
  if (spare < world->ncores) {
    bs_pin_to_core(world->cores[spare]);
    return;
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  for (uint32_t i = 0; i < world->width; ++i) CPU_SET(world->cores[rank->index * world->width + i], &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static void serve(bs_coll_line *line, bs_coll_plan *plan) {
  if (line->failed != BS_OK) {
    plan->status = line->failed;
    plan->failure = line->failure;
    return;
  }
  plan->status = bs_coll_execute(plan, &plan->calls, &plan->failure);
  if (plan->status == BS_OK) return;
  line->failed = plan->status;
  line->failure = plan->failure;
}

static void *line_main(void *arg) {
  bs_coll_line *line = arg;
  bs_log_set_rank((int32_t)line->rank->index);
  find_core(line->rank);
  for (uint32_t done = 0;; ++done) {
    await_change(&line->put, done, &line->line_sleeps, line->spin_ns);
    if (atomic_load(&line->stop)) return NULL;
    serve(line, line->places[done % PLACES]);
    advance(&line->taken, &line->rank_sleeps);
  }
}

static int32_t line_make(bs_rank *rank, bs_error *err) {
  const bs_world *world = rank->world;
  void *memory = NULL;
  if (posix_memalign(&memory, 64, sizeof(bs_coll_line)) != 0)
    return bs_error_set(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for started collectives");
  bs_coll_line *line = memset(memory, 0, sizeof *line);
  line->rank = rank;
  /* Without a core to spare spinning would take the time that is to be won. */
  line->spin_ns = (uint64_t)world->size * (world->width + 1u) <= world->ncores ? SPIN_NS : 0;
  const int failure = pthread_create(&line->thread, NULL, line_main, line);
  if (failure != 0) {
    free(line);
    return bs_error_errno(err, BS_NO_MEMORY, "BS-WORLD-THREAD", failure,
                          "cannot start the thread for collectives of rank %u", rank->index);
  }
  rank->line = line;
  return BS_OK;
}

/* ---- the rank's thread ------------------------------------------------------------------------ */

/* Until what has this place is done. */
static void await_ticket(bs_coll_line *line, uint32_t ticket) {
  for (;;) {
    const uint32_t taken = atomic_load_explicit(&line->taken, memory_order_acquire);
    if ((int32_t)(taken - ticket) > 0) return;
    await_change(&line->taken, taken, &line->rank_sleeps, line->spin_ns);
  }
}

void bs_coll_settle(bs_rank *rank) {
  await_ticket(rank->line, atomic_load_explicit(&rank->line->put, memory_order_relaxed) - 1u);
}

int32_t bs_coll_refuse_started(const bs_coll_plan *plan, bs_error *err) {
  bs_error_set(err, BS_INVALID_ARGUMENT, "BS-COLL-STARTED",
               "this collective has been started and not been waited for");
  bs_error_where(err, "%s", plan->site);
  bs_error_hint(err, "one call of a plan at a time: prepare a plan for each that runs at the same time");
  return BS_INVALID_ARGUMENT;
}

int32_t bs_coll_start(bs_coll_plan *plan, const bs_tensor *in, bs_tensor *out, bs_stream *stream,
                      bs_error *err) {
  bs_rank *rank = plan->rank;
  const bs_world *world = rank->world;
  if (plan->started) return bs_coll_refuse_started(plan, err);
  int32_t rc = bs_coll_bind(plan, in, out, stream, err);
  const int threaded = world->comm->launch != BS_LAUNCH_DRIVEN && world->size > 1;
  if (rc == BS_OK && threaded && rank->line == NULL) rc = line_make(rank, err);
  if (rc != BS_OK) return rc;
  plan->status = BS_OK;
  plan->failure = (bs_error)BS_ERROR_INIT;
  plan->calls = 0;
  plan->started = 1;
  rank->unwaited++;
  if (!threaded) {
    plan->status = bs_coll_execute(plan, &plan->calls, &plan->failure);
    return BS_OK;
  }
  bs_coll_line *line = rank->line;
  plan->ticket = atomic_load_explicit(&line->put, memory_order_relaxed);
  await_ticket(line, plan->ticket - PLACES);
  line->places[plan->ticket % PLACES] = plan;
  advance(&line->put, &line->line_sleeps);
  return BS_OK;
}

int32_t bs_coll_wait(bs_coll_plan *plan, bs_error *err) {
  bs_rank *rank = plan->rank;
  if (!plan->started) {
    bs_error_set(err, BS_INVALID_ARGUMENT, "BS-COLL-WAIT", "this collective has not been started");
    bs_error_where(err, "%s", plan->site);
    return BS_INVALID_ARGUMENT;
  }
  if (rank->line != NULL) await_ticket(rank->line, plan->ticket);
  plan->started = 0;
  rank->unwaited--;
  bs_coll_count(plan, plan->calls);
  if (plan->status != BS_OK && err != NULL) *err = plan->failure;
  return plan->status;
}

void bs_coll_abandon(bs_coll_plan *plan) {
  bs_rank_misuse(plan->rank, BS_INVALID_ARGUMENT, "BS-COLL-UNWAITED",
                 "a collective was released that was started and not waited for (%s)", plan->site);
  bs_coll_wait(plan, NULL);
}

int32_t bs_coll_leave(bs_rank *rank, bs_error *err) {
  if (rank->unwaited == 0) return BS_OK;
  bs_error_set(err, BS_INVALID_ARGUMENT, "BS-COLL-UNWAITED",
               "rank %u ended with %u collectives started and not waited for", rank->index, rank->unwaited);
  bs_error_hint(err, "call collective_wait for each collective_start, also where an error ends the work");
  return BS_INVALID_ARGUMENT;
}

void bs_coll_line_free(bs_rank *rank) {
  bs_coll_line *line = rank->line;
  if (line == NULL) return;
  atomic_store(&line->stop, 1u);
  advance(&line->put, &line->line_sleeps);
  pthread_join(line->thread, NULL);
  free(line);
  rank->line = NULL;
}
