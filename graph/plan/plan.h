/* SPDX-License-Identifier: MIT
 * plan.h - where each tensor of a plan lies in one arena. Three parts that know neither graphs nor operators:
 * life.c makes blocks (lifetime and bytes) of values, arena.c and exact.c give the blocks offsets, report.c
 * says what the memory is used for. All are pure functions of their arguments: the same arguments give the
 * same plan on every machine, because the search is limited by counted steps and not by a clock. */
#ifndef BS_GRAPH_PLAN_PLAN_H
#define BS_GRAPH_PLAN_PLAN_H
#include <stdint.h>

#include "blockshock/blockshock.h"

enum {
  GPLAN_ALIGNMENT = 64,     /* bytes, of offsets and of sizes */
  GPLAN_MAX_BLOCKS = 65536, /* of one arena; more are refused */
  GPLAN_MAX_OVER = 4,
  GPLAN_TOP = 5
};
#define GPLAN_NONE UINT32_MAX
/* Steps of the exact search: about 100 ms of a 3 GHz core. */
#define GPLAN_EXACT_STEPS UINT64_C(100000000)

/* ---- arena.c --------------------------------------------------------------------------------- */

/* Memory that is in use in the steps lower .. upper - 1. */
typedef struct gplan_block {
  uint64_t bytes;
  uint32_t lower, upper;
} gplan_block;

typedef struct gplan_options {
  uint64_t alignment;   /* of each offset, in bytes; 0: GPLAN_ALIGNMENT */
  uint64_t exact_steps; /* of the exact search; 0: no exact search. A plan that is more than 5 % above the
                           bound after them gets 8 times as many more */
} gplan_options;

typedef struct gplan_arena {
  uint64_t bytes;  /* of the arena: the largest offset + size */
  uint64_t bound;  /* most bytes that are in use in one step: no arena can be smaller */
  uint64_t steps;  /* that the exact search took */
  const char *by;  /* which candidate placed the blocks that decide: "size", "breadth", "birth", "area",
                      "insert", "exact"; static text */
  uint32_t peak;   /* the first step in which `bound` bytes are in use */
  uint32_t proven; /* 1: no smaller arena exists */
} gplan_arena;

/* Gives each of the n blocks an offset, so that no two blocks share a byte in the same step. Sizes are
 * rounded up to the alignment; a block of 0 bytes gets offset 0. out_offsets: n numbers, the caller's.
 * Candidates in this order, the first whose arena equals the bound is taken, else the smallest: blocks by
 * size (best gap), by breadth, by birth, by size times life, 40 re-insertions with a fixed seed, then a
 * search that is exact when its steps suffice. Errors: BS_INVALID_ARGUMENT (a block with lower >= upper, an
 * alignment that is not a power of two), BS_OVERFLOW (the sizes add up to more than 2^62 bytes, too many
 * blocks), BS_NO_MEMORY. */
int32_t gplan_place(const gplan_block *blocks, uint32_t n, const gplan_options *options,
                    uint64_t *out_offsets, gplan_arena *out, bs_error *err);

/* The most bytes in use in one step, and the first such step (may be NULL). Same errors as gplan_place. */
int32_t gplan_bound(const gplan_block *blocks, uint32_t n, uint64_t alignment, uint64_t *out_bytes,
                    uint32_t *out_step, bs_error *err);

/* Is a plan right: offsets aligned, every block inside of `arena` bytes, no byte used twice in a step?
 * BS_INTERNAL names the blocks at fault. */
int32_t gplan_check(const gplan_block *blocks, uint32_t n, uint64_t alignment, const uint64_t *offsets,
                    uint64_t arena, bs_error *err);

/* ---- life.c ---------------------------------------------------------------------------------- */

enum gplan_flags {
  GPLAN_OUTSIDE = 1u << 0, /* memory of the caller, of a constant or of a weight: not in the arena */
  GPLAN_KEPT = 1u << 1     /* is read after the last step (an output): lives to the end */
};

/* A value of a graph, with the steps numbered from 0. */
typedef struct gplan_value {
  uint64_t bytes;
  uint64_t offset; /* in bytes from the beginning of `inside` */
  uint32_t def;    /* the step that writes it; of a view, the def of its base */
  uint32_t last;   /* the last step that reads it; not below def. A value that is never read: def */
  uint32_t inside; /* the value in whose memory it lies: a view, or a part that is written into a join;
                      GPLAN_NONE: it has separate memory */
  uint32_t flags;  /* enum gplan_flags */
  /* Values that the step `def` may overwrite: it reads each element before it writes the element at the same
   * place, and reads that memory by no other argument. The first that no other step needs is used. */
  uint32_t n_over, over[GPLAN_MAX_OVER];
} gplan_value;

typedef struct gplan_life {
  uint32_t n_values, n_steps, n_blocks;
  gplan_block *blocks; /* n_blocks */
  uint32_t *block;     /* n_values: the block of each value; GPLAN_NONE: outside or 0 bytes */
  uint64_t *at;        /* n_values: its first byte, from the beginning of its block */
  uint32_t *over;      /* n_values: the value that it overwrites; GPLAN_NONE */
  uint32_t *scratch;   /* n_steps: the block of the step's scratch; GPLAN_NONE */
  uint64_t naive;      /* sum of all values: each has separate memory, for ever */
  uint64_t
      bound_before; /* gplan_bound of values that share nothing: views are copies, nothing is overwritten */
  uint64_t scratch_bytes;    /* the largest of a step */
  uint32_t n_inside, n_over; /* values that lie in another's memory, that overwrite another */
} gplan_life;

/* Makes blocks of values. A block is the union of a value with its views, the parts of a join and what is
 * overwritten exactly. scratch: bytes of each of the n_steps steps (NULL: none), one block a step. The result
 * is the caller's (gplan_life_free). Errors: BS_INVALID_ARGUMENT names the value (steps out of order, a value
 * that lies outside of its `inside`, or inside of itself), BS_OVERFLOW, BS_NO_MEMORY. */
int32_t gplan_life_make(const gplan_value *values, uint32_t n_values, const uint64_t *scratch,
                        uint32_t n_steps, gplan_life *out, bs_error *err);
void gplan_life_free(gplan_life *life);

/* ---- report.c -------------------------------------------------------------------------------- */

/* The use of a plan's memory, in bytes. */
typedef struct gplan_report {
  uint64_t naive;        /* every value has separate memory */
  uint64_t bound_before; /* the most that is in use in one step, if nothing is shared */
  uint64_t bound;        /* the same with views, joins and values that are overwritten */
  uint64_t arena;
  double ratio; /* arena / bound; 1 when both are 0 */
  const char *by;
  uint32_t proven;
  uint32_t peak; /* the step in which `bound` bytes are in use */
  uint32_t n_top;
  struct {
    uint32_t value; /* GPLAN_NONE: the step's scratch */
    uint64_t bytes;
  } top[GPLAN_TOP];             /* the largest blocks in use there, the largest first */
  uint64_t scratch;             /* the largest of a step; part of the arena */
  uint64_t weights, packed, kv; /* outside of the arena; the caller fills these in */
} gplan_report;

/* Fills all but weights, packed and kv, which become 0. A block is named by the value of it that is in use in
 * the peak step, the largest if there are several. */
void gplan_report_make(const gplan_value *values, const gplan_life *life, const gplan_arena *arena,
                       gplan_report *out);
#endif
