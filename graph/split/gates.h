/* SPDX-License-Identifier: MIT
 * gates.h - what must hold of a run over many ranks beyond the numbers of its nodes. Called on each rank, by
 * the check (graph/run/check.c) and by runs that compare ranks (front.h). */
#ifndef BS_GRAPH_SPLIT_GATES_H
#define BS_GRAPH_SPLIT_GATES_H
#include "graph/run/run.h"

typedef struct ggates_counts {
  uint64_t collectives, payload_bytes, flops;
} ggates_counts;
/* Returns what the rank has counted so far. */
ggates_counts ggates_now(const gbinding *binding);
/* What is wrong with a layer; id NULL: nothing. */
typedef struct ggates_finding {
  const char *id, *reason;
} ggates_finding;
/* One layer ran, from `before` on. Its collectives, their payload and its arithmetic are what its method
 * proposed (BS-GRAPH-COUNTERS). Its output, where every rank has all of it, has the same bits on all ranks
 * (BS-GRAPH-RANKS). y: the output, on the host. Every rank calls it. */
int32_t ggates_layer(const gbinding *binding, const gstep *step, const bs_tensor *y, ggates_counts before,
                     ggates_finding *out_finding, bs_error *err);
/* A run of the binding began at `before`. BS_NUMERIC (BS-GRAPH-COUNTERS): its collectives or their payload
 * are not those that the methods proposed. */
int32_t ggates_counters(const gbinding *binding, ggates_counts before, bs_error *err);
/* The outputs of the newest run have the same bits on all ranks. Every rank calls it, also one whose run
 * failed (ran: how it ended): nothing is compared then. BS_NUMERIC (BS-GRAPH-RANKS): they have not, and the
 * first rank that differs. */
int32_t ggates_outputs(const gbinding *binding, int32_t ran, bs_error *err);
#endif
