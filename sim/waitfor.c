/* SPDX-License-Identifier: MIT
 * waitfor.c - describes why no rank can go on: the circle of ranks that wait for one another, or the rank
 * that has ended. Then it lists what each rank waits for; ranks that wait alike share one sentence. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "sim/internal.h"

enum { CLASSES = 6, RUNS = 4, SHOWN = 8 };

typedef struct text {
  char *at;
  size_t left;
} text;

static void say(text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(text *t, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  const int n = vsnprintf(t->at, t->left, fmt, args);
  va_end(args);
  if (n <= 0) return;
  const size_t used = (size_t)n < t->left ? (size_t)n : t->left - 1;
  t->at += used;
  t->left -= used;
}

/* The rank that this one waits for: of a meeting the first that has not come. SIM_NONE: it does not wait. */
static uint32_t waits_for(const sim_engine *e, uint32_t rank) {
  const sim_rank *r = &e->ranks[rank];
  if (r->state == RANK_RECEIVES || r->state == RANK_SENDS) return r->peer;
  if (r->state != RANK_MEETS) return SIM_NONE;
  for (uint32_t i = 0; i < r->meeting->n; i++)
    if (r->meeting->arrivals[i].state != 1) return r->meeting->arrivals[i].rank;
  return SIM_NONE;
}

/* Walks from a rank to the one that it waits for, and on. Returns a rank of the circle in which the walk
 * ends, or the rank that does not wait, with *out_ends 1. Each step may look at all ranks of a meeting, so
 * the walk stops soon after its first turn (Brent). */
static uint32_t walk(const sim_engine *e, uint32_t at, int *out_ends) {
  uint32_t mark = SIM_NONE;
  uint64_t steps = 0, turn = 1;
  *out_ends = 0;
  while (at != mark) {
    if (steps == turn || mark == SIM_NONE) {
      mark = at;
      turn *= 2;
      steps = 0;
    }
    const uint32_t next = waits_for(e, at);
    if (next == SIM_NONE) {
      *out_ends = 1;
      return at;
    }
    at = next;
    steps++;
  }
  return at;
}

/* Follows who waits for whom from the first that waits: "0 -> 1 -> 0", or the end of the line. */
static void say_chain(const sim_engine *e, text *t) {
  const uint32_t n = e->config.ranks;
  uint32_t slow = 0, shown = 0, length = 0;
  int ends = 0;
  while (slow < n && waits_for(e, slow) == SIM_NONE) slow++;
  if (slow == n) return;
  const uint32_t at = walk(e, slow, &ends);
  if (ends) {
    say(t, "; rank %u, which the others wait for, %s", at,
        e->ranks[at].state == RANK_ENDED ? "has ended" : "does not wait");
    return;
  }
  uint32_t first = at; /* the lowest rank of the circle begins it */
  for (uint32_t r = waits_for(e, at); r != at; r = waits_for(e, r))
    if (r < first) first = r;
  say(t, "; cycle %u", first);
  uint32_t r = first;
  do {
    r = waits_for(e, r);
    length++;
    if (++shown < SHOWN || r == first) say(t, " -> %u", r);
    if (shown == SHOWN && r != first) say(t, " -> ...");
  } while (r != first);
  if (length >= SHOWN) say(t, " (%u ranks)", length);
}

/* Whether b waits for the same kind of thing at the same place as a. */
static int alike(const sim_rank *a, const sim_rank *b) {
  const sim_call *x = a->call, *y = b->call;
  if (a->state != b->state) return 0;
  if (a->state == RANK_MEETS && a->meeting != b->meeting) return 0;
  if (x == y) return 1;
  if (x == NULL || y == NULL) return 0;
  const char *site_x = x->site != NULL ? x->site : "", *site_y = y->site != NULL ? y->site : "";
  return strcmp(site_x, site_y) == 0;
}

static uint32_t distance(const sim_engine *e, uint32_t rank) {
  const uint32_t n = e->config.ranks;
  return (uint32_t)(((uint64_t)e->ranks[rank].peer + n - rank) % n);
}

enum { BY_DISTANCE, BY_PEER };

static int in_class(const sim_engine *e, uint32_t first, uint32_t rank, int by) {
  const sim_rank *a = &e->ranks[first], *b = &e->ranks[rank];
  if (!alike(a, b)) return 0;
  if (a->state == RANK_MEETS || a->state == RANK_LISTENS) return 1;
  return by == BY_PEER ? a->peer == b->peer : distance(e, first) == distance(e, rank);
}

/* "ranks 0-3, 8, 10-12": those of the class, or of the flags that are `mark`. */
static void say_ranks(text *t, const unsigned char *flags, unsigned char mark, uint32_t n) {
  uint32_t count = 0, runs = 0;
  for (uint32_t r = 0; r < n; r++) count += flags[r] == mark;
  say(t, count == 1 ? "rank" : "ranks");
  for (uint32_t r = 0; r < n; r++) {
    if (flags[r] != mark) continue;
    uint32_t end = r;
    while (end + 1 < n && flags[end + 1] == mark) end++;
    if (runs++ == RUNS) {
      say(t, ", ... (%u ranks)", count);
      return;
    }
    say(t, runs == 1 ? " %u" : ", %u", r);
    if (end > r) say(t, "-%u", end);
    r = end;
  }
}

static void say_peer(const sim_engine *e, text *t, uint32_t first, uint32_t count, int by,
                     const unsigned char *flags) {
  const uint32_t n = e->config.ranks, d = distance(e, first);
  if (count == 1 || by == BY_PEER) {
    say(t, "rank %u", e->ranks[first].peer);
    return;
  }
  int over = 0; /* the distance goes over the last rank */
  for (uint32_t r = 0; r < n; r++)
    if (flags[r] == 2) over |= d <= n / 2 ? r + d >= n : r + d < n;
  if (d <= n / 2)
    say(t, "rank r+%u", d);
  else
    say(t, "rank r-%u", n - d);
  if (over) say(t, " (mod %u)", n);
}

/* Rounds, bytes and the place of the class whose flags are 2. */
static void say_place(const sim_engine *e, text *t, uint32_t first, const unsigned char *flags) {
  const sim_call *call = e->ranks[first].call;
  uint64_t low = UINT64_MAX, high = 0, bytes = e->ranks[first].expects;
  int same = 1;
  for (uint32_t r = 0; r < e->config.ranks; r++) {
    if (flags[r] != 2) continue;
    same &= e->ranks[r].expects == bytes;
    const uint64_t round = e->ranks[r].call != NULL ? e->ranks[r].call->round : 0;
    if (round < low) low = round;
    if (round > high) high = round;
  }
  if ((e->ranks[first].state == RANK_RECEIVES || e->ranks[first].state == RANK_SENDS) && same)
    say(t, " (%" PRIu64 " bytes)", bytes);
  if (call != NULL && call->site != NULL) say(t, " at %.80s", call->site);
  if (high > 0 && low == high) say(t, ", round %" PRIu64, high);
  if (high > 0 && low < high) say(t, ", rounds %" PRIu64 "-%" PRIu64, low, high);
}

static void say_missing(const sim_engine *e, text *t, const sim_meeting *m) {
  uint32_t shown = 0;
  for (uint32_t i = 0; i < m->n; i++) {
    const uint32_t rank = m->arrivals[i].rank;
    if (m->arrivals[i].state == 1) continue;
    if (shown++ == RUNS) {
      say(t, ", ...");
      return;
    }
    say(t, "%s%u%s", shown == 1 ? "rank " : ", ", rank, e->ranks[rank].state == RANK_ENDED ? " (ended)" : "");
  }
}

/* Describes all ranks that wait as `first` does. Their flags become 2 here, and 3 at the end. */
static void say_class(const sim_engine *e, text *t, unsigned char *flags, uint32_t first) {
  const uint32_t n = e->config.ranks;
  const sim_rank *f = &e->ranks[first];
  uint32_t count[2] = {0, 0};
  for (int by = BY_DISTANCE; by <= BY_PEER; by++)
    for (uint32_t r = first; r < n; r++) count[by] += flags[r] == 1 && in_class(e, first, r, by);
  const int by = n <= 2 || count[BY_PEER] > count[BY_DISTANCE] ? BY_PEER : BY_DISTANCE;
  for (uint32_t r = first; r < n; r++)
    if (flags[r] == 1 && in_class(e, first, r, by)) flags[r] = 2;
  say(t, "; ");
  say_ranks(t, flags, 2, n);
  say(t, count[by] == 1 ? " waits " : " wait ");
  if (f->state == RANK_LISTENS) {
    say(t, "for anything that comes");
  } else if (f->state != RANK_MEETS) {
    say(t, f->state == RANK_SENDS ? "to send to " : "for a message of ");
    say_peer(e, t, first, count[by], by, flags);
  } else {
    say(t, "in %.40s for ", f->call != NULL && f->call->kind != NULL ? f->call->kind : "a collective");
    say_missing(e, t, f->meeting);
  }
  say_place(e, t, first, flags);
  for (uint32_t r = first; r < n; r++)
    if (flags[r] == 2) flags[r] = 3;
}

void sim_wait_text(const sim_engine *e, char *out_text, size_t size) {
  const uint32_t n = e->config.ranks;
  text t = {out_text, size};
  unsigned char *flags = calloc(n, 1); /* 1: waits, 2: in the class being described, 3: described, 4: ended */
  uint32_t waiting = 0, ended = 0, classes = 0;
  out_text[0] = 0;
  for (uint32_t r = 0; r < n; r++) {
    const uint32_t state = e->ranks[r].state;
    waiting += (uint32_t)sim_waits(&e->ranks[r]);
    ended += state == RANK_ENDED;
    if (flags != NULL) flags[r] = state == RANK_ENDED ? 4 : (unsigned char)sim_waits(&e->ranks[r]);
  }
  say(&t, "no rank can go on: %u of %u wait", waiting, n);
  say_chain(e, &t);
  for (uint32_t r = 0; r < n && flags != NULL; r++) {
    if (flags[r] != 1) continue;
    if (classes++ == CLASSES) {
      say(&t, "; others wait as well");
      break;
    }
    say_class(e, &t, flags, r);
  }
  if (ended > 0 && flags != NULL) {
    say(&t, "; ");
    say_ranks(&t, flags, 4, n);
    say(&t, ended == 1 ? " has ended" : " have ended");
  }
  free(flags);
}

void sim_stuck(const sim_engine *e, bs_error *err) {
  char all[sizeof err->message];
  sim_wait_text(e, all, sizeof all);
  bs_error_set(err, BS_DEADLINE, "BS-SIM-STUCK", "%s", all);
  uint32_t sends = 0;
  for (uint32_t r = 0; r < e->config.ranks; r++) sends += e->ranks[r].state == RANK_SENDS;
  bs_error_hint(
      err, "%s",
      sends == 0 ? "a message that is waited for was never sent: every receive needs one send on its source"
                 : "a send lasts here until the receiver takes it: one of two ranks must receive first, or "
                   "both must exchange");
}
