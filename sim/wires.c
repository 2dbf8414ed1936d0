/* SPDX-License-Identifier: MIT
 * wires.c - see wires.h. */
#include "sim/wires.h"

#include <stdlib.h>

enum { FIRST = 64 };

static sim_wire *place_of(sim_wire *table, uint64_t mask, uint64_t id) {
  uint64_t i = id * UINT64_C(0x9e3779b97f4a7c15);
  for (i = (i ^ i >> 31) & mask; table[i].used && table[i].id != id; i = (i + 1) & mask) continue;
  return &table[i];
}

static int grow(sim_wires *wires) {
  const uint64_t room = wires->table == NULL ? FIRST : 2 * (wires->mask + 1);
  sim_wire *table = calloc(room, sizeof *table);
  if (table == NULL) return 0;
  for (uint64_t i = 0; wires->table != NULL && i <= wires->mask; i++)
    if (wires->table[i].used) *place_of(table, room - 1, wires->table[i].id) = wires->table[i];
  free(wires->table);
  wires->table = table;
  wires->mask = room - 1;
  return 1;
}

uint64_t *sim_wires_at(sim_wires *wires, uint64_t id, int *out_new) {
  if ((wires->table == NULL || 2 * wires->n > wires->mask) && !grow(wires)) return NULL;
  sim_wire *w = place_of(wires->table, wires->mask, id);
  if (out_new != NULL) *out_new = !w->used;
  if (!w->used) {
    *w = (sim_wire){.id = id, .used = 1};
    wires->n++;
  }
  return &w->value;
}

void sim_wires_close(sim_wires *wires) {
  free(wires->table);
  *wires = (sim_wires){0};
}
