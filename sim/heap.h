/* SPDX-License-Identifier: MIT
 * heap.h - the queue of order E: a 4-ary heap of ranks by (time, rank, seq). */
#ifndef BS_SIM_HEAP_H
#define BS_SIM_HEAP_H
#include <stdint.h>

typedef struct sim_event {
  uint64_t time, seq;
  uint32_t rank;
} sim_event;

typedef struct sim_heap {
  sim_event *events;
  uint32_t n, room;
} sim_heap;

/* Room for as many events as there are ranks. 0: no memory. */
int sim_heap_open(sim_heap *heap, uint32_t room);
void sim_heap_close(sim_heap *heap);
void sim_heap_push(sim_heap *heap, sim_event event);
/* 0: it is empty. */
int sim_heap_pop(sim_heap *heap, sim_event *out_event);
#endif
