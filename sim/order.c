/* SPDX-License-Identifier: MIT
 * order.c - see order.h. */
#include "sim/order.h"

#include <inttypes.h>
#include <stdio.h>

#include "sim/wires.h"

/* Takes a wire for flow i. The flow that has it already, or i. */
static size_t take(sim_wires *wires, uint64_t id, size_t i) {
  int fresh = 1;
  uint64_t *value = sim_wires_at(wires, id, &fresh);
  if (value == NULL) return SIZE_MAX;
  if (fresh) *value = i;
  return (size_t)*value;
}

static int shares(const sim_flow *flows, size_t i, const sim_hop *hops, uint32_t n_hops, sim_wires *wires,
                  char *why, size_t size) {
  for (uint32_t h = 0; h < n_hops; h++) {
    if (hops[h].id == 0) continue;
    const size_t other = take(wires, hops[h].id, i);
    if (other == SIZE_MAX) return 1;
    /* Flows of one rank use its send port one after the other. They still share a slower wire after it. */
    if (other == i || (flows[other].from == flows[i].from && hops[h].beta_q32 <= hops[0].beta_q32)) continue;
    snprintf(why, size, "the flows %u -> %u and %u -> %u share link %" PRIu64, flows[other].from,
             flows[other].to, flows[i].from, flows[i].to, hops[h].id);
    return 1;
  }
  return 0;
}

uint32_t sim_order_for(const sim_flow *flows, size_t n,
                       uint32_t (*route)(void *user, uint32_t from, uint32_t to, sim_hop *out_hops),
                       void *user, char *out_why, size_t size) {
  sim_wires wires = {0}, ports = {0};
  uint32_t order = SIM_ORDER_K;
  snprintf(out_why, size, "no link is shared");
  for (size_t i = 0; i < n && order == SIM_ORDER_K; i++) {
    sim_hop hops[SIM_HOPS];
    const size_t other = take(&ports, flows[i].to, i);
    if (other == SIZE_MAX || flows[other].from != flows[i].from) {
      order = SIM_ORDER_E;
      snprintf(out_why, size, "the flows %u -> %u and %u -> %u meet at the receive port of rank %u",
               other == SIZE_MAX ? 0 : flows[other].from, flows[i].to, flows[i].from, flows[i].to,
               flows[i].to);
    }
    const uint32_t n_hops =
        order == SIM_ORDER_K && route != NULL ? route(user, flows[i].from, flows[i].to, hops) : 0;
    if (n_hops > SIM_HOPS || shares(flows, i, hops, n_hops, &wires, out_why, size)) order = SIM_ORDER_E;
  }
  sim_wires_close(&wires);
  sim_wires_close(&ports);
  return order;
}
