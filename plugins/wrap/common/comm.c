/* SPDX-License-Identifier: MIT
 *
 * comm.c - the wrapped communicator. Faults happen on the rank's own thread, before the inner call (hang,
 * err, delay, truncate) or after it (flip, nan; for a send before it, in the data to send). hang.c and
 * exchange.c have the rest. */
#include "comm.h"

/* ---- wrapping ------------------------------------------------------------------------------- */

/* SIGSTOP stops a whole process: of ranks that are threads none would be left to notice. */
static int32_t check_stops(const wrap_plugin *plugin, const wrap_plan *plan, const bs_comm *inner,
                           bs_error *err) {
  if (inner->launch == BS_LAUNCH_ATTACHED) return BS_OK;
  for (uint32_t i = 0; i < plan->n; ++i) {
    if (plan->steps[i].what != WRAP_STOP) continue;
    bs_fail(err, BS_CONFIG, "BS-WRAP-PLAN",
            "plugins.%s.plan, step %u: do=stop stops the process, and all ranks of %s are in one", plugin->id,
            i + 1u, inner->name);
    if (err != NULL) snprintf(err->plugin, sizeof err->plugin, "%s", plugin->id);
    bs_fail_hint(err, "do=hang stops one rank; --comm %s:shm has ranks that are processes", plugin->id);
    return BS_CONFIG;
  }
  return BS_OK;
}

static int32_t comm_wrap(void *state, const bs_comm *inner, void *inner_state, void **out_state,
                         bs_error *err) {
  const wrap_plugin *plugin = state;
  wrap_comm_state *w = plugin->host->alloc(plugin->host->ctx, sizeof *w, 64);
  if (w == NULL) return wrap_no_memory(plugin, err);
  w->plugin = plugin;
  w->inner = inner;
  w->inner_state = inner_state;
  int32_t rc = wrap_read_plan(plugin, &w->plan, err);
  if (rc == BS_OK) rc = check_stops(plugin, &w->plan, inner, err);
  if (rc != BS_OK) {
    plugin->host->free(plugin->host->ctx, w);
    return rc;
  }
  *out_state = w;
  return BS_OK;
}

static void comm_unwrap(void *wrapped) {
  wrap_comm_state *w = wrapped;
  const bs_host *host = wrap_host(w);
  host->free(host->ctx, w);
}

/* ---- worlds --------------------------------------------------------------------------------- */

static void world_free(wrap_world *world) {
  const bs_host *host = wrap_host(world->w);
  pthread_cond_destroy(&world->wake);
  pthread_mutex_destroy(&world->lock);
  host->free(host->ctx, world->calls);
  host->free(host->ctx, world);
}

static wrap_world *world_make(const wrap_comm_state *w, uint32_t size) {
  const bs_host *host = wrap_host(w);
  wrap_world *world = host->alloc(host->ctx, sizeof *world, 64);
  wrap_calls *calls = host->alloc(host->ctx, (uint64_t)size * sizeof *calls, 64);
  pthread_condattr_t monotonic;
  if (world == NULL || calls == NULL) {
    host->free(host->ctx, world);
    host->free(host->ctx, calls);
    return NULL;
  }
  world->w = w;
  world->size = size;
  world->calls = calls;
  for (uint32_t r = 0; r < size; ++r) calls[r].rank = r;
  pthread_mutex_init(&world->lock, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&world->wake, &monotonic);
  pthread_condattr_destroy(&monotonic);
  return world;
}

static int32_t world_open(void *state, const bs_world_request *request, void **out_world, bs_error *err) {
  const wrap_comm_state *w = state;
  wrap_world *world = world_make(w, request->world_size);
  if (world == NULL) return wrap_no_memory(w->plugin, err);
  const int32_t rc = w->inner->world_open(w->inner_state, request, &world->inner, err);
  if (rc != BS_OK) {
    world_free(world);
    return rc;
  }
  atomic_store(&w->plugin->reach->used, 1u);
  *out_world = world;
  return BS_OK;
}

static void world_close(void *opaque) {
  wrap_world *world = opaque;
  if (world == NULL) return;
  for (uint32_t r = 0; r < world->size; ++r) wrap_tell_counts(world->w->plugin, &world->calls[r]);
  world->w->inner->world_close(world->inner);
  world_free(world);
}

static int32_t world_drive(void *opaque, void (*rank_main)(void *arg, uint32_t rank), void *arg,
                           bs_error *err) {
  wrap_world *world = opaque;
  return world->w->inner->world_drive(world->inner, rank_main, arg, err);
}

static int32_t end_make(wrap_world *world, void *inner, wrap_calls *calls, uint32_t me, uint32_t n,
                        wrap_end **out_end, bs_error *err) {
  const bs_host *host = wrap_host(world->w);
  wrap_end *end = host->alloc(host->ctx, sizeof *end, 64);
  if (end == NULL) {
    world->w->inner->rank_close(inner);
    return wrap_no_memory(world->w->plugin, err);
  }
  *end = (wrap_end){.world = world, .inner = inner, .calls = calls, .me = me, .n = n};
  *out_end = end;
  return BS_OK;
}

static void rank_close(void *opaque) {
  wrap_end *end = opaque;
  if (end == NULL) return;
  const wrap_comm_state *w = end->world->w;
  if (end->owns_nowhere) w->inner->rank_close(end->nowhere);
  w->inner->rank_close(end->inner);
  wrap_host(w)->free(wrap_host(w)->ctx, end);
}

static int32_t rank_open(void *opaque, uint32_t rank, void **out_comm, bs_error *err) {
  wrap_world *world = opaque;
  void *inner = NULL;
  int32_t rc = world->w->inner->rank_open(world->inner, rank, &inner, err);
  if (rc != BS_OK) return rc;
  if (rank >= world->size) {
    world->w->inner->rank_close(inner);
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-WRAP-RANK", "rank %u of %u", rank, world->size);
  }
  wrap_end *end = NULL;
  rc = end_make(world, inner, &world->calls[rank], rank, world->size, &end, err);
  if (rc != BS_OK) return rc;
  rc = wrap_open_nowhere(world, inner, &end->nowhere, err);
  end->owns_nowhere = end->nowhere != NULL;
  if (rc != BS_OK) {
    rank_close(end);
    return rc;
  }
  *out_comm = end;
  return BS_OK;
}

static int32_t group_open(void *opaque, const uint32_t *ranks, uint32_t nranks, void **out_comm,
                          bs_error *err) {
  wrap_end *end = opaque;
  void *inner = NULL;
  uint32_t me = 0;
  int32_t rc = end->world->w->inner->group_open(end->inner, ranks, nranks, &inner, err);
  if (rc != BS_OK) return rc;
  while (me < nranks && ranks[me] != end->me) ++me;
  wrap_end *made = NULL;
  rc = end_make(end->world, inner, end->calls, me, nranks, &made, err);
  if (rc != BS_OK) return rc;
  made->nowhere = end->nowhere;
  *out_comm = made;
  return BS_OK;
}

static void world_abort(void *opaque, uint32_t rank, int32_t code, const char *why) {
  wrap_world *world = opaque;
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

/* ---- what is done to a call ------------------------------------------------------------------ */

static uint64_t sum(const uint64_t *counts, uint32_t n) {
  uint64_t total = 0;
  for (uint32_t i = 0; counts != NULL && i < n; ++i) total += counts[i];
  return total;
}

/* Elements in a row of what this rank receives. */
static uint64_t result_columns(const wrap_end *end, const bs_coll_call *c) {
  switch (c->kind) {
    case BS_COLL_ALL_GATHER:
      return sum(c->counts, end->n);
    case BS_COLL_REDUCE_SCATTER:
      return c->counts != NULL ? c->counts[end->me] : 0;
    case BS_COLL_ALL_TO_ALL:
      return sum(c->recv_counts, end->n);
    case BS_COLL_BARRIER:
      return 0;
    default:
      return c->count;
  }
}

static int32_t changed_send(const wrap_end *end, const bs_coll_call *call, uint32_t what, wrap_coll_fn fn,
                            bs_error *err) {
  const wrap_plugin *plugin = end->world->w->plugin;
  const bs_host *host = plugin->host;
  bs_coll_call c = *call;
  void *copy = NULL;
  int32_t rc = wrap_dense_copy(plugin, call, &copy, err);
  if (rc != BS_OK) return rc;
  c.in = copy;
  c.in_stride = (int64_t)call->count;
  if (!wrap_change(plugin, what, call->dtype_in, copy)) wrap_warn_empty(plugin, end->calls, call->kind, what);
  rc = fn(end->inner, &c, err);
  host->free(host->ctx, copy);
  return rc;
}

static int32_t changed(const wrap_end *end, const bs_coll_call *call, uint32_t what, wrap_coll_fn fn,
                       bs_error *err) {
  const wrap_plugin *plugin = end->world->w->plugin;
  const int empty = call->rows == 0 || result_columns(end, call) == 0;
  if (!empty && call->kind == BS_COLL_SEND) return changed_send(end, call, what, fn, err);
  const int32_t rc = fn(end->inner, call, err);
  if (rc != BS_OK) return rc;
  if (empty || !wrap_change(plugin, what, call->dtype_out, call->out))
    wrap_warn_empty(plugin, end->calls, call->kind, what);
  return BS_OK;
}

/* Acts as if this rank had made the call with one row less, or, for a single row, one element less: other
 * arguments have another fingerprint. */
static int32_t truncated(const wrap_end *end, const bs_coll_call *call, wrap_coll_fn fn, bs_error *err) {
  bs_coll_call c = *call;
  if (c.rows == 0 || c.kind == BS_COLL_BARRIER) {
    wrap_warn_empty(end->world->w->plugin, end->calls, c.kind, WRAP_TRUNCATE);
    return fn(end->inner, &c, err);
  }
  if (c.rows == 1 && c.count > 1)
    c.count--;
  else
    c.rows--;
  c.fingerprint ^= UINT64_C(0x7472756e63617465);
  return fn(end->inner, &c, err);
}

static int32_t pass(void *opaque, const bs_coll_call *call, uint32_t kind, wrap_coll_fn fn, bs_error *err) {
  const wrap_end *end = opaque;
  const wrap_comm_state *w = end->world->w;
  int64_t ns = 0;
  if (w->plugin->pass != NULL) return w->plugin->pass(end, call, fn, err);
  /* Results on their way between processes are not the program's calls. */
  if ((call->flags & BS_COLL_CONTROL) != 0) return fn(end->inner, call, err);
  const wrap_step *s = wrap_next(w->plugin, &w->plan, end->calls, kind, &ns);
  wrap_delay(end, kind, ns);
  if (s == NULL) return fn(end->inner, call, err);
  switch (s->what) {
    case WRAP_HANG:
      return wrap_hang(end, call, kind, err);
    case WRAP_ERR:
      return wrap_fail(w->plugin, end->calls, kind, call->site, err);
    case WRAP_TRUNCATE:
      return truncated(end, call, fn, err);
    case WRAP_KILL:
    case WRAP_STOP:
      wrap_signal(s->what);
      return fn(end->inner, call, err); /* who was stopped may be let go on */
    default:
      return changed(end, call, s->what, fn, err);
  }
}

static uint64_t clock_ns(void *opaque) {
  const wrap_end *end = opaque;
  return end->world->w->inner->clock_ns(end->inner);
}

static void report(void *opaque,
                   void (*each)(void *user, const char *name, double value, const char *unit,
                                const char *text),
                   void *user) {
  wrap_world *world = opaque;
  world->w->inner->report(world->inner, each, user);
}

/* ---- the table ------------------------------------------------------------------------------ */

static const bs_comm *inner_of(const void *opaque) {
  return ((const wrap_end *)opaque)->world->w->inner;
}
static int32_t all_reduce(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, BS_COLL_ALL_REDUCE, inner_of(comm)->all_reduce, err);
}
static int32_t all_gather(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, BS_COLL_ALL_GATHER, inner_of(comm)->all_gather, err);
}
static int32_t reduce_scatter(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, BS_COLL_REDUCE_SCATTER, inner_of(comm)->reduce_scatter, err);
}
static int32_t broadcast(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, BS_COLL_BROADCAST, inner_of(comm)->broadcast, err);
}
static int32_t all_to_all(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, BS_COLL_ALL_TO_ALL, inner_of(comm)->all_to_all, err);
}
static int32_t send_to(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, BS_COLL_SEND, inner_of(comm)->send, err);
}
static int32_t recv_from(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, BS_COLL_RECV, inner_of(comm)->recv, err);
}
static int32_t barrier(void *comm, const bs_coll_call *call, bs_error *err) {
  return pass(comm, call, BS_COLL_BARRIER, inner_of(comm)->barrier, err);
}

const bs_comm wrap_comm_table = {
    .struct_size = (uint32_t)sizeof(bs_comm),
    .launch = BS_LAUNCH_THREADS, /* the inner one's in the end */
    .world_open = world_open,
    .world_close = world_close,
    .world_drive = world_drive,
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
    .clock_ns = clock_ns,
    .exchange = wrap_exchange,
    .report = report,
};
