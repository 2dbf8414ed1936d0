/* SPDX-License-Identifier: MIT
 * meet.c - collectives in one meeting: it begins when the last rank has come, and takes what the closed form
 * says (sim/closed.h). */
#include "world.h"

sim_call sim_call_of(const bs_coll_call *call) {
  const int reduces = call->kind == BS_COLL_ALL_REDUCE || call->kind == BS_COLL_REDUCE_SCATTER;
  return (sim_call){
      .kind = call->kind < BS_COLL_COUNT_ ? bs_name_of(BS_NAMES_COLL, call->kind) : "collective",
      .site = call->site,
      .dtype = bs_name_of(BS_NAMES_DTYPE, call->dtype_in),
      .op = reduces ? bs_name_of(BS_NAMES_REDUCE, call->reduce_op) : NULL,
      .count = sim_times(call->rows, call->count),
      .fingerprint = call->fingerprint};
}

int32_t sim_failed(const sim_world *world, int32_t state, bs_error *err) {
  const bs_error *why = sim_failure(world->engine);
  const int32_t code = state < 0 ? -state : BS_INTERNAL;
  if (err == NULL) return code;
  if (why == NULL) return bs_fail(err, code, "BS-SIM-FAILED", "the simulated world has failed");
  *err = *why;
  err->code = code;
  return code;
}

/* ---- what a meeting takes ---------------------------------------------------------------------- */

static uint64_t bytes_ps(const sim_wire *wire, const bs_coll_call *call, uint64_t count) {
  const uint64_t bytes = sim_times(sim_times(call->rows, count), BS_DTYPE_BYTES(call->dtype_in));
  return sim_bytes_ps(bytes, wire->beta_q32);
}

/* The time of the messages in a row of counts to or from one rank, without the one to itself. */
static uint64_t busy(const sim_wire *wire, const bs_coll_call *call, const uint64_t *counts, uint32_t n,
                     uint32_t me) {
  uint64_t sum = 0;
  for (uint32_t r = 0; r < n; r++)
    if (r != me) sum = sim_add(sum, bytes_ps(wire, call, counts[r]));
  return sum;
}

/* The rank with the most to send or to receive. Ranks with the same arrays have the same. */
static uint64_t busiest(const sim_wire *wire, const sim_arrival *arrivals, uint32_t n) {
  const bs_coll_call *before = NULL;
  uint64_t most = 0;
  for (uint32_t i = 0; i < n; i++) {
    const bs_coll_call *call = sim_call_at(arrivals, i);
    const int known =
        before != NULL && call->counts == before->counts && call->recv_counts == before->recv_counts;
    before = call;
    if (known && i > 1) continue; /* the first two rows are enough: a rank does not send to itself */
    most = sim_max(most, busy(wire, call, call->counts, n, i));
    if (call->recv_counts != NULL) most = sim_max(most, busy(wire, call, call->recv_counts, n, i));
  }
  return most;
}

/* Bytes of the vector that a call is about. */
static uint64_t payload_of(const bs_coll_call *call, uint32_t n) {
  uint64_t count = call->count;
  if (call->kind == BS_COLL_BARRIER) return 0;
  if (call->kind != BS_COLL_ALL_REDUCE && call->kind != BS_COLL_BROADCAST) {
    count = 0;
    for (uint32_t r = 0; r < n && call->counts != NULL; r++) count = sim_add(count, call->counts[r]);
  }
  return sim_times(sim_times(call->rows, count), BS_DTYPE_BYTES(call->dtype_in));
}

/* Bytes that all ranks put on the wire together, by the canonical factor of each kind. */
static uint64_t bytes_sent(const bs_coll_call *call, uint32_t n) {
  return sim_times(payload_of(call, n),
                   call->kind == BS_COLL_ALL_REDUCE ? 2 * (uint64_t)(n - 1) : (uint64_t)n - 1);
}

/* Outside of what a calibrated machine was fitted to? */
void sim_world_met(sim_world *w, uint64_t bytes, uint32_t ranks) {
  const sim_machine *m = &w->plugin->machine;
  if (ranks < 2 || bytes == 0) return;
  w->outside +=
      bytes < m->domain_least || bytes > m->domain_most || (m->domain_ranks > 0 && ranks > m->domain_ranks);
}

static void cost_of(const sim_world *w, const sim_arrival *arrivals, uint32_t n, sim_closed *out) {
  const bs_coll_call *call = sim_call_at(arrivals, 0);
  sim_closed_call c = {.kind = call->kind,
                       .ranks = n,
                       .element_bytes = BS_DTYPE_BYTES(call->dtype_in),
                       .count = sim_times(call->rows, call->count)};
  if (call->kind == BS_COLL_ALL_GATHER || call->kind == BS_COLL_REDUCE_SCATTER)
    for (uint32_t r = 0; r < n; r++) c.largest = sim_max(c.largest, sim_times(call->rows, call->counts[r]));
  if (call->kind == BS_COLL_ALL_TO_ALL) c.busiest = busiest(&w->plugin->machine.wire, arrivals, n);
  sim_closed_of(&w->plugin->machine.wire, &c, out);
}

typedef struct moving {
  const bs_host *host;
  const sim_arrival *arrivals;
  uint32_t n;
  int32_t rc;
} moving;

static void move_all(void *arg) {
  moving *m = arg;
  m->rc = sim_data_move(m->host, m->arrivals, m->n);
}

/* On the stack of who drives the world. */
static int32_t move_values(const sim_world *w, const sim_arrival *arrivals, uint32_t n, bs_error *err) {
  moving m = {.host = w->plugin->host, .arrivals = arrivals, .n = n};
  const bs_coll_call *call = sim_call_at(arrivals, 0);
  for (uint32_t i = 0; i < n; i++)
    if ((sim_call_at(arrivals, i)->flags & BS_COLL_DEVICE) != 0) return BS_OK;
  sim_on_main(w->coroutines, move_all, &m);
  if (m.rc == BS_OK) return BS_OK;
  if (m.rc == BS_NO_MEMORY)
    return bs_fail(err, m.rc, "BS-SIM-MEMORY", "no memory to move the values of %u ranks", n);
  return bs_fail(err, m.rc, "BS-COLL-DTYPE", "cannot reduce or convert 0x%04x in 0x%04x to 0x%04x",
                 call->dtype_in, call->reduce_dtype, call->dtype_out);
}

/* All ranks go on at the same time: when the last one came, and what the collective takes. */
static int32_t complete(void *user, sim_arrival *arrivals, uint32_t n, bs_error *err) {
  sim_group *group = user;
  sim_world *w = group->world;
  uint32_t latest = 0;
  sim_closed cost;
  int32_t rc = sim_data_check(arrivals, n, err);
  if (rc == BS_OK) rc = move_values(w, arrivals, n, err);
  if (rc != BS_OK) return rc;
  for (uint32_t i = 1; i < n; i++)
    if (arrivals[i].ready > arrivals[latest].ready) latest = i;
  const sim_time last = *((const sim_request *)arrivals[latest].data)->time;
  cost_of(w, arrivals, n, &cost);
  const bs_coll_call *call = sim_call_at(arrivals, 0);
  const sim_step said = {.closed = sim_add(sim_add(cost.latency, cost.wire), cost.reduce),
                         .bytes = payload_of(call, n),
                         .ranks = n};
  sim_world_met(w, said.bytes, n);
  for (uint32_t i = 0; i < n; i++) {
    const sim_request *q = arrivals[i].data;
    sim_time *t = q->time;
    const sim_time before = *t;
    sim_time_await(t, &last);
    sim_time_spend(t, SIM_LATENCY, cost.latency);
    sim_time_spend(t, SIM_WIRE, cost.wire);
    sim_time_spend(t, SIM_MEMORY, cost.reduce);
    arrivals[i].done = t->now;
    sim_step_add(q->comm->rank, bs_name_of(BS_NAMES_COLL, call->kind), call->site, &before, t, &said);
  }
  w->messages = sim_add(w->messages, cost.messages);
  w->message_bytes = sim_add(w->message_bytes, bytes_sent(call, n));
  return BS_OK;
}

static int32_t meeting_of(sim_group *group, bs_error *err) {
  sim_world *w = group->world;
  if (group->meeting != NULL && group->run == w->run) return BS_OK;
  group->meeting = NULL;
  group->run = w->run;
  return sim_meeting_new(w->engine, group->ranks, group->n, complete, group, &group->meeting, err);
}

int32_t sim_meet_all(sim_comm *comm, const bs_coll_call *call, bs_error *err) {
  sim_rank *rank = comm->rank;
  sim_world *w = rank->world;
  const int on_device = (call->flags & BS_COLL_DEVICE) != 0;
  const sim_call told = sim_call_of(call);
  sim_request request = {.comm = comm, .call = call};
  uint64_t done = 0;
  request.time = on_device ? sim_stream_time(rank, call->stream) : &rank->stream;
  sim_time_follow(request.time, &rank->host);
  int32_t rc = meeting_of(comm->group, err);
  if (rc != BS_OK) return rc;
  int32_t state = SIM_BLOCKED;
  while ((state = sim_meet(w->engine, comm->group->meeting, comm->me, request.time->now, &told, &request,
                           &done)) == SIM_BLOCKED)
    sim_coroutine_yield(w->coroutines);
  if (state != SIM_DONE) return sim_failed(w, state, err);
  if (!on_device) sim_time_follow(&rank->host, request.time);
  return BS_OK;
}
