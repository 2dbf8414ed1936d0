/* SPDX-License-Identifier: MIT
 * trace_stuck.c - why a simulated trace cannot go on: from a node to the one that it waits for, until the
 * walk comes back (trace_parts.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/sim/trace_parts.h"

enum { SHOWN = 4, TEXT = 160 };

typedef struct stuck {
  const bs_et *et;
  const trace_match *match;
  const uint8_t *states;
} stuck;

/* The first send of a receive's channel that has not begun. */
static uint32_t send_of(const stuck *s, uint32_t node) {
  const trace_channel *c = &s->match->channels[s->match->of[node]];
  for (uint32_t i = c->first; i < c->end; i++) {
    const uint32_t other = s->match->members[i];
    if (s->et->nodes[other].kind == BS_ET_SEND && s->states[other] < TRACE_BEGUN) return other;
  }
  return TRACE_NONE;
}

/* The node of the first rank that has not come to a collective. */
static uint32_t absent_of(const stuck *s, uint32_t node) {
  const trace_meeting *t = &s->match->meetings[s->match->of[node]];
  for (uint32_t i = 0; i < s->et->groups[t->group].n; i++)
    if (s->states[s->match->members[t->first + i]] < TRACE_BEGUN) return s->match->members[t->first + i];
  return TRACE_NONE;
}

/* The node that this one waits for; TRACE_NONE: none. */
static uint32_t waits_for(const stuck *s, uint32_t node) {
  const bs_et *et = s->et;
  if (s->states[node] == TRACE_BEGUN && et->nodes[node].kind == BS_ET_RECV) return send_of(s, node);
  if (s->states[node] == TRACE_BEGUN && et->nodes[node].kind == BS_ET_COLL) return absent_of(s, node);
  if (s->states[node] != TRACE_WAITS) return TRACE_NONE;
  for (uint64_t k = et->first_need[node]; k < et->first_need[node + 1]; k++) {
    const bs_et_need *need = &et->needs[k];
    if (s->states[need->on] < (need->start ? TRACE_BEGUN : TRACE_DONE)) return need->on;
  }
  return TRACE_NONE;
}

/* A node of a circle: the walk from the first node that is not done has come to it twice. */
static uint32_t in_circle(const stuck *s) {
  uint32_t at = 0;
  unsigned char *seen = calloc((size_t)s->et->n_nodes + 1, 1);
  while (at < s->et->n_nodes && s->states[at] == TRACE_DONE) at++;
  while (seen != NULL && at < s->et->n_nodes && !seen[at]) {
    seen[at] = 1;
    const uint32_t next = waits_for(s, at);
    if (next == TRACE_NONE) break;
    at = next;
  }
  free(seen);
  return at;
}

int32_t trace_stuck(const bs_et *et, const trace_match *match, const uint8_t *states, bs_error *err) {
  const stuck s = {et, match, states};
  const uint32_t first = in_circle(&s);
  char all[400] = "", text[TEXT];
  size_t used = 0;
  uint32_t at = first, length = 0, done = 0;
  for (uint32_t i = 0; i < et->n_nodes; i++) done += states[i] == TRACE_DONE;
  do {
    if (at >= et->n_nodes) break;
    bs_et_node_text(et, at, text, sizeof text);
    if (length < SHOWN && used < sizeof all)
      used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", length == 0 ? "" : " waits for ", text);
    length++;
    at = waits_for(&s, at);
  } while (at != first && at != TRACE_NONE);
  bs_error_set(err, BS_DEADLINE, "BS-TRACE-STUCK", "%s%s, in a circle of %u nodes; %u of %u nodes are done",
               all,
               length > SHOWN ? " ..."
               : length == 1  ? " waits for itself"
                              : " waits for the first",
               length, done, et->n_nodes);
  bs_error_hint(err, "an end that is missing or a need that goes round: no order of these nodes is possible");
  return first < et->n_nodes ? bs_et_where(et, first, BS_DEADLINE, err) : BS_DEADLINE;
}
