/* SPDX-License-Identifier: MIT
 * closed.c - see closed.h. */
#include "sim/closed.h"

#include <string.h>

#include "blockshock/comm.h"

/* Adds `steps` messages of `elements`, one after another. */
static void add_steps(const sim_wire *wire, const sim_closed_call *call, uint64_t steps, uint64_t elements,
                      sim_closed *out) {
  const uint64_t bytes = sim_times(elements, call->element_bytes);
  out->latency = sim_add(out->latency, sim_times(steps, wire->alpha));
  out->wire = sim_add(out->wire, sim_times(steps, sim_bytes_ps(bytes, wire->beta_q32)));
}

static void add_sums(const sim_wire *wire, const sim_closed_call *call, uint64_t steps, uint64_t elements,
                     sim_closed *out) {
  const uint64_t bytes = sim_times(elements, call->element_bytes);
  out->reduce = sim_add(out->reduce, sim_times(steps, sim_bytes_ps(bytes, wire->gamma_q32)));
}

void sim_closed_of(const sim_wire *wire, const sim_closed_call *call, sim_closed *out) {
  const uint64_t p = call->ranks, lg = sim_log2_up(call->ranks);
  memset(out, 0, sizeof *out);
  if (p < 2) return;
  const uint64_t block = call->count / p + (call->count % p != 0);
  switch (call->kind) {
    case BS_COLL_ALL_REDUCE:
      add_steps(wire, call, 2 * (p - 1), block, out);
      add_sums(wire, call, p - 1, block, out);
      out->messages = 2 * p * (p - 1);
      return;
    case BS_COLL_REDUCE_SCATTER:
      add_sums(wire, call, p - 1, call->largest, out);
      add_steps(wire, call, p - 1, call->largest, out);
      out->messages = p * (p - 1);
      return;
    case BS_COLL_ALL_GATHER:
      add_steps(wire, call, p - 1, call->largest, out);
      out->messages = p * (p - 1);
      return;
    case BS_COLL_ALL_TO_ALL:
      out->latency = sim_times(p - 1, wire->alpha);
      out->wire = call->busiest;
      out->messages = p * (p - 1);
      return;
    case BS_COLL_BROADCAST:
      add_steps(wire, call, lg, call->count, out);
      out->messages = p - 1;
      return;
    case BS_COLL_BARRIER:
      out->latency = sim_times(lg, wire->alpha);
      out->messages = p * lg;
      return;
    default:
      add_steps(wire, call, 1, call->count, out);
      out->messages = 1;
      return;
  }
}
