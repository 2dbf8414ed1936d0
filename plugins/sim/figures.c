/* SPDX-License-Identifier: MIT
 * figures.c - what a run of a world took, for the record: times in whole ps, of the rank that ended last. */
#include "world.h"

typedef void each_fn(void *user, const char *name, double value, const char *unit, const char *text);

static uint64_t most_bytes(const sim_world *w) {
  uint64_t most = 0;
  for (uint32_t r = 0; r < w->size; r++) most = sim_max(most, w->ranks[r].bytes_peak);
  return most;
}

/* A step begins with its name; what follows is of it. */
static void tell_step(const sim_step *s, uint64_t began, each_fn *each, void *user) {
  char name[48];
  each(user, "step", 0, "", s->what);
  each(user, "step.began", (double)(s->began - began), "ps", NULL);
  each(user, "step.took", (double)(s->ended - s->began), "ps", NULL);
  each(user, "step.closed", (double)s->closed, "ps", NULL);
  each(user, "step.flops", (double)s->flops, "flops", NULL);
  each(user, "step.bytes", (double)s->bytes, "bytes", NULL);
  each(user, "step.ranks", s->ranks, "", NULL);
  for (int k = 0; k < SIM_TERMS; k++) {
    snprintf(name, sizeof name, "step.%s", sim_term_names[k]);
    each(user, name, (double)s->spent[k], "ps", NULL);
  }
}

/* A step of any rank. */
static void tell_every(const sim_step *s, uint32_t rank, uint64_t began, each_fn *each, void *user) {
  each(user, "every", 0, "", s->what);
  each(user, "every.rank", rank, "", NULL);
  each(user, "every.began", (double)(s->began - began), "ps", NULL);
  each(user, "every.ended", (double)(s->ended - began), "ps", NULL);
  each(user, "every.flops", (double)s->flops, "flops", NULL);
  each(user, "every.bytes", (double)s->bytes, "bytes", NULL);
  each(user, "every.ranks", s->ranks, "", NULL);
}

static void tell_steps(const sim_world *w, const sim_rank *last, each_fn *each, void *user) {
  const int32_t steps = w->plugin->machine.steps;
  const sim_rank *of = steps & SIM_STEPS_FIRST ? &w->ranks[0] : last;
  if (steps & (SIM_STEPS_LAST | SIM_STEPS_FIRST))
    for (uint32_t i = 0; i < of->nsteps; i++) tell_step(&of->steps[i], w->began, each, user);
  for (uint32_t r = 0; (steps & SIM_STEPS_ALL) && r < w->size; r++)
    for (uint32_t i = 0; i < w->ranks[r].nsteps; i++)
      tell_every(&w->ranks[r].steps[i], r, w->began, each, user);
}

/* Reports the fields of a span before `span` itself; times count from the beginning of the run. */
static void tell_span(const sim_trace_span *s, uint64_t began, each_fn *each, void *user) {
  each(user, "span.rank", s->rank, "", NULL);
  each(user, "span.lane", s->lane, "", NULL);
  each(user, "span.begin", (double)(s->begin - began), "ps", NULL);
  each(user, "span.end", (double)(s->end - began), "ps", NULL);
  each(user, "span.arrow", (double)s->arrow, "", NULL);
  each(user, "span", 0, "", s->name);
}

static void tell_trace(const sim_world *w, each_fn *each, void *user) {
  if (w->trace == NULL) return;
  for (uint64_t i = 0; i < sim_trace_spans(w->trace); i++)
    tell_span(sim_trace_at(w->trace, i), w->began, each, user);
  each(user, "spans_left_out", (double)sim_trace_dropped(w->trace), "events", NULL);
}

static void tell_inside(const sim_world *w, each_fn *each, void *user) {
  uint64_t simulated = 0, known = 0, by_roofline = 0;
  if (w->plugin->inside == NULL) return;
  for (uint32_t r = 0; r < w->size; r++) {
    simulated += w->ranks[r].inside_simulated;
    known += w->ranks[r].inside_known;
    by_roofline += w->ranks[r].by_roofline;
  }
  each(user, "inside_simulated", (double)simulated, "ops", NULL);
  each(user, "inside_known", (double)known, "ops", NULL);
  each(user, "ops_by_roofline", (double)by_roofline, "ops", NULL);
  each(user, "device", 0, "", sim_inside_name(w->plugin->inside));
}

void sim_figures(void *world, each_fn *each, void *user) {
  const sim_world *w = world;
  const sim_rank *last = &w->ranks[w->last];
  const sim_time *t = sim_rank_time(last);
  char name[48];
  uint64_t ops = 0, not_costed = 0;
  for (uint32_t r = 0; r < w->size; r++) {
    ops += w->ranks[r].ops;
    not_costed += w->ranks[r].not_costed;
  }
  each(user, "simulated", (double)(t->now - w->began), "ps", NULL);
  for (int k = 0; k < SIM_TERMS; k++) each(user, sim_term_names[k], (double)t->own[k], "ps", NULL);
  for (int k = 0; k < SIM_TERMS; k++) {
    snprintf(name, sizeof name, "path_%s", sim_term_names[k]);
    each(user, name, (double)t->path[k], "ps", NULL);
  }
  each(user, "compute_side", (double)last->compute_side, "ps", NULL);
  each(user, "memory_side", (double)last->memory_side, "ps", NULL);
  each(user, "last_rank", w->last, "", NULL);
  each(user, "messages", (double)w->messages, "messages", NULL);
  each(user, "message_bytes", (double)w->message_bytes, "bytes", NULL);
  each(user, "meetings", (double)w->meetings, "meetings", NULL);
  each(user, "ops", (double)ops, "ops", NULL);
  each(user, "ops_not_costed", (double)not_costed, "ops", NULL);
  each(user, "device_bytes", (double)most_bytes(w), "bytes", NULL);
  each(user, "outside_domain", (double)w->outside, "collectives", NULL);
  each(user, "domain", (double)w->plugin->machine.domain_most, "bytes", NULL);
  each(user, "switch_ranks", w->plugin->machine.switch_ranks, "ranks", NULL);
  each(user, "engine", 0, "",
       w->exchanges == 0                   ? "closed forms"
       : sim_world_order(w) == SIM_ORDER_E ? "message by message, order E"
                                           : "message by message, order K");
  each(user, "label", 0, "", w->plugin->machine.label);
  tell_inside(w, each, user);
  tell_steps(w, last, each, user);
  tell_trace(w, each, user);
}
