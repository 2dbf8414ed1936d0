/* SPDX-License-Identifier: MIT
 * closed.h - the time of a collective by its closed form, in ps: every pair of ranks has a separate link and
 * all ranks begin at the same time. docs/dev/latency-model.md has the formulas in words.
 *
 *   all_reduce                  ring: 2 (P-1) messages of the largest of P even blocks, one after another,
 *                               and P-1 reductions of such a block
 *   all_gather, reduce_scatter  ring: P-1 messages of the largest block (and P-1 reductions of it)
 *   all_to_all                  P-1 messages of each rank, one after another: the rank with the most to send
 *                               or to receive
 *   broadcast                   binomial tree: ceil(lg P) messages of the whole
 *   send                        one message
 *   barrier                     dissemination: ceil(lg P) messages of no bytes */
#ifndef BS_SIM_CLOSED_H
#define BS_SIM_CLOSED_H
#include <stdint.h>

#include "sim/clock.h"

/* The class of all links: ps a message, and Q32 ps a byte (clock.h) sent, and reduced into what is there. */
typedef struct sim_wire {
  uint64_t alpha, beta_q32, gamma_q32;
} sim_wire;

/* One call of a group of `ranks`. */
typedef struct sim_closed_call {
  uint32_t kind; /* enum bs_coll_kind; BS_COLL_RECV is as BS_COLL_SEND */
  uint32_t ranks;
  uint64_t element_bytes;
  uint64_t count;   /* all_reduce, broadcast, send: elements of the vector */
  uint64_t largest; /* all_gather, reduce_scatter: elements of the largest block */
  uint64_t
      busiest; /* all_to_all: ps that the bytes of the busiest rank take (sim_bytes_ps of each message) */
} sim_closed_call;

typedef struct sim_closed {
  uint64_t latency;  /* of messages, without their bytes */
  uint64_t wire;     /* of bytes */
  uint64_t reduce;   /* of reductions */
  uint64_t messages; /* of all ranks together */
} sim_closed;

/* All sums stop at SIM_NEVER. A group of one takes nothing. */
void sim_closed_of(const sim_wire *wire, const sim_closed_call *call, sim_closed *out_closed);

/* The least n with 2^n >= ranks. */
static inline uint32_t sim_log2_up(uint32_t ranks) {
  uint32_t n = 0;
  while (n < 32 && (UINT64_C(1) << n) < ranks) ++n;
  return n;
}
#endif
