/* SPDX-License-Identifier: MIT
 * cache.c - see cache.h. Lines are numbered from 1; a table of open addressing finds them by key. */
#include "sim/cache.h"

#include <stdlib.h>

typedef struct line {
  uint64_t key, bytes, ready; /* ready: SIM_NEVER while it is being filled */
  uint32_t older, newer;
  sim_waiter *first, *last; /* who waits for the fill */
} line;

struct sim_cache {
  uint64_t bytes, used, hits, misses;
  line *lines;
  uint32_t n, room, spare; /* spare: a list of unused lines, by `older` */
  uint32_t oldest, newest;
  uint32_t *table;
  uint32_t mask;
};

enum { FIRST_ROOM = 64 };

sim_cache *sim_cache_new(uint64_t bytes) {
  sim_cache *c = calloc(1, sizeof *c);
  if (c == NULL) return NULL;
  c->bytes = bytes;
  c->room = FIRST_ROOM;
  c->mask = 2 * FIRST_ROOM - 1;
  c->lines = calloc(c->room + 1ull, sizeof *c->lines);
  c->table = calloc(c->mask + 1ull, sizeof *c->table);
  if (c->lines != NULL && c->table != NULL) return c;
  sim_cache_free(c);
  return NULL;
}

void sim_cache_free(sim_cache *c) {
  if (c == NULL) return;
  free(c->lines);
  free(c->table);
  free(c);
}

static uint32_t home_of(const sim_cache *c, uint64_t key) {
  return (uint32_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & c->mask;
}

/* Where the key is in the table, or would be. */
static uint32_t place_of(const sim_cache *c, uint64_t key) {
  uint32_t at = home_of(c, key);
  while (c->table[at] != 0 && c->lines[c->table[at]].key != key) at = (at + 1) & c->mask;
  return at;
}

/* Twice the room. 0: no memory. */
static int grow(sim_cache *c) {
  line *lines = realloc(c->lines, (2ull * c->room + 1) * sizeof *lines);
  if (lines == NULL) return 0;
  c->lines = lines;
  uint32_t *table = calloc(4ull * c->room, sizeof *table);
  if (table == NULL) return 0;
  free(c->table);
  c->table = table;
  c->room *= 2;
  c->mask = 2 * c->room - 1;
  for (uint32_t i = c->oldest; i != 0; i = c->lines[i].newer) c->table[place_of(c, c->lines[i].key)] = i;
  return 1;
}

static void take_out(sim_cache *c, uint32_t i) {
  line *l = &c->lines[i];
  if (l->older != 0)
    c->lines[l->older].newer = l->newer;
  else
    c->oldest = l->newer;
  if (l->newer != 0)
    c->lines[l->newer].older = l->older;
  else
    c->newest = l->older;
}

static void put_newest(sim_cache *c, uint32_t i) {
  line *l = &c->lines[i];
  l->newer = 0;
  l->older = c->newest;
  if (c->newest != 0)
    c->lines[c->newest].newer = i;
  else
    c->oldest = i;
  c->newest = i;
}

/* Takes a key out of the table, and moves the entries after it up. */
static void forget(sim_cache *c, uint64_t key) {
  uint32_t hole = place_of(c, key);
  for (uint32_t at = (hole + 1) & c->mask; c->table[at] != 0; at = (at + 1) & c->mask) {
    const uint32_t home = home_of(c, c->lines[c->table[at]].key);
    if (((at - home) & c->mask) < ((at - hole) & c->mask)) continue;
    c->table[hole] = c->table[at];
    hole = at;
  }
  c->table[hole] = 0;
}

/* Makes room by the oldest tiles that are there. 0: there is none. */
static int make_room(sim_cache *c, uint64_t bytes) {
  if (bytes > c->bytes) return 0;
  uint32_t i = c->oldest;
  while (c->used + bytes > c->bytes && i != 0) {
    const uint32_t newer = c->lines[i].newer;
    if (c->lines[i].ready != SIM_NEVER) {
      c->used -= c->lines[i].bytes;
      forget(c, c->lines[i].key);
      take_out(c, i);
      c->lines[i].older = c->spare;
      c->spare = i;
    }
    i = newer;
  }
  return c->used + bytes <= c->bytes;
}

static uint32_t new_line(sim_cache *c) {
  uint32_t i = c->spare;
  if (i != 0) {
    c->spare = c->lines[i].older;
    return i;
  }
  if (c->n == c->room && !grow(c)) return 0;
  return ++c->n;
}

static enum sim_cache_answer miss(sim_cache *c, uint64_t key, uint64_t bytes, uint32_t *out_line) {
  c->misses++;
  if (!make_room(c, bytes)) return SIM_CACHE_PAST;
  const uint32_t i = new_line(c);
  if (i == 0) return SIM_CACHE_NO_MEMORY;
  c->lines[i] = (line){.key = key, .bytes = bytes, .ready = SIM_NEVER};
  c->table[place_of(c, key)] = i;
  put_newest(c, i);
  c->used += bytes;
  *out_line = i;
  return SIM_CACHE_MISS;
}

enum sim_cache_answer sim_cache_use(sim_cache *c, uint64_t key, uint64_t bytes, sim_waiter *waiter,
                                    uint64_t *out_ready, uint32_t *out_line) {
  const uint32_t i = c->table[place_of(c, key)];
  if (i == 0) return miss(c, key, bytes, out_line);
  line *l = &c->lines[i];
  c->hits++;
  take_out(c, i);
  put_newest(c, i);
  *out_ready = l->ready;
  if (l->ready != SIM_NEVER) return SIM_CACHE_HIT;
  waiter->next = NULL;
  if (l->first == NULL)
    l->first = waiter;
  else
    l->last->next = waiter;
  l->last = waiter;
  return SIM_CACHE_FILLING;
}

sim_waiter *sim_cache_fill(sim_cache *c, uint32_t i, uint64_t ready) {
  sim_waiter *first = c->lines[i].first;
  c->lines[i].first = c->lines[i].last = NULL;
  c->lines[i].ready = ready;
  return first;
}

void sim_cache_room(sim_cache *c, uint64_t bytes) {
  c->bytes = bytes;
}

uint64_t sim_cache_hits(const sim_cache *c) {
  return c->hits;
}

uint64_t sim_cache_misses(const sim_cache *c) {
  return c->misses;
}
