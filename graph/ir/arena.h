/* SPDX-License-Identifier: MIT
 * arena.h - memory that is freed as a whole, and arrays that grow: for models and graphs. One thread at a
 * time. */
#ifndef BS_GRAPH_IR_ARENA_H
#define BS_GRAPH_IR_ARENA_H
#include <stddef.h>
#include <stdint.h>

/* Zero-initialise. */
typedef struct arena {
  struct arena_chunk *chunks;
  uint64_t bytes; /* given out */
} arena;
/* Zero-filled, aligned to `align` (a power of two, at most 64). NULL: no memory. */
void *arena_alloc(arena *a, uint64_t bytes, uint64_t align);
/* A NUL-terminated copy of `bytes` bytes of a text. NULL: no memory. */
char *arena_text(arena *a, const char *text, uint64_t bytes);
int arena_has(const arena *a, const void *data);
void arena_free(arena *a);

/* Room for one more element of `size` bytes in *array, which holds n of *cap. 0: no memory, nothing changed.
 */
int array_grow(void **array, uint32_t n, uint32_t *cap, size_t size);
#define ARRAY_GROW(array, n, cap) array_grow((void **)&(array), (n), &(cap), sizeof *(array))
#endif
