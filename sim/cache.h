/* SPDX-License-Identifier: MIT
 * cache.h - what a cache of a device holds: tiles by their key, the least recently used leaves first. A tile
 * that is being brought is held until its fill has committed, and tokens that want it wait. */
#ifndef BS_SIM_CACHE_H
#define BS_SIM_CACHE_H
#include "sim/part.h"

enum sim_cache_answer {
  SIM_CACHE_NO_MEMORY = 0,
  SIM_CACHE_HIT,     /* *out_ready: when its fill has committed */
  SIM_CACHE_FILLING, /* another token brings it; the waiter is in its line */
  SIM_CACHE_MISS,    /* *out_line is to be filled */
  SIM_CACHE_PAST     /* no room: the tile is larger, or all others are being filled */
};

typedef struct sim_cache sim_cache;

sim_cache *sim_cache_new(uint64_t bytes);
void sim_cache_free(sim_cache *cache);
/* One use of a tile. `bytes` is its size where it is not there yet. */
enum sim_cache_answer sim_cache_use(sim_cache *cache, uint64_t key, uint64_t bytes, sim_waiter *waiter,
                                    uint64_t *out_ready, uint32_t *out_line);
/* The fill of a line commits at `ready`. Returns the waiters, linked, or NULL. */
sim_waiter *sim_cache_fill(sim_cache *cache, uint32_t line, uint64_t ready);
/* Changes its bytes, before its first use. */
void sim_cache_room(sim_cache *cache, uint64_t bytes);
uint64_t sim_cache_hits(const sim_cache *cache);
uint64_t sim_cache_misses(const sim_cache *cache);
#endif
