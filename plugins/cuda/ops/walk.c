/* SPDX-License-Identifier: MIT
 * walk.c - see walk.h: the host lays threads over matrices. */
#include "walk.h"

#include "ops.h"

cuda_divisor cuda_divisor_make(int64_t by) {
  cuda_divisor d = {.by = by};
  while ((UINT64_C(1) << d.shift) < (uint64_t)by) d.shift++;
  uint64_t rest = (UINT64_C(1) << d.shift) - (uint64_t)by; /* < by: doubled it fits */
  for (int bit = 0; bit < 64; bit++) {
    rest *= 2;
    d.factor *= 2;
    if (rest < (uint64_t)by) continue;
    rest -= (uint64_t)by;
    d.factor++;
  }
  d.factor++;
  return d;
}

static void turn(cuda_view *views, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    const cuda_view v = views[i];
    views[i].rows = v.cols;
    views[i].cols = v.rows;
    views[i].row = v.col;
    views[i].col = v.row;
  }
}

/* Neighbouring threads write neighbouring elements: the last view's narrow side is its columns. */
static void tidy(cuda_view *views, uint32_t count) {
  const cuda_view *out = &views[count - 1];
  if (out->rows > 1 && (out->cols <= 1 || out->col > out->row)) turn(views, count);
  for (uint32_t i = 0; i < count; i++)
    if (views[i].data != NULL && views[i].row != views[i].cols * views[i].col && views[i].rows > 1) return;
  for (uint32_t i = 0; i < count; i++) {
    views[i].cols *= views[i].rows;
    views[i].rows = 1;
  }
}

int cuda_view_fits(const cuda_view *v, uint32_t width) {
  const uint64_t bytes = (uint64_t)width * v->size;
  return v->data == NULL || (v->col == 1 && (uintptr_t)v->data % bytes == 0 &&
                             (v->rows <= 1 || (uint64_t)v->row * v->size % bytes == 0));
}

static uint32_t width_of(const cuda_view *views, uint32_t count, uint32_t limit, int64_t unit) {
  uint32_t widest = 1;
  for (uint32_t i = 0; i < count; i++)
    if (views[i].data != NULL && views[i].size > widest) widest = views[i].size;
  uint32_t width = 16 / widest < limit ? 16 / widest : limit;
  if (unit % width != 0) return 1;
  for (uint32_t i = 0; i < count; i++)
    if (!cuda_view_fits(&views[i], width)) return 1;
  return width;
}

void cuda_walk_lay(int64_t rows, int64_t cols, uint32_t width, cuda_walk *out_walk) {
  cuda_walk *w = out_walk;
  memset(w, 0, sizeof *w);
  w->rows = rows;
  w->width = width;
  w->vectors = width > 1 ? cols / width : 0;
  w->tail = cols - w->vectors * width;
  w->vector_items = w->rows * w->vectors;
  w->tail_items = w->rows * w->tail;
  const int64_t block = (int64_t)CUDA_BLOCK * CUDA_WALK_DEEP;
  w->vector_blocks = (w->vector_items + block - 1) / block;
  w->by_vectors = cuda_divisor_make(w->vectors > 0 ? w->vectors : 1);
  w->by_tail = cuda_divisor_make(w->tail > 0 ? w->tail : 1);
}

void cuda_walk_make(cuda_view *views, uint32_t count, int fold, uint32_t limit, int64_t unit,
                    cuda_walk *out_walk) {
  if (fold) tidy(views, count);
  const cuda_view *shape = &views[count - 1];
  cuda_walk_lay(shape->rows, shape->cols, width_of(views, count, limit, unit), out_walk);
}

int64_t cuda_walk_threads(const cuda_walk *walk) {
  const int64_t block = (int64_t)CUDA_BLOCK * CUDA_WALK_DEEP;
  return (walk->vector_blocks + (walk->tail_items + block - 1) / block) * CUDA_BLOCK;
}
