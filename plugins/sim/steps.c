/* SPDX-License-Identifier: MIT
 * steps.c - what each rank did, one by one: for `bsrun sim explain` (the parameter steps), and as spans of a
 * trace (the parameter trace_events). */
#include <stdlib.h>

#include "world.h"

/* `after` is the time of a stream of the rank: of the default one, or within a sim_stream. */
static void add_span(const sim_rank *rank, const char *what, uint64_t began, const sim_time *after) {
  const uint32_t lane =
      after == &rank->stream ? (uint32_t)SIM_LANE_STREAM : ((const sim_stream *)(const void *)after)->lane;
  if (rank->world == NULL || rank->world->trace == NULL || after->now == began) return;
  sim_trace_slice(rank->world->trace, rank->index, lane, what, began, after->now);
}

/* Adds a step to the list. Without memory the list ends, but the times continue. */
void sim_step_add(sim_rank *rank, const char *kind, const char *site, const sim_time *before,
                  const sim_time *after, const sim_step *said) {
  const sim_machine *m = &rank->plugin->machine;
  char what[sizeof said->what];
  if (!m->steps && m->trace_events == 0) return;
  snprintf(what, sizeof what, "%.20s%s%.32s", kind, site != NULL ? " " : "", site != NULL ? site : "");
  add_span(rank, what, before->now, after);
  if (!m->steps || (m->steps == SIM_STEPS_FIRST && rank->index != 0)) return;
  if (rank->steps == NULL || rank->nsteps == rank->steps_capacity) {
    const uint32_t capacity = rank->steps_capacity > 0 ? 2 * rank->steps_capacity : 16;
    sim_step *grown = realloc(rank->steps, capacity * sizeof *grown);
    if (grown == NULL) return;
    rank->steps = grown;
    rank->steps_capacity = capacity;
  }
  sim_step *s = &rank->steps[rank->nsteps++];
  *s = *said;
  memcpy(s->what, what, sizeof what);
  s->began = before->now;
  s->ended = after->now;
  for (int k = 0; k < SIM_TERMS; k++)
    s->spent[k] = after->own[k] >= before->own[k] ? after->own[k] - before->own[k] : 0;
}
