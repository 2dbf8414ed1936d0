/* SPDX-License-Identifier: MIT
 * indexed_body.h - the places that the index of a take or a put names. There is a large tensor, which is
 * indexed, and a small one, whose dims are walked. A position of the small one reads a tuple of coordinates
 * from the index; ops/indexed.c has the host side.
 *
 * The kernels move units of 1 to 16 bytes, and strides of both tensors are counted in these. */
#ifndef BS_PLUGIN_CUDA_INDEXED_BODY_H
#define BS_PLUGIN_CUDA_INDEXED_BODY_H
#include "space.h"

typedef struct indexed_args {
  cuda_space space;                /* of the small tensor */
  cuda_spread large, small, index; /* over it; large: without the dims that the index names */
  int64_t sizes[CUDA_SPACE_DIMS];  /* of the dims that the index names */
  int64_t along[CUDA_SPACE_DIMS];  /* their strides in the large tensor */
  int64_t step;                    /* from a coordinate of a tuple to the next, in elements of the index */
  uint32_t tuple;                  /* coordinates; 0: a copy without an index */
  uint32_t reserved;
} indexed_args;

/* One number of the index, i32 or i64. */
CUDA_FN int64_t indexed_read(const cuda_spread *index, int64_t offset) {
  const char *at = cuda_spread_element(index, offset);
  if (index->size == 4) {
    const cuda_raw raw = cuda_get_bytes(at, 4);
    return (int64_t)(int32_t)raw.word[0];
  }
  const cuda_raw raw = cuda_get_bytes(at, 8);
  return (int64_t)cuda_raw64(&raw, 0);
}

/* Where the tuple at `offset` of the index points, in units of the large tensor. A number outside of its dim
 * counts as 0 if `clamp` is set, else the place is -1. */
CUDA_FN int64_t indexed_place(const indexed_args *a, int64_t offset, const int clamp) {
  int64_t place = 0;
  CUDA_ROLL
  for (uint32_t c = 0; c < a->tuple; c++) {
    int64_t i = indexed_read(&a->index, offset + (int64_t)c * a->step);
    if (i < 0) i += a->sizes[c];
    if (i < 0 || i >= a->sizes[c]) {
      if (!clamp) return -1;
      i = 0;
    }
    place += i * a->along[c];
  }
  return place;
}

CUDA_FN void indexed_copy(const char *from, char *to, uint32_t size) {
  cuda_raw raw;
  switch (size) {
    case 1:
      raw = cuda_get_bytes(from, 1);
      cuda_put_bytes(to, &raw, 1);
      break;
    case 2:
      raw = cuda_get_bytes(from, 2);
      cuda_put_bytes(to, &raw, 2);
      break;
    case 4:
      raw = cuda_get_bytes(from, 4);
      cuda_put_bytes(to, &raw, 4);
      break;
    case 8:
      raw = cuda_get_bytes(from, 8);
      cuda_put_bytes(to, &raw, 8);
      break;
    default:
      raw = cuda_get_bytes(from, 16);
      cuda_put_bytes(to, &raw, 16);
      break;
  }
}
#endif
