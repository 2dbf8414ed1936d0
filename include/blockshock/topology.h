/* SPDX-License-Identifier: MIT
 *
 * topology.h - topologies: what lies between two ranks of a world, for simulators, predictions and placement.
 *
 * Units: bandwidths are in bytes per second, latencies in seconds.
 * Ownership: the host closes a topology by `close`. The request is valid during open alone.
 * Threads: route is pure and may be called by several threads at the same time.
 * Errors: functions return an enum bs_status and fill err. BS_UNSUPPORTED is a world size that the topology
 * cannot have, and BS_CONFIG a wrong option.
 */
#ifndef BLOCKSHOCK_TOPOLOGY_H
#define BLOCKSHOCK_TOPOLOGY_H

#include "abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which world a topology is opened for, and how. */
typedef struct bs_topology_request {
  uint32_t struct_size;
  uint32_t world_size;
  uint32_t n_options;
  uint32_t reserved;
  const char *const *option_keys;
  const char *const *option_values;
} bs_topology_request;

/* One link on the way from one rank to another. Links with the same id (not 0) are one wire: messages on it
 * queue for its bandwidth. id 0: no other link shares the wire. Fixed size for ever: each side fills it
 * whole. */
typedef struct bs_link {
  uint32_t struct_size;
  uint32_t flags; /* 0 */
  uint64_t id;
  double bytes_per_s; /* > 0 */
  double latency_s;   /* >= 0 */
  uint64_t reserved[2];
} bs_link;

/* Required: name, open, route, close. */
typedef struct bs_topology {
  uint32_t struct_size;
  uint32_t reserved;
  const char *name;
  const char *aliases;
  const char *summary;
  const char *option_docs; /* "key=default: text\n"... */
  /* Makes a topology of a world. BS_UNSUPPORTED, with a hint, for a world size that it cannot have. */
  int32_t (*open)(void *state, const bs_topology_request *request, void **out_topology, bs_error *err);
  /* Since 0.8: the links from one rank to another, in the order of the way; from != to, both below the world
   * size. Writes at most `max` of them and tells in out_n how many there are, at least 1. The way from a to b
   * is always the same. Pure and thread-safe. */
  int32_t (*route)(void *topology, uint32_t from, uint32_t to, bs_link *out_links, uint32_t max,
                   uint32_t *out_n, bs_error *err);
  void (*close)(void *topology);
} bs_topology;

#ifdef __cplusplus
}
#endif
#endif
