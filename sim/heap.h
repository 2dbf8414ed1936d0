/* SPDX-License-Identifier: MIT
 * heap.h - the queue of order E: a 4-ary heap of ranks that go on and messages that reach a wire, by (time,
 * rank, seq). */
#ifndef BS_SIM_HEAP_H
#define BS_SIM_HEAP_H
#include <stdint.h>

typedef struct sim_event {
  uint64_t time, seq;
  uint32_t rank; /* of a message: its sender */
  void *flight;  /* NULL: the rank goes on */
} sim_event;

typedef struct sim_heap {
  sim_event *events;
  uint32_t n, room;
} sim_heap;

/* 0: no memory. heap is all 0 before the first. */
int sim_heap_reserve(sim_heap *heap, uint64_t room);
void sim_heap_close(sim_heap *heap);
/* There must be room. */
void sim_heap_push(sim_heap *heap, sim_event event);
/* 0: it is empty. */
int sim_heap_pop(sim_heap *heap, sim_event *out_event);
#endif
