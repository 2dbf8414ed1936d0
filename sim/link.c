/* SPDX-License-Identifier: MIT
 * link.c - see link.h. */
#include "sim/link.h"

void sim_link_cost(const sim_link *link, uint64_t bytes, sim_cost *out_cost) {
  if (link->model == SIM_LOGGP) {
    const uint64_t after_first = bytes > 0 ? bytes - 1 : 0;
    out_cost->sender = sim_add(link->o, sim_bytes_ps(after_first, link->O_q32));
    out_cost->wire = sim_bytes_ps(after_first, link->G_q32);
    out_cost->port = sim_add(link->g, out_cost->wire);
    out_cost->latency = sim_add(link->o, link->L);
    out_cost->receiver = link->o;
    return;
  }
  out_cost->sender = 0;
  out_cost->wire = sim_bytes_ps(bytes, link->beta_q32);
  out_cost->port = sim_add(link->a_port, out_cost->wire);
  out_cost->latency = sim_add(link->a_port, link->a_wire);
  out_cost->receiver = 0;
}
