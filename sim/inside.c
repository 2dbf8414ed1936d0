/* SPDX-License-Identifier: MIT
 * inside.c - see inside.h. */
#include "sim/inside.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "sim/cache.h"
#include "sim/inside_world.h"

typedef sim_inside_world world;
typedef sim_inside_lane lane;
typedef sim_token token;

static void fail(world *w, int32_t rc, const char *id, const char *what, uint32_t at, uint64_t index) {
  if (w->rc == BS_OK)
    w->rc = bs_error_set(w->err, rc, id, "lane %u, job %llu: %s", at, (unsigned long long)index, what);
}

static void push(world *w, token *t, uint64_t time) {
  if (!sim_heap_reserve(&w->heap, w->heap.n + 1ull)) {
    fail(w, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for an event", t->lane, t->index);
    return;
  }
  sim_heap_push(&w->heap, (sim_event){time, w->seq++, t->lane, t});
}

/* ---- jobs -------------------------------------------------------------------------------------- */

static int checked(world *w, const token *t) {
  const sim_job *j = &t->job;
  int good = j->n_stops <= SIM_STOPS && j->n_needs <= SIM_NEEDS;
  uint32_t caches = 0;
  for (uint32_t s = 0; good && s < j->n_stops; s++) {
    good = j->stops[s].part < w->config->n_parts;
    if (good) good = (j->stops[s].how != SIM_PASS) == (w->config->parts[j->stops[s].part].kind == SIM_QUEUE);
    if (good) caches += w->config->parts[j->stops[s].part].kind == SIM_CACHE;
  }
  good = good && caches <= SIM_CACHES;
  if (!good)
    fail(w, BS_INVALID_ARGUMENT, "BS-INSIDE-JOB",
         "a stop that is no part, or too many stops, needs or caches", t->lane, t->index);
  return good;
}

/* Puts the job into the lists of those that it needs, and counts them. */
static void link_needs(lane *l, token *t) {
  const uint32_t slot = (uint32_t)(t->index % SIM_OPEN);
  for (uint32_t k = 0; k < t->job.n_needs; k++) {
    const uint64_t back = t->job.needs[k];
    if (back == 0 || back > t->index || back >= SIM_OPEN) continue;
    token *of = &l->ring[(t->index - back) % SIM_OPEN];
    if (of->ended) continue;
    t->next[k] = of->needed_by;
    of->needed_by = (uint16_t)(slot * SIM_NEEDS + k + 1);
    t->unmet++;
  }
}

/* Makes jobs of a lane while there is room for them. */
static void issue(world *w, uint32_t at, uint64_t now) {
  lane *l = &w->lanes[at];
  while (!l->over && l->issued - l->ended < SIM_OPEN && w->rc == BS_OK) {
    token *t = &l->ring[l->issued % SIM_OPEN];
    memset(t, 0, offsetof(token, job) + offsetof(sim_job, stops));
    t->index = l->issued;
    t->lane = at;
    if (!w->config->next(w->config->user, at, l->issued, &t->job)) {
      l->over = 1;
      return;
    }
    if (!checked(w, t)) return;
    t->ready = sim_max(now, t->job.begin);
    l->issued++;
    w->result.jobs++;
    link_needs(l, t);
    if (t->unmet == 0) push(w, t, t->ready);
  }
}

static void give_back(world *w, uint32_t part, uint64_t now) {
  uint64_t at = now;
  token *t = (token *)(void *)sim_part_give(&w->config->parts[part], now, &at);
  if (t != NULL) push(w, t, at);
}

/* What a job that ends does at the queues of its stops. */
static void end_queues(world *w, lane *l, const token *t, uint64_t now) {
  for (uint32_t s = 0; s < t->job.n_stops && t->queues; s++) {
    const sim_stop *stop = &t->job.stops[s];
    if (stop->how == SIM_PUT) {
      token *who = (token *)(void *)sim_part_put(&w->config->parts[stop->part]);
      if (who != NULL) push(w, who, now);
    } else if (stop->how == SIM_TAKE && stop->until > 0) {
      if (l->n_held == SIM_HELD)
        fail(w, BS_INVALID_ARGUMENT, "BS-INSIDE-JOB", "its lane holds more than 16 slots", t->lane, t->index);
      else
        l->held[l->n_held++] = (__typeof__(l->held[0])){t->index + stop->until, stop->part};
    } else if (stop->how != SIM_PASS) {
      give_back(w, stop->part, now);
    }
  }
  for (uint32_t h = 0; h < l->n_held;) {
    if (l->held[h].until != t->index) {
      h++;
      continue;
    }
    const uint32_t part = l->held[h].part;
    l->held[h] = l->held[--l->n_held];
    give_back(w, part, now);
  }
}

static void finish(world *w, token *t, uint64_t now) {
  lane *l = &w->lanes[t->lane];
  t->ended = 1;
  w->result.end = sim_max(w->result.end, now);
  w->result.settled = sim_max(w->result.settled, sim_max(now, t->commit));
  if (w->config->done != NULL) w->config->done(w->config->user, t->lane, t->index, &t->job, t->begin, now);
  if (t->queues || l->n_held > 0) end_queues(w, l, t, now);
  for (uint32_t by = t->needed_by; by != 0;) {
    token *d = &l->ring[(by - 1) / SIM_NEEDS];
    by = d->next[(by - 1) % SIM_NEEDS];
    d->ready = sim_max(d->ready, now);
    if (--d->unmet == 0) push(w, d, d->ready);
  }
  while (l->ended < l->issued && l->ring[l->ended % SIM_OPEN].ended) l->ended++;
  issue(w, t->lane, now);
}

/* ---- stops ------------------------------------------------------------------------------------- */

/* The token goes on at `now`, after it waited or at once. */
static void let_go(const sim_part *p, token *t, uint64_t now) {
  const uint64_t at = sim_add(now, p->first);
  t->flow = (sim_flow){at, at, at};
}

/* 0: it waits, and an event wakes it behind this stop. */
static int at_queue(token *t, sim_part *p, const sim_stop *stop, uint64_t now) {
  uint64_t at = now;
  if (t->waits) {
    t->waits = 0;
  } else {
    t->queues = 1;
    t->waits = 1;
    p->jobs++;
    p->waits++;
    if (stop->how == SIM_GET ? !sim_part_get(p, &t->waiter) : !sim_part_take(p, now, &t->waiter, &at))
      return 0;
    t->waits = 0;
  }
  p->waited += at - t->flow.whole;
  let_go(p, t, at);
  return 1;
}

/* Who waited for a line goes on when it is filled. */
static void fill(world *w, sim_part *p, token *t, uint32_t line) {
  token *who = (token *)(void *)sim_cache_fill(p->cache, line, t->flow.whole);
  while (who != NULL) {
    token *next = (token *)(void *)who->waiter.next;
    push(w, who, sim_max(t->flow.whole, who->flow.head));
    who = next;
  }
}

/* Which of the caches on the token's way the stop is. */
static uint32_t number_of_cache(const world *w, const token *t, uint32_t stop) {
  uint32_t n = 0;
  for (uint32_t s = 0; s < stop; s++) n += w->config->parts[t->job.stops[s].part].kind == SIM_CACHE;
  return n;
}

/* The number of the stop at the memory that the cache keeps its tiles in; its own number where there is none.
 */
static uint32_t stop_of_hit(const token *t, const sim_part *p) {
  for (uint32_t s = t->at + 1; s < t->job.n_stops; s++)
    if (t->job.stops[s].part == p->hit) return s;
  return t->at;
}

static void go_on_at(token *t, uint64_t ready) {
  t->flow.head = sim_max(t->flow.head, ready);
  t->flow.tail = sim_max(t->flow.tail, ready);
  t->flow.whole = sim_max(t->flow.whole, ready);
}

/* 0: it waits for the fill of another token. */
static int at_cache(world *w, token *t, sim_part *p, const sim_stop *stop, uint64_t now) {
  uint64_t ready = now;
  const uint32_t hit = stop_of_hit(t, p), number = number_of_cache(w, t, t->at);
  if (t->waits) {
    t->waits = 0;
    go_on_at(t, now);
    t->at = hit - (hit > t->at);
    return 1;
  }
  p->jobs++;
  p->amount += stop->amount;
  switch (sim_cache_use(p->cache, t->job.key, stop->amount, &t->waiter, &ready, &t->lines[number])) {
    case SIM_CACHE_NO_MEMORY:
      fail(w, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for the lines of a cache", t->lane, t->index);
      return 0;
    case SIM_CACHE_FILLING:
      t->waits = 1;
      return 0;
    case SIM_CACHE_HIT:
      go_on_at(t, ready);
      t->at = hit - (hit > t->at);
      return 1;
    default:
      return 1;
  }
}

/* The token fills the lines of caches that go on at this part. */
static void fill_before(world *w, token *t, uint32_t part) {
  uint32_t number = 0;
  for (uint32_t s = 0; s < t->at; s++) {
    sim_part *p = &w->config->parts[t->job.stops[s].part];
    if (p->kind != SIM_CACHE) continue;
    if (p->hit == part && t->lines[number] != 0) {
      fill(w, p, t, t->lines[number]);
      t->lines[number] = 0;
    }
    number++;
  }
}

static void at_memory(world *w, token *t, sim_part *p, const sim_stop *stop) {
  const sim_flow before = t->flow;
  if (t->lines[0] != 0 || t->lines[1] != 0) fill_before(w, t, stop->part);
  const sim_request request = {stop->amount, t->job.address, t->job.pitch, t->job.rows};
  sim_part_access(p, &request, &t->flow);
  if (!t->job.posted || t->at + 1 != t->job.n_stops) return;
  t->commit = t->flow.whole;
  t->flow = (sim_flow){before.whole, before.whole, before.whole};
}

/* When the next stop sees the token: its head, or all of it. */
static uint64_t seen(const world *w, const token *t) {
  if (t->at == t->job.n_stops) return t->flow.whole;
  switch (w->config->parts[t->job.stops[t->at].part].kind) {
    case SIM_LINK:
    case SIM_MEMORY:
    case SIM_CACHE:
      return t->flow.head;
    default:
      return t->flow.whole;
  }
}

/* 0: it waits. */
static int at_stop(world *w, token *t, uint64_t now) {
  const sim_stop *stop = &t->job.stops[t->at];
  sim_part *p = &w->config->parts[stop->part];
  const uint64_t before = p->waited, times = p->waits;
  const sim_passed told = {
      .reached = p->kind == SIM_SERVER || p->kind == SIM_QUEUE ? t->flow.whole : t->flow.head,
      .job = &t->job,
      .index = t->index,
      .lane = t->lane,
      .stop = t->at};
  if (p->kind == SIM_SERVER)
    sim_part_serve(p, stop->amount, &t->flow);
  else if (p->kind == SIM_LINK)
    sim_part_pass(p, stop->amount, &t->flow);
  else if (p->kind == SIM_MEMORY)
    at_memory(w, t, p, stop);
  else if (p->kind == SIM_CACHE ? !at_cache(w, t, p, stop, now) : !at_queue(t, p, stop, now))
    return 0;
  if (w->config->pass != NULL) {
    sim_passed at = told;
    at.waited = (p->waited - before) / (p->waits > times + 1 ? p->waits - times : 1);
    at.after = t->flow;
    if (t->commit > 0) at.after.tail = at.after.whole = t->commit;
    w->config->pass(w->config->user, &at);
  }
  t->at++;
  return 1;
}

static void step(world *w, token *t, uint64_t now) {
  if (t->at == 0 && !t->waits) {
    t->begin = now;
    t->flow = (sim_flow){now, now, now};
  }
  while (t->at < t->job.n_stops) {
    w->result.events++;
    if (!at_stop(w, t, now)) return;
    const uint64_t on = seen(w, t);
    if (on > now) {
      push(w, t, on);
      return;
    }
  }
  w->result.events++;
  finish(w, t, now);
}

/* ------------------------------------------------------------------------------------------------ */

static void run(world *w) {
  sim_event event;
  for (uint32_t l = 0; l < w->config->n_lanes; l++) issue(w, l, w->config->start);
  while (w->rc == BS_OK && sim_heap_pop(&w->heap, &event)) step(w, event.flight, event.time);
  if (w->rc != BS_OK) return;
  if (w->result.settled == SIM_NEVER) {
    w->rc = bs_error_set(w->err, BS_OVERFLOW, "BS-INSIDE-TIME",
                         "the program would end after more than 213 days of virtual time");
    bs_error_hint(w->err, "a rate of the device is too low");
  }
  for (uint32_t l = 0; w->rc == BS_OK && l < w->config->n_lanes; l++)
    if (w->lanes[l].ended < w->lanes[l].issued) {
      sim_inside_stuck(w, w->err);
      w->rc = BS_DEADLINE;
    }
}

int32_t sim_inside_run(const sim_inside_config *config, sim_inside_result *out, bs_error *err) {
  world w = {.config = config, .err = err};
  w.result.end = w.result.settled = config->start;
  w.lanes = calloc(config->n_lanes > 0 ? config->n_lanes : 1, sizeof *w.lanes);
  if (w.lanes == NULL)
    w.rc = bs_error_set(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for %u lanes of a device",
                        config->n_lanes);
  else
    run(&w);
  free(w.lanes);
  sim_heap_close(&w.heap);
  *out = w.result;
  return w.rc;
}
