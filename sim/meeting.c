/* SPDX-License-Identifier: MIT
 * meeting.c - groups of ranks that meet (engine.h), and the comparison of their calls. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/size.h"
#include "sim/internal.h"

enum { AWAY = 0, CAME = 1, MET = 2 };

int32_t sim_meeting_new(sim_engine *e, const uint32_t *ranks, uint32_t n,
                        int32_t (*complete)(void *user, sim_arrival *arrivals, uint32_t n, bs_error *err),
                        void *user, sim_meeting **out_meeting, bs_error *err) {
  *out_meeting = NULL;
  for (uint32_t i = 0; i < n; i++)
    if ((ranks != NULL ? ranks[i] : i) >= e->config.ranks)
      return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-SIM-PEER", "a group with rank %u in a world of %u",
                          ranks != NULL ? ranks[i] : i, e->config.ranks);
  sim_meeting *m = calloc(1, sizeof *m + (size_t)n * sizeof m->arrivals[0]);
  if (m == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for a group of %u ranks", n);
  m->n = n;
  m->complete = complete;
  m->user = user;
  for (uint32_t i = 0; i < n; i++) m->arrivals[i].rank = ranks != NULL ? ranks[i] : i;
  m->next = e->meetings;
  e->meetings = m;
  *out_meeting = m;
  return BS_OK;
}

void sim_meetings_free(sim_engine *e) {
  while (e->meetings != NULL) {
    sim_meeting *m = e->meetings;
    e->meetings = m->next;
    free(m);
  }
}

/* ---- what differs ---------------------------------------------------------------------------- */

static int same_text(const char *a, const char *b) {
  return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* "rank 3 calls all_reduce of 1024 f32 (sum) at SITE" */
static void say_call(const sim_call *c, uint32_t rank, char *text, size_t size) {
  char count[32] = "";
  if (c->count > 0) snprintf(count, sizeof count, " of %" PRIu64, c->count);
  snprintf(text, size, "rank %u calls %.40s%s%s%.20s%s%.20s%s%s%.80s", rank,
           c->kind != NULL ? c->kind : "a collective", count, c->dtype != NULL ? " " : "",
           c->dtype != NULL ? c->dtype : "", c->op != NULL ? " (" : "", c->op != NULL ? c->op : "",
           c->op != NULL ? ")" : "", c->site != NULL ? " at " : "", c->site != NULL ? c->site : "");
}

int sim_differ(const sim_call *a, uint32_t rank_a, const sim_call *b, uint32_t rank_b, char *text,
               size_t size) {
  char first[240], second[240];
  const char *what = NULL;
  if (a == NULL || b == NULL || a == b) return 0;
  if (!same_text(a->kind, b->kind))
    what = "the kind differs";
  else if (a->count != b->count)
    what = "the count differs";
  else if (!same_text(a->dtype, b->dtype))
    what = "the dtype differs";
  else if (!same_text(a->op, b->op))
    what = "the operation differs";
  else if (a->fingerprint != b->fingerprint)
    what = same_text(a->site, b->site) ? "the shapes or roots differ" : "the call sites differ";
  if (what == NULL) return 0;
  say_call(a, rank_a, first, sizeof first);
  say_call(b, rank_b, second, sizeof second);
  snprintf(text, size, "%s, %s: %s", first, second, what);
  return 1;
}

static int32_t check_calls(sim_meeting *m, bs_error *err) {
  char text[500];
  for (uint32_t i = 1; i < m->n; i++)
    if (sim_differ(m->arrivals[0].call, m->arrivals[0].rank, m->arrivals[i].call, m->arrivals[i].rank, text,
                   sizeof text)) {
      bs_error_set(err, BS_MISMATCH, "BS-SIM-MISMATCH", "%s", text);
      bs_error_hint(err, "the ranks of a group must make the same calls in the same order");
      err->rank = (int32_t)m->arrivals[i].rank;
      return BS_MISMATCH;
    }
  return BS_OK;
}

/* ---- meeting --------------------------------------------------------------------------------- */

static int32_t complete(sim_engine *e, sim_meeting *m, uint32_t last) {
  bs_error why = BS_ERROR_INIT;
  int32_t rc = check_calls(m, &why);
  if (rc == BS_OK && m->complete != NULL) rc = m->complete(m->user, m->arrivals, m->n, &why);
  if (rc != BS_OK) {
    why.code = rc;
    sim_fail(e, &why);
    return e->told;
  }
  m->here = 0;
  e->count.meetings++;
  for (uint32_t i = 0; i < m->n; i++) {
    sim_arrival *a = &m->arrivals[i];
    a->state = MET;
    if (i != last) sim_wake(e, a->rank, sim_max(e->ranks[a->rank].clock, a->done));
  }
  return SIM_DONE;
}

int32_t sim_meet(sim_engine *e, sim_meeting *m, uint32_t member, uint64_t ready, const sim_call *call,
                 void *data, uint64_t *out_done) {
  if (e->failure.code != BS_OK) return e->told;
  sim_arrival *a = &m->arrivals[member];
  sim_rank *r = &e->ranks[a->rank];
  if (a->state == AWAY) {
    a->ready = a->done = ready;
    a->call = call;
    a->data = data;
    a->state = CAME;
    if (++m->here == m->n) {
      const int32_t rc = complete(e, m, member);
      if (rc != SIM_DONE) return rc;
    }
  }
  if (a->state == CAME) {
    r->state = RANK_MEETS;
    r->meeting = m;
    r->call = call;
    return SIM_BLOCKED;
  }
  a->state = AWAY;
  r->state = RANK_RUNS;
  *out_done = a->done;
  return SIM_DONE;
}
