/* SPDX-License-Identifier: MIT
 * probe.c - see probe.h. The engine in order E sends the messages, and reports when each head reaches a
 * wire. */
#include "lab/sim/probe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/error.h"
#include "lab/sim/trace_machine.h"
#include "sim/engine.h"

typedef struct passed {
  uint64_t reached, took; /* times of the head: at the link, and on it */
} passed;

typedef struct probing {
  const bs_probe *probe;
  bs_trace_place place;
  sim_engine *engine;
  uint32_t *done; /* of each rank: sends and receives that it has completed */
  bs_link links[SIM_HOPS];
  uint32_t n_links;
  uint64_t sent, arrived;      /* of the first flow: when the port took it, when it is there */
  passed passed[SIM_HOPS + 1]; /* its links, and the receive port */
} probing;

/* ---- ways ----------------------------------------------------------------------------------- */

static uint32_t links_of(const probing *p, uint32_t from, uint32_t to, bs_link *out_links) {
  uint32_t n = 0;
  if (p->place.topology == NULL) {
    out_links[0] = (bs_link){.struct_size = sizeof(bs_link),
                             .bytes_per_s = p->probe->bytes_per_s > 0 ? p->probe->bytes_per_s : INFINITY,
                             .latency_s = p->probe->alpha_s};
    return 1;
  }
  return p->place.topology->route(p->place.opened, from, to, out_links, SIM_HOPS, &n, NULL) == BS_OK ? n : 0;
}

static uint32_t route(void *user, uint32_t from, uint32_t to, sim_hop *out_hops) {
  bs_link links[SIM_HOPS];
  const uint32_t n = links_of(user, from, to, links);
  for (uint32_t h = 0; h < n && h < SIM_HOPS; ++h)
    out_hops[h] =
        (sim_hop){links[h].id, sim_seconds_ps(links[h].latency_s), sim_rate_q32(links[h].bytes_per_s)};
  return n;
}

/* ---- the messages --------------------------------------------------------------------------- */

static void pass_hop(void *user, uint32_t from, uint32_t to, uint32_t index, uint64_t reached,
                     uint64_t took) {
  probing *p = user;
  if (from == p->probe->flows[0].from && to == p->probe->flows[0].to && p->passed[index].took == SIM_NEVER)
    p->passed[index] = (passed){reached, took};
}

/* A rank sends its messages in the order of the flows, then it receives. */
static int32_t resume(void *user, uint32_t rank) {
  probing *p = user;
  const uint32_t n = p->probe->n_flows;
  for (; p->done[rank] < 2 * n; p->done[rank]++) {
    const uint32_t i = p->done[rank] % n, receives = p->done[rank] >= n;
    const bs_probe_flow *f = &p->probe->flows[i];
    if (rank != (receives ? f->to : f->from)) continue;
    sim_message m = {.from = f->from, .to = f->to, .bytes = p->probe->bytes};
    const int32_t state = receives ? sim_recv_now(p->engine, &m) : sim_send_now(p->engine, &m);
    if (state != SIM_DONE) return state;
    if (i == 0 && receives) p->arrived = m.arrival;
    if (i == 0 && !receives) p->sent = m.start;
  }
  return SIM_DONE;
}

static int32_t run(probing *p, bs_error *err) {
  const sim_config config = {.ranks = p->probe->ranks,
                             .order = SIM_ORDER_E,
                             .route = route,
                             .resume = resume,
                             .hop = pass_hop,
                             .user = p};
  for (uint32_t h = 0; h <= SIM_HOPS; ++h) p->passed[h].took = SIM_NEVER;
  p->done = calloc(p->probe->ranks, sizeof *p->done);
  if (p->done == NULL) return bs_no_memory(err, "%u ranks", p->probe->ranks);
  int32_t rc = sim_engine_new(&config, &p->engine, err);
  if (rc == BS_OK) rc = sim_run(p->engine, err);
  sim_engine_free(p->engine);
  free(p->done);
  p->n_links = links_of(p, p->probe->flows[0].from, p->probe->flows[0].to, p->links);
  return rc;
}

/* ---- rows ----------------------------------------------------------------------------------- */

static double us(uint64_t ps) {
  return (double)ps * 1e-6;
}

static json_t *row_of(const probing *p, const char *hop) {
  return json_pack("{s:s, s:I, s:I, s:I}", "hop", hop, "from", (json_int_t)p->probe->flows[0].from, "to",
                   (json_int_t)p->probe->flows[0].to, "bytes", (json_int_t)p->probe->bytes);
}

static void add_times(json_t *row, uint64_t reached, uint64_t wait, uint64_t latency, uint64_t bytes) {
  json_object_set_new(row, "reached_us", json_real(us(reached)));
  json_object_set_new(row, "wait_us", json_real(us(wait)));
  json_object_set_new(row, "latency_us", json_real(us(latency)));
  json_object_set_new(row, "bytes_us", json_real(us(bytes)));
}

/* Adds the time that a port is busy: the bytes at the rate of the link next to it. */
static void add_port(const probing *p, json_t *rows, const char *name, const bs_link *beside,
                     const passed *head) {
  json_t *row = row_of(p, name);
  add_times(row, head->reached, head->took - head->reached, 0,
            sim_bytes_ps(p->probe->bytes, sim_rate_q32(beside->bytes_per_s)));
  json_array_append_new(rows, row);
}

static void add_link(const probing *p, json_t *rows, uint32_t h) {
  const bs_link *link = &p->links[h];
  const passed *head = &p->passed[h];
  json_t *row = row_of(p, "link");
  char id[24];
  snprintf(id, sizeof id, "0x%llx", (unsigned long long)link->id);
  if (link->id != 0) json_object_set_new(row, "link", json_string(id));
  if (isfinite(link->bytes_per_s)) json_object_set_new(row, "GBps", json_real(link->bytes_per_s * 1e-9));
  add_times(row, head->reached, head->took - head->reached, sim_seconds_ps(link->latency_s),
            sim_bytes_ps(p->probe->bytes, sim_rate_q32(link->bytes_per_s)));
  json_array_append_new(rows, row);
}

static void add_total(const probing *p, json_t *rows) {
  uint64_t wait = p->sent, latency = 0, slowest = 0;
  double seconds = 0, least = INFINITY;
  for (uint32_t h = 0; h <= p->n_links; ++h) wait += p->passed[h].took - p->passed[h].reached;
  for (uint32_t h = 0; h < p->n_links; ++h) {
    const bs_link *link = &p->links[h];
    latency += sim_seconds_ps(link->latency_s);
    slowest = sim_max(slowest, sim_bytes_ps(p->probe->bytes, sim_rate_q32(link->bytes_per_s)));
    seconds += link->latency_s;
    least = fmin(least, link->bytes_per_s);
  }
  json_t *row = row_of(p, "total");
  add_times(row, p->arrived, wait, latency, slowest);
  json_object_set_new(row, "simulated_us", json_real(us(p->arrived)));
  json_object_set_new(row, "closed_us", json_real((seconds + (double)p->probe->bytes / least) * 1e6));
  if (isfinite(least)) json_object_set_new(row, "GBps", json_real(least * 1e-9));
  json_array_append_new(rows, row);
}

static json_t *rows_of(const probing *p) {
  json_t *rows = json_array();
  const uint32_t n = p->n_links;
  add_port(p, rows, "send port", &p->links[0], &(passed){0, p->sent});
  for (uint32_t h = 0; h < n; ++h) add_link(p, rows, h);
  add_port(p, rows, "receive port", &p->links[n - 1], &p->passed[n]);
  add_total(p, rows);
  return rows;
}

/* ----------------------------------------------------------------------------------------------- */

static int32_t check(const bs_probe *q, bs_error *err) {
  for (uint32_t i = 0; i < q->n_flows; ++i) {
    const bs_probe_flow *f = &q->flows[i];
    if (f->from >= q->ranks || f->to >= q->ranks)
      return bs_error_set(err, BS_USAGE, "BS-SIM-PEER",
                          "a message of rank %u to rank %u in a world of %u ranks", f->from, f->to, q->ranks);
    if (f->from == f->to)
      return bs_error_set(err, BS_USAGE, "BS-SIM-PEER", "rank %u has no link to itself", f->from);
  }
  return BS_OK;
}

int32_t bs_probe_run(bs_context *context, const bs_probe *probe, json_t **out_rows, bs_error *err) {
  probing *p = calloc(1, sizeof *p);
  *out_rows = NULL;
  if (p == NULL) return bs_no_memory(err, "a probe");
  p->probe = probe;
  int32_t rc = check(probe, err);
  if (rc == BS_OK && probe->topology != NULL && probe->topology[0] != '\0')
    rc = bs_trace_place_open(context, probe->topology, probe->ranks, &p->place, err);
  if (rc == BS_OK) rc = run(p, err);
  if (rc == BS_OK && p->arrived == 0) {
    rc = bs_error_set(err, BS_CONFIG, "BS-SIM-MACHINE", "no message takes time on the simulated machine");
    bs_error_hint(err, "--hardware h100-dgx, sim-flat, ... or --set plugins.sim.alpha_s=1e-6");
  }
  if (rc == BS_OK) *out_rows = rows_of(p);
  bs_trace_place_close(&p->place);
  free(p);
  return rc;
}
