/* SPDX-License-Identifier: MIT
 * p2p.c - send and recv: a message of the engine. Data in host memory are copied, so a send returns
 * immediately. The message carries the sender's time, so that the receiver knows how long it waited. */
#include <stdlib.h>

#include "world.h"

typedef struct letter {
  sim_time sent; /* the sender's, when it gave the message away */
  uint64_t bytes;
  char data[]; /* dense rows of dtype_in; none of a device */
} letter;

void sim_letter_free(void *user, void *payload) {
  (void)user;
  free(payload);
}

static int32_t check(const sim_comm *comm, const bs_coll_call *call, bs_error *err) {
  if (call->root < comm->group->n && call->root != comm->me) return BS_OK;
  return bs_fail(err, BS_INVALID_ARGUMENT, "BS-COLL-ROOT", "rank %u cannot exchange with rank %u of %u",
                 comm->me, call->root, comm->group->n);
}

static uint64_t bytes_of(const bs_coll_call *call) {
  return sim_times(sim_times(call->rows, call->count), BS_DTYPE_BYTES(call->dtype_in));
}

static letter *write_letter(const bs_coll_call *call, const sim_time *now) {
  const uint64_t row = call->count * BS_DTYPE_BYTES(call->dtype_in);
  const uint64_t bytes = (call->flags & BS_COLL_DEVICE) != 0 ? 0 : bytes_of(call);
  if (bytes > (uint64_t)INT64_MAX) return NULL;
  letter *l = malloc(sizeof *l + bytes);
  if (l == NULL) return NULL;
  l->sent = *now;
  l->bytes = bytes;
  for (uint64_t r = 0; bytes > 0 && r < call->rows; r++)
    memcpy(l->data + r * row,
           (const char *)call->in + (int64_t)r * call->in_stride * (int64_t)BS_DTYPE_BYTES(call->dtype_in),
           row);
  return l;
}

static int32_t read_letter(const bs_host *host, const letter *l, const bs_coll_call *call, bs_error *err) {
  const uint64_t row = call->count * BS_DTYPE_BYTES(call->dtype_in);
  int32_t rc = BS_OK;
  for (uint64_t r = 0; rc == BS_OK && l->bytes > 0 && r < call->rows; r++)
    rc = host->convert(
        call->dtype_out,
        (char *)call->out + (int64_t)r * call->out_stride * (int64_t)BS_DTYPE_BYTES(call->dtype_out),
        call->dtype_in, l->data + r * row, call->count);
  return rc == BS_OK ? BS_OK
                     : bs_fail(err, rc, "BS-COLL-DTYPE", "cannot convert dtype 0x%04x to 0x%04x",
                               call->dtype_in, call->dtype_out);
}

static sim_time *time_of(sim_rank *rank, const bs_coll_call *call) {
  sim_time *t = (call->flags & BS_COLL_DEVICE) != 0 ? sim_stream_time(rank, call->stream) : &rank->stream;
  sim_time_follow(t, &rank->host);
  return t;
}

/* A message took from where the sender gave it away to where the receiver has it: its latency, and bytes, its
 * own and those that its ports were busy with before. What the receiver waited beyond that is a wait. */
static void arrive(sim_time *time, const sim_message *m, const letter *l) {
  if (m->done <= time->now) return;
  const uint64_t waited = m->done - time->now, took = m->done - l->sent.now;
  const uint64_t latency = took < m->latency ? took : m->latency, wire = took - latency;
  const uint64_t own_wire = waited < wire ? waited : wire;
  const uint64_t own_latency = waited - own_wire < latency ? waited - own_wire : latency;
  time->own[SIM_WIRE] = sim_add(time->own[SIM_WIRE], own_wire);
  time->own[SIM_LATENCY] = sim_add(time->own[SIM_LATENCY], own_latency);
  time->own[SIM_WAIT] = sim_add(time->own[SIM_WAIT], waited - own_wire - own_latency);
  time->now = m->done;
  memcpy(time->path, l->sent.path, sizeof time->path);
  time->path[SIM_LATENCY] = sim_add(time->path[SIM_LATENCY], latency);
  time->path[SIM_WIRE] = sim_add(time->path[SIM_WIRE], wire);
}

/* Gives a message away at time->now, together with others or alone; *out_done: the sender's time after it. */
static int32_t give(const sim_comm *comm, const bs_coll_call *call, const sim_time *time, uint32_t together,
                    uint64_t *out_done, bs_error *err) {
  const sim_rank *rank = comm->rank;
  sim_world *w = rank->world;
  letter *l = write_letter(call, time);
  if (l == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for a message");
  sim_call told = sim_call_of(call);
  told.site = sim_world_site(w, call->site);
  sim_message m = {.from = rank->index,
                   .to = sim_group_rank(comm->group, call->root),
                   .bytes = bytes_of(call),
                   .ready = time->now,
                   .payload = l,
                   .together = together,
                   .call = &told};
  int32_t state;
  while ((state = sim_send(w->engine, &m)) == SIM_BLOCKED) sim_coroutine_yield(w->coroutines);
  if (state != SIM_DONE) {
    free(l);
    return sim_failed(w, state, err);
  }
  sim_world_met(w, m.bytes, together != 0 ? comm->group->n : 2); /* a step of an algorithm: all meet */
  *out_done = m.done;
  return BS_OK;
}

/* Takes the next message of the peer; the rank has waited for it since time->now, and goes on then. */
static int32_t get(const sim_comm *comm, const bs_coll_call *call, sim_time *time, bs_error *err) {
  const sim_rank *rank = comm->rank;
  sim_world *w = rank->world;
  const sim_call told = sim_call_of(call);
  sim_message m = {.from = sim_group_rank(comm->group, call->root),
                   .to = rank->index,
                   .bytes = bytes_of(call),
                   .ready = time->now,
                   .call = &told};
  int32_t state;
  while ((state = sim_recv(w->engine, &m)) == SIM_BLOCKED) sim_coroutine_yield(w->coroutines);
  if (state != SIM_DONE) return sim_failed(w, state, err);
  letter *l = m.payload;
  arrive(time, &m, l);
  const int32_t rc =
      (call->flags & BS_COLL_DEVICE) == 0 ? read_letter(rank->plugin->host, l, call, err) : BS_OK;
  free(l);
  return rc;
}

static void settle(const sim_comm *comm, const bs_coll_call *call, const char *kind, const sim_time *before,
                   const sim_time *time) {
  const sim_step said = {.bytes = bytes_of(call), .ranks = 2};
  sim_step_add(comm->rank, kind, call->site, before, time, &said);
  if ((call->flags & BS_COLL_DEVICE) == 0) sim_time_follow(&comm->rank->host, time);
}

int32_t sim_comm_send(void *opaque, const bs_coll_call *call, bs_error *err) {
  const sim_comm *comm = opaque;
  uint64_t done = 0;
  int32_t rc = check(comm, call, err);
  if (rc != BS_OK) return rc;
  sim_time *time = time_of(comm->rank, call);
  const sim_time before = *time;
  rc = give(comm, call, time, 0, &done, err);
  if (rc != BS_OK) return rc;
  if (done > time->now) sim_time_spend(time, SIM_WAIT, done - time->now); /* the buffering held it back */
  settle(comm, call, "send", &before, time);
  return BS_OK;
}

int32_t sim_comm_recv(void *opaque, const bs_coll_call *call, bs_error *err) {
  const sim_comm *comm = opaque;
  int32_t rc = check(comm, call, err);
  if (rc != BS_OK) return rc;
  sim_time *time = time_of(comm->rank, call);
  const sim_time before = *time;
  rc = get(comm, call, time, err);
  if (rc == BS_OK) settle(comm, call, "recv", &before, time);
  return rc;
}

/* All begin at the same time; what is reduced on arrival is read and added one after another. */
int32_t sim_comm_exchange(void *opaque, const bs_coll_call *const *calls, uint32_t ncalls, bs_error *err) {
  const sim_comm *comm = opaque;
  int32_t rc = BS_OK;
  uint64_t done = 0, reduce = 0;
  for (uint32_t i = 0; rc == BS_OK && i < ncalls; i++) rc = check(comm, calls[i], err);
  if (rc != BS_OK || ncalls == 0) return rc;
  sim_time *time = time_of(comm->rank, calls[0]);
  const sim_time before = *time;
  sim_time last = before;
  for (uint32_t i = 0; rc == BS_OK && i < ncalls; i++) {
    if (calls[i]->kind != BS_COLL_SEND) continue;
    sim_time sent = before;
    rc = give(comm, calls[i], &before, 1, &done, err);
    if (done > sent.now) sim_time_spend(&sent, SIM_LATENCY, done - sent.now);
    if (sent.now > last.now) last = sent;
  }
  for (uint32_t i = 0; rc == BS_OK && i < ncalls; i++) {
    if (calls[i]->kind == BS_COLL_SEND) continue;
    sim_time come = before;
    rc = get(comm, calls[i], &come, err);
    if (come.now > last.now) last = come;
    if (calls[i]->reduce_dtype != 0)
      reduce = sim_add(reduce, sim_bytes_ps(bytes_of(calls[i]), comm->rank->plugin->machine.wire.gamma_q32));
  }
  if (rc != BS_OK) return rc;
  *time = last;
  sim_time_spend(time, SIM_MEMORY, reduce);
  comm->rank->world->exchanges++;
  settle(comm, calls[0], "exchange", &before, time);
  return BS_OK;
}
