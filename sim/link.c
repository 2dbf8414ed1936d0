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
    out_cost->in_wire = out_cost->wire;
    return;
  }
  out_cost->sender = 0;
  out_cost->wire = sim_bytes_ps(bytes, link->beta_q32);
  out_cost->port = sim_add(link->a_port, out_cost->wire);
  out_cost->latency = sim_add(link->a_port, link->a_wire);
  out_cost->receiver = 0;
  out_cost->in_wire = out_cost->wire;
}

/* While both are under way each has half of the rate; the longer one then has all of it. */
void sim_fair_two(uint64_t latency, uint64_t beta_q32, uint64_t bytes_a, uint64_t bytes_b, uint64_t *out_a,
                  uint64_t *out_b) {
  const uint64_t shorter = bytes_a < bytes_b ? bytes_a : bytes_b;
  const uint64_t both = sim_add(sim_bytes_ps(shorter, beta_q32), sim_bytes_ps(shorter, beta_q32));
  const uint64_t first = sim_add(latency, both);
  *out_a = sim_add(first, sim_bytes_ps(bytes_a - shorter, beta_q32));
  *out_b = sim_add(first, sim_bytes_ps(bytes_b - shorter, beta_q32));
}
