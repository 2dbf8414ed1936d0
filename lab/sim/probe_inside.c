/* SPDX-License-Identifier: MIT
 * probe_inside.c - see probe_inside.h. Each flow is a lane of one job; the first flow is the last lane, so
 * that at equal times it waits for the others. */
#include "lab/sim/probe_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"

typedef struct probing {
  sim_layout *l;
  const bs_inside_probe *probe;
  sim_job jobs[BS_PROBE_FLOWS];
  sim_trip trip; /* of the first flow */
  sim_place ends[2];
  uint64_t bytes, lane_end;
  sim_passed passed[SIM_STOPS];
} probing;

/* ---- flows ------------------------------------------------------------------------------------- */

static int is_lane(const sim_layout *l, const sim_place *p) {
  return p->class == SIM_CLASSES && p->level == l->device->lane_level;
}

static int is_memory(const sim_layout *l, const sim_place *p) {
  return p->class != SIM_CLASSES && l->device->classes[p->class].kind == SIM_MEMORY;
}

static int on_way(const sim_device *d, uint32_t way, uint32_t class) {
  for (uint32_t i = 0; i < d->ways[way].n; i++)
    if (d->ways[way].classes[i] == class) return 1;
  return 0;
}

static int32_t no_way(const sim_layout *l, const bs_inside_flow *f, bs_error *err) {
  bs_error_set(err, BS_USAGE, "BS-DEVICE-PLACE", "device %s has no way from %.40s to %.40s", l->device->name,
               f->from, f->to);
  bs_error_hint(err, "data goes between a %s and a memory, or between two of them",
                l->device->levels[l->device->lane_level].name);
  return BS_USAGE;
}

/* The bytes of one channel alone: pieces of the interleave, all channels apart. */
static void take_channel(const sim_layout *l, const sim_place *p, sim_trip *trip) {
  const sim_class *c = &l->device->classes[p->class];
  const uint32_t each = c->node == SIM_NODE_OWN ? l->device->levels[c->level + 1].each : 1;
  const uint32_t channels = c->workers / each;
  trip->home = p->index;
  if (p->unit == UINT32_MAX) {
    if (c->node == SIM_NODE_OWN) trip->home = p->index * each;
    return;
  }
  if (c->node == SIM_NODE_OWN) trip->home = p->index * each + p->unit / channels;
  trip->request.address = p->unit % channels * c->interleave;
  if (trip->request.bytes <= c->interleave) return;
  const uint64_t rows = (trip->request.bytes + c->interleave - 1) / c->interleave;
  trip->request.rows = (uint32_t)rows;
  trip->request.bytes = rows * c->interleave;
  trip->request.pitch = channels * c->interleave;
}

static int32_t read_flow(probing *p, uint32_t i, bs_error *err) {
  const bs_inside_flow *f = &p->probe->flows[i];
  const sim_layout *l = p->l;
  sim_trip trip = {.home = UINT32_MAX, .request = {.bytes = p->probe->bytes}};
  sim_place from, to;
  int32_t rc = sim_layout_place(l, f->from, NULL, &from, err);
  if (rc == BS_OK) rc = sim_layout_place(l, f->to, &from, &to, err);
  if (rc == BS_OK && is_memory(l, &from)) rc = sim_layout_place(l, f->from, &to, &from, err);
  if (rc != BS_OK) return rc;
  const sim_place *lane = is_lane(l, &from) ? &from : &to;
  trip.lane = lane->index * l->device->lanes_each;
  if (is_lane(l, &from) && is_lane(l, &to)) {
    trip.way = SIM_WAY_SEND;
    trip.to = to.index * l->device->lanes_each;
    if (from.index == to.index) return no_way(l, f, err);
  } else if (is_memory(l, &from) && is_lane(l, &to) && on_way(l->device, SIM_WAY_LOAD, from.class)) {
    trip.way = SIM_WAY_LOAD;
    take_channel(l, &from, &trip);
  } else if (is_memory(l, &to) && is_lane(l, &from) && on_way(l->device, SIM_WAY_STORE, to.class)) {
    trip.way = SIM_WAY_STORE;
    take_channel(l, &to, &trip);
  } else {
    return no_way(l, f, err);
  }
  if (i == 0) {
    p->trip = trip;
    p->ends[0] = from;
    p->ends[1] = to;
  }
  p->jobs[i].n_stops = 0;
  return sim_layout_trip(l, &trip, &p->jobs[i], err);
}

/* ---- the run ----------------------------------------------------------------------------------- */

static int next_job(void *user, uint32_t lane, uint64_t index, sim_job *out_job) {
  const probing *p = user;
  if (index > 0) return 0;
  *out_job = p->jobs[p->probe->n_flows - 1 - lane];
  return 1;
}

static void pass(void *user, const sim_passed *at) {
  probing *p = user;
  if (at->lane + 1 == p->probe->n_flows) p->passed[at->stop] = *at;
}

static void done(void *user, uint32_t lane, uint64_t index, const sim_job *job, uint64_t begin,
                 uint64_t end) {
  probing *p = user;
  (void)index, (void)job, (void)begin;
  if (lane + 1 == p->probe->n_flows) p->lane_end = end;
}

/* ---- rows -------------------------------------------------------------------------------------- */

static double us(uint64_t ps) {
  return (double)ps * 1e-6;
}

static void set_us(json_t *row, const char *key, uint64_t ps) {
  json_object_set_new(row, key, json_real(us(ps)));
}

static json_t *row_of(const probing *p, const char *hop) {
  char from[64], to[64];
  sim_layout_place_name(p->l, &p->ends[0], from, sizeof from);
  sim_layout_place_name(p->l, &p->ends[1], to, sizeof to);
  return json_pack("{s:s, s:s, s:s, s:s, s:I}", "hop", hop, "way", sim_way_name(p->trip.way), "from", from,
                   "to", to, "bytes", (json_int_t)p->trip.request.bytes);
}

/* What the channel with most of the bytes serves. */
static uint64_t most_of(const sim_part *memory, const sim_request *r) {
  const uint64_t blocks = (r->bytes + memory->interleave - 1) / memory->interleave;
  const uint64_t most = (blocks + memory->workers - 1) / memory->workers * memory->interleave;
  return r->rows > 1 || most > r->bytes ? r->bytes : most;
}

static uint64_t bytes_ps(const probing *p, const sim_part *part) {
  const uint64_t bytes = p->trip.request.bytes;
  if (part->kind == SIM_QUEUE || part->kind == SIM_CACHE) return 0;
  return sim_bytes_ps(part->kind == SIM_MEMORY ? most_of(part, &p->trip.request) : bytes, part->q32);
}

static void name_stop(const probing *p, uint32_t part, char *out, uint32_t size) {
  const uint32_t class = sim_layout_class_of(p->l, part);
  for (int e = 0; e < 2; e++)
    if (p->ends[e].class == class && p->ends[e].unit != UINT32_MAX) {
      sim_layout_place_name(p->l, &p->ends[e], out, size);
      return;
    }
  sim_layout_part_name(p->l, part, out, size);
}

static void add_stop(const probing *p, json_t *rows, uint32_t stop) {
  static const char *const hops[] = {"server", "port", "channel", "cache", "queue", "hop"};
  const uint32_t number = p->jobs[0].stops[stop].part;
  const sim_part *part = &p->l->parts[number];
  const sim_passed *at = &p->passed[stop];
  char name[64];
  json_t *row = row_of(p, hops[p->l->device->classes[sim_layout_class_of(p->l, number)].kind]);
  name_stop(p, number, name, sizeof name);
  json_object_set_new(row, "link", json_string(name));
  if (part->q32 > 0) json_object_set_new(row, "GBps", json_real(1e3 * 4294967296.0 / (double)part->q32));
  set_us(row, "reached_us", at->reached);
  set_us(row, "wait_us", at->waited);
  set_us(row, "latency_us", part->first);
  set_us(row, "bytes_us", bytes_ps(p, part));
  json_array_append_new(rows, row);
}

static void add_total(const probing *p, json_t *rows, uint64_t end) {
  uint64_t wait = 0, latency = 0, most = 0;
  for (uint32_t s = 0; s < p->jobs[0].n_stops; s++) {
    const sim_part *part = &p->l->parts[p->jobs[0].stops[s].part];
    wait += p->passed[s].waited;
    latency = sim_add(latency, part->first);
    most = sim_max(most, bytes_ps(p, part));
  }
  json_t *row = row_of(p, "total");
  set_us(row, "reached_us", end);
  set_us(row, "wait_us", wait);
  set_us(row, "latency_us", latency);
  set_us(row, "bytes_us", most);
  set_us(row, "simulated_us", end);
  set_us(row, "closed_us", sim_add(latency, most));
  if (p->jobs[0].posted) set_us(row, "lane_us", p->lane_end);
  json_array_append_new(rows, row);
}

int32_t bs_inside_probe_run(sim_layout *layout, const bs_inside_probe *probe, json_t **out_rows,
                            bs_error *err) {
  probing *p = calloc(1, sizeof *p);
  sim_inside_result result;
  int32_t rc = BS_OK;
  *out_rows = NULL;
  if (p == NULL) return bs_no_memory(err, "a probe");
  p->l = layout;
  p->probe = probe;
  for (uint32_t i = 0; rc == BS_OK && i < probe->n_flows; i++) rc = read_flow(p, i, err);
  const sim_inside_config config = {.parts = layout->parts,
                                    .n_parts = layout->n_parts,
                                    .n_lanes = probe->n_flows,
                                    .next = next_job,
                                    .pass = pass,
                                    .done = done,
                                    .user = p};
  if (rc == BS_OK) rc = sim_layout_reset(layout, err);
  if (rc == BS_OK) rc = sim_inside_run(&config, &result, err);
  if (rc == BS_OK) {
    const uint32_t n = p->jobs[0].n_stops;
    json_t *rows = json_array();
    for (uint32_t s = 0; s < n; s++) add_stop(p, rows, s);
    add_total(p, rows, n > 0 ? p->passed[n - 1].after.whole : 0);
    *out_rows = rows;
  }
  free(p);
  return rc;
}
