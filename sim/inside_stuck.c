/* SPDX-License-Identifier: MIT
 * inside_stuck.c - which lanes wait for each other, when no event is left and jobs are open. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "sim/inside_world.h"

enum { SHOWN = 16 };
#define NO_LANE UINT32_MAX

typedef struct text {
  char data[400];
  size_t n;
} text;

__attribute__((format(printf, 2, 3))) static void say(text *t, const char *form, ...) {
  va_list args;
  va_start(args, form);
  const int n = vsnprintf(t->data + t->n, sizeof t->data - t->n, form, args);
  va_end(args);
  if (n > 0) t->n = t->n + (size_t)n < sizeof t->data ? t->n + (size_t)n : sizeof t->data - 1;
}

static void say_lane(const sim_inside_world *w, text *t, uint32_t lane) {
  char name[48];
  snprintf(name, sizeof name, "%u", lane);
  if (w->config->lane_name != NULL) w->config->lane_name(w->config->user, lane, name, sizeof name);
  say(t, "%s", name);
}

/* The open job of the lane that waits at a queue or a cache; NULL: none does. */
static const sim_token *waiting(const sim_inside_lane *l) {
  for (uint64_t i = l->ended; i < l->issued; i++) {
    const sim_token *t = &l->ring[i % SIM_OPEN];
    if (!t->ended && t->waits) return t;
  }
  return NULL;
}

/* Would the lane give what is awaited of the queue: an item, or a slot? */
static int gives(const sim_inside_lane *l, uint32_t queue, int item) {
  for (uint32_t h = 0; h < l->n_held && !item; h++)
    if (l->held[h].part == queue) return 1;
  for (uint64_t i = l->ended; i < l->issued; i++) {
    const sim_token *t = &l->ring[i % SIM_OPEN];
    for (uint32_t s = 0; s < t->job.n_stops && !t->ended; s++) {
      const sim_stop *stop = &t->job.stops[s];
      if (stop->part != queue || (s == t->at && t->waits && stop->how != SIM_PUT)) continue;
      if (item ? stop->how == SIM_PUT : stop->how == SIM_GET || stop->how == SIM_TAKE) return 1;
    }
  }
  return 0;
}

/* The lane that this one waits for; NO_LANE: it does not wait, or no lane gives what it waits for. */
static uint32_t waits_for(const sim_inside_world *w, uint32_t lane) {
  const sim_token *t = waiting(&w->lanes[lane]);
  if (t == NULL) return NO_LANE;
  const sim_stop *stop = &t->job.stops[t->at];
  const uint32_t n = w->config->n_lanes;
  for (uint32_t i = 1; i <= n; i++)
    if (gives(&w->lanes[(lane + i) % n], stop->part, stop->how == SIM_GET)) return (lane + i) % n;
  return NO_LANE;
}

static void say_wait(const sim_inside_world *w, text *t, uint32_t lane) {
  const sim_token *token = waiting(&w->lanes[lane]);
  char part[48];
  if (token == NULL) return;
  const sim_stop *stop = &token->job.stops[token->at];
  snprintf(part, sizeof part, "%u", stop->part);
  if (w->config->part_name != NULL) w->config->part_name(w->config->user, stop->part, part, sizeof part);
  say(t, "; ");
  say_lane(w, t, lane);
  say(t, ", job %llu, waits for %s of queue %s", (unsigned long long)token->index,
      stop->how == SIM_GET ? "an item" : "a slot", part);
}

/* Walks on until a lane comes again: "a -> b -> a". Returns a lane of the cycle, or the last one. */
static uint32_t say_cycle(const sim_inside_world *w, text *t, uint32_t first) {
  const uint32_t n = w->config->n_lanes;
  uint32_t at = first, steps = 0;
  for (; steps < n && waits_for(w, at) != NO_LANE; steps++) at = waits_for(w, at);
  if (steps < n) {
    say(t, "; no lane gives what ");
    say_lane(w, t, at);
    say(t, " waits for");
    return at;
  }
  uint32_t lowest = at;
  for (uint32_t l = waits_for(w, at); l != at; l = waits_for(w, l))
    if (l < lowest) lowest = l;
  say(t, "; cycle ");
  say_lane(w, t, lowest);
  uint32_t shown = 0, l = lowest;
  do {
    l = waits_for(w, l);
    say(t, " -> ");
    if (++shown < SHOWN || l == lowest) say_lane(w, t, l);
  } while (l != lowest && shown < SHOWN);
  return lowest;
}

void sim_inside_stuck(const sim_inside_world *w, bs_error *err) {
  uint32_t open = 0, first = NO_LANE;
  text t = {.n = 0};
  for (uint32_t l = 0; l < w->config->n_lanes; l++) {
    open += w->lanes[l].ended < w->lanes[l].issued;
    if (first == NO_LANE && waiting(&w->lanes[l]) != NULL) first = l;
  }
  say(&t, "no lane can go on: %u of %u have open jobs", open, w->config->n_lanes);
  if (first != NO_LANE) {
    const uint32_t at = say_cycle(w, &t, first);
    const uint32_t next = waits_for(w, at);
    say_wait(w, &t, at);
    if (next != NO_LANE && next != at) say_wait(w, &t, next);
  }
  bs_error_set(err, BS_DEADLINE, "BS-INSIDE-STUCK", "%s", t.data);
  bs_error_hint(err, "put the item before the lane waits for one, or give the queue more slots");
}
