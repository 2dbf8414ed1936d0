/* SPDX-License-Identifier: MIT
 * gates.h - what must hold of a run over many ranks beyond the numbers of its nodes. Called on each rank, by
 * the check (graph/run/check.c) and by runs that compare ranks (front.h). */
#ifndef BS_GRAPH_SPLIT_GATES_H
#define BS_GRAPH_SPLIT_GATES_H
#include "graph/run/run.h"

typedef struct ggates_counts {
  uint64_t collectives, payload_bytes;
} ggates_counts;
/* Returns what the rank has counted so far. */
ggates_counts ggates_now(const gbinding *binding);
/* A run of the binding began at `before`. BS_NUMERIC (BS-GRAPH-COUNTERS): its collectives or their payload
 * are not those that the methods proposed. */
int32_t ggates_counters(const gbinding *binding, ggates_counts before, bs_error *err);
/* The outputs of the newest run have the same bits on all ranks. Every rank calls it, also one whose run
 * failed (ran: how it ended): nothing is compared then. BS_NUMERIC (BS-GRAPH-RANKS): they have not, and the
 * first rank that differs. */
int32_t ggates_outputs(const gbinding *binding, int32_t ran, bs_error *err);
#endif
