/* SPDX-License-Identifier: MIT
 * claim.c - when a message starts and arrives. Order K adds up what a route says, and takes no wire. Order E
 * takes send port, wires and receive port one behind the other: cut-through, so that each is busy for the
 * bytes at its own rate and the head goes on after its latency alone. They are taken in the order of the
 * messages' starts. */
#include "core/base/error.h"
#include "sim/internal.h"

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

/* How much later than without others the head reaches the receive port. SIM_NEVER: no memory. */
static uint64_t wait_for_wires(sim_engine *e, const sim_hop *hops, uint32_t n, uint64_t bytes,
                               uint64_t head) {
  uint64_t waited = 0, nobody = 0;
  for (uint32_t h = 0; h < n; h++) {
    uint64_t *free_at = hops[h].id != 0 ? sim_wires_at(&e->wires, hops[h].id, NULL) : &nobody;
    if (free_at == NULL) return SIM_NEVER;
    nobody = 0;
    if (*free_at > head) {
      waited = sim_add(waited, *free_at - head);
      head = *free_at;
    }
    *free_at = sim_add(head, sim_bytes_ps(bytes, hops[h].beta_q32));
    head = sim_add(head, hops[h].latency);
  }
  return waited;
}

int32_t sim_claim(sim_engine *e, sim_message *m, sim_cost *out_cost) {
  sim_rank *from = &e->ranks[m->from], *to = &e->ranks[m->to];
  const sim_link *link = &e->config.link;
  sim_hop hops[SIM_HOPS];
  uint32_t n = 0;
  m->start = sim_max(m->ready, from->send_free);
  if (e->config.order == SIM_ORDER_E && m->start > e->time) {
    sim_wake(e, m->from, m->start);
    return SIM_BLOCKED;
  }
  if (e->config.route == NULL) {
    sim_link_cost(link, m->bytes, out_cost);
  } else {
    n = e->config.route(e->config.user, m->from, m->to, hops);
    if (n == 0 || n > SIM_HOPS) return no_route(e, m, n);
    cost_of_route(link, hops, n, m->bytes, out_cost);
  }
  uint64_t head = sim_add(m->start, out_cost->latency); /* reaches the receive port */
  if (e->config.order == SIM_ORDER_E) {
    const uint64_t waited = wait_for_wires(e, hops, n, m->bytes, sim_add(m->start, link->a_port));
    head = sim_max(sim_add(head, waited), to->receive_free);
    to->receive_free = sim_add(head, out_cost->in_wire);
  }
  from->send_free = sim_add(m->start, out_cost->port);
  from->state = RANK_RUNS;
  m->arrival = sim_add(head, out_cost->wire);
  m->latency = out_cost->latency;
  m->wire = out_cost->wire;
  m->done = sim_add(link->model == SIM_LOGGP ? m->start : m->ready, out_cost->sender);
  return SIM_DONE;
}
