/* SPDX-License-Identifier: MIT
 * trace_machine.c - see trace_machine.h. */
#include "lab/sim/trace_machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/plugin/named.h"
#include "core/plugin/registry.h"
#include "lab/error.h"
#include "sim/trace.h"

/* ---- links -------------------------------------------------------------------------------------- */

static uint32_t route(void *user, uint32_t from, uint32_t to, sim_hop *out_hops) {
  const bs_trace_place *p = user;
  bs_link links[SIM_HOPS];
  uint32_t n = 0;
  if (p->topology->route(p->opened, from, to, links, SIM_HOPS, &n, NULL) != BS_OK) return 0;
  for (uint32_t h = 0; h < n && h < SIM_HOPS; h++)
    out_hops[h] =
        (sim_hop){links[h].id, sim_seconds_ps(links[h].latency_s), sim_rate_q32(links[h].bytes_per_s)};
  return n;
}

int32_t bs_trace_place_open(bs_context *context, const char *topology, uint32_t ranks, bs_trace_place *p,
                            bs_error *err) {
  void *state = NULL;
  const bs_topology *table = NULL;
  p->named = calloc(1, sizeof *p->named);
  if (p->named == NULL) return bs_no_memory(err, "a topology");
  int32_t rc = bs_named_read(topology, p->named, err);
  if (rc == BS_OK) rc = bs_find_topology(context, p->named->name, &table, &state, err);
  const bs_topology_request request = {.struct_size = sizeof request,
                                       .world_size = ranks,
                                       .n_options = p->named->n,
                                       .option_keys = p->named->keys,
                                       .option_values = p->named->values};
  if (rc == BS_OK) rc = table->open(state, &request, &p->opened, err);
  if (rc != BS_OK) return rc;
  p->topology = table;
  p->machine.route = route;
  p->machine.route_user = p;
  return BS_OK;
}

int32_t bs_trace_place_record(bs_trace_place *p, uint64_t events, uint32_t ranks, bs_error *err) {
  p->machine.trace = sim_trace_new(events, 0, ranks - 1);
  return p->machine.trace != NULL ? BS_OK : bs_no_memory(err, "a trace");
}

int32_t bs_trace_place_write(const bs_trace_place *p, const char *path, uint64_t *out_events,
                             uint64_t *out_left_out, bs_error *err) {
  *out_events = sim_trace_events(p->machine.trace);
  *out_left_out = sim_trace_dropped(p->machine.trace);
  return sim_trace_write(p->machine.trace, path, err);
}

void bs_trace_place_close(bs_trace_place *p) {
  sim_trace_free(p->machine.trace);
  if (p->topology != NULL) p->topology->close(p->opened);
  if (p->named != NULL) bs_named_free(p->named);
  free(p->named);
  *p = (bs_trace_place){0};
}

/* ---- LogGP -------------------------------------------------------------------------------------- */

int32_t bs_trace_loggp(const char *text, bs_trace_machine *m, bs_error *err) {
  double ns[5] = {0};
  size_t n = 0;
  const char *at = text;
  for (int more = 1; more && n <= 5; n++) {
    char one[32];
    const size_t size = strcspn(at, ":");
    snprintf(one, sizeof one, "%.*s", (int)(size < 31 ? size : 31), at);
    if (n == 5 || !bs_parse_f64(one, &ns[n]) || !(ns[n] >= 0 && ns[n] < 1e12)) break;
    more = at[size] == ':';
    at += size + (size_t)more;
    if (!more && n >= 3) {
      m->link = (sim_link){.model = SIM_LOGGP,
                           .L = sim_round(ns[0] * 1e3),
                           .o = sim_round(ns[1] * 1e3),
                           .g = sim_round(ns[2] * 1e3),
                           .G_q32 = sim_round(ns[3] * 1e3 * 4294967296.0),
                           .O_q32 = sim_round(ns[4] * 1e3 * 4294967296.0)};
      return BS_OK;
    }
  }
  return bs_error_set(err, BS_USAGE, "BS-USE-NUMBER",
                      "--with loggp-ns: '%.60s' is not L:o:g:G or L:o:g:G:O, as 2500:1500:1000:6", text);
}
