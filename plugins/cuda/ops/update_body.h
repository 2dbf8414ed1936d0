/* SPDX-License-Identifier: MIT
 * update_body.h - shared part of the optimisers' steps: the values of a 2:4 row beyond the last column stay
 * zero. */
#ifndef BS_PLUGIN_CUDA_UPDATE_BODY_H
#define BS_PLUGIN_CUDA_UPDATE_BODY_H
#include "walk.h"

/* For a 2:4 weight whose last group reaches beyond the last column: its codes (ops.h, cuda_places). */
typedef struct cuda_beyond {
  const unsigned char *codes; /* NULL: every value stands for a column */
  int64_t groups, cols;
} cuda_beyond;

/* 1: value `col` of a row is beyond the last column. */
CUDA_FN int cuda_is_beyond(const cuda_beyond *b, int64_t row, int64_t col) {
  if (b->codes == 0 || col < 2 * b->groups - 2) return 0;
  const uint32_t code = b->codes[row * b->groups + col / 2];
  return col / 2 * 4 + (int64_t)(code >> (col % 2 * 2) & 3u) >= b->cols;
}
CUDA_FN void cuda_clear_beyond(const cuda_beyond *b, const cuda_place *at, double *w, const int count) {
  if (b->codes == 0) return;
  CUDA_UNROLL
  for (int i = 0; i < count; i++)
    if (cuda_is_beyond(b, at->row, at->col + i)) w[i] = 0.0;
}
#endif
