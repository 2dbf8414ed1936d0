/* SPDX-License-Identifier: MIT
 *
 * exchange.c - see exchange.h.
 */
#include "exchange.h"

#include <sched.h>
#include <stdlib.h>

#include "report.h"

#define LOOKS 64u /* at all transfers, between two looks at the clock */

typedef struct idle {
  int64_t began, deadline; /* 0: something has moved just now */
  uint32_t looks, yields, sleepy;
} idle;

static int32_t grow(comm_transfers *x, uint32_t ncalls, uint32_t me, uint32_t n, bs_error *err) {
  if (x->marks == NULL) x->marks = calloc(n, 2u * sizeof *x->marks);
  if (ncalls > x->room) {
    comm_transfer *grown = realloc(x->all, ncalls * sizeof *grown);
    if (grown != NULL) x->all = grown;
    x->room = grown != NULL ? ncalls : x->room;
  }
  if (x->marks != NULL && ncalls <= x->room) return BS_OK;
  return bs_fail(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for %u transfers of rank %u", ncalls, me);
}

/* Several messages to or from one rank go one after the other. A mark is of this exchange where it lies below
 * i and names a transfer of the same ranks. */
static uint32_t find_before(comm_transfers *x, uint32_t i, uint32_t n) {
  const bs_coll_call *call = x->all[i].call;
  uint32_t *mark = &x->marks[(call->kind == BS_COLL_SEND ? 0 : n) + call->root];
  const uint32_t at = *mark;
  *mark = i;
  const int is_of_this = at < i && x->all[at].call->root == call->root && x->all[at].call->kind == call->kind;
  return is_of_this ? at : UINT32_MAX;
}

int32_t comm_transfers_open(comm_transfers *x, const bs_coll_call *const *calls, uint32_t ncalls, uint32_t me,
                            uint32_t n, bs_error *err) {
  int32_t rc = grow(x, ncalls, me, n, err);
  x->n = ncalls;
  for (uint32_t i = 0; rc == BS_OK && i < ncalls; ++i) {
    rc = comm_check_message(me, n, calls[i], err);
    if (rc != BS_OK) break;
    x->all[i] = (comm_transfer){.call = calls[i], .key = comm_message_key(calls[i])};
    x->all[i].before = find_before(x, i, n);
  }
  return rc;
}

void comm_transfers_close(comm_transfers *x) {
  free(x->all);
  free(x->marks);
}

/* Looks at all; *out_left: those that are not done. `last`: no send begins. */
static int move_all(const comm_transfers *x, const comm_mover *m, int last, uint32_t *out_left, int32_t *rc,
                    bs_error *err) {
  int moved = 0;
  *out_left = 0;
  for (uint32_t i = 0; i < x->n && *rc == BS_OK; ++i) {
    comm_transfer *t = &x->all[i];
    if (t->state == COMM_DONE) continue;
    const int first = t->before == UINT32_MAX || x->all[t->before].state >= m->passes;
    const int begins = t->state == COMM_NEW && t->call->kind == BS_COLL_SEND;
    if (first && !(last && begins)) moved |= m->move(m->comm, t, rc, err);
    *out_left += t->state != COMM_DONE;
  }
  return moved;
}

static void sleep_for(const comm_mover *m, uint32_t bell, int64_t ns) {
  const struct timespec nap = {0, (long)ns};
  if (m->inbox != NULL)
    comm_sleep(&m->inbox->bell, bell, ns, m->sleepers);
  else
    nanosleep(&nap, NULL);
}

/* Nothing moves: BS_OK to look again, else why not. `bell` was read before the last look. */
static int32_t rest(const comm_mover *m, idle *w, uint32_t bell) {
  if (++w->looks < LOOKS) {
    comm_relax();
    return BS_OK;
  }
  const int64_t now = comm_now_ns();
  w->looks = 0;
  if (w->began == 0) w->began = now;
  if (w->deadline == 0) w->deadline = now + m->timeout_ns;
  if (atomic_load(m->failed) != 0) return BS_ABORTED;
  if (m->patient && now - w->began < m->spin_ns) return BS_OK;
  w->looks = LOOKS;
  if (m->patient && w->yields++ < COMM_YIELDS) {
    sched_yield();
    return BS_OK;
  }
  if (m->inbox != NULL && !w->sleepy) { /* looks once more before it sleeps */
    atomic_fetch_add(&m->inbox->waiters, 1u);
    w->sleepy = 1;
    return BS_OK;
  }
  const int64_t left = w->deadline - now;
  int64_t ns = left;
  const int32_t rc = m->look != NULL ? m->look(m->comm, &ns) : BS_OK;
  if (rc != BS_OK) return rc;
  if (left <= 0) return BS_DEADLINE;
  sleep_for(m, bell, ns < left ? ns : left);
  return BS_OK;
}

static int32_t fail(const comm_transfers *x, const comm_mover *m, int32_t why, bs_error *err) {
  uint32_t i = 0;
  while (x->all[i].state == COMM_DONE) i++;
  return m->fail(m->comm, &x->all[i], why, m->timeout_ns, err);
}

int32_t comm_transfers_run(comm_transfers *x, const comm_mover *m, bs_error *err) {
  idle w = {0};
  uint32_t left = x->n;
  int32_t rc = BS_OK;
  for (;;) {
    const uint32_t bell = m->inbox != NULL ? atomic_load(&m->inbox->bell) : 0;
    const int moved = move_all(x, m, 0, &left, &rc, err);
    if (rc != BS_OK || left == 0) break;
    if (moved) {
      w = (idle){.sleepy = w.sleepy};
      continue;
    }
    const int32_t why = rest(m, &w, bell);
    if (why == BS_OK) continue;
    if (m->settle != NULL) m->settle(m->comm);
    (void)move_all(x, m, 1, &left, &rc, err); /* it came before its sender died */
    if (rc == BS_OK && left > 0) rc = fail(x, m, why, err);
    break;
  }
  if (w.sleepy) atomic_fetch_sub(&m->inbox->waiters, 1u);
  return rc;
}
