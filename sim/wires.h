/* SPDX-License-Identifier: MIT
 * wires.h - a number for each id of a link, in a table that grows: when it is free again, or which flow took
 * it. */
#ifndef BS_SIM_WIRES_H
#define BS_SIM_WIRES_H
#include <stdint.h>

typedef struct sim_wire {
  uint64_t id, value;
  uint32_t used;
} sim_wire;

typedef struct sim_wires {
  sim_wire *table;
  uint64_t mask, n;
} sim_wires;

/* The value of this id, valid until the next call. An id that was not seen has the value 0, and *out_new is 1
 * (may be NULL). NULL: no memory. sim_wires begins with zeros. */
uint64_t *sim_wires_at(sim_wires *wires, uint64_t id, int *out_new);
void sim_wires_close(sim_wires *wires);
#endif
