/* SPDX-License-Identifier: MIT
 * trace_parts.h - what the files of a simulated trace share: which messages and collectives belong together
 * (trace_match.c), and the state of each node (trace_run.c, trace_stuck.c). */
#ifndef BS_LAB_SIM_TRACE_PARTS_H
#define BS_LAB_SIM_TRACE_PARTS_H
#include "lab/sim/trace_run.h"

#define TRACE_NONE UINT32_MAX

/* Messages of one source, destination and tag. In `queue` are sends that have arrived, or receives that wait:
 * never both. */
typedef struct trace_channel {
  uint32_t first, end; /* of trace_match.members */
  uint32_t head, tail; /* of the queue */
} trace_channel;

/* The n-th collective of a group. */
typedef struct trace_meeting {
  uint32_t group, came;
  uint32_t first; /* its node of each rank of the group, in trace_match.members */
} trace_meeting;

typedef struct trace_match {
  uint32_t *of;      /* of each node: its channel or meeting; TRACE_NONE: work */
  uint32_t *members; /* nodes: those of a channel are in the trace's order */
  uint32_t *next;    /* of each node: the one after it in a queue */
  trace_channel *channels;
  trace_meeting *meetings;
  uint32_t n_members, n_channels, n_meetings;
} trace_match;

/* All 0 before; the caller frees in each case. Refuses what can never meet. */
int32_t trace_match_make(const bs_et *et, trace_match *out_match, bs_error *err);
void trace_match_free(trace_match *match);

/* The closed form of a collective of p ranks. */
uint64_t trace_collective_ps(const sim_wire *wire, const bs_et_node *n, uint32_t p);

enum trace_state { TRACE_WAITS = 0, TRACE_READY, TRACE_BEGUN, TRACE_DONE };

/* No rank can go on: BS-TRACE-STUCK, with the nodes that wait for each other. states: of each node. */
int32_t trace_stuck(const bs_et *et, const trace_match *match, const uint8_t *states, bs_error *err);
#endif
