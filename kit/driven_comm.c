/* SPDX-License-Identifier: MIT
 * driven_comm.c - see driven.h. One thread runs all ranks: a rank posts its call and yields. The rank that
 * completes a collective computes it for all, in rank order and with the roundings of comm.h. The order in
 * which ranks continue is reversed each time, so that a method cannot depend on it. */
#include <stdio.h>

#include "kit/driven.h"
#include "kit/driven_data.h"
#include "kit/kit.h"

enum { WAITS = INT32_MIN };

typedef struct group group;
typedef struct place { /* a rank in a group: what bs_comm calls a communicator */
  group *g;
  uint32_t me;
  const bs_coll_call *call; /* NULL: not in a collective */
  bs_error *err;
  int32_t rc;
} place;

typedef struct world {
  uint32_t size;
  sim_coroutines *coroutines;
  place *waits[KIT_DRIVEN_RANKS]; /* where a rank is */
  uint32_t ended[KIT_DRIVEN_RANKS];
  uint32_t now;  /* the rank that runs */
  group *groups; /* the last one, made first, is the world itself */
  int32_t failed;
  char why[320];
  void (*rank_main)(void *arg, uint32_t rank);
  void *arg;
} world;

struct group {
  world *w;
  group *next;
  uint32_t n, ranks[KIT_DRIVEN_RANKS];
  place *places[KIT_DRIVEN_RANKS];
};

static sim_coroutines *running; /* coroutines run on one thread of the check's process */

void kit_stack_paint(void) {
  if (running != NULL) sim_stack_paint(running);
}

size_t kit_stack_used(void) {
  return running != NULL ? sim_stack_used(running) : 0;
}

static group *group_new(world *w, const uint32_t *ranks, uint32_t n) {
  group *g = calloc(1, sizeof *g);
  if (g == NULL) return NULL;
  g->w = w;
  g->n = n;
  for (uint32_t i = 0; i < n; i++) g->ranks[i] = ranks != NULL ? ranks[i] : i;
  g->next = w->groups;
  w->groups = g;
  return g;
}

static int32_t world_open(void *state, const bs_world_request *request, void **out, bs_error *err) {
  (void)state;
  if (request->world_size > KIT_DRIVEN_RANKS)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-KIT-RANKS", "%u coroutines, at most %d", request->world_size,
                        KIT_DRIVEN_RANKS);
  world *w = calloc(1, sizeof *w);
  if (w != NULL) w->size = request->world_size;
  if (w == NULL || group_new(w, NULL, w->size) == NULL) {
    free(w);
    return bs_error_set(err, BS_NO_MEMORY, "BS-KIT-MEMORY", "no memory for a world");
  }
  *out = w;
  return BS_OK;
}

static void world_close(void *opaque) {
  world *w = opaque;
  for (group *g = w->groups, *next; g != NULL; g = next) {
    next = g->next;
    free(g);
  }
  free(w);
}

/* ---- running ranks -------------------------------------------------------------------------- */

static void answer(place *p, int32_t rc, const char *id, const char *why) {
  if (rc != BS_OK) bs_error_set(p->err, rc, id, "%s", why);
  p->rc = rc;
  p->call = NULL;
}

/* Ends the wait of every rank. */
static void wake_all(world *w, int32_t rc, const char *id, const char *why) {
  for (uint32_t r = 0; r < w->size; r++)
    if (w->waits[r] != NULL && w->waits[r]->rc == WAITS) answer(w->waits[r], rc, id, why);
}

static int can_run(const world *w, uint32_t r) {
  return !w->ended[r] && (w->waits[r] == NULL || w->waits[r]->rc != WAITS);
}

/* Reports that no rank can continue: each waits for one that has ended or is in another call. */
static void stuck(world *w) {
  char why[400] = "no rank can go on:";
  for (uint32_t r = 0; r < w->size; r++) {
    const bs_coll_call *call = w->waits[r] != NULL ? w->waits[r]->call : NULL;
    const size_t n = strlen(why);
    snprintf(why + n, sizeof why - n, " rank %u %s%.40s%s", r, w->ended[r] ? "has ended" : "waits at ",
             w->ended[r] || call == NULL ? "" : call->site, r + 1 < w->size ? "," : "");
  }
  wake_all(w, BS_DEADLINE, "BS-KIT-STUCK", why);
}

static void rank_body(void *opaque, uint32_t rank) {
  const world *w = opaque;
  w->rank_main(w->arg, rank);
}

static void run_all(world *w) {
  uint32_t left = w->size;
  for (uint32_t sweep = 0; left > 0; sweep++) {
    uint32_t moved = 0;
    for (uint32_t i = 0; i < w->size; i++) {
      const uint32_t r = sweep % 2 == 0 ? i : w->size - 1 - i;
      if (!can_run(w, r)) continue;
      moved++;
      w->now = r;
      const int said = sim_coroutine_resume(w->coroutines, r);
      kit_assert(said != SIM_CO_OVERFLOW, "rank %u has overrun its stack of %d bytes", r, KIT_STACK_BYTES);
      w->ended[r] = said == SIM_CO_ENDED;
      left -= w->ended[r];
    }
    if (moved == 0) stuck(w);
  }
}

static int32_t world_drive(void *opaque, void (*rank_main)(void *arg, uint32_t rank), void *arg,
                           bs_error *err) {
  world *w = opaque;
  sim_coroutines *before = running;
  w->rank_main = rank_main;
  w->arg = arg;
  memset(w->waits, 0, sizeof w->waits);
  memset(w->ended, 0, sizeof w->ended);
  w->coroutines = sim_coroutines_new(w->size, KIT_STACK_BYTES, rank_body, w);
  if (w->coroutines == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-KIT-MEMORY", "no memory for %u coroutines", w->size);
  running = w->coroutines;
  run_all(w);
  running = before;
  sim_coroutines_free(w->coroutines);
  return BS_OK;
}

static void abort_world(void *opaque, uint32_t rank, int32_t code, const char *why) {
  world *w = opaque;
  if (w->failed == BS_OK) {
    w->failed = code != BS_OK ? code : BS_INTERNAL;
    snprintf(w->why, sizeof w->why, "rank %u ended the world: %.250s", rank, why);
  }
  wake_all(w, BS_ABORTED, "BS-KIT-ABORTED", w->why);
}

static place *join(group *g, uint32_t me) {
  place *p = calloc(1, sizeof *p);
  if (p == NULL) return NULL;
  p->g = g;
  p->me = me;
  g->places[me] = p;
  return p;
}

static int32_t rank_open(void *opaque, uint32_t rank, void **out, bs_error *err) {
  world *w = opaque;
  group *all = w->groups;
  while (all->next != NULL) all = all->next;
  *out = join(all, rank);
  return *out != NULL ? BS_OK : bs_error_set(err, BS_NO_MEMORY, "BS-KIT-MEMORY", "no memory for a rank");
}

static void rank_close(void *opaque) {
  place *p = opaque;
  world *w = p->g->w;
  for (uint32_t r = 0; r < w->size; r++)
    if (w->waits[r] == p) w->waits[r] = NULL;
  p->g->places[p->me] = NULL;
  free(p);
}

/* The n-th opening of one list of ranks by each of them is one group. */
static int32_t group_open(void *comm, const uint32_t *ranks, uint32_t n, void **out, bs_error *err) {
  const place *p = comm;
  world *w = p->g->w;
  const uint32_t me_world = p->g->ranks[p->me];
  uint32_t me = 0;
  group *found = NULL;
  while (me < n && ranks[me] != me_world) me++;
  for (group *g = w->groups; me < n && g != NULL && g->next != NULL; g = g->next)
    if (g->n == n && memcmp(g->ranks, ranks, n * sizeof *ranks) == 0 && g->places[me] == NULL) found = g;
  if (found == NULL && me < n && n <= KIT_DRIVEN_RANKS) found = group_new(w, ranks, n);
  *out = found != NULL ? join(found, me) : NULL;
  return *out != NULL ? BS_OK : bs_error_set(err, BS_NO_MEMORY, "BS-KIT-MEMORY", "no memory for a group");
}

/* ---- collectives ---------------------------------------------------------------------------- */

static void complete(group *g) {
  const bs_coll_call *calls[KIT_DRIVEN_RANKS];
  char why[320] = "";
  int32_t rc = BS_OK;
  for (uint32_t r = 0; r < g->n; r++) {
    calls[r] = g->places[r]->call;
    if (calls[r]->fingerprint != calls[0]->fingerprint && rc == BS_OK) {
      rc = BS_MISMATCH;
      snprintf(why, sizeof why, "rank %u is at %.80s, rank 0 at %.80s, or with other sizes", g->ranks[r],
               calls[r]->site, calls[0]->site);
    }
  }
  if (rc == BS_OK) kit_driven_exchange(calls, g->n);
  for (uint32_t r = 0; r < g->n; r++) answer(g->places[r], rc, "BS-KIT-MISMATCH", why);
}

static void try_pair(place *p) {
  const bs_coll_call *mine = p->call;
  if (mine->root >= p->g->n || p->g->places[mine->root] == NULL) return;
  place *peer = p->g->places[mine->root];
  const bs_coll_call *theirs = peer->call;
  const uint32_t other = mine->kind == BS_COLL_SEND ? BS_COLL_RECV : BS_COLL_SEND;
  if (theirs == NULL || theirs->kind != other || theirs->root != p->me) return;
  if (mine->fingerprint == theirs->fingerprint) {
    kit_driven_message(mine->kind == BS_COLL_SEND ? mine : theirs,
                       mine->kind == BS_COLL_SEND ? theirs : mine);
    answer(peer, BS_OK, "", "");
    answer(p, BS_OK, "", "");
    return;
  }
  answer(peer, BS_MISMATCH, "BS-KIT-MISMATCH", "send and recv have different sizes");
  answer(p, BS_MISMATCH, "BS-KIT-MISMATCH", "send and recv have different sizes");
}

static int32_t collective(void *comm, const bs_coll_call *call, bs_error *err) {
  place *p = comm;
  group *g = p->g;
  world *w = g->w;
  const uint32_t rank = w->now; /* whoever's communicator it is: a wrong method may use another rank's */
  if (w->failed != BS_OK) return bs_error_set(err, BS_ABORTED, "BS-KIT-ABORTED", "%s", w->why);
  p->call = call;
  p->err = err;
  p->rc = WAITS;
  w->waits[rank] = p;
  uint32_t here = 0;
  for (uint32_t r = 0; r < g->n; r++)
    here += g->places[r] != NULL && g->places[r]->call != NULL && g->places[r]->rc == WAITS;
  if (call->kind == BS_COLL_SEND || call->kind == BS_COLL_RECV)
    try_pair(p);
  else if (here == g->n)
    complete(g);
  do { /* at least once: each collective is a place to switch */
    sim_coroutine_yield(w->coroutines);
  } while (p->rc == WAITS);
  w->waits[rank] = NULL;
  return p->rc;
}

void kit_driven_use(bs_context *context) {
  const bs_comm *table = NULL;
  void *state = NULL;
  bs_error err = BS_ERROR_INIT;
  kit_assert(bs_find_comm(context, "threads", &table, &state, &err) == BS_OK, "%s: %s", err.id, err.message);
  bs_comm *own = (bs_comm *)(uintptr_t)table; /* the context's copy, in separate memory */
  *own = (bs_comm){.struct_size = sizeof *own,
                   .launch = BS_LAUNCH_DRIVEN,
                   .name = "kit_coroutines",
                   .summary = "ranks are coroutines",
                   .world_open = world_open,
                   .world_close = world_close,
                   .world_drive = world_drive,
                   .rank_open = rank_open,
                   .rank_close = rank_close,
                   .group_open = group_open,
                   .all_reduce = collective,
                   .all_gather = collective,
                   .reduce_scatter = collective,
                   .broadcast = collective,
                   .all_to_all = collective,
                   .send = collective,
                   .recv = collective,
                   .barrier = collective,
                   .abort = abort_world};
}
