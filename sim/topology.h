/* SPDX-License-Identifier: MIT
 * topology.h - what lies between the ranks of a simulated world: routes of hops for the engine. */
#ifndef BS_SIM_TOPOLOGY_H
#define BS_SIM_TOPOLOGY_H
#include "sim/engine.h"

enum sim_topology_kind {
  SIM_RING = 0, /* rank r and r+1; the shorter way, forwards when both are equal */
  SIM_TORUS2D,  /* rank y * a + x; along x first */
  SIM_FULLMESH, /* a wire a pair and direction */
  SIM_NVSWITCH, /* each rank has a wire to one switch and one from it */
  SIM_FAT_TREE, /* three levels of switches with k ports, D-mod-k: k^3/4 ranks at most */
  SIM_HIER,     /* groups of a ranks around a switch (inner); between groups each rank's own wires (outer) */
  SIM_MESH2D,   /* rank y * a + x, without the wires that close a torus; along x first */
  SIM_TOPOLOGIES
};

/* latency: ps of a hop of ring, torus, mesh and fat tree, else of the whole way. */
typedef struct sim_topology {
  uint32_t kind; /* enum sim_topology_kind */
  uint32_t ranks;
  uint32_t a;                /* SIM_TORUS2D, SIM_MESH2D: ranks along x; SIM_HIER: ranks of a group */
  uint32_t k;                /* SIM_FAT_TREE: ports of a switch, even */
  uint32_t oversubscription; /* SIM_FAT_TREE: wires down for each wire up of the lowest switches, 1 to k/2 */
  uint32_t reserved;
  uint64_t latency, beta_q32;             /* inner */
  uint64_t outer_latency, outer_beta_q32; /* SIM_HIER */
} sim_topology;

/* "ring", ...; NULL above. */
const char *sim_topology_name(uint32_t kind);
/* BS_UNSUPPORTED with a hint where the topology cannot have that many ranks. */
int32_t sim_topology_check(const sim_topology *t, bs_error *err);
/* The `route` of sim_config, of a topology that was checked; user is the sim_topology. 0 for a rank to
 * itself. */
uint32_t sim_topology_route(void *user, uint32_t from, uint32_t to, sim_hop *out_hops);
#endif
