/* SPDX-License-Identifier: MIT
 *
 * link.c - the plugin link: another communicator as if its ranks were joined by a slow wire. Every collective
 * takes latency + wire bytes / bandwidth at least, of real time; who waits for it sleeps, so that computing
 * goes on on the same core. Results are the inner communicator's.
 */
#include <sys/prctl.h>
#include <time.h>

#include "../common/comm.h"

#define MEMORY_ID "BS-LINK-MEMORY"
#define SLACK_NS 1000ul /* sleeps end this late at most; the usual 50 us would be more than a latency */

static const bs_param_desc params[] = {
    {.struct_size = (uint32_t)sizeof(bs_param_desc),
     .type = BS_PARAM_FLOAT,
     .name = "bandwidth",
     .default_text = "1e9",
     .choices = "1..1e15",
     .unit = "bytes/s",
     .doc = "bytes that a rank sends in a second"},
    {.struct_size = (uint32_t)sizeof(bs_param_desc),
     .type = BS_PARAM_FLOAT,
     .name = "latency",
     .default_text = "20e-6",
     .choices = "0..3600",
     .unit = "s",
     .doc = "time that a collective takes in addition"},
};

typedef struct link_plugin {
  wrap_plugin base;
  wrap_reach reach;
} link_plugin;

/* The state that wrap returns. */
typedef struct link_state {
  wrap_comm_state base;
  double bandwidth, latency;
} link_state;

static int32_t number(const wrap_plugin *plugin, const char *name, double *out, bs_error *err) {
  bs_value value;
  memset(&value, 0, sizeof value);
  value.struct_size = (uint32_t)sizeof value;
  const int32_t rc = plugin->host->param_get(plugin->host->ctx, plugin->self, name, &value, err);
  *out = value.f;
  return rc;
}

static int32_t comm_wrap(void *state, const bs_comm *inner, void *inner_state, void **out_state,
                         bs_error *err) {
  const wrap_plugin *plugin = state;
  if (inner->launch == BS_LAUNCH_DRIVEN) {
    bs_fail(err, BS_UNSUPPORTED, "BS-LINK-CLOCK", "link: delays by the machine's clock, and %s has its own",
            inner->name);
    return bs_fail_hint(err, "wrap a communicator of threads or processes"), BS_UNSUPPORTED;
  }
  link_state *w = plugin->host->alloc(plugin->host->ctx, sizeof *w, 64);
  if (w == NULL) return wrap_no_memory(plugin, err);
  w->base = (wrap_comm_state){.plugin = plugin, .inner = inner, .inner_state = inner_state};
  int32_t rc = number(plugin, "bandwidth", &w->bandwidth, err);
  if (rc == BS_OK) rc = number(plugin, "latency", &w->latency, err);
  if (rc != BS_OK) {
    plugin->host->free(plugin->host->ctx, w);
    return rc;
  }
  *out_state = w;
  return BS_OK;
}

static int32_t attach(void *state, const char *const *environment, bs_attachment *out_attachment,
                      bs_error *err) {
  const wrap_comm_state *w = state;
  if (w->inner->attach == NULL)
    return bs_fail(err, BS_UNAVAILABLE, "BS-LINK-ATTACH", "%s attaches to no processes", w->inner->name);
  return w->inner->attach(w->inner_state, environment, out_attachment, err);
}

/* ---- the wire ------------------------------------------------------------------------------- */

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
static int sleep_until(wrap_world *world, int64_t ns) {
  const int slack = prctl(PR_GET_TIMERSLACK, 0ul, 0ul, 0ul, 0ul);
  prctl(PR_SET_TIMERSLACK, SLACK_NS, 0ul, 0ul, 0ul);
  const int failed = wrap_sleep_until(world, ns);
  if (slack > 0) prctl(PR_SET_TIMERSLACK, (unsigned long)slack, 0ul, 0ul, 0ul);
  return failed;
}

/* The rest of the time that `bytes` take which were given to the wire at `start`. */
static int32_t travel(wrap_world *world, const bs_coll_call *call, double bytes, int64_t start,
                      bs_error *err) {
  const link_state *w = (const link_state *)(const void *)world->w;
  const double takes = w->latency + bytes / w->bandwidth;
  int64_t until = takes < 9e9 ? start + (int64_t)(takes * 1e9) : INT64_MAX;
  const int late = call->timeout_ns > 0 && until - start > call->timeout_ns;
  if (late) until = start + call->timeout_ns;
  if (until > wrap_now_ns() && sleep_until(world, until))
    return bs_fail(err, BS_ABORTED, "BS-LINK-ABORTED", "stopped on the wire: rank %u failed: %s",
                   world->fail_rank, world->why);
  if (!late) return BS_OK;
  bs_fail(err, BS_DEADLINE, "BS-LINK-DEADLINE",
          "this call takes %.3g s on a link of %.3g bytes/s, %.3g s are allowed", takes, w->bandwidth,
          (double)call->timeout_ns * 1e-9);
  return bs_fail_hint(err, "raise the deadline, or plugins.link.bandwidth"), BS_DEADLINE;
}

static int32_t pass(const wrap_end *end, const bs_coll_call *call, wrap_coll_fn fn, bs_error *err) {
  const int64_t start = wrap_now_ns();
  const int32_t rc = fn(end->inner, call, err);
  return rc != BS_OK ? rc : travel(end->world, call, wire_bytes(call, end->n), start, err);
}

/* Both directions at the same time: the one with more bytes decides. */
static int32_t exchange(void *opaque, const bs_coll_call *const *calls, uint32_t ncalls, bs_error *err) {
  const wrap_end *end = opaque;
  const bs_comm *inner = end->world->w->inner;
  const int64_t start = wrap_now_ns();
  double sent = 0.0, got = 0.0;
  const int32_t rc = inner->exchange(end->inner, calls, ncalls, err);
  if (rc != BS_OK || ncalls == 0) return rc;
  for (uint32_t i = 0; i < ncalls; ++i)
    *(calls[i]->kind == BS_COLL_SEND ? &sent : &got) += wire_bytes(calls[i], end->n);
  return travel(end->world, calls[0], sent > got ? sent : got, start, err);
}

/* ---- the plugin ----------------------------------------------------------------------------- */

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  BS_HERE_LOC(here);
  link_plugin *plugin = host->alloc(host->ctx, sizeof *plugin, 64);
  bs_comm table = wrap_comm_table;
  int32_t rc = BS_OK;
  if (plugin == NULL) return bs_fail(err, BS_NO_MEMORY, MEMORY_ID, "no memory for a slow link");
  plugin->base = (wrap_plugin){.host = host,
                               .self = self,
                               .id = "link",
                               .memory_id = MEMORY_ID,
                               .pass = pass,
                               .reach = &plugin->reach};
  table.name = "link";
  table.summary = "another communicator over a wire of given bandwidth and latency";
  table.world_drive = NULL;
  table.wrap = comm_wrap;
  table.attach = attach;
  table.exchange = exchange;
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
  plugin->base.host->free(plugin->base.host->ctx, plugin);
  return BS_OK;
}

BS_PLUGIN_DEFINE("link", BS_PLUGIN_VERSION,
                 "wraps a communicator: collectives take as long as on a slow wire", 1u << BS_KIND_COMM,
                 "comm:link:\n", activate, deactivate)
