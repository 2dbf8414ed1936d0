/* SPDX-License-Identifier: MIT
 * watch.h - counts what a pass should not do: it makes plans, waits for the device, and copies bytes between
 * device and host. For each plan it records how the query differs from the last one of its op. The caller
 * attaches a watch to a rank (bs_rank_watch, core/world/executor.h); without one nothing is counted.
 */
#ifndef BS_CORE_OP_WATCH_H
#define BS_CORE_OP_WATCH_H
#include "blockshock/blockshock.h"

/* How the query of a new plan differs from the newest one of the same op. FIRST: the op had none. AGAIN:
 * there was a plan for this very query. */
enum bs_replan {
  BS_REPLAN_FIRST = 0,
  BS_REPLAN_AGAIN = 1,
  BS_REPLAN_DIM = 2,
  BS_REPLAN_DTYPE = 3,
  BS_REPLAN_STRIDE = 4,
  BS_REPLAN_OTHER = 5, /* attributes, activation, flags */
  BS_REPLAN_COUNT_ = 6
};

/* The part of a query that is kept. */
typedef struct bs_seen_query {
  char op[32];
  uint32_t nargs, activation;
  uint64_t rest; /* hash of attributes and numbers */
  bs_tensor_desc args[BS_MAX_OP_ARGS];
} bs_seen_query;

enum { BS_WATCH_QUERIES = 32 };
typedef struct bs_watch {
  uint64_t plans[BS_REPLAN_COUNT_];
  double plan_seconds; /* of all prepares */
  char last[160];      /* of the newest plan that was not the first of its op: "matmul: arg 0 is ..." */
  uint64_t waits, copied_bytes;
  uint32_t n_seen; /* queries so far; the newest BS_WATCH_QUERIES are kept */
  bs_seen_query seen[BS_WATCH_QUERIES];
} bs_watch;

/* A plan was made for the query, in so many seconds. */
void bs_watch_plan(bs_watch *watch, const bs_op_query *query, double seconds);
#endif
