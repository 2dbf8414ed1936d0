/* SPDX-License-Identifier: MIT
 * depart.c - the way of a message. Order K adds up what a route says, and takes no wire. In order E a message
 * takes one wire after the other when its head reaches it, and the receive port at last: cut-through, so that
 * each is busy for the bytes at its own rate and the head goes on after the latency alone. */
#include <stdlib.h>

#include "core/base/error.h"
#include "sim/internal.h"

typedef struct flight {
  sim_letter letter;
  uint64_t head; /* when it reaches the next wire */
  uint32_t from, to, next, n;
  sim_hop hops[];
} flight;

static int32_t no_route(sim_engine *e, const sim_message *m, uint32_t hops) {
  bs_error why = BS_ERROR_INIT;
  bs_error_set(&why, BS_UNSUPPORTED, "BS-SIM-ROUTE",
               "the topology gives %u hops from rank %u to rank %u, 1 to %d are allowed", hops, m->from,
               m->to, SIM_HOPS);
  bs_error_hint(&why, "choose an algorithm for this topology, or a topology with shorter ways");
  sim_fail(e, &why);
  return e->told;
}

/* The cost over these hops: alpha-beta with the link's a_port. */
static void cost_of_route(const sim_link *link, const sim_hop *hops, uint32_t n, uint64_t bytes,
                          sim_cost *out_cost) {
  uint64_t latency = link->a_port, slowest = 0;
  for (uint32_t h = 0; h < n; h++) {
    latency = sim_add(latency, hops[h].latency);
    slowest = sim_max(slowest, hops[h].beta_q32);
  }
  *out_cost = (sim_cost){.port = sim_add(link->a_port, sim_bytes_ps(bytes, hops[0].beta_q32)),
                         .latency = latency,
                         .wire = sim_bytes_ps(bytes, slowest),
                         .in_wire = sim_bytes_ps(bytes, hops[n - 1].beta_q32)};
}

static void tell(const sim_engine *e, const flight *f, uint32_t index, uint64_t reached) {
  if (e->config.hop != NULL) e->config.hop(e->config.user, f->from, f->to, index, reached, f->head);
}

/* Takes the wires that the head has reached by now. */
void sim_flight_go(sim_engine *e, void *opaque) {
  flight *f = opaque;
  e->flights--;
  while (f->next < f->n) {
    const sim_hop *h = &f->hops[f->next++];
    uint64_t nobody = 0, *free_at = h->id != 0 ? sim_wires_at(&e->wires, h->id, NULL) : &nobody;
    if (free_at == NULL) {
      sim_no_memory(e, f->from);
      free_at = &nobody;
    }
    const uint64_t reached = f->head;
    f->head = sim_max(f->head, *free_at);
    tell(e, f, f->next - 1, reached);
    *free_at = sim_add(f->head, sim_bytes_ps(f->letter.bytes, h->beta_q32));
    f->head = sim_add(f->head, h->latency);
    if (f->head > e->time) {
      e->flights++;
      sim_heap_push(&e->heap, (sim_event){f->head, e->seq++, f->from, f});
      return;
    }
  }
  sim_rank *to = &e->ranks[f->to];
  const uint64_t reached = f->head;
  f->head = sim_max(f->head, to->receive_free);
  tell(e, f, f->n, reached);
  to->receive_free = sim_add(f->head, f->letter.in_wire);
  f->letter.arrival = sim_add(f->head, f->letter.wire);
  if (sim_deliver(e, f->from, f->to, &f->letter) != SIM_DONE && f->letter.payload != NULL &&
      e->config.drop != NULL)
    e->config.drop(e->config.user, f->letter.payload);
  free(f);
}

void sim_flights_free(sim_engine *e) {
  sim_event event;
  while (sim_heap_pop(&e->heap, &event)) {
    flight *f = event.flight;
    if (f != NULL && f->letter.payload != NULL && e->config.drop != NULL)
      e->config.drop(e->config.user, f->letter.payload);
    free(f);
  }
}

static int32_t launch(sim_engine *e, const sim_message *m, const sim_letter *letter, const sim_hop *hops,
                      uint32_t n) {
  flight *f = malloc(sizeof *f + n * sizeof *hops);
  if (f == NULL || !sim_heap_reserve(&e->heap, (uint64_t)e->config.ranks + e->flights + e->stale + 1)) {
    free(f);
    return sim_no_memory(e, m->from);
  }
  *f = (flight){.letter = *letter,
                .head = sim_add(m->start, e->config.link.a_port),
                .from = m->from,
                .to = m->to,
                .n = n};
  for (uint32_t h = 0; h < n; h++) f->hops[h] = hops[h];
  e->flights++;
  if (f->head > e->time)
    sim_heap_push(&e->heap, (sim_event){f->head, e->seq++, f->from, f});
  else
    sim_flight_go(e, f);
  return SIM_DONE;
}

int32_t sim_depart(sim_engine *e, sim_message *m) {
  sim_rank *from = &e->ranks[m->from], *to = &e->ranks[m->to];
  const sim_link *link = &e->config.link;
  sim_hop hops[SIM_HOPS];
  sim_cost cost;
  uint32_t n = 0;
  if (e->config.route == NULL) {
    sim_link_cost(link, m->bytes, &cost);
  } else {
    n = e->config.route(e->config.user, m->from, m->to, hops);
    if (n == 0 || n > SIM_HOPS) return no_route(e, m, n);
    cost_of_route(link, hops, n, m->bytes, &cost);
  }
  uint64_t head = sim_add(m->start, cost.latency); /* reaches the receive port */
  if (e->config.order == SIM_ORDER_E &&
      n == 0) { /* all have the same latency: this is the order of arrival */
    head = sim_max(head, to->receive_free);
    to->receive_free = sim_add(head, cost.in_wire);
  }
  m->arrival = sim_add(head, cost.wire);
  m->latency = cost.latency;
  m->wire = cost.wire;
  m->done = sim_add(link->model == SIM_LOGGP ? m->start : m->ready, cost.sender);
  const sim_letter letter = {.start = m->start,
                             .arrival = m->arrival,
                             .latency = cost.latency,
                             .wire = cost.wire,
                             .port = cost.port,
                             .in_wire = cost.in_wire,
                             .bytes = m->bytes,
                             .fingerprint = m->call != NULL ? m->call->fingerprint : 0,
                             .site = m->call != NULL ? m->call->site : NULL,
                             .payload = m->payload,
                             .together = m->together};
  const int32_t rc = e->config.order == SIM_ORDER_E && n > 0 ? launch(e, m, &letter, hops, n)
                                                             : sim_deliver(e, m->from, m->to, &letter);
  if (rc == SIM_DONE) from->send_free = sim_add(m->start, cost.port);
  return rc;
}
