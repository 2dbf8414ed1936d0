/* SPDX-License-Identifier: MIT
 * order.h - which order a phase of messages needs: E where flows share a wire or meet at a receive port. */
#ifndef BS_SIM_ORDER_H
#define BS_SIM_ORDER_H
#include <stddef.h>

#include "sim/engine.h"

typedef struct sim_flow {
  uint32_t from, to;
} sim_flow;

/* Flows that are under way at one time (a round of an algorithm). route NULL: every pair has its own link.
 * enum sim_order, and why as text: "the flows 0 -> 2 and 1 -> 2 meet at the receive port of rank 2". The text
 * is "no link is shared" for K. Without memory it is E. */
uint32_t sim_order_for(const sim_flow *flows, size_t n,
                       uint32_t (*route)(void *user, uint32_t from, uint32_t to, sim_hop *out_hops),
                       void *user, char *out_why, size_t size);
#endif
