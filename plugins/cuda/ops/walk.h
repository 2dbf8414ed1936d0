/* SPDX-License-Identifier: MIT
 * walk.h - assigns the threads of an elementwise op to matrices of one shape. If every row is dense and
 * aligned, a thread takes `width` adjacent elements at a time, 16 bytes of the widest dtype, and
 * CUDA_WALK_DEEP of those together. The rest of a row, and matrices with gaps, go element by element. walk.c
 * has cuda_walk_make. */
#ifndef BS_PLUGIN_CUDA_WALK_H
#define BS_PLUGIN_CUDA_WALK_H
#include "numbers.h"

enum {
  CUDA_BLOCK = 256,    /* threads of a block of a one-dimensional grid */
  CUDA_WALK_DEEP = 2,  /* pieces a thread has in flight */
  CUDA_WALK_WIDTH = 8, /* the most elements of a piece */
  CUDA_WALK_VIEWS = 8  /* the most matrices of one walk */
};

/* Launch bounds of a kernel with blocks of CUDA_BLOCK threads. Four blocks on a multiprocessor keep its
 * memory busy and leave 64 registers a thread. Without a number ptxas aims at more blocks on some
 * architectures, and spills. */
#define CUDA_BLOCK_BOUNDS __launch_bounds__(CUDA_BLOCK, 4)

/* The type of a value between its two roundings. With f64 pieces have at most two elements, with integers
 * four. */
enum { CUDA_BY_COPY = 0, CUDA_BY_F32, CUDA_BY_F64, CUDA_BY_I64 };

/* Division by a number that a launch does not change, by one product (Granlund and Montgomery, 1994, figure
 * 4.1). A device has no instruction that divides, and a called routine makes a kernel spill. */
typedef struct cuda_divisor {
  int64_t by;
  uint64_t factor; /* 2^64 (2^shift - by) / by + 1, rounded down; 2^shift is the least power not below by */
  uint32_t shift;
  uint32_t reserved;
} cuda_divisor;

CUDA_FN uint64_t cuda_high_product(uint64_t a, uint64_t b) {
#if defined(__CUDACC__)
  return __umul64hi(a, b);
#else
  const uint64_t low = UINT32_MAX, cross = (a >> 32) * (b & low) + ((a & low) * (b & low) >> 32);
  return (a >> 32) * (b >> 32) + (cross >> 32) + (((a & low) * (b >> 32) + (cross & low)) >> 32);
#endif
}
/* n / by, both at least 0 and by > 0. */
CUDA_FN int64_t cuda_divide(const cuda_divisor *d, int64_t n) {
  return (int64_t)((cuda_high_product(d->factor, (uint64_t)n) + (uint64_t)n) >> d->shift);
}

typedef struct cuda_walk {
  int64_t rows;
  int64_t vectors, tail; /* of a row: whole pieces, elements after them */
  int64_t vector_items, tail_items, vector_blocks;
  cuda_divisor by_vectors, by_tail;
  uint32_t width; /* of a piece: 2, 4, 8; 1: element by element */
  uint32_t reserved;
} cuda_walk;

typedef struct cuda_place {
  int64_t row, col;
  int32_t live; /* 0: nothing there */
} cuda_place;

/* The start of a thread: its first item, and whether it takes whole pieces. */
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

/* The place of an item of pieces of `count` (a constant; 1: of the elements after the pieces). */
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
/* Lays a walk over `rows` of `cols` in pieces of `width`. */
void cuda_walk_lay(int64_t rows, int64_t cols, uint32_t width, cuda_walk *out_walk);
/* 1 when pieces of `width` elements can be read from every row, or the view is absent. */
int cuda_view_fits(const cuda_view *view, uint32_t width);
/* Threads that walk it: whole blocks. */
int64_t cuda_walk_threads(const cuda_walk *walk);
#endif
#endif
