/* SPDX-License-Identifier: MIT
 * steps.c - what each rank did, one by one: for `bsrun sim explain` alone (the parameter steps). */
#include <stdlib.h>

#include "sim.h"

/* Where there is no memory for more the list ends: the times do not. */
void sim_step_add(sim_rank *rank, const char *kind, const char *site, const sim_time *before,
                  const sim_time *after, const sim_step *said) {
  if (!rank->plugin->machine.steps) return;
  if (rank->steps == NULL || rank->nsteps == rank->steps_capacity) {
    const uint32_t capacity = rank->steps_capacity > 0 ? 2 * rank->steps_capacity : 16;
    sim_step *grown = realloc(rank->steps, capacity * sizeof *grown);
    if (grown == NULL) return;
    rank->steps = grown;
    rank->steps_capacity = capacity;
  }
  sim_step *s = &rank->steps[rank->nsteps++];
  *s = *said;
  snprintf(s->what, sizeof s->what, "%.20s%s%.32s", kind, site != NULL ? " " : "", site != NULL ? site : "");
  s->began = before->now;
  s->ended = after->now;
  for (int k = 0; k < SIM_TERMS; k++)
    s->spent[k] = after->own[k] >= before->own[k] ? after->own[k] - before->own[k] : 0;
}
