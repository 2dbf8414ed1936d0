/* SPDX-License-Identifier: MIT
 * launch.c - see launch.h. A command or an answer is a time at a place; the places are those of one level, or
 * the lanes. */
#include "sim/launch.h"

#include <stdlib.h>

#include "core/base/error.h"
#include "sim/layout_net.h"

/* So many commands or answers, one a place of `level`, or one a lane. */
typedef struct wave {
  sim_layout *l;
  uint32_t level, of_lanes, n;
  uint64_t at[SIM_PLACES];
} wave;

static uint32_t place_of(const wave *w, uint32_t i, uint32_t level) {
  const sim_device *d = w->l->device;
  const uint32_t place = w->of_lanes ? i / d->lanes_each : i;
  return sim_place_above(d, w->level, place, level);
}

/* What has no bytes holds no link, and takes its latency alone. */
static void serve(sim_part *p, uint64_t *inout_at) {
  sim_flow flow = {*inout_at, *inout_at, *inout_at};
  if (p->kind == SIM_LINK) {
    p->jobs++;
    *inout_at = sim_add(*inout_at, p->first);
    return;
  }
  sim_part_serve(p, 0, &flow);
  *inout_at = flow.whole;
}

/* ---- links and nets ---------------------------------------------------------------------------- */

/* From the first place of a net to that of the command, or back. */
static void cross(wave *w, uint32_t class, int back, uint32_t i) {
  const sim_class *c = &w->l->device->classes[class];
  const uint32_t each = w->l->device->levels[c->level + 1].each, place = place_of(w, i, c->level + 1);
  uint32_t slots[SIM_HOPS];
  uint64_t at = w->at[i];
  const uint32_t to = place % each;
  const uint32_t n = back ? sim_net_route(c, to, 0, slots) : sim_net_route(c, 0, to, slots);
  for (uint32_t h = 0; h < n && h < SIM_HOPS; h++)
    serve(&w->l->parts[w->l->base[class] + place / each * sim_net_slots(c) + slots[h]], &at);
  w->at[i] = at;
}

static int32_t refuse(const sim_class *c, const char *why, bs_error *err) {
  bs_error_set(err, BS_CONFIG, "BS-DEVICE-LAUNCH", "part %s cannot take commands: %s", c->name, why);
  bs_error_where(err, "launch");
  bs_error_hint(err, "launch.out and launch.back name servers, links and nets, the servers from outside in");
  return BS_CONFIG;
}

static int32_t pass(wave *w, uint32_t class, int back, bs_error *err) {
  const sim_class *c = &w->l->device->classes[class];
  if (c->level + (c->kind == SIM_NET) > w->level)
    return refuse(c, "it is below the places that the commands have come to", err);
  for (uint32_t i = 0; i < w->n; i++)
    if (c->kind == SIM_NET)
      cross(w, class, back, i);
    else
      serve(&w->l->parts[w->l->base[class] + place_of(w, i, c->level)], &w->at[i]);
  return BS_OK;
}

/* ---- servers ----------------------------------------------------------------------------------- */

/* The level of the next server of a list behind `from`; SIM_LEVELS: there is none. */
static uint32_t next_server(const sim_device *d, const sim_way_of *list, uint32_t from) {
  for (uint32_t i = from + 1; i < list->n; i++)
    if (d->classes[list->classes[i]].kind == SIM_SERVER) return d->classes[list->classes[i]].level;
  return SIM_LEVELS;
}

/* One command becomes one for each place of `level`, or for each lane. */
static int32_t fan_out(wave *w, uint32_t class, uint32_t level, bs_error *err) {
  const sim_device *d = w->l->device;
  const sim_class *c = &d->classes[class];
  const uint32_t lanes = level == SIM_LEVELS, to = lanes ? d->lane_level : level;
  const uint32_t n = lanes ? d->lanes : d->levels[to].places;
  if (c->level != w->level || w->of_lanes || to < c->level)
    return refuse(c, "it is not below the server before it", err);
  w->level = to;
  w->of_lanes = lanes;
  w->n = n;
  for (uint32_t i = n; i-- > 0;) w->at[i] = w->at[place_of(w, i, c->level)]; /* its place is not behind i */
  for (uint32_t i = 0; i < n; i++)
    serve(&w->l->parts[w->l->base[class] + place_of(w, i, c->level)], &w->at[i]);
  return BS_OK;
}

/* The order of arrival; equal times go by place. */
static int earlier(const void *a, const void *b) {
  const uint64_t *x = a, *y = b;
  if (x[0] != y[0]) return x[0] < y[0] ? -1 : 1;
  return x[1] < y[1] ? -1 : x[1] > y[1];
}

/* All answers that a server gets become one. */
static int32_t join(wave *w, uint32_t class, bs_error *err) {
  const sim_class *c = &w->l->device->classes[class];
  if (c->level > w->level) return refuse(c, "it is below the server before it", err);
  uint64_t(*in)[2] = calloc(w->n > 0 ? w->n : 1, sizeof *in);
  if (in == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for %u answers of lanes", w->n);
  for (uint32_t i = 0; i < w->n; i++) {
    in[i][0] = w->at[i];
    in[i][1] = i;
  }
  qsort(in, w->n, sizeof *in, earlier);
  const uint32_t places = w->l->device->levels[c->level].places;
  for (uint32_t i = 0; i < places; i++) w->at[i] = 0;
  for (uint32_t i = 0; i < w->n; i++) {
    const uint32_t place = place_of(w, (uint32_t)in[i][1], c->level);
    uint64_t at = in[i][0];
    serve(&w->l->parts[w->l->base[class] + place], &at);
    w->at[place] = sim_max(w->at[place], at);
  }
  free(in);
  w->level = c->level;
  w->of_lanes = 0;
  w->n = places;
  return BS_OK;
}

/* ------------------------------------------------------------------------------------------------ */

static uint64_t last_of(const wave *w) {
  uint64_t last = 0;
  for (uint32_t i = 0; i < w->n; i++) last = sim_max(last, w->at[i]);
  return last;
}

static int32_t walk(wave *w, const sim_way_of *list, int back, bs_error *err) {
  const sim_device *d = w->l->device;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < list->n; i++) {
    const uint32_t class = list->classes[i], kind = d->classes[class].kind;
    if (kind == SIM_LINK || kind == SIM_NET)
      rc = pass(w, class, back, err);
    else if (kind != SIM_SERVER)
      rc = refuse(&d->classes[class], "it is no server, link or net", err);
    else
      rc = back ? join(w, class, err) : fan_out(w, class, next_server(d, list, i), err);
  }
  return rc;
}

static wave *wave_new(sim_layout *l, bs_error *err) {
  wave *w = calloc(1, sizeof *w);
  if (w == NULL)
    bs_error_set(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for the commands of %u lanes",
                 l->device->lanes);
  else
    w->l = l;
  return w;
}

int32_t sim_launch_out(sim_layout *l, uint64_t start, uint64_t *out_stamp, bs_error *err) {
  const sim_device *d = l->device;
  *out_stamp = sim_add(start, d->launch);
  if (d->launch_out.n == 0) return BS_OK;
  wave *w = wave_new(l, err);
  if (w == NULL) return BS_NO_MEMORY;
  w->n = 1;
  w->at[0] = *out_stamp;
  const int32_t rc = walk(w, &d->launch_out, 0, err);
  *out_stamp = last_of(w);
  free(w);
  return rc;
}

int32_t sim_launch_back(sim_layout *l, const uint64_t *lane_ends, uint64_t *out_end, bs_error *err) {
  const sim_device *d = l->device;
  wave *w = wave_new(l, err);
  if (w == NULL) return BS_NO_MEMORY;
  w->level = d->lane_level;
  w->of_lanes = 1;
  w->n = d->lanes;
  for (uint32_t i = 0; i < w->n; i++) w->at[i] = lane_ends[i];
  const int32_t rc = walk(w, &d->launch_back, 1, err);
  *out_end = last_of(w);
  free(w);
  return rc;
}

int32_t sim_launch_around(sim_layout *l, const uint64_t *lane_ends, uint64_t settled, uint64_t *out_stamp,
                          uint64_t *out_whole, bs_error *err) {
  const uint32_t n = l->device->lanes;
  uint64_t *ends = calloc(n > 0 ? n : 1, sizeof *ends);
  if (ends == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for the ends of %u lanes", n);
  int32_t rc = sim_layout_reset(l, err);
  if (rc == BS_OK) rc = sim_launch_out(l, 0, out_stamp, err);
  for (uint32_t i = 0; i < n && rc == BS_OK; i++) ends[i] = sim_add(lane_ends[i], *out_stamp);
  if (rc == BS_OK) rc = sim_launch_back(l, ends, out_whole, err);
  if (rc == BS_OK) *out_whole = sim_max(*out_whole, sim_add(*out_stamp, settled));
  free(ends);
  return rc;
}
