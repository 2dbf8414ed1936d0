/* SPDX-License-Identifier: MIT
 * topology.c - see topology.h. An id of a wire is made of where it begins, which one there, and its level. */
#include "sim/topology.h"

#include "core/base/error.h"

static const char *const names[] = {"ring", "torus2d", "fullmesh", "nvswitch", "fat_tree", "hier", "mesh2d"};
_Static_assert(sizeof names / sizeof names[0] == SIM_TOPOLOGIES, "a name for each");

const char *sim_topology_name(uint32_t kind) {
  return kind < SIM_TOPOLOGIES ? names[kind] : NULL;
}

static int32_t refuse(const sim_topology *t, const char *why, const char *hint, bs_error *err) {
  bs_error_set(err, BS_UNSUPPORTED, "BS-SIM-TOPOLOGY", "topology %s cannot have %u ranks: %s",
               t->kind < SIM_TOPOLOGIES ? names[t->kind] : "?", t->ranks, why);
  bs_error_hint(err, "%s", hint);
  return BS_UNSUPPORTED;
}

int32_t sim_topology_check(const sim_topology *t, bs_error *err) {
  if (t->kind >= SIM_TOPOLOGIES || t->ranks == 0)
    return refuse(t, "there is no such topology", "ranks > 0", err);
  if ((t->kind == SIM_TORUS2D || t->kind == SIM_MESH2D) && (t->a == 0 || t->ranks % t->a != 0))
    return refuse(t, "they are no rectangle with that width", "choose a width that divides the ranks", err);
  if (t->kind == SIM_HIER && (t->a == 0 || t->ranks % t->a != 0))
    return refuse(t, "they are no groups of that size", "choose a group size that divides the ranks", err);
  if (t->kind != SIM_FAT_TREE) return BS_OK;
  if (t->k < 2 || t->k % 2 != 0 || t->k > 1024 || (uint64_t)t->k * t->k * t->k / 4 < t->ranks)
    return refuse(t, "its switches have too few ports", "k ports (even, at most 1024) serve k^3/4 ranks",
                  err);
  if (t->oversubscription < 1 || t->oversubscription > t->k / 2)
    return refuse(t, "the oversubscription does not fit its switches", "it is 1 to k/2", err);
  return BS_OK;
}

static sim_hop hop(const sim_topology *t, uint32_t level, uint64_t begin, uint64_t which) {
  return (sim_hop){(uint64_t)(level + 1) << 56 | begin << 24 | which, t->latency, t->beta_q32};
}

/* Along a circle of n places from x to y, the shorter way; place x of it is rank first + x * stride. The hops
 * before are `done`. What does not fit is counted alone. */
static uint32_t circle(const sim_topology *t, uint32_t level, uint32_t first, uint32_t stride, uint32_t n,
                       uint32_t x, uint32_t y, uint32_t done, sim_hop *out) {
  const uint32_t ahead = (y + n - x) % n, back = ahead == 0 ? 0 : n - ahead;
  const int forward = ahead <= back;
  const uint32_t count = forward ? ahead : back;
  for (uint32_t i = 0; i < count && done + i < SIM_HOPS; i++) {
    out[done + i] = hop(t, level, first + (uint64_t)x * stride, !forward);
    x = forward ? (x + 1) % n : (x + n - 1) % n;
  }
  return done + count;
}

/* Along a line from x to y. */
static uint32_t line(const sim_topology *t, uint32_t level, uint32_t first, uint32_t stride, uint32_t x,
                     uint32_t y, uint32_t done, sim_hop *out) {
  const uint32_t count = x < y ? y - x : x - y;
  for (uint32_t i = 0; i < count && done + i < SIM_HOPS; i++) {
    out[done + i] = hop(t, level, first + (uint64_t)x * stride, x > y);
    x = x < y ? x + 1 : x - 1;
  }
  return done + count;
}

/* Up to a switch and down: the latency is of both together. */
static uint32_t over_switch(const sim_topology *t, uint32_t level, uint32_t from, uint32_t to,
                            uint64_t latency, uint64_t beta_q32, sim_hop *out) {
  out[0] = hop(t, level, from, 0);
  out[1] = hop(t, level, to, 1);
  out[0].latency = latency / 2;
  out[1].latency = latency - latency / 2;
  out[0].beta_q32 = out[1].beta_q32 = beta_q32;
  return 2;
}

/* Levels: 0 rank to edge, 1 edge to aggregation, 2 to core, 3 from core, 4 from aggregation, 5 edge to rank.
 */
static uint32_t fat_tree(const sim_topology *t, uint32_t from, uint32_t to, sim_hop *out) {
  const uint32_t half = t->k / 2, up = half / t->oversubscription;
  const uint32_t edge_from = from / half, edge_to = to / half, pod_from = edge_from / half,
                 pod_to = edge_to / half;
  const uint32_t aggregation = to % up, core = to / up % half; /* D-mod-k: the destination chooses */
  uint32_t n = 0;
  out[n++] = hop(t, 0, from, 0);
  if (edge_from != edge_to) {
    out[n++] = hop(t, 1, edge_from, aggregation);
    if (pod_from != pod_to) {
      out[n++] = hop(t, 2, (uint64_t)pod_from * half + aggregation, core);
      out[n++] = hop(t, 3, (uint64_t)aggregation * half + core, pod_to);
    }
    out[n++] = hop(t, 4, (uint64_t)pod_to * half + aggregation, edge_to % half);
  }
  out[n++] = hop(t, 5, to, 0);
  return n;
}

uint32_t sim_topology_route(void *user, uint32_t from, uint32_t to, sim_hop *out_hops) {
  const sim_topology *t = user;
  uint32_t n;
  if (from == to) return 0;
  switch (t->kind) {
    case SIM_RING:
      return circle(t, 0, 0, 1, t->ranks, from, to, 0, out_hops);
    case SIM_TORUS2D:
      n = circle(t, 0, from / t->a * t->a, 1, t->a, from % t->a, to % t->a, 0, out_hops);
      return circle(t, 1, to % t->a, t->a, t->ranks / t->a, from / t->a, to / t->a, n, out_hops);
    case SIM_MESH2D: /* X, then Y: two ways never wait for each other in a circle */
      n = line(t, 0, from / t->a * t->a, 1, from % t->a, to % t->a, 0, out_hops);
      return line(t, 1, to % t->a, t->a, from / t->a, to / t->a, n, out_hops);
    case SIM_FULLMESH:
      out_hops[0] = (sim_hop){((uint64_t)from << 32 | to) + 1, t->latency, t->beta_q32};
      return 1;
    case SIM_NVSWITCH:
      return over_switch(t, 0, from, to, t->latency, t->beta_q32, out_hops);
    case SIM_FAT_TREE:
      return fat_tree(t, from, to, out_hops);
    default:
      if (from / t->a == to / t->a) return over_switch(t, 0, from, to, t->latency, t->beta_q32, out_hops);
      return over_switch(t, 1, from, to, t->outer_latency, t->outer_beta_q32, out_hops);
  }
}
