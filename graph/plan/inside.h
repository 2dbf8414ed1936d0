/* SPDX-License-Identifier: MIT
 * inside.h - what sections.c, arena.c and exact.c share: blocks with sizes in units of the alignment, and
 * with time as sections. A section is a longest run of steps in which no block ends before another begins:
 * two blocks are in use in the same step exactly when they share a section. */
#ifndef BS_GRAPH_PLAN_INSIDE_H
#define BS_GRAPH_PLAN_INSIDE_H
#include "graph/plan/plan.h"

typedef struct gplan_item {
  uint64_t size;        /* in units, at least 1 */
  uint32_t first, past; /* sections first .. past - 1 */
} gplan_item;

/* The blocks of a plan that need bytes. */
typedef struct gplan_problem {
  gplan_item *items;    /* n, in the order of their first section */
  uint32_t *block;      /* n: the block of each item */
  uint32_t *last_birth; /* n_sections: the step in which all that lies in the section is in use */
  uint64_t *total;      /* n_sections: units in use in it */
  uint32_t n, n_sections;
  uint64_t alignment, bound; /* bytes of a unit; the largest total */
} gplan_problem;

/* Checks blocks and makes items of them. The caller frees in every case. */
int32_t gplan_problem_make(const gplan_block *blocks, uint32_t n, uint64_t alignment, gplan_problem *out,
                           bs_error *err);
void gplan_problem_free(gplan_problem *problem);

enum gplan_found { GPLAN_FOUND = 0, GPLAN_IMPOSSIBLE = 1, GPLAN_OUT_OF_STEPS = 2, GPLAN_OUT_OF_MEMORY = 3 };

/* Offsets for the items below `height`. Takes at most *steps steps (and those of one more placement) and
 * lowers *steps by those taken. out_offsets are written when FOUND. IMPOSSIBLE is proven. */
int gplan_exact(const gplan_item *items, uint32_t n, uint32_t n_sections, uint64_t height, uint64_t *steps,
                uint64_t *out_offsets);
enum { GPLAN_EXACT_MAX = 1024 }; /* items; more are OUT_OF_STEPS immediately */
#endif
