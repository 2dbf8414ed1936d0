/* SPDX-License-Identifier: MIT
 *
 * places.h - the places of a large tensor that an index names, for take (which reads them) and put (which
 * writes them). The small tensor (out of take, updates of put) has positions in its leading dims; each names
 * a place of the large one. The other dims are the last dims of both, and are moved together. */
#ifndef BS_PLUGINS_CPU_OPS_PLACES_H
#define BS_PLUGINS_CPU_OPS_PLACES_H
#include "../cpu.h"

/* A dim of both tensors; strides in elements. index: what it selects of the index, 0: nothing. */
typedef struct cpu_place_dim {
  int64_t size, large, small, index;
} cpu_place_dim;

typedef struct cpu_places {
  const bs_tensor *large, *index, *small;
  cpu_place_dim lead[BS_MAX_DIMS]; /* of the positions */
  cpu_place_dim rest[BS_MAX_DIMS]; /* after them; dims that are side by side in both tensors are one */
  uint32_t n_lead, n_rest;         /* n_rest: at least 1 */
  uint32_t first, tuple;           /* an index has `tuple` coordinates, in dims first .. of large */
  int64_t step;                    /* elements between these */
  int64_t groups, inner;           /* positions are groups x inner, and no two groups share a place */
  int64_t elements;                /* that a position moves */
  uint32_t size;                   /* bytes of one */
} cpu_places;

/* attrs: those of the query, for which put has the same meaning as take. put: 1 for put. */
void cpu_places_make(const int64_t *attrs, int put, const bs_tensor *large, const bs_tensor *index,
                     const bs_tensor *small, cpu_places *out_places);
/* BS_INVALID_ARGUMENT with BS-OP-INDEX for an index outside of its dimension. */
int32_t cpu_places_check(const cpu_places *places, const char *op, bs_error *err);
/* Offsets in elements of what position i moves. */
void cpu_places_find(const cpu_places *places, int64_t i, int64_t *out_large, int64_t *out_small);
/* Appends a dim to `dims`, or joins it with the one before where both lie side by side; a dim of 1 is
 * dropped. */
void cpu_place_dims_add(cpu_place_dim *dims, uint32_t *n, cpu_place_dim dim);
/* Copies n elements of `size` bytes; strides in elements. */
void cpu_copy_strided(void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t n,
                      uint32_t size);

/* Elements from .. to, row-major over `dims`, as pieces that lie in one line. */
typedef struct cpu_piece {
  int64_t large, small, n; /* offsets and number of elements */
} cpu_piece;
/* The piece that begins at element `from`; *out_piece.n is at most to - from. */
void cpu_piece_at(const cpu_place_dim *dims, uint32_t n, int64_t from, int64_t to, cpu_piece *out_piece);
#endif
