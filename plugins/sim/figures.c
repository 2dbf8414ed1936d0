/* SPDX-License-Identifier: MIT
 * figures.c - what a run of a world took, for the record: times in whole ps, of the rank that ended last. */
#include "world.h"

typedef void each_fn(void *user, const char *name, double value, const char *unit, const char *text);

static uint64_t most_bytes(const sim_world *w) {
  uint64_t most = 0;
  for (uint32_t r = 0; r < w->size; r++) most = sim_max(most, w->ranks[r].bytes_peak);
  return most;
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
  each(user, "engine", 0, "", "closed forms");
  each(user, "label", 0, "", w->plugin->machine.label);
}
