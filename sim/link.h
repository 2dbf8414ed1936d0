/* SPDX-License-Identifier: MIT
 * link.h - what a message costs: alpha-beta and LogGP. Times in ps, rates in Q32 ps per byte (clock.h). */
#ifndef BS_SIM_LINK_H
#define BS_SIM_LINK_H
#include "sim/clock.h"

enum sim_link_model { SIM_ALPHA_BETA = 0, SIM_LOGGP = 1 };

/* One class of links.
 * Alpha-beta: the send port is busy a_port + n beta; arrival = start + a_port + a_wire + n beta.
 * LogGP: the sender is busy o + (n-1) O, the send port g + (n-1) G; arrival = start + o + L + (n-1) G; the
 * receiver is busy o. n = 0 counts as 1 byte in the terms of n-1. */
typedef struct sim_link {
  uint32_t model; /* enum sim_link_model */
  uint32_t reserved;
  uint64_t a_port, a_wire, beta_q32; /* alpha-beta */
  uint64_t L, o, g, G_q32, O_q32;    /* LogGP */
} sim_link;

/* The cost of one message on a link. */
typedef struct sim_cost {
  uint64_t sender;   /* the sender's clock goes on by this */
  uint64_t port;     /* the send port is busy for this */
  uint64_t latency;  /* without the bytes */
  uint64_t wire;     /* of the bytes, on the slowest wire */
  uint64_t in_wire;  /* the receive port is busy for this */
  uint64_t receiver; /* the receiver's clock goes on by this after the arrival */
} sim_cost;

void sim_link_cost(const sim_link *link, uint64_t bytes, sim_cost *out_cost);

/* Two flows that begin together on one wire and share it fairly: when each has arrived. */
void sim_fair_two(uint64_t latency, uint64_t beta_q32, uint64_t bytes_a, uint64_t bytes_b, uint64_t *out_a,
                  uint64_t *out_b);

/* Alpha-beta from SI units, a_port = 0. */
static inline sim_link sim_link_of(double alpha_s, double bytes_per_s) {
  return (sim_link){.a_wire = sim_seconds_ps(alpha_s), .beta_q32 = sim_rate_q32(bytes_per_s)};
}
#endif
