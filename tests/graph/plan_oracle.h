/* SPDX-License-Identifier: MIT
 * plan_oracle.h - what tests of plans share: a check that looks at every pair of blocks, and blocks of random
 * graphs. */
#ifndef TESTS_GRAPH_PLAN_ORACLE_H
#define TESTS_GRAPH_PLAN_ORACLE_H
#include "graph/plan/plan.h"

/* The blocks that share a byte in a step, or lie outside of the arena; 0: the plan is right. */
static inline uint32_t oracle_faults(const gplan_block *b, uint32_t n, uint64_t alignment,
                                     const uint64_t *offsets, uint64_t arena) {
  uint32_t faults = 0;
  for (uint32_t i = 0; i < n; i++) {
    faults += offsets[i] % alignment != 0 || offsets[i] + b[i].bytes > arena;
    for (uint32_t k = 0; k < i; k++)
      faults += b[i].lower < b[k].upper && b[k].lower < b[i].upper && offsets[i] < offsets[k] + b[k].bytes &&
                offsets[k] < offsets[i] + b[i].bytes;
  }
  return faults;
}

/* The most bytes in one step, step by step. */
static inline uint64_t oracle_bound(const gplan_block *b, uint32_t n, uint64_t alignment) {
  uint64_t most = 0;
  for (uint32_t at = 0; at < n; at++) { /* the most is reached where a block begins */
    uint64_t live = 0;
    for (uint32_t i = 0; i < n; i++)
      if (b[i].lower <= b[at].lower && b[at].lower < b[i].upper)
        live += (b[i].bytes + alignment - 1) / alignment * alignment;
    if (live > most) most = live;
  }
  return most;
}

static inline uint32_t oracle_random(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(*state >> 33);
}

/* A random graph in topological order: each node reads 1 to 3 values of the nodes before it, out of a window
 * of 4, 16, 64 or all. Sizes are any multiple of 4 bytes or powers of two. Returns the number of blocks, <=
 * 160. */
enum { ORACLE_MAX_NODES = 160 };
static inline uint32_t oracle_graph(uint64_t number, gplan_block *out) {
  uint64_t state = number * 7919 + 13;
  for (int i = 0; i < 5; i++) oracle_random(&state);
  const uint32_t n = 16 + oracle_random(&state) % (ORACLE_MAX_NODES - 15);
  const uint32_t windows[4] = {4, 16, 64, n}, window = windows[number % 4];
  for (uint32_t i = 0; i < n; i++) {
    const uint64_t bytes = number & 1 ? 4 + 4 * (uint64_t)(oracle_random(&state) % 16384)
                                      : UINT64_C(64) << oracle_random(&state) % 10;
    out[i] = (gplan_block){bytes, i, i + 1};
    for (uint32_t reads = 1 + oracle_random(&state) % 3; reads > 0 && i > 0; reads--)
      out[i - 1 - oracle_random(&state) % (window < i ? window : i)].upper = i + 1;
  }
  return n;
}
#endif
