/* SPDX-License-Identifier: MIT
 * engine.c - see engine.h. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "sim/internal.h"
#include "sim/trace.h"

int32_t sim_engine_new(const sim_config *config, sim_engine **out_engine, bs_error *err) {
  *out_engine = NULL;
  if (config->ranks == 0 || config->resume == NULL)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-SIM-CONFIG",
                        "a simulated world needs ranks and a resume callback");
  sim_engine *e = calloc(1, sizeof *e);
  if (e != NULL) e->ranks = calloc(config->ranks, sizeof *e->ranks);
  if (e == NULL || e->ranks == NULL || !sim_mail_open(&e->mail) ||
      (config->order == SIM_ORDER_E && !sim_heap_reserve(&e->heap, config->ranks))) {
    sim_engine_free(e);
    return bs_error_set(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for a world of %u simulated ranks",
                        config->ranks);
  }
  e->config = *config;
  e->first = e->last = SIM_NONE;
  e->now = SIM_NONE;
  e->left = config->ranks;
  e->failure = (bs_error)BS_ERROR_INIT;
  for (uint32_t r = 0; r < config->ranks; r++) {
    e->ranks[r].state = RANK_RUNS;
    e->ranks[r].last_in = e->ranks[r].last_out = SIM_NONE;
    e->ranks[r].wakes = SIM_NEVER;
  }
  *out_engine = e;
  return BS_OK;
}

void sim_engine_free(sim_engine *e) {
  if (e == NULL) return;
  for (uint32_t q = 0; q < e->mail.n_queues && e->config.drop != NULL; q++)
    for (uint32_t l = e->mail.queues[q].head; l != SIM_NONE; l = e->mail.letters[l].next)
      if (e->mail.letters[l].payload != NULL) e->config.drop(e->config.user, e->mail.letters[l].payload);
  sim_flights_free(e);
  sim_mail_close(&e->mail);
  sim_heap_close(&e->heap);
  sim_wires_close(&e->wires);
  sim_wires_close(&e->slots);
  sim_meetings_free(e);
  free(e->ranks);
  free(e);
}

/* ---- who runs -------------------------------------------------------------------------------- */

void sim_wake(sim_engine *e, uint32_t rank, uint64_t at) {
  e->ranks[rank].state = RANK_READY;
  if (e->config.order == SIM_ORDER_E) {
    if (e->ranks[rank].wakes != SIM_NEVER) e->stale++;
    e->ranks[rank].wakes = at;
    e->ranks[rank].event = e->seq;
    sim_heap_push(&e->heap, (sim_event){at, e->seq++, rank, NULL});
    return;
  }
  e->ranks[rank].next = SIM_NONE;
  if (e->first == SIM_NONE)
    e->first = rank;
  else
    e->ranks[e->last].next = rank;
  e->last = rank;
}

static int next_rank(sim_engine *e, uint32_t *out_rank) {
  sim_event event;
  if (e->config.order == SIM_ORDER_E) {
    for (;;) {
      if (!sim_heap_pop(&e->heap, &event)) return 0;
      if (event.flight == NULL && event.seq != e->ranks[event.rank].event) {
        e->stale--;
        continue;
      }
      e->time = sim_max(e->time, event.time);
      if (event.flight == NULL) break;
      sim_flight_go(e, event.flight);
    }
    *out_rank = event.rank;
    e->ranks[event.rank].wakes = SIM_NEVER;
    return 1;
  }
  if (e->first == SIM_NONE) return 0;
  *out_rank = e->first;
  e->first = e->ranks[e->first].next;
  return 1;
}

void sim_fail(sim_engine *e, const bs_error *why) {
  if (e->failure.code != BS_OK) return;
  e->failure = *why;
  e->told = -why->code;
  for (uint32_t r = 0; r < e->config.ranks; r++)
    if (sim_waits(&e->ranks[r]) && e->ranks[r].wakes == SIM_NEVER) sim_wake(e, r, e->ranks[r].clock);
}

void sim_abort(sim_engine *e, uint32_t rank, int32_t code, const bs_error *why) {
  bs_error failure = BS_ERROR_INIT;
  if (why != NULL && why->code != BS_OK)
    failure = *why;
  else
    bs_error_set(&failure, code, "BS-SIM-RANK", "rank %u ended the world", rank);
  failure.code = code;
  if (failure.rank < 0) failure.rank = (int32_t)rank;
  if (e->failure.code != BS_OK) return;
  sim_fail(e, &failure);
  e->told = -BS_ABORTED;
}

static void step(sim_engine *e, uint32_t rank) {
  sim_rank *r = &e->ranks[rank];
  e->now = rank;
  r->state = RANK_RUNS;
  e->count.resumes++;
  const int32_t said = e->config.resume(e->config.user, rank);
  e->now = SIM_NONE;
  if (said == SIM_BLOCKED) {
    if (r->state == RANK_RUNS) sim_wake(e, rank, r->clock);
    return;
  }
  if (said < 0) sim_abort(e, rank, -said, NULL);
  r->state = RANK_ENDED;
  e->left--;
}

/* Makes room for another event: the heap has one of each rank, the messages and stale events. */
static int make_room(sim_engine *e) {
  return sim_heap_reserve(&e->heap, (uint64_t)e->config.ranks + e->flights + e->stale + 1);
}

int32_t sim_listen(sim_engine *e, uint32_t rank, uint64_t until) {
  sim_rank *r = &e->ranks[rank];
  if (e->failure.code != BS_OK) return e->told;
  if (!make_room(e)) return sim_no_memory(e, rank);
  if (until == SIM_NEVER && r->wakes != SIM_NEVER) { /* a send has asked for a time */
    e->stale++;
    r->wakes = SIM_NEVER;
    r->event = e->seq++;
  }
  if (until != SIM_NEVER && r->wakes != until) sim_wake(e, rank, until);
  r->state = RANK_LISTENS;
  return SIM_BLOCKED;
}

void sim_poke(sim_engine *e, uint32_t rank, uint64_t at) {
  sim_rank *r = &e->ranks[rank];
  if (r->state != RANK_LISTENS || r->wakes <= at) return;
  if (!make_room(e)) {
    sim_no_memory(e, rank);
    return;
  }
  sim_wake(e, rank, at);
  r->state = RANK_LISTENS;
}

uint64_t sim_event_time(const sim_engine *e) {
  return e->time;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void check_leftover(sim_engine *e) {
  bs_error why = BS_ERROR_INIT;
  uint64_t n = 0;
  const sim_queue *first = NULL;
  for (uint32_t q = 0; q < e->mail.n_queues; q++)
    for (uint32_t l = e->mail.queues[q].head; l != SIM_NONE; l = e->mail.letters[l].next) {
      if (first == NULL) first = &e->mail.queues[q];
      n++;
    }
  if (first == NULL) return;
  const sim_letter *l = &e->mail.letters[first->head];
  bs_error_set(
      &why, BS_MISMATCH, "BS-SIM-LEFTOVER",
      "all ranks have ended, and %llu message%s not received: the first is of rank %u to rank %u, %llu "
      "bytes%s%s",
      (unsigned long long)n, n == 1 ? " was" : "s were", first->from, first->to, (unsigned long long)l->bytes,
      l->site != NULL ? ", sent at " : "", l->site != NULL ? l->site : "");
  bs_error_hint(&why, "each send needs one receive on its destination");
  sim_fail(e, &why);
}

static void check_clocks(sim_engine *e) {
  bs_error why = BS_ERROR_INIT;
  for (uint32_t r = 0; r < e->config.ranks; r++)
    if (e->ranks[r].clock == SIM_NEVER) {
      bs_error_set(&why, BS_OVERFLOW, "BS-SIM-TIME",
                   "rank %u would end after more than 213 days of virtual time", r);
      bs_error_hint(&why, "a rate of the machine is too low, or a size too large");
      sim_fail(e, &why);
      return;
    }
}

int32_t sim_run(sim_engine *e, bs_error *err) {
  uint32_t rank;
  if (e->ran) return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-SIM-TWICE", "a simulated world runs once");
  e->ran = 1;
  for (uint32_t r = 0; r < e->config.ranks; r++) sim_wake(e, r, e->ranks[r].clock);
  while (e->left > 0) {
    while (next_rank(e, &rank)) step(e, rank);
    if (e->left == 0) break;
    bs_error why = BS_ERROR_INIT;
    sim_stuck(e, &why);
    sim_fail(e, &why);
  }
  while (next_rank(e, &rank)) continue; /* messages that no rank waits for reach their rank */
  if (e->failure.code == BS_OK) check_leftover(e);
  if (e->failure.code == BS_OK) check_clocks(e);
  if (err != NULL && e->failure.code != BS_OK) *err = e->failure;
  return e->failure.code;
}

/* ---- messages -------------------------------------------------------------------------------- */

int32_t sim_no_memory(sim_engine *e, uint32_t rank) {
  bs_error why = BS_ERROR_INIT;
  bs_error_set(&why, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for the messages under way");
  why.rank = (int32_t)rank;
  sim_fail(e, &why);
  return e->told;
}

/* Gives the message to the config's `arrived`. */
static int32_t hand_over(sim_engine *e, uint32_t from, uint32_t to, const sim_letter *l) {
  const sim_message m = {.from = from,
                         .to = to,
                         .bytes = l->bytes,
                         .payload = l->payload,
                         .start = l->start,
                         .arrival = l->arrival,
                         .latency = l->latency,
                         .wire = l->wire};
  if (e->config.trace != NULL)
    sim_trace_message(e->config.trace, from, to, l->site,
                      &(sim_trace_ports){l->start, sim_add(l->start, l->port), l->arrival - l->wire,
                                         sim_add(l->arrival - l->wire, l->in_wire)});
  e->config.arrived(e->config.user, &m);
  return SIM_DONE;
}

int32_t sim_deliver(sim_engine *e, uint32_t from, uint32_t to, const sim_letter *letter) {
  sim_rank *r = &e->ranks[to];
  if (e->config.arrived != NULL) return hand_over(e, from, to, letter);
  if (!sim_mail_push(&e->mail, from, to, &e->ranks[from].last_out, letter)) return sim_no_memory(e, from);
  if (r->state == RANK_RECEIVES && r->peer == from) sim_wake(e, to, sim_max(r->clock, letter->arrival));
  return SIM_DONE;
}

static int32_t wrong_rank(sim_engine *e, const sim_message *m) {
  bs_error why = BS_ERROR_INIT;
  bs_error_set(&why, BS_INVALID_ARGUMENT, "BS-SIM-PEER",
               "a message of rank %u to rank %u in a world of %u%s%s", m->from, m->to, e->config.ranks,
               m->call != NULL && m->call->site != NULL ? " at " : "",
               m->call != NULL && m->call->site != NULL ? m->call->site : "");
  sim_fail(e, &why);
  return e->told;
}

static uint64_t *slot_of(sim_engine *e, uint32_t from, uint32_t to) {
  return sim_wires_at(&e->slots, ((uint64_t)from << 32 | to) + 1, NULL);
}

/* 1: the buffering lets it go, from m->ready on; 0: not yet; else an error. */
static int32_t may_send(sim_engine *e, sim_message *m) {
  const sim_rank *to = &e->ranks[m->to];
  if (e->config.buffering == SIM_EAGER || m->together) return 1;
  if (e->config.buffering == SIM_RENDEZVOUS) {
    if (to->state != RANK_RECEIVES || to->peer != m->from || to->matched) return 0;
    m->ready = sim_max(m->ready, to->since);
    return 1;
  }
  const uint64_t *free_at = slot_of(e, m->from, m->to);
  if (free_at == NULL) return sim_no_memory(e, m->from);
  if (*free_at == SIM_NEVER) return 0;
  m->ready = sim_max(m->ready, *free_at);
  return 1;
}

static void note_sent(sim_engine *e, const sim_message *m) {
  if (m->together) return;
  if (e->config.buffering == SIM_RENDEZVOUS) e->ranks[m->to].matched = 1;
  if (e->config.buffering == SIM_ONE_SLOT) *slot_of(e, m->from, m->to) = SIM_NEVER; /* it is there */
}

/* The sender of this pair of ranks can look again. */
static void wake_sender(sim_engine *e, uint32_t from, uint32_t to, uint64_t at) {
  const sim_rank *s = &e->ranks[from];
  if (s->state == RANK_SENDS && s->peer == to) sim_wake(e, from, sim_max(s->clock, at));
}

int32_t sim_send(sim_engine *e, sim_message *m) {
  if (e->failure.code != BS_OK) return e->told;
  if (m->from >= e->config.ranks || m->to >= e->config.ranks) return wrong_rank(e, m);
  sim_rank *from = &e->ranks[m->from];
  const int32_t may = may_send(e, m);
  if (may < 0) return may;
  if (may == 0) {
    from->state = RANK_SENDS;
    from->peer = m->to;
    from->call = m->call;
    from->expects = m->bytes;
    return SIM_BLOCKED;
  }
  m->start = sim_max(m->ready, from->send_free);
  if (e->config.order == SIM_ORDER_E && m->start > e->time) { /* wires are taken in the order of time */
    if (from->wakes == SIM_NEVER)
      sim_wake(e, m->from, m->start); /* else a send before it waits for the port */
    return SIM_BLOCKED;
  }
  note_sent(e, m);
  const int32_t rc = sim_depart(e, m);
  if (rc != SIM_DONE) return rc;
  from->state = RANK_RUNS;
  from->messages++;
  from->bytes += m->bytes;
  e->count.messages++;
  e->count.bytes += m->bytes;
  return SIM_DONE;
}

/* The bytes or the fingerprint of the two ends differ. */
static int32_t mismatch(sim_engine *e, const sim_message *m, const sim_letter *l) {
  bs_error why = BS_ERROR_INIT;
  const char *mine = m->call != NULL && m->call->site != NULL ? m->call->site : "its receive";
  const char *theirs = l->site != NULL ? l->site : "its send";
  if (l->bytes != m->bytes)
    bs_error_set(&why, BS_MISMATCH, "BS-SIM-MISMATCH",
                 "rank %u sends %llu bytes at %s, rank %u receives %llu bytes at %s: the sizes differ",
                 m->from, (unsigned long long)l->bytes, theirs, m->to, (unsigned long long)m->bytes, mine);
  else
    bs_error_set(&why, BS_MISMATCH, "BS-SIM-MISMATCH",
                 "rank %u sends at %s, rank %u receives at %s: the calls differ", m->from, theirs, m->to,
                 mine);
  bs_error_hint(&why, "messages of one pair of ranks are matched in order");
  sim_fail(e, &why);
  return e->told;
}

/* The message has been received at m->done. */
static int32_t free_slot(sim_engine *e, const sim_message *m) {
  uint64_t *free_at = slot_of(e, m->from, m->to);
  if (free_at == NULL) return sim_no_memory(e, m->to);
  if (*free_at == SIM_NEVER) *free_at = m->done;
  wake_sender(e, m->from, m->to, m->done);
  return SIM_DONE;
}

int32_t sim_recv(sim_engine *e, sim_message *m) {
  sim_letter l;
  if (e->failure.code != BS_OK) return e->told;
  if (m->from >= e->config.ranks || m->to >= e->config.ranks) return wrong_rank(e, m);
  sim_rank *to = &e->ranks[m->to];
  const uint32_t queue = sim_mail_find(&e->mail, m->from, m->to, &to->last_in);
  if (queue == SIM_NONE || e->mail.queues[queue].head == SIM_NONE) {
    to->state = RANK_RECEIVES;
    to->peer = m->from;
    to->call = m->call;
    to->expects = m->bytes;
    to->since = m->ready;
    to->matched = 0;
    if (e->config.buffering == SIM_RENDEZVOUS) wake_sender(e, m->from, m->to, m->ready);
    return SIM_BLOCKED;
  }
  to->state = RANK_RUNS;
  const sim_letter *head = &e->mail.letters[e->mail.queues[queue].head];
  const uint64_t mine = m->call != NULL ? m->call->fingerprint : 0;
  if (head->bytes != m->bytes || (mine != 0 && head->fingerprint != 0 && mine != head->fingerprint))
    return mismatch(e, m, head);
  sim_mail_pop(&e->mail, queue, &l);
  m->arrival = l.arrival;
  if (e->config.order == SIM_ORDER_K) {
    /* The receive port takes one message at a time, in the order of the receives. */
    const uint64_t begins = sim_max(l.arrival - l.wire, to->receive_free);
    to->receive_free = sim_add(begins, l.in_wire);
    m->arrival = sim_add(begins, l.wire);
  }
  if (e->config.trace != NULL)
    sim_trace_message(e->config.trace, m->from, m->to, l.site,
                      &(sim_trace_ports){l.start, sim_add(l.start, l.port), m->arrival - l.wire,
                                         sim_add(m->arrival - l.wire, l.in_wire)});
  m->start = l.start;
  m->latency = l.latency;
  m->wire = l.wire;
  m->payload = l.payload;
  m->done = sim_max(m->ready, m->arrival);
  if (e->config.link.model == SIM_LOGGP) m->done = sim_add(m->done, e->config.link.o);
  return e->config.buffering == SIM_ONE_SLOT && !l.together ? free_slot(e, m) : SIM_DONE;
}

int32_t sim_send_now(sim_engine *e, sim_message *m) {
  m->ready = sim_clock(e, m->from);
  const int32_t rc = sim_send(e, m);
  if (rc == SIM_DONE) e->ranks[m->from].clock = m->done;
  return rc;
}

int32_t sim_recv_now(sim_engine *e, sim_message *m) {
  m->ready = sim_clock(e, m->to);
  const int32_t rc = sim_recv(e, m);
  if (rc == SIM_DONE) e->ranks[m->to].clock = m->done;
  return rc;
}

/* ---- what is known --------------------------------------------------------------------------- */

uint64_t sim_clock(const sim_engine *e, uint32_t rank) {
  return rank < e->config.ranks ? e->ranks[rank].clock : 0;
}

void sim_set_clock(sim_engine *e, uint32_t rank, uint64_t ps) {
  if (rank < e->config.ranks) e->ranks[rank].clock = ps;
}

uint64_t sim_latest(const sim_engine *e) {
  uint64_t latest = 0;
  for (uint32_t r = 0; r < e->config.ranks; r++) latest = sim_max(latest, e->ranks[r].clock);
  return latest;
}

const bs_error *sim_failure(const sim_engine *e) {
  return e->failure.code != BS_OK ? &e->failure : NULL;
}

sim_counters sim_count(const sim_engine *e) {
  return e->count;
}

void sim_count_rank(const sim_engine *e, uint32_t rank, uint64_t *out_messages, uint64_t *out_bytes) {
  *out_messages = e->ranks[rank].messages;
  *out_bytes = e->ranks[rank].bytes;
}

uint32_t sim_now(const sim_engine *e) {
  return e->now;
}
