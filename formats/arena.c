/* SPDX-License-Identifier: MIT
 * arena.c - the blocks of an arena (arena.h). Blocks grow with what was taken, so that a small file takes
 * little and a large one few blocks. Called by the ONNX reader. */
#include "formats/arena.h"

#include <stdlib.h>

#include "core/base/size.h"

enum { HEAD = 32, FIRST = 4096, LARGEST = 1 << 20 };

struct bs_arena_block {
  struct bs_arena_block *next;
  uint64_t at, size; /* bytes of the block, its head among them */
};

static struct bs_arena_block *grow(bs_arena *arena, uint64_t need) {
  uint64_t size = arena->used < FIRST ? FIRST : arena->used < LARGEST ? arena->used : LARGEST;
  if (!bs_add_u64(need, HEAD, &need)) return NULL;
  if (size > arena->limit - arena->used) size = need; /* near the limit: no more than is asked */
  if (size < need) size = need;
  if (size > arena->limit - arena->used || size > SIZE_MAX) return NULL;
  struct bs_arena_block *block = calloc(1, (size_t)size);
  if (block == NULL) return NULL;
  block->next = arena->blocks;
  block->at = HEAD;
  block->size = size;
  arena->blocks = block;
  arena->used += size;
  return block;
}

void *bs_arena_take(bs_arena *arena, uint64_t count, uint64_t bytes) {
  uint64_t need;
  if (!bs_mul_u64(count, bytes, &need) || need > UINT64_MAX - 15) return NULL;
  need = (need + 15) & ~(uint64_t)15;
  struct bs_arena_block *block = arena->blocks;
  if (block == NULL || need > block->size - block->at) block = grow(arena, need);
  if (block == NULL) return NULL;
  void *taken = (char *)block + block->at;
  block->at += need;
  return taken;
}

void bs_arena_free(bs_arena *arena) {
  while (arena->blocks != NULL) {
    struct bs_arena_block *next = arena->blocks->next;
    free(arena->blocks);
    arena->blocks = next;
  }
  arena->used = 0;
}
