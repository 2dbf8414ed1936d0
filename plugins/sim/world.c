/* SPDX-License-Identifier: MIT
 * world.c - communicator "sim": a world of coroutines in virtual time. Each run of the world (world_drive)
 * begins with all ranks at the same time, and has a separate engine. */
#include <stdlib.h>

#include "world.h"

/* Finds the rank of a device that is opened: in the innermost world that this thread is driving. */
sim_rank *sim_rank_now(sim_plugin *p) {
  sim_rank *rank = NULL;
  (void)pthread_mutex_lock(&p->lock);
  for (sim_world *w = p->driven; w != NULL && rank == NULL; w = w->next_driven) {
    if (!pthread_equal(w->thread, pthread_self())) continue;
    const uint32_t now = sim_now(w->engine);
    if (now == UINT32_MAX) break;
    rank = &w->ranks[now];
  }
  (void)pthread_mutex_unlock(&p->lock);
  return rank;
}

static void drives(sim_world *w) {
  sim_plugin *p = w->plugin;
  (void)pthread_mutex_lock(&p->lock);
  w->thread = pthread_self();
  w->next_driven = p->driven;
  p->driven = w;
  (void)pthread_mutex_unlock(&p->lock);
}

static void drives_no_more(sim_world *w) {
  sim_plugin *p = w->plugin;
  (void)pthread_mutex_lock(&p->lock);
  sim_world **link = &p->driven;
  while (*link != NULL && *link != w) link = &(*link)->next_driven;
  if (*link != NULL) *link = w->next_driven;
  (void)pthread_mutex_unlock(&p->lock);
}

static int32_t no_memory(const char *what, uint32_t ranks, bs_error *err) {
  return bs_fail(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for %s of %u simulated ranks", what, ranks);
}

static int32_t world_open(void *state, const bs_world_request *request, void **out_world, bs_error *err) {
  sim_plugin *plugin = state;
  const uint32_t n = request->world_size;
  if (n == 0 || n > SIM_MAX_RANKS)
    return bs_fail(err, BS_CONFIG, "BS-SIM-SIZE", "%u simulated ranks; 1 to %u are possible", n,
                   SIM_MAX_RANKS);
  sim_world *w = calloc(1, sizeof *w);
  if (w == NULL) return no_memory("a world", n, err);
  w->ranks = calloc(n, sizeof *w->ranks);
  if (w->ranks == NULL) {
    free(w);
    return no_memory("the clocks", n, err);
  }
  w->plugin = plugin;
  w->size = n;
  if (request->struct_size >= sizeof *request) {
    w->topology = request->topology;
    w->topology_opened = request->topology_opened;
  }
  const uint32_t sharers = sim_topology_sharers(w->topology, w->topology_opened, n);
  w->all.world = w;
  w->all.n = n;
  for (uint32_t r = 0; r < n; r++) {
    w->ranks[r].plugin = plugin;
    w->ranks[r].world = w;
    w->ranks[r].index = r;
    w->ranks[r].sharers = sharers;
  }
  *out_world = w;
  return BS_OK;
}

static void group_free(sim_group *group) {
  free(group->ranks);
  free(group->joined);
  free(group);
}

const char *sim_world_site(sim_world *w, const char *text) {
  if (text == NULL) return NULL;
  for (sim_site **link = &w->sites; *link != NULL; link = &(*link)->next) {
    sim_site *site = *link;
    if (strcmp(site->text, text) != 0) continue;
    *link = site->next;
    site->next = w->sites;
    w->sites = site;
    return site->text;
  }
  const size_t bytes = strlen(text) + 1;
  sim_site *site = malloc(sizeof *site + bytes);
  if (site == NULL) return NULL;
  memcpy(site->text, text, bytes);
  site->next = w->sites;
  w->sites = site;
  return site->text;
}

static void world_close(void *world) {
  sim_world *w = world;
  while (w->all.next != NULL) {
    sim_group *next = w->all.next->next;
    group_free(w->all.next);
    w->all.next = next;
  }
  for (uint32_t r = 0; r < w->size; r++) free(w->ranks[r].steps);
  sim_trace_free(w->trace);
  free(w->ranks);
  while (w->sites != NULL) {
    sim_site *next = w->sites->next;
    free(w->sites);
    w->sites = next;
  }
  free(w);
}

/* ---- a run ------------------------------------------------------------------------------------- */

static void body(void *arg, uint32_t rank) {
  sim_world *w = arg;
  w->rank_main(w->arg, rank);
}

static int32_t overflowed(sim_world *w, uint32_t rank) {
  bs_error why;
  bs_fail(&why, BS_INTERNAL, "BS-SIM-STACK",
          "rank %u needs more than the %d bytes of a simulated rank's stack", rank, (int)SIM_STACK_BYTES);
  bs_fail_hint(&why, "rank paths may use 32 KiB: large arrays belong into host memory (bs_rank_api.alloc)");
  sim_abort(w->engine, rank, BS_INTERNAL, &why);
  return -(int32_t)BS_INTERNAL;
}

static int32_t resume(void *user, uint32_t rank) {
  sim_world *w = user;
  const int state = sim_coroutine_resume(w->coroutines, rank);
  if (state == SIM_CO_OVERFLOW) return overflowed(w, rank);
  sim_set_clock(w->engine, rank, sim_rank_time(&w->ranks[rank])->now);
  return state == SIM_CO_ENDED ? SIM_DONE : SIM_BLOCKED;
}

/* All at the time of the latest, with nothing spent. */
static void begin(sim_world *w) {
  for (uint32_t r = 0; r < w->size; r++) w->began = sim_max(w->began, sim_rank_time(&w->ranks[r])->now);
  for (uint32_t r = 0; r < w->size; r++) {
    sim_rank *rank = &w->ranks[r];
    rank->host = rank->stream = (sim_time){.now = w->began};
    rank->compute_side = rank->memory_side = rank->ops = rank->not_costed = 0;
    rank->inside_simulated = rank->inside_known = rank->by_roofline = 0;
    rank->nsteps = 0;
  }
  w->messages = w->message_bytes = w->meetings = w->exchanges = w->outside = 0;
  w->run++;
}

static void end(sim_world *w) {
  const sim_counters n = sim_count(w->engine);
  w->messages += n.messages;
  w->message_bytes += n.bytes;
  w->meetings = n.meetings;
  w->last = 0;
  for (uint32_t r = 1; r < w->size; r++)
    if (sim_rank_time(&w->ranks[r])->now > sim_rank_time(&w->ranks[w->last])->now) w->last = r;
}

/* Starts a trace for this run only. */
static int trace_anew(sim_world *w) {
  const uint64_t events = w->plugin->machine.trace_events;
  sim_trace_free(w->trace);
  w->trace = events > 0 ? sim_trace_new(events, 0, w->size - 1) : NULL;
  return events == 0 || w->trace != NULL;
}

/* With a topology flows may share wires, so their order in time matters. */
uint32_t sim_world_order(const sim_world *w) {
  return w->topology != NULL || w->plugin->machine.by_time ? SIM_ORDER_E : SIM_ORDER_K;
}

static int32_t world_drive(void *world, void (*rank_main)(void *arg, uint32_t rank), void *arg,
                           bs_error *err) {
  sim_world *w = world;
  if (!trace_anew(w)) return no_memory("a trace", w->size, err);
  const sim_config config = {.ranks = w->size,
                             .order = sim_world_order(w),
                             .buffering = w->plugin->machine.buffering,
                             .route = w->topology != NULL ? sim_world_route : NULL,
                             .link = w->plugin->machine.link,
                             .resume = resume,
                             .drop = sim_letter_free,
                             .user = w,
                             .trace = w->trace};
  w->rank_main = rank_main;
  w->arg = arg;
  int32_t rc = sim_engine_new(&config, &w->engine, err);
  if (rc != BS_OK) return rc;
  w->coroutines = sim_coroutines_new(w->size, 0, body, w);
  if (w->coroutines == NULL) {
    sim_engine_free(w->engine);
    w->engine = NULL;
    return no_memory("the stacks", w->size, err);
  }
  begin(w);
  drives(w);
  rc = sim_run(w->engine, err);
  drives_no_more(w);
  end(w);
  sim_coroutines_free(w->coroutines);
  sim_engine_free(w->engine);
  w->coroutines = NULL;
  w->engine = NULL;
  return rc;
}

static void world_abort(void *world, uint32_t rank, int32_t code, const char *why) {
  const sim_world *w = world;
  bs_error told;
  if (w->engine == NULL) return;
  bs_fail(&told, code, "BS-SIM-ABORT", "%s", why != NULL ? why : "");
  told.rank = (int32_t)rank;
  sim_abort(w->engine, rank, code, &told);
}

/* ---- ranks and groups -------------------------------------------------------------------------- */

static int32_t comm_new(sim_rank *rank, sim_group *group, uint32_t me, void **out_comm, bs_error *err) {
  sim_comm *c = calloc(1, sizeof *c);
  if (c == NULL) return no_memory("a communicator", group->n, err);
  c->rank = rank;
  c->group = group;
  c->me = me;
  *out_comm = c;
  return BS_OK;
}

static int32_t rank_open(void *world, uint32_t rank, void **out_comm, bs_error *err) {
  sim_world *w = world;
  return comm_new(&w->ranks[rank], &w->all, rank, out_comm, err);
}

static void rank_close(void *comm) {
  free(comm);
}

static int same_ranks(const sim_group *group, const sim_group *parent, const uint32_t *ranks, uint32_t n) {
  if (group->n != n) return 0;
  for (uint32_t i = 0; i < n; i++)
    if (group->ranks[i] != sim_group_rank(parent, ranks[i])) return 0;
  return 1;
}

/* The oldest group that others of its members opened and this one has not joined yet, else a new one: members
 * open their groups of the same ranks in the same order. */
static sim_group *find_group(const sim_comm *parent, const uint32_t *ranks, uint32_t n, uint32_t me) {
  sim_world *w = parent->rank->world;
  sim_group **end = &w->all.next;
  for (; *end != NULL; end = &(*end)->next) {
    sim_group *g = *end;
    if (g->opened < g->n && same_ranks(g, parent->group, ranks, n) && !(g->joined[me / 8] >> (me % 8) & 1))
      return g;
  }
  sim_group *g = calloc(1, sizeof *g);
  if (g == NULL) return NULL;
  g->world = w;
  g->n = n;
  g->ranks = calloc(n, sizeof *g->ranks);
  g->joined = calloc(n / 8 + 1, 1);
  if (g->ranks == NULL || g->joined == NULL) {
    group_free(g);
    return NULL;
  }
  for (uint32_t i = 0; i < n; i++) g->ranks[i] = sim_group_rank(parent->group, ranks[i]);
  *end = g;
  return g;
}

static int32_t group_open(void *comm, const uint32_t *ranks, uint32_t nranks, void **out_comm,
                          bs_error *err) {
  const sim_comm *parent = comm;
  uint32_t me = nranks;
  for (uint32_t i = 0; i < nranks; i++) {
    if (ranks[i] >= parent->group->n || (i > 0 && ranks[i] <= ranks[i - 1]))
      return bs_fail(err, BS_INVALID_ARGUMENT, "BS-SIM-GROUP", "rank %u of a group is out of range or order",
                     ranks[i]);
    if (ranks[i] == parent->me) me = i;
  }
  if (me == nranks)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-SIM-GROUP", "rank %u opens a group that it is not in",
                   parent->me);
  sim_group *g = find_group(parent, ranks, nranks, me);
  if (g == NULL) return no_memory("a group", nranks, err);
  const int32_t rc = comm_new(parent->rank, g, me, out_comm, err);
  if (rc != BS_OK) return rc;
  g->joined[me / 8] |= (unsigned char)(1u << (me % 8));
  g->opened++;
  return BS_OK;
}

static uint64_t clock_ns(void *comm) {
  const sim_comm *c = comm;
  const uint64_t ps = sim_rank_time(c->rank)->now;
  return ps / 1000 + (ps % 1000 >= 500);
}

static int32_t device_bind(void *comm, const bs_comm_device *device, const char **out_name, bs_error *err) {
  const sim_comm *c = comm;
  if (device->device != c->rank)
    return bs_fail(err, BS_UNSUPPORTED, "BS-SIM-DEVICE",
                   "communicator sim knows the devices of backend sim alone");
  *out_name = "sim";
  return BS_OK;
}

/* ---- calls ------------------------------------------------------------------------------------- */

static int32_t collective(void *comm, const bs_coll_call *call, bs_error *err) {
  return sim_meet_all(comm, call, err);
}

const bs_src_loc sim_comm_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_comm sim_comm_table = {
    .struct_size = (uint32_t)sizeof(bs_comm),
    .launch = BS_LAUNCH_DRIVEN,
    .name = "sim",
    .summary = "ranks in virtual time on one thread",
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
    .send = sim_comm_send,
    .recv = sim_comm_recv,
    .barrier = collective,
    .abort = world_abort,
    .clock_ns = clock_ns,
    .device_bind = device_bind,
    .exchange = sim_comm_exchange,
    .report = sim_figures,
};
