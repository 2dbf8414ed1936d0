/* SPDX-License-Identifier: MIT
 * report.c - what a plan's memory is used for. */
#include <string.h>

#include "graph/plan/plan.h"

static int in_use(const gplan_block *block, uint32_t step) {
  return block->lower <= step && step < block->upper;
}

/* Sorts a block into the largest of the peak step. */
static void add_top(gplan_report *out, uint64_t bytes, uint32_t block) {
  uint32_t place = out->n_top;
  while (place > 0 && out->top[place - 1].bytes < bytes) place--;
  if (place == GPLAN_TOP) return;
  if (out->n_top < GPLAN_TOP) out->n_top++;
  memmove(&out->top[place + 1], &out->top[place], (out->n_top - 1 - place) * sizeof out->top[0]);
  out->top[place].bytes = bytes;
  out->top[place].value = block;
}

/* Is value a better name of its block in the step than the one so far? One in use goes before one that is
 * not, then the larger. */
static int names_better(const gplan_value *values, uint32_t step, uint32_t value, uint32_t so_far) {
  if (so_far == GPLAN_NONE) return 1;
  const gplan_value *a = &values[value], *b = &values[so_far];
  const int used_a = a->def <= step && (step <= a->last || a->flags & GPLAN_KEPT);
  const int used_b = b->def <= step && (step <= b->last || b->flags & GPLAN_KEPT);
  return used_a != used_b ? used_a : a->bytes > b->bytes;
}

void gplan_report_make(const gplan_value *values, const gplan_life *life, const gplan_arena *arena,
                       gplan_report *out) {
  uint32_t blocks[GPLAN_TOP];
  memset(out, 0, sizeof *out);
  out->naive = life->naive;
  out->bound_before = life->bound_before;
  out->bound = arena->bound;
  out->arena = arena->bytes;
  out->ratio = arena->bound == 0 ? 1 : (double)arena->bytes / (double)arena->bound;
  out->by = arena->by;
  out->proven = arena->proven;
  out->peak = arena->peak;
  out->scratch = life->scratch_bytes;
  for (uint32_t i = 0; i < life->n_blocks; i++)
    if (in_use(&life->blocks[i], arena->peak)) add_top(out, life->blocks[i].bytes, i);
  for (uint32_t k = 0; k < out->n_top; k++) {
    blocks[k] = out->top[k].value;
    out->top[k].value = GPLAN_NONE;
  }
  for (uint32_t i = 0; i < life->n_values; i++) {
    for (uint32_t k = 0; k < out->n_top; k++)
      if (life->block[i] == blocks[k] && names_better(values, arena->peak, i, out->top[k].value))
        out->top[k].value = i;
  }
}
