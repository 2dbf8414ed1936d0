/* SPDX-License-Identifier: MIT
 * trace_events.h - the events of a rank in a simulated trace: a binary heap, by time. */
#ifndef BS_LAB_SIM_TRACE_EVENTS_H
#define BS_LAB_SIM_TRACE_EVENTS_H
#include <stdint.h>

enum trace_event_kind { NODE_BEGINS = 0, MESSAGE_CAME, NODE_ENDS };

typedef struct trace_event {
  uint64_t time, since; /* since: when it first could happen, before it waited for a processor or a port */
  uint32_t node, kind;
} trace_event;

/* All 0 at first; the caller frees `at`. */
typedef struct trace_events {
  trace_event *at;
  uint32_t n, room;
} trace_events;

/* 0: no memory. */
int trace_events_push(trace_events *events, trace_event e);
/* There must be one. Of the same time those come first that could happen first, then ends, then the order of
 * the trace. */
trace_event trace_events_pop(trace_events *events);
/* Its time; SIM_NEVER (sim/clock.h): there is none. */
uint64_t trace_events_first(const trace_events *events);
#endif
