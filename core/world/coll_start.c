/* SPDX-License-Identifier: MIT
 *
 * coll_start.c - collectives that run at the same time as ops. A rank that starts one has a line: a ring of
 * plans and one thread that calls the communicator for them, one after another, in the order of starts. The
 * rank's own thread hands a plan over by moving `put`; the line's thread moves `taken` when it has finished
 * it. Nothing else is shared, so that neither locks. Both spin for a while where the line's thread has a
 * separate core, and then sleep on the word. The communicator has one caller at a time: a call from the
 * rank's thread first waits until the line is empty. `wait` takes results and counters on the rank's thread.
 *
 * The thread is made by the first start (a later one allocates nothing). A world of coroutines or of one rank
 * has none, and start calls the communicator itself: the data of a host are then there when it returns, and a
 * device's are on their way on the stream of started ones (coll_side.c).
 */
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/world/coll_plan.h"
#include "core/world/wait.h"

#define PLACES 64u /* a start that finds no place waits for one */
#define SPIN_NS 50000
#define LEAST_NICE (-20)
#define SLICE_NS 100000 /* the shortest that Linux gives */

struct bs_coll_line {
  bs_rank *rank;
  int64_t spin_ns;
  int32_t failed; /* the line's thread only: later plans fail, too */
  bs_error failure;
  bs_coll_plan *places[PLACES];
  pthread_t thread;
  _Alignas(64) _Atomic uint32_t put; /* futex: started so far */
  _Atomic uint32_t line_sleeps;
  _Atomic uint32_t stop;
  _Alignas(64) _Atomic uint32_t taken; /* futex: done so far */
  _Atomic uint32_t rank_sleeps;
};

/* Waits until *word is not `seen`: spins first, then sleeps. */
static void await_change(_Atomic uint32_t *word, uint32_t seen, _Atomic uint32_t *sleeps, int64_t spin_ns) {
  if (bs_wait_spin(word, seen, spin_ns)) return;
  atomic_store(sleeps, 1u);
  while (atomic_load(word) == seen) bs_wait_sleep(word, seen);
  atomic_store(sleeps, 0u);
}

static void advance(_Atomic uint32_t *word, _Atomic uint32_t *sleeps) {
  atomic_fetch_add(word, 1u); /* sequentially consistent: ordered before the look at who sleeps */
  if (atomic_load(sleeps) != 0) bs_wait_wake(word);
}

/* ---- the line's thread ------------------------------------------------------------------------ */

static void find_core(const bs_rank *rank) {
  uint32_t count = 0;
  const uint16_t *cores = bs_world_line_cores(rank->world, rank->index, &count);
  cpu_set_t set;
  if (!rank->world->pinned) return;
  CPU_ZERO(&set);
  for (uint32_t i = 0; i < count; ++i) CPU_SET(cores[i], &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

/* The kernel's struct sched_attr, its first version: not every C library has it. */
typedef struct sched_attributes {
  uint32_t size;
  uint32_t policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime, deadline, period;
} sched_attributes;

/* On a core where the rank computes the line must run as soon as it is woken: a scheduler that is fair by
 * slices lets the one who runs end its slice first, milliseconds, unless who wakes asks for shorter ones
 * (Linux 6.12; before that it is not looked at). Where this process has the right the line is also put before
 * others: it mostly sleeps. A refusal changes nothing but speed. */
static void ask_short_slices(void) {
#if defined(SYS_sched_getattr) && defined(SYS_sched_setattr)
  sched_attributes a = {.size = (uint32_t)sizeof a};
  if (syscall(SYS_sched_getattr, 0, &a, (unsigned int)sizeof a, 0u) != 0) return;
  if (a.policy != SCHED_OTHER && a.policy != SCHED_BATCH) return;
  a.size = (uint32_t)sizeof a;
  a.runtime = SLICE_NS;
  const int32_t nice = a.nice;
  a.nice = LEAST_NICE;
  if (syscall(SYS_sched_setattr, 0, &a, 0u) == 0) return;
  a.nice = nice;
  (void)syscall(SYS_sched_setattr, 0, &a, 0u);
#endif
}

static void serve(bs_coll_line *line, bs_coll_plan *plan) {
  if (line->failed != BS_OK) {
    plan->status = line->failed;
    *plan->failure = line->failure;
    return;
  }
  plan->status = bs_coll_execute(plan, &plan->calls, plan->failure);
  if (plan->status == BS_OK) plan->status = bs_coll_side_done(plan, plan->failure);
  if (plan->status == BS_OK) return;
  line->failed = plan->status;
  line->failure = *plan->failure;
}

static void *line_main(void *arg) {
  bs_coll_line *line = arg;
  bs_log_set_rank((int32_t)line->rank->index);
  find_core(line->rank);
  ask_short_slices();
  for (uint32_t done = 0;; ++done) {
    await_change(&line->put, done, &line->line_sleeps, line->spin_ns);
    if (atomic_load(&line->stop)) return NULL;
    serve(line, line->places[done % PLACES]);
    advance(&line->taken, &line->rank_sleeps);
  }
}

static int32_t line_make(bs_rank *rank, bs_error *err) {
  void *memory = NULL;
  if (posix_memalign(&memory, 64, sizeof(bs_coll_line)) != 0)
    return bs_error_set(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for started collectives");
  bs_coll_line *line = memset(memory, 0, sizeof *line);
  line->rank = rank;
  /* Without a core to spare spinning would take the time that is to be won. */
  line->spin_ns = bs_world_line_alone(rank->world) ? SPIN_NS : 0;
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

static int32_t start(bs_coll_plan *plan, const bs_tensor *in, bs_tensor *out, bs_stream *stream,
                     bs_error *err) {
  bs_rank *rank = plan->rank;
  const bs_world *world = rank->world;
  if (plan->started) return bs_coll_refuse_started(plan, err);
  if (rank->capturing && rank->comm != NULL) return bs_coll_refuse_kept(plan, err);
  if (plan->failure == NULL && (plan->failure = malloc(sizeof *plan->failure)) == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for started collectives");
  int32_t rc = bs_coll_bind(plan, in, out, stream, err);
  if (rc == BS_OK) rc = bs_coll_stage_down(plan, err);
  const int threaded = world->comm->launch != BS_LAUNCH_DRIVEN && world->size > 1;
  if (rc == BS_OK && threaded && rank->line == NULL) rc = line_make(rank, err);
  if (rc == BS_OK && world->size > 1) rc = bs_coll_side_enter(plan, err);
  if (rc != BS_OK) return rc;
  plan->status = BS_OK;
  *plan->failure = (bs_error)BS_ERROR_INIT;
  plan->calls = 0;
  plan->started = 1;
  rank->unwaited++;
  if (!threaded) {
    plan->status = bs_coll_execute(plan, &plan->calls, plan->failure);
    if (plan->status == BS_OK) plan->status = bs_coll_side_done(plan, plan->failure);
    return BS_OK;
  }
  bs_coll_line *line = rank->line;
  plan->ticket = atomic_load_explicit(&line->put, memory_order_relaxed);
  await_ticket(line, plan->ticket - PLACES);
  line->places[plan->ticket % PLACES] = plan;
  advance(&line->put, &line->line_sleeps);
  return BS_OK;
}

int32_t bs_coll_start(bs_coll_plan *plan, const bs_tensor *in, bs_tensor *out, bs_stream *stream,
                      bs_error *err) {
  const uint64_t began = bs_rank_wait_begins(plan->rank);
  const int32_t rc = start(plan, in, out, stream, err);
  bs_rank_wait_ends(plan->rank, began);
  return rc;
}

static int32_t await(bs_coll_plan *plan, bs_error *err) {
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
  if (plan->status == BS_OK) {
    const int32_t rc = bs_coll_side_leave(plan, err);
    return rc == BS_OK ? bs_coll_stage_up(plan, err) : rc;
  }
  if (err != NULL) *err = *plan->failure;
  return plan->status;
}

int32_t bs_coll_wait(bs_coll_plan *plan, bs_error *err) {
  const uint64_t began = bs_rank_wait_begins(plan->rank);
  const int32_t rc = await(plan, err);
  bs_rank_wait_ends(plan->rank, began);
  return rc;
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
