/* SPDX-License-Identifier: MIT
 * flits.h - links flit by flit, by a way of its own: what the law of a link (sim/part.c) must agree with. A
 * link takes flits in the order in which they come, and the flits of two transfers do not mix on it: who
 * waits goes on when the last flit of the other is on the link. Nothing here is shared with sim/. */
#ifndef TESTS_SIM_FLITS_H
#define TESTS_SIM_FLITS_H
#include <stdint.h>
#include <string.h>

enum { FLIT_LINKS = 8, FLIT_HOPS = 4, FLIT_TRANSFERS = 12, FLIT_EVENTS = 1 << 14 };

typedef struct flit_transfer {
  uint64_t ready, arrived; /* ps */
  uint32_t hops, flits, path[FLIT_HOPS];
} flit_transfer;

typedef struct flit_link {
  uint64_t first, flit_ps, busy;
  int owner; /* the transfer that is on it; -1: none */
} flit_link;

typedef struct flit_event {
  uint64_t time, came, seq; /* came: to the link; time: later, when it had to wait for an owner */
  uint32_t transfer, flit, hop;
} flit_event;

typedef struct flit_world {
  flit_link links[FLIT_LINKS];
  flit_transfer transfers[FLIT_TRANSFERS];
  flit_event events[FLIT_EVENTS], held[FLIT_EVENTS]; /* held: those that wait for an owner */
  uint32_t n, n_held;
  uint64_t seq;
} flit_world;

static inline int flit_before(const flit_event *a, const flit_event *b) {
  if (a->time != b->time) return a->time < b->time;
  if (a->came != b->came) return a->came < b->came;
  return a->transfer != b->transfer ? a->transfer < b->transfer : a->seq < b->seq;
}

static inline void flit_push(flit_world *w, flit_event e) {
  uint32_t i = w->n++;
  for (e.seq = w->seq++; i > 0 && flit_before(&e, &w->events[(i - 1) / 2]); i = (i - 1) / 2)
    w->events[i] = w->events[(i - 1) / 2];
  w->events[i] = e;
}

static inline flit_event flit_pop(flit_world *w) {
  const flit_event top = w->events[0], last = w->events[--w->n];
  uint32_t i = 0;
  for (uint32_t child = 1; child < w->n; child = 2 * i + 1) {
    if (child + 1 < w->n && flit_before(&w->events[child + 1], &w->events[child])) child++;
    if (!flit_before(&w->events[child], &last)) break;
    w->events[i] = w->events[child];
    i = child;
  }
  w->events[i] = last;
  return top;
}

/* The link has no owner now: those that wait for it come again, at the times at which they came. */
static inline void flit_release(flit_world *w, uint32_t link, uint64_t now) {
  uint32_t left = 0;
  w->links[link].owner = -1;
  for (uint32_t i = 0; i < w->n_held; i++) {
    flit_event e = w->held[i];
    if (w->transfers[e.transfer].path[e.hop] != link) {
      w->held[left++] = e;
      continue;
    }
    if (e.time < now) e.time = now;
    flit_push(w, e);
  }
  w->n_held = left;
}

static inline void flit_run(flit_world *w, uint32_t transfers) {
  for (uint32_t l = 0; l < FLIT_LINKS; l++) w->links[l].owner = -1;
  for (uint32_t t = 0; t < transfers; t++)
    for (uint32_t f = 0; f < w->transfers[t].flits; f++)
      flit_push(w, (flit_event){w->transfers[t].ready, w->transfers[t].ready, 0, t, f, 0});
  while (w->n > 0) {
    const flit_event e = flit_pop(w);
    flit_transfer *t = &w->transfers[e.transfer];
    if (e.hop == t->hops) {
      if (e.time > t->arrived) t->arrived = e.time;
      continue;
    }
    flit_link *link = &w->links[t->path[e.hop]];
    if (link->owner >= 0 && link->owner != (int)e.transfer) {
      w->held[w->n_held++] = e;
      continue;
    }
    link->owner = (int)e.transfer;
    const uint64_t start = e.time > link->busy ? e.time : link->busy;
    link->busy = start + link->flit_ps;
    const uint64_t there = start + link->first + (e.hop + 1 == t->hops ? link->flit_ps : 0);
    flit_push(w, (flit_event){there, there, 0, e.transfer, e.flit, e.hop + 1});
    if (e.flit + 1 == t->flits) flit_release(w, t->path[e.hop], e.time);
  }
}
#endif
