/* SPDX-License-Identifier: MIT
 * layout_net.h - the links of a net, numbered: what layout.c, layout_way.c and layout_place.c share. */
#ifndef BS_SIM_LAYOUT_NET_H
#define BS_SIM_LAYOUT_NET_H
#include "sim/layout.h"
#include "sim/topology.h"

/* Numbers of links that a net of one place has room for; a mesh does not use those at its edges. */
uint32_t sim_net_slots(const sim_class *net);
/* Links that there are. */
uint32_t sim_net_links(const sim_class *net);
/* Writes the numbers of the links from one place to another of the net. Returns how many (SIM_HOPS at most
 * are written). */
uint32_t sim_net_route(const sim_class *net, uint32_t from, uint32_t to, uint32_t out_slots[SIM_HOPS]);
/* Where a link begins and ends; of a crossbar *out_to is UINT32_MAX: the switch. */
void sim_net_ends(const sim_class *net, uint32_t slot, uint32_t *out_from, uint32_t *out_to);
/* The place of `level` above a place of a deeper one. */
uint32_t sim_place_above(const sim_device *device, uint32_t from_level, uint32_t place, uint32_t level);
#endif
