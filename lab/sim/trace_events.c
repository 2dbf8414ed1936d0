/* SPDX-License-Identifier: MIT
 * trace_events.c - see trace_events.h. */
#include "lab/sim/trace_events.h"

#include <stdlib.h>

#include "sim/clock.h"

static int before(const trace_event *a, const trace_event *b) {
  if (a->time != b->time) return a->time < b->time;
  if (a->since != b->since) return a->since < b->since;
  if (a->kind != b->kind) return a->kind > b->kind;
  return a->node < b->node;
}

int trace_events_push(trace_events *events, trace_event e) {
  if (events->n == events->room) {
    const uint32_t room = events->room == 0 ? 16 : 2 * events->room;
    trace_event *at = realloc(events->at, (size_t)room * sizeof *at);
    if (at == NULL) return 0;
    events->at = at;
    events->room = room;
  }
  uint32_t i = events->n++;
  for (; i > 0 && before(&e, &events->at[(i - 1) / 2]); i = (i - 1) / 2)
    events->at[i] = events->at[(i - 1) / 2];
  events->at[i] = e;
  return 1;
}

trace_event trace_events_pop(trace_events *events) {
  const trace_event first = events->at[0], last = events->at[--events->n];
  uint32_t i = 0;
  for (uint64_t k = 1; k < events->n; k = 2 * (uint64_t)i + 1) {
    if (k + 1 < events->n && before(&events->at[k + 1], &events->at[k])) k++;
    if (!before(&events->at[k], &last)) break;
    events->at[i] = events->at[k];
    i = (uint32_t)k;
  }
  if (events->n > 0) events->at[i] = last;
  return first;
}

uint64_t trace_events_first(const trace_events *events) {
  return events->n > 0 ? events->at[0].time : SIM_NEVER;
}
