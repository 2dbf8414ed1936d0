/* SPDX-License-Identifier: MIT
 *
 * link.c - the plugin link: another communicator as if its ranks were joined by a slow wire. Every collective
 * takes latency + wire bytes / bandwidth at least, of real time; who waits for it sleeps, so that computing
 * goes on on the same core. Results are the inner communicator's.
 */
#include <errno.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <time.h>

#include "blockshock/plugin.h"

#define SLACK_NS 1000ul /* sleeps end this late at most; the usual 50 us would be more than a latency */

static const bs_param_desc params[] = {
    {.struct_size = (uint32_t)sizeof(bs_param_desc),
     .type = BS_PARAM_FLOAT,
     .name = "bandwidth",
     .default_text = "1e9",
     .choices = "1..1e15",
     .unit = "bytes/s",
     .doc = "what a rank puts on the wire in a second"},
    {.struct_size = (uint32_t)sizeof(bs_param_desc),
     .type = BS_PARAM_FLOAT,
     .name = "latency",
     .default_text = "20e-6",
     .choices = "0..3600",
     .unit = "s",
     .doc = "what a collective takes besides"},
};

typedef struct link_plugin {
  const bs_host *host;
  bs_plugin_self *self;
} link_plugin;

/* What wrap gives out. */
typedef struct link_state {
  const link_plugin *plugin;
  const bs_comm *inner;
  void *inner_state;
  double bandwidth, latency;
} link_state;

typedef struct link_world {
  const link_state *w;
  void *inner;
  uint32_t size;
  uint32_t failed; /* with what follows: under lock */
  uint32_t fail_rank;
  char why[240];
  pthread_mutex_t lock;
  pthread_cond_t wake;
} link_world;

typedef struct link_end {
  link_world *world;
  void *inner;
  uint32_t me, n; /* in the group */
} link_end;

typedef int32_t (*coll_fn)(void *comm, const bs_coll_call *call, bs_error *err);

static int32_t no_memory(bs_error *err) {
  return bs_fail(err, BS_NO_MEMORY, "BS-LINK-MEMORY", "no memory for a slow link");
}

static int32_t number(const link_plugin *plugin, const char *name, double *out, bs_error *err) {
  bs_value value;
  memset(&value, 0, sizeof value);
  value.struct_size = (uint32_t)sizeof value;
  const int32_t rc = plugin->host->param_get(plugin->host->ctx, plugin->self, name, &value, err);
  *out = value.f;
  return rc;
}

static int32_t comm_wrap(void *state, const bs_comm *inner, void *inner_state, void **out_state,
                         bs_error *err) {
  const link_plugin *plugin = state;
  if (inner->launch == BS_LAUNCH_DRIVEN) {
    bs_fail(err, BS_UNSUPPORTED, "BS-LINK-CLOCK", "link: delays by the machine's clock, and %s has its own",
            inner->name);
    return bs_fail_hint(err, "wrap a communicator of threads or processes"), BS_UNSUPPORTED;
  }
  link_state *w = plugin->host->alloc(plugin->host->ctx, sizeof *w, 64);
  if (w == NULL) return no_memory(err);
  w->plugin = plugin;
  w->inner = inner;
  w->inner_state = inner_state;
  int32_t rc = number(plugin, "bandwidth", &w->bandwidth, err);
  if (rc == BS_OK) rc = number(plugin, "latency", &w->latency, err);
  if (rc != BS_OK) {
    plugin->host->free(plugin->host->ctx, w);
    return rc;
  }
  *out_state = w;
  return BS_OK;
}

static void comm_unwrap(void *wrapped) {
  link_state *w = wrapped;
  w->plugin->host->free(w->plugin->host->ctx, w);
}

/* ---- worlds --------------------------------------------------------------------------------- */

static void world_free(link_world *world) {
  const bs_host *host = world->w->plugin->host;
  pthread_cond_destroy(&world->wake);
  pthread_mutex_destroy(&world->lock);
  host->free(host->ctx, world);
}

static int32_t world_open(void *state, const bs_world_request *request, void **out_world, bs_error *err) {
  const link_state *w = state;
  const bs_host *host = w->plugin->host;
  link_world *world = host->alloc(host->ctx, sizeof *world, 64);
  pthread_condattr_t monotonic;
  if (world == NULL) return no_memory(err);
  world->w = w;
  world->size = request->world_size;
  pthread_mutex_init(&world->lock, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&world->wake, &monotonic);
  pthread_condattr_destroy(&monotonic);
  const int32_t rc = w->inner->world_open(w->inner_state, request, &world->inner, err);
  if (rc != BS_OK) {
    world_free(world);
    return rc;
  }
  *out_world = world;
  return BS_OK;
}

static int32_t attach(void *state, const char *const *environment, bs_attachment *out_attachment,
                      bs_error *err) {
  const link_state *w = state;
  if (w->inner->attach == NULL)
    return bs_fail(err, BS_UNAVAILABLE, "BS-LINK-ATTACH", "%s attaches to no processes", w->inner->name);
  return w->inner->attach(w->inner_state, environment, out_attachment, err);
}

static void world_close(void *opaque) {
  link_world *world = opaque;
  if (world == NULL) return;
  world->w->inner->world_close(world->inner);
  world_free(world);
}

static int32_t end_make(link_world *world, void *inner, uint32_t me, uint32_t n, void **out_comm,
                        bs_error *err) {
  const bs_host *host = world->w->plugin->host;
  link_end *end = host->alloc(host->ctx, sizeof *end, 64);
  if (end == NULL) {
    world->w->inner->rank_close(inner);
    return no_memory(err);
  }
  *end = (link_end){world, inner, me, n};
  *out_comm = end;
  return BS_OK;
}

static int32_t rank_open(void *opaque, uint32_t rank, void **out_comm, bs_error *err) {
  link_world *world = opaque;
  void *inner = NULL;
  const int32_t rc = world->w->inner->rank_open(world->inner, rank, &inner, err);
  return rc != BS_OK ? rc : end_make(world, inner, rank, world->size, out_comm, err);
}

static void rank_close(void *opaque) {
  link_end *end = opaque;
  if (end == NULL) return;
  const link_state *w = end->world->w;
  w->inner->rank_close(end->inner);
  w->plugin->host->free(w->plugin->host->ctx, end);
}

static int32_t group_open(void *opaque, const uint32_t *ranks, uint32_t nranks, void **out_comm,
                          bs_error *err) {
  link_end *end = opaque;
  void *inner = NULL;
  uint32_t me = 0;
  const int32_t rc = end->world->w->inner->group_open(end->inner, ranks, nranks, &inner, err);
  if (rc != BS_OK) return rc;
  while (me < nranks && ranks[me] != end->me) ++me;
  return end_make(end->world, inner, me, nranks, out_comm, err);
}

static void world_abort(void *opaque, uint32_t rank, int32_t code, const char *why) {
  link_world *world = opaque;
  pthread_mutex_lock(&world->lock);
  if (!world->failed) {
    world->fail_rank = rank;
    snprintf(world->why, sizeof world->why, "%s", why != NULL ? why : "");
  }
  world->failed = 1;
  pthread_cond_broadcast(&world->wake);
  pthread_mutex_unlock(&world->lock);
  world->w->inner->abort(world->inner, rank, code, why);
}

/* ---- the wire ------------------------------------------------------------------------------- */

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static double sum(const uint64_t *counts, uint32_t n) {
  double total = 0.0;
  for (uint32_t i = 0; counts != NULL && i < n; ++i) total += (double)counts[i];
  return total;
}

/* Bytes that a rank puts on the wire: message x the ring's factor (docs/methods.md). */
static double wire_bytes(const bs_coll_call *c, uint32_t n) {
  const uint64_t column = c->rows * BS_DTYPE_BYTES(c->dtype_in);
  const double size = (double)column, others = (double)(n - 1u) / n;
  switch (c->kind) {
    case BS_COLL_ALL_REDUCE:
      return 2.0 * others * size * (double)c->count;
    case BS_COLL_ALL_GATHER:
    case BS_COLL_REDUCE_SCATTER:
    case BS_COLL_ALL_TO_ALL:
      return others * size * sum(c->counts, n);
    case BS_COLL_BARRIER:
      return 0.0;
    default: /* a receiver waits for what the sender sends */
      return size * (double)c->count;
  }
}

/* Asleep until then; 1: the world failed meanwhile. */
static int sleep_until(link_world *world, int64_t ns) {
  const struct timespec end = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
  const int slack = prctl(PR_GET_TIMERSLACK, 0ul, 0ul, 0ul, 0ul);
  prctl(PR_SET_TIMERSLACK, SLACK_NS, 0ul, 0ul, 0ul);
  pthread_mutex_lock(&world->lock);
  while (!world->failed && pthread_cond_timedwait(&world->wake, &world->lock, &end) != ETIMEDOUT) {
  }
  const int failed = world->failed != 0;
  pthread_mutex_unlock(&world->lock);
  if (slack > 0) prctl(PR_SET_TIMERSLACK, (unsigned long)slack, 0ul, 0ul, 0ul);
  return failed;
}

/* The rest of the time that `bytes` take which were given to the wire at `start`. */
static int32_t travel(link_world *world, const bs_coll_call *call, double bytes, int64_t start,
                      bs_error *err) {
  const double takes = world->w->latency + bytes / world->w->bandwidth;
  int64_t until = takes < 9e9 ? start + (int64_t)(takes * 1e9) : INT64_MAX;
  const int late = call->timeout_ns > 0 && until - start > call->timeout_ns;
  if (late) until = start + call->timeout_ns;
  if (until > now_ns() && sleep_until(world, until))
    return bs_fail(err, BS_ABORTED, "BS-LINK-ABORTED", "stopped on the wire: rank %u failed: %s",
                   world->fail_rank, world->why);
  if (!late) return BS_OK;
  bs_fail(err, BS_DEADLINE, "BS-LINK-DEADLINE",
          "this call takes %.3g s on a link of %.3g bytes/s, %.3g s are allowed", takes, world->w->bandwidth,
          (double)call->timeout_ns * 1e-9);
  return bs_fail_hint(err, "raise the deadline, or plugins.link.bandwidth"), BS_DEADLINE;
}

static int32_t pass(void *opaque, const bs_coll_call *call, coll_fn fn, bs_error *err) {
  const link_end *end = opaque;
  const int64_t start = now_ns();
  const int32_t rc = fn(end->inner, call, err);
  return rc != BS_OK ? rc : travel(end->world, call, wire_bytes(call, end->n), start, err);
}

/* Both directions at once: the one with more bytes decides. */
static int32_t exchange(void *opaque, const bs_coll_call *const *calls, uint32_t ncalls, bs_error *err) {
  const link_end *end = opaque;
  const bs_comm *inner = end->world->w->inner;
  const int64_t start = now_ns();
  double sent = 0.0, got = 0.0;
  const int32_t rc = inner->exchange(end->inner, calls, ncalls, err);
  if (rc != BS_OK || ncalls == 0) return rc;
  for (uint32_t i = 0; i < ncalls; ++i)
    *(calls[i]->kind == BS_COLL_SEND ? &sent : &got) += wire_bytes(calls[i], end->n);
  return travel(end->world, calls[0], sent > got ? sent : got, start, err);
}

static uint64_t clock_ns(void *opaque) {
  const link_end *end = opaque;
  return end->world->w->inner->clock_ns(end->inner);
}

static void report(void *opaque,
                   void (*each)(void *user, const char *name, double value, const char *unit,
                                const char *text),
                   void *user) {
  link_world *world = opaque;
  world->w->inner->report(world->inner, each, user);
}

/* ---- the table ------------------------------------------------------------------------------ */

static const bs_comm *inner_of(const void *opaque) {
  return ((const link_end *)opaque)->world->w->inner;
}
static int32_t all_reduce(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, inner_of(comm)->all_reduce, err);
}
static int32_t all_gather(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, inner_of(comm)->all_gather, err);
}
static int32_t reduce_scatter(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, inner_of(comm)->reduce_scatter, err);
}
static int32_t broadcast(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, inner_of(comm)->broadcast, err);
}
static int32_t all_to_all(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, inner_of(comm)->all_to_all, err);
}
static int32_t send_to(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, inner_of(comm)->send, err);
}
static int32_t recv_from(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, inner_of(comm)->recv, err);
}
static int32_t barrier(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, inner_of(comm)->barrier, err);
}

static const bs_comm table = {
    .struct_size = (uint32_t)sizeof(bs_comm),
    .launch = BS_LAUNCH_THREADS, /* the inner one's in the end */
    .name = "link",
    .summary = "another communicator over a wire of given bandwidth and latency",
    .world_open = world_open,
    .world_close = world_close,
    .rank_open = rank_open,
    .rank_close = rank_close,
    .group_open = group_open,
    .all_reduce = all_reduce,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .broadcast = broadcast,
    .all_to_all = all_to_all,
    .send = send_to,
    .recv = recv_from,
    .barrier = barrier,
    .abort = world_abort,
    .wrap = comm_wrap,
    .unwrap = comm_unwrap,
    .attach = attach,
    .clock_ns = clock_ns,
    .exchange = exchange,
    .report = report,
};

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  BS_HERE_LOC(here);
  link_plugin *plugin = host->alloc(host->ctx, sizeof *plugin, 64);
  int32_t rc = BS_OK;
  if (plugin == NULL) return no_memory(err);
  plugin->host = host;
  plugin->self = self;
  for (size_t i = 0; rc == BS_OK && i < sizeof params / sizeof params[0]; ++i)
    rc = host->param_define(host->ctx, self, &params[i], err);
  if (rc == BS_OK) rc = host->register_thing(host->ctx, self, BS_KIND_COMM, &table, plugin, &here, err);
  if (rc != BS_OK) {
    host->free(host->ctx, plugin);
    return rc;
  }
  *out_state = plugin;
  return BS_OK;
}

static int32_t deactivate(void *state, bs_error *err) {
  link_plugin *plugin = state;
  (void)err;
  plugin->host->free(plugin->host->ctx, plugin);
  return BS_OK;
}

BS_PLUGIN_DEFINE("link", BS_PLUGIN_VERSION,
                 "wraps a communicator: collectives take as long as on a slow wire", 1u << BS_KIND_COMM,
                 "comm:link:\n", activate, deactivate)
