/* SPDX-License-Identifier: MIT
 * trace_run.h - simulates a trace (formats/et.h): `bsrun sim run`. Each rank is a state machine of its nodes
 * over the engine, in the order of time.
 *
 * A node begins when all that it needs is there and its processor is free; of those that wait for a processor
 * the one that was ready first is next, then the one that stands first in the trace. A message takes the
 * ports and the way of the machine; a send ends when it is under way (LogGP: after o), a receive when the
 * message of its source and tag has come (LogGP: o later, on its processor). A collective begins when the
 * last rank of its group comes to it and the collectives before it have ended on all of them, and takes its
 * closed form (sim/closed.h); it and messages do not slow each other. The n-th node of a group on one rank
 * meets the n-th on the others. */
#ifndef BS_LAB_SIM_TRACE_RUN_H
#define BS_LAB_SIM_TRACE_RUN_H
#include "formats/et.h"
#include "sim/closed.h"
#include "sim/cost.h"
#include "sim/engine.h"

typedef struct bs_trace_machine {
  sim_roof roof;                                                                /* of work by the model */
  sim_wire wire;                                                                /* of collectives */
  sim_link link;                                                                /* of messages */
  uint32_t (*route)(void *user, uint32_t from, uint32_t to, sim_hop *out_hops); /* NULL: a link a pair */
  void *route_user;
  struct sim_trace *trace; /* sim/trace.h: gets work, messages and collectives; NULL: none */
} bs_trace_machine;

/* The source of the time of work, when a node has both. */
enum bs_trace_calc { BS_TRACE_MODEL = 0, BS_TRACE_RECORDED = 1 };

typedef struct bs_trace_rank {
  uint64_t nodes;
  uint64_t end;     /* ps */
  uint64_t compute; /* in which one of its processors works or more */
  uint64_t comm;    /* in which a message or a collective is under way, or waited for */
  uint64_t exposed; /* in which none works: end - compute */
} bs_trace_rank;

typedef struct bs_trace_result {
  uint64_t ps; /* the latest end */
  uint32_t last_rank;
  uint64_t messages, bytes, collectives;
  uint64_t recorded, modelled,
      unknown; /* nodes of work by where their time came from; unknown: they took none */
} bs_trace_result;

/* out_ranks: et->n_ranks of them. The times of nodes become those of the simulation: start, and ps
 * (BS_ET_CALC and BS_ET_MEMORY: the work alone). BS_DEADLINE (BS-TRACE-STUCK): nodes wait for each other, or
 * a receive has no send. BS_MISMATCH (BS-TRACE-MATCH): a send has no receive, or two ends differ.
 * BS_UNSUPPORTED (BS-TRACE-NODE): something that is not simulated. Messages name rank, node, and what it
 * waits for. */
int32_t bs_trace_run(bs_et *et, const bs_trace_machine *machine, uint32_t calc, bs_trace_rank *out_ranks,
                     bs_trace_result *out_result, bs_error *err);
#endif
