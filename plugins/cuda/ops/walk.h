/* SPDX-License-Identifier: MIT
 * walk.h - how the threads of an op that works element by element are laid over matrices of one shape: where
 * every row is dense and aligned a thread takes `width` neighbours at a time, 16 bytes of the widest dtype,
 * and CUDA_WALK_DEEP of those at once; what is left of a row, and matrices with gaps, go element by element.
 * cuda_walk_make is walk.c's. */
#ifndef BS_PLUGIN_CUDA_WALK_H
#define BS_PLUGIN_CUDA_WALK_H
#include "numbers.h"

enum {
  CUDA_BLOCK = 256,    /* threads of a block of a one-dimensional grid */
  CUDA_WALK_DEEP = 2,  /* pieces a thread has in flight */
  CUDA_WALK_WIDTH = 8, /* the most elements of a piece */
  CUDA_WALK_VIEWS = 8  /* the most matrices of one walk */
};

/* What a value is between its two roundings. By f64 pieces are of two at most, by integers of four. */
enum { CUDA_BY_COPY = 0, CUDA_BY_F32, CUDA_BY_F64, CUDA_BY_I64 };

/* Division by a number that a launch does not change: up to 2^31 by one product. */
typedef struct cuda_divisor {
  int64_t by;
  uint32_t factor, shift;
} cuda_divisor;

CUDA_FN uint32_t cuda_high_product(uint32_t a, uint32_t b) {
#if defined(__CUDACC__)
  return __umulhi(a, b);
#else
  return (uint32_t)((uint64_t)a * b >> 32);
#endif
}
/* n / by, both at least 0 and by > 0. */
CUDA_FN int64_t cuda_divide(const cuda_divisor *d, int64_t n) {
  if (n > INT32_MAX || d->by > INT32_MAX) return n / d->by;
  const uint32_t small = (uint32_t)n;
  return (int64_t)((cuda_high_product(d->factor, small) + small) >> d->shift);
}

typedef struct cuda_walk {
  int64_t rows;
  int64_t vectors, tail; /* of a row: whole pieces, elements behind them */
  int64_t vector_items, tail_items, vector_blocks;
  cuda_divisor by_vectors, by_tail;
  uint32_t width; /* of a piece: 2, 4, 8; 1: element by element */
  uint32_t reserved;
} cuda_walk;

typedef struct cuda_place {
  int64_t row, col;
  int32_t live; /* 0: nothing there */
} cuda_place;

/* Where a thread begins: its first item, and whether it takes whole pieces. */
typedef struct cuda_start {
  int64_t item;
  int32_t whole;
} cuda_start;

CUDA_FN cuda_start cuda_walk_start(const cuda_walk *walk, int64_t t) {
  const int64_t block = t / CUDA_BLOCK, lane = t % CUDA_BLOCK;
  cuda_start start;
  start.whole = block < walk->vector_blocks;
  start.item = (start.whole ? block : block - walk->vector_blocks) * (CUDA_BLOCK * CUDA_WALK_DEEP) + lane;
  return start;
}

/* The place of an item of pieces of `count` (a constant; 1: of the elements behind the pieces). */
CUDA_FN cuda_place cuda_walk_place(const cuda_walk *walk, int64_t item, const int count) {
  cuda_place at;
  at.row = 0;
  if (count > 1) {
    at.live = item < walk->vector_items;
    if (walk->rows > 1 && at.live) at.row = cuda_divide(&walk->by_vectors, item);
    at.col = (item - at.row * walk->vectors) * count;
  } else {
    at.live = item < walk->tail_items;
    if (walk->rows > 1 && at.live) at.row = cuda_divide(&walk->by_tail, item);
    at.col = walk->vectors * (int64_t)walk->width + item - at.row * walk->tail;
  }
  return at;
}

CUDA_FN char *cuda_element(const cuda_view *v, int64_t row, int64_t col) {
  return (char *)v->data + (row * v->row + col * v->col) * (int64_t)v->size;
}
CUDA_FN cuda_raw cuda_view_get(const cuda_view *v, const cuda_place *at, const int count) {
  return cuda_get(cuda_element(v, at->row, at->col), v->size, count);
}
CUDA_FN void cuda_view_put(const cuda_view *v, const cuda_place *at, const cuda_raw *raw, const int count) {
  cuda_put(cuda_element(v, at->row, at->col), raw, v->size, count);
}

#if !defined(__CUDACC__)
/* Host side (walk.c). by is at least 1. */
cuda_divisor cuda_divisor_make(int64_t by);
/* Brings `count` views of one shape (absent ones have data NULL; the last is the output) into the form that
 * needs the fewest divisions, all in the same way, and lays a walk over them. `fold` 0: rows stay rows and
 * columns columns. `limit`: the widest piece that the op takes. `unit`: 0, or the columns of which a piece
 * may not cross a multiple. */
void cuda_walk_make(cuda_view *views, uint32_t count, int fold, uint32_t limit, int64_t unit,
                    cuda_walk *out_walk);
/* The same over `rows` of `cols` in pieces of `width`. */
void cuda_walk_lay(int64_t rows, int64_t cols, uint32_t width, cuda_walk *out_walk);
/* 1 when pieces of `width` elements can be read from every row, or the view is absent. */
int cuda_view_fits(const cuda_view *view, uint32_t width);
/* Threads that walk it: whole blocks. */
int64_t cuda_walk_threads(const cuda_walk *walk);
#endif
#endif
