/* SPDX-License-Identifier: MIT
 *
 * team.c - the threads of one rank. Member 0 is the rank's own thread; the others wait for work by
 * spinning for a bounded while, then asleep on a futex. Used by bs_exec.parallel_for and the rank table.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "core/world/wait.h"
#include "core/world/world.h"

typedef struct team_member {
  bs_team *team;
  uint32_t index;
  int32_t core; /* -1: not pinned */
  pthread_t thread;
} team_member;

struct bs_team {
  uint32_t width;
  uint32_t started; /* threads that exist */
  int64_t spin_ns;
  team_member *members;
  int32_t log_rank;
  void (*body)(void *arg, uint32_t member, uint32_t width);
  void *arg;
  _Atomic uint32_t busy;              /* 1 while a body runs: nesting is refused */
  _Alignas(64) _Atomic uint32_t turn; /* futex: moves when there is work or an end */
  _Atomic uint32_t sleepers;
  _Atomic uint32_t stop;
  _Alignas(64) _Atomic uint32_t left; /* futex: members that still work */
  _Atomic uint32_t master_sleeps;
};

static void await_turn(bs_team *team, uint32_t seen) {
  if (bs_wait_spin(&team->turn, seen, team->spin_ns)) return;
  atomic_fetch_add(&team->sleepers, 1u);
  while (atomic_load(&team->turn) == seen) bs_wait_sleep(&team->turn, seen);
  atomic_fetch_sub(&team->sleepers, 1u);
}

int bs_pin_to_core(uint16_t core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  return pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

/* Each member has a separate core. Two members on one set of cores may be woken on the same core, and the
 * scheduler takes a tick (4 ms) to separate them. The rank, not the member, warns of a core that is not
 * available. */
static void *member_main(void *arg) {
  team_member *me = arg;
  bs_team *team = me->team;
  uint32_t seen = 0;
  bs_log_set_rank(team->log_rank);
  if (me->core >= 0) bs_pin_to_core((uint16_t)me->core);
  for (;;) {
    await_turn(team, seen);
    seen++; /* the next turn starts only when all members have finished this one */
    if (atomic_load(&team->stop)) return NULL;
    team->body(team->arg, me->index, team->width);
    if (atomic_fetch_sub(&team->left, 1u) == 1u && atomic_load(&team->master_sleeps))
      bs_wait_wake(&team->left);
  }
}

static void next_turn(bs_team *team) {
  atomic_fetch_add(&team->turn, 1u);
  if (atomic_load(&team->sleepers) != 0) bs_wait_wake(&team->turn);
}

int32_t bs_team_new(uint32_t width, int64_t spin_ns, const uint16_t *cores, bs_team **out_team,
                    bs_error *err) {
  void *memory = NULL;
  if (posix_memalign(&memory, 64, sizeof(bs_team)) != 0)
    return bs_error_set(err, BS_NO_MEMORY, "BS-WORLD-MEMORY", "no memory for a team");
  bs_team *team = memset(memory, 0, sizeof(bs_team));
  team->width = width;
  team->spin_ns = spin_ns;
  team->log_rank = bs_log_rank();
  team->members = calloc(width, sizeof *team->members);
  if (team->members == NULL) {
    free(team);
    return bs_error_set(err, BS_NO_MEMORY, "BS-WORLD-MEMORY", "no memory for a team of %u", width);
  }
  for (uint32_t i = 1; i < width; ++i) {
    team->members[i].team = team;
    team->members[i].index = i;
    team->members[i].core = cores != NULL ? (int32_t)cores[i] : -1;
    int failure = pthread_create(&team->members[i].thread, NULL, member_main, &team->members[i]);
    if (failure != 0) {
      bs_team_free(team);
      return bs_error_errno(err, BS_NO_MEMORY, "BS-WORLD-THREAD", failure,
                            "cannot start thread %u of a team of %u", i, width);
    }
    team->started = i;
  }
  *out_team = team;
  return BS_OK;
}

void bs_team_free(bs_team *team) {
  if (team == NULL) return;
  atomic_store(&team->stop, 1u);
  next_turn(team);
  for (uint32_t i = 1; i <= team->started; ++i) pthread_join(team->members[i].thread, NULL);
  free(team->members);
  free(team);
}

int32_t bs_team_run(bs_team *team, void (*body)(void *arg, uint32_t member, uint32_t width), void *arg) {
  if (atomic_exchange(&team->busy, 1u)) return BS_INVALID_ARGUMENT;
  if (team->width > 1) {
    team->body = body;
    team->arg = arg;
    atomic_store_explicit(&team->left, team->width - 1u, memory_order_relaxed);
    next_turn(team);
  }
  body(arg, 0, team->width);
  for (uint32_t left; team->width > 1 && (left = atomic_load(&team->left)) != 0;) {
    if (bs_wait_spin(&team->left, left, team->spin_ns)) continue;
    atomic_store(&team->master_sleeps, 1u);
    left = atomic_load(&team->left);
    if (left != 0) bs_wait_sleep(&team->left, left);
    atomic_store(&team->master_sleeps, 0u);
  }
  atomic_store(&team->busy, 0u);
  return BS_OK;
}
