/* SPDX-License-Identifier: MIT
 * heap.c - see heap.h. */
#include "sim/heap.h"

#include <stdlib.h>

int sim_heap_reserve(sim_heap *heap, uint64_t room) {
  if (room <= heap->room) return 1;
  room += room / 2;
  if (room > UINT32_MAX) return 0;
  sim_event *events = realloc(heap->events, room * sizeof *events);
  if (events == NULL) return 0;
  heap->events = events;
  heap->room = (uint32_t)room;
  return 1;
}

void sim_heap_close(sim_heap *heap) {
  free(heap->events);
}

static int before(const sim_event *a, const sim_event *b) {
  if (a->time != b->time) return a->time < b->time;
  if (a->rank != b->rank) return a->rank < b->rank;
  return a->seq < b->seq;
}

void sim_heap_push(sim_heap *heap, sim_event event) {
  uint32_t i = heap->n++;
  while (i > 0 && before(&event, &heap->events[(i - 1) / 4])) {
    heap->events[i] = heap->events[(i - 1) / 4];
    i = (i - 1) / 4;
  }
  heap->events[i] = event;
}

int sim_heap_pop(sim_heap *heap, sim_event *out_event) {
  if (heap->n == 0) return 0;
  *out_event = heap->events[0];
  const sim_event last = heap->events[--heap->n];
  uint32_t i = 0;
  for (;;) {
    const uint64_t first = 4 * (uint64_t)i + 1;
    if (first >= heap->n) break;
    uint32_t least = (uint32_t)first;
    for (uint32_t k = least + 1; k < heap->n && k < first + 4; k++)
      if (before(&heap->events[k], &heap->events[least])) least = k;
    if (!before(&heap->events[least], &last)) break;
    heap->events[i] = heap->events[least];
    i = least;
  }
  if (heap->n > 0) heap->events[i] = last;
  return 1;
}
