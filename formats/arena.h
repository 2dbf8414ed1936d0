/* SPDX-License-Identifier: MIT
 * arena.h - memory that is given back as a whole: the small structs of one parsed file, with a limit on their
 * sum. A zero-filled arena with a limit is ready. One thread at a time. */
#ifndef BS_FORMATS_ARENA_H
#define BS_FORMATS_ARENA_H
#include "blockshock/blockshock.h"

typedef struct bs_arena {
  struct bs_arena_block *blocks; /* the newest first */
  uint64_t used;                 /* bytes taken from the heap */
  uint64_t limit;                /* of used */
} bs_arena;

/* count elements of `bytes` each, zero-filled and aligned to 16 bytes. NULL past the limit, on overflow, or
 * when memory is not available. count 0 gives a pointer that is not NULL. */
void *bs_arena_take(bs_arena *arena, uint64_t count, uint64_t bytes);
void bs_arena_free(bs_arena *arena);
#endif
