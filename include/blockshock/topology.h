/* SPDX-License-Identifier: MIT
 *
 * topology.h - topologies: what lies between two ranks of a world, for simulators, predictions and placement.
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

/* From one rank to another. Links with one number of `shared` (not 0) share the bandwidth of one wire. */
typedef struct bs_link {
  uint32_t struct_size;
  uint32_t hops;
  double bytes_per_s; /* > 0 */
  double latency_s;   /* >= 0 */
  uint64_t shared;
} bs_link;

/* Required: name, open, link, close. */
typedef struct bs_topology {
  uint32_t struct_size;
  uint32_t reserved;
  const char *name;
  const char *aliases;
  const char *summary;
  const char *option_docs; /* "key=default: text\n"... */
  /* BS_UNSUPPORTED with a hint for a world size that it cannot have. */
  int32_t (*open)(void *state, const bs_topology_request *request, void **out_topology, bs_error *err);
  /* from != to, both below the world size. Pure and thread-safe. */
  int32_t (*link)(void *topology, uint32_t from, uint32_t to, bs_link *out_link, bs_error *err);
  void (*close)(void *topology);
} bs_topology;

#ifdef __cplusplus
}
#endif
#endif
