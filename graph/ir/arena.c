/* SPDX-License-Identifier: MIT
 * arena.c - memory that is freed as a whole: small requests share chunks, large ones have their own. */
#include "graph/ir/arena.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/memory.h"
#include "core/base/size.h"

enum { CHUNK = 64 << 10 };

struct arena_chunk {
  struct arena_chunk *next;
  uint64_t used, size;
  _Alignas(64) unsigned char data[];
};

static struct arena_chunk *chunk_new(uint64_t size) {
  uint64_t bytes;
  if (!bs_add_u64(size, sizeof(struct arena_chunk) + 63u, &bytes) || bytes > SIZE_MAX / 2) return NULL;
  if (bs_memory_fits(bytes, "BS-GRAPH-MEMORY", "constants", NULL) != BS_OK) return NULL;
  struct arena_chunk *chunk = aligned_alloc(64, bytes & ~UINT64_C(63));
  if (chunk == NULL) return NULL;
  chunk->next = NULL;
  chunk->used = 0;
  chunk->size = size;
  return chunk;
}

void *arena_alloc(arena *a, uint64_t bytes, uint64_t align) {
  struct arena_chunk *chunk = a->chunks;
  uint64_t at = 0;
  if (chunk != NULL) at = (chunk->used + align - 1u) & ~(align - 1u);
  if (chunk == NULL || at > chunk->size || bytes > chunk->size - at) {
    const int large = bytes > CHUNK / 4;
    struct arena_chunk *fresh = chunk_new(large ? bytes : CHUNK);
    if (fresh == NULL) return NULL;
    if (large && chunk != NULL) { /* the chunk in use stays the first */
      fresh->next = chunk->next;
      chunk->next = fresh;
    } else {
      fresh->next = chunk;
      a->chunks = fresh;
    }
    chunk = fresh;
    at = 0;
  }
  chunk->used = at + bytes;
  a->bytes += bytes;
  return memset(chunk->data + at, 0, bytes);
}

char *arena_text(arena *a, const char *text, uint64_t bytes) {
  if (bytes == UINT64_MAX) return NULL;
  char *copy = arena_alloc(a, bytes + 1u, 1);
  if (copy != NULL && bytes > 0) memcpy(copy, text, bytes);
  return copy;
}

int arena_has(const arena *a, const void *data) {
  const uintptr_t at = (uintptr_t)data;
  for (const struct arena_chunk *c = a->chunks; c != NULL; c = c->next)
    if (at >= (uintptr_t)c->data && at < (uintptr_t)c->data + c->size) return 1;
  return 0;
}

void arena_free(arena *a) {
  while (a->chunks != NULL) {
    struct arena_chunk *next = a->chunks->next;
    free(a->chunks);
    a->chunks = next;
  }
  a->bytes = 0;
}

int array_grow(void **array, uint32_t n, uint32_t *cap, size_t size) {
  if (n < *cap) return 1;
  if (n >= UINT32_MAX / 2u) return 0;
  const uint32_t wanted = *cap < 16u ? 16u : *cap * 2u;
  void *grown = realloc(*array, (size_t)wanted * size);
  if (grown == NULL) return 0;
  *array = grown;
  *cap = wanted;
  return 1;
}
