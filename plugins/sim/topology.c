/* SPDX-License-Identifier: MIT
 * topology.c - the topologies of the plugin: those of sim/topology.h with options, and routes of any topology
 * for the engine. Latency and rate are the machine's where no option says otherwise. */
#include <math.h>
#include <stdlib.h>

#include "sim/number.h"
#include "world.h"

#define LINK_OPTIONS                                                            \
  "latency_s=machine: seconds of a hop, of a whole way where it has a switch\n" \
  "bw_Bps=machine: bytes per second of a wire\n"

static const struct {
  const char *summary, *options;
} docs[SIM_TOPOLOGIES] = {
    [SIM_RING] = {"each rank has a wire to the next and the previous one", LINK_OPTIONS},
    [SIM_TORUS2D] = {"a torus of two dimensions, along the first one first",
                     "width=square: ranks of the first dimension\n" LINK_OPTIONS},
    [SIM_FULLMESH] = {"a wire between each two ranks", LINK_OPTIONS},
    [SIM_NVSWITCH] = {"each rank has a wire to and from one switch", LINK_OPTIONS},
    [SIM_FAT_TREE] =
        {"three levels of switches, the destination chooses the way (D-mod-k)",
         "ports=least: of a switch\noversubscription=1: wires down for each wire up\n" LINK_OPTIONS},
    [SIM_HIER] = {"groups around a switch, and wires of each rank between groups",
                  "group=8: ranks of a group\n" LINK_OPTIONS
                  "outer_latency_s=machine: between groups\nouter_bw_Bps=machine: between groups\n"},
    [SIM_MESH2D] = {"a mesh of two dimensions, along the first one first",
                    "width=square: ranks of the first dimension\n" LINK_OPTIONS},
};

/* ---- options ----------------------------------------------------------------------------------- */

static int32_t wrong(const char *key, const char *value, const char *what, bs_error *err) {
  return bs_fail(err, BS_CONFIG, "BS-SIM-TOPOLOGY", "%s=%.60s of a topology is not %s", key, value, what);
}

static int32_t read_count(const char *key, const char *value, uint32_t *out, bs_error *err) {
  double x = 0;
  if (!sim_number(value, &x) || x < 1 || x > 1e6 || x != floor(x))
    return wrong(key, value, "a number from 1 to 1000000", err);
  *out = (uint32_t)x;
  return BS_OK;
}

static int32_t read_seconds(const char *key, const char *value, uint64_t *out, bs_error *err) {
  double x = 0;
  if (!sim_number(value, &x) || x < 0 || x > 3600) return wrong(key, value, "seconds from 0 to 3600", err);
  *out = sim_seconds_ps(x);
  return BS_OK;
}

static int32_t read_rate(const char *key, const char *value, uint64_t *out, bs_error *err) {
  double x = 0;
  if (!sim_number(value, &x) || x < 1000) return wrong(key, value, "bytes per second, at least 1000", err);
  *out = sim_rate_q32(x);
  return BS_OK;
}

static int32_t read_option(sim_topology *t, const char *key, const char *value, bs_error *err) {
  const int tree = t->kind == SIM_FAT_TREE, hier = t->kind == SIM_HIER;
  if (strcmp(key, "latency_s") == 0) return read_seconds(key, value, &t->latency, err);
  if (strcmp(key, "bw_Bps") == 0) return read_rate(key, value, &t->beta_q32, err);
  if (hier && strcmp(key, "outer_latency_s") == 0) return read_seconds(key, value, &t->outer_latency, err);
  if (hier && strcmp(key, "outer_bw_Bps") == 0) return read_rate(key, value, &t->outer_beta_q32, err);
  if (hier && strcmp(key, "group") == 0) return read_count(key, value, &t->a, err);
  if ((t->kind == SIM_TORUS2D || t->kind == SIM_MESH2D) && strcmp(key, "width") == 0)
    return read_count(key, value, &t->a, err);
  if (tree && strcmp(key, "ports") == 0) return read_count(key, value, &t->k, err);
  if (tree && strcmp(key, "oversubscription") == 0) return read_count(key, value, &t->oversubscription, err);
  bs_fail(err, BS_CONFIG, "BS-SIM-TOPOLOGY", "topology %s has no option %.60s", sim_topology_name(t->kind),
          key);
  return bs_fail_hint(err, "bsrun plugins inspect sim"), BS_CONFIG;
}

static void fill(sim_topology *t, const sim_machine *machine) {
  t->latency = t->outer_latency = machine->link.a_wire;
  t->beta_q32 = t->outer_beta_q32 = machine->link.beta_q32;
  t->oversubscription = 1;
  if (t->kind == SIM_TORUS2D || t->kind == SIM_MESH2D) {
    for (uint32_t a = 1; (uint64_t)a * a <= t->ranks; a++)
      if (t->ranks % a == 0) t->a = a;
  }
  if (t->kind == SIM_HIER) t->a = t->ranks % 8 == 0 ? 8 : t->ranks;
  for (t->k = 2; (uint64_t)t->k * t->k * t->k / 4 < t->ranks; t->k += 2) continue;
}

/* ---- bs_topology ------------------------------------------------------------------------------- */

static int32_t topology_open(void *state, const bs_topology_request *request, void **out_topology,
                             bs_error *err) {
  const sim_topology_choice *choice = state;
  sim_topology *t = calloc(1, sizeof *t);
  int32_t rc = BS_OK;
  if (t == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for a topology");
  t->kind = choice->kind;
  t->ranks = request->world_size;
  fill(t, &choice->plugin->machine);
  for (uint32_t i = 0; rc == BS_OK && i < request->n_options; i++)
    rc = read_option(t, request->option_keys[i], request->option_values[i], err);
  if (rc == BS_OK) rc = sim_topology_check(t, err);
  if (rc != BS_OK) {
    free(t);
    return rc;
  }
  *out_topology = t;
  return BS_OK;
}

static int32_t topology_route(void *topology, uint32_t from, uint32_t to, bs_link *out_links, uint32_t max,
                              uint32_t *out_n, bs_error *err) {
  sim_hop hops[SIM_HOPS];
  (void)err;
  *out_n = sim_topology_route(topology, from, to, hops);
  for (uint32_t h = 0; h < *out_n && h < max && h < SIM_HOPS; h++)
    out_links[h] = (bs_link){
        .struct_size = (uint32_t)sizeof(bs_link),
        .id = hops[h].id,
        .bytes_per_s = hops[h].beta_q32 > 0 ? 1e12 * 4294967296.0 / (double)hops[h].beta_q32 : INFINITY,
        .latency_s = (double)hops[h].latency * 1e-12};
  return BS_OK;
}

int32_t sim_topologies_register(sim_plugin *plugin, bs_error *err) {
  BS_HERE_LOC(here);
  int32_t rc = BS_OK;
  for (uint32_t k = 0; rc == BS_OK && k < SIM_TOPOLOGIES; k++) {
    plugin->topologies[k] = (sim_topology_choice){plugin, k};
    const bs_topology table = {.struct_size = (uint32_t)sizeof table,
                               .name = sim_topology_name(k),
                               .summary = docs[k].summary,
                               .option_docs = docs[k].options,
                               .open = topology_open,
                               .route = topology_route,
                               .close = free};
    rc = plugin->host->register_thing(plugin->host->ctx, plugin->self, BS_KIND_TOPOLOGY, &table,
                                      &plugin->topologies[k], &here, err);
  }
  return rc;
}

uint32_t sim_topology_sharers(const bs_topology *topology, const void *opened, uint32_t ranks) {
  const sim_topology *t = opened;
  return topology != NULL && topology->route == topology_route && t->kind == SIM_HIER ? t->a : ranks;
}

/* ---- for the engine ---------------------------------------------------------------------------- */

uint32_t sim_world_route(void *world, uint32_t from, uint32_t to, sim_hop *out_hops) {
  const sim_world *w = world;
  bs_link links[SIM_HOPS];
  uint32_t n = 0;
  if (w->topology->route(w->topology_opened, from, to, links, SIM_HOPS, &n, NULL) != BS_OK) return 0;
  for (uint32_t h = 0; h < n && h < SIM_HOPS; h++)
    out_hops[h] =
        (sim_hop){links[h].id, sim_seconds_ps(links[h].latency_s), sim_rate_q32(links[h].bytes_per_s)};
  return n;
}
