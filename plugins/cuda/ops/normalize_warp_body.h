/* SPDX-License-Identifier: MIT
 * normalize_warp_body.h - a warp a row, for short rows: sums are those of the lanes' sums, and no memory is
 * shared. */
#ifndef BS_PLUGIN_CUDA_NORMALIZE_WARP_BODY_H
#define BS_PLUGIN_CUDA_NORMALIZE_WARP_BODY_H
#include "normalize_f32.h"
/**/
#include "normalize_body.h"

CUDA_FN normalize_found normalize_warp_join(int32_t stage, float *first, float *second) {
  float other[2][CUDA_LANES];
  CUDA_UNROLL
  for (uint32_t mask = 1; mask < CUDA_WARP; mask *= 2) {
    cuda_shuffle_xor(first, other[0], mask);
    cuda_shuffle_xor(second, other[1], mask);
    for (int l = 0; l < CUDA_LANES; l++) {
      const normalize_found mine = {first[l], second[l]}, its = {other[0][l], other[1][l]};
      const normalize_found both = normalize_join(stage, &mine, &its);
      first[l] = both.first;
      second[l] = both.second;
    }
  }
  return (normalize_found){first[0], second[0]}; /* alike in all lanes */
}

/* A step of a warp. */
CUDA_FN void normalize_warp_row(const normalize_args *a, const cuda_at *at) {
  const int64_t row = (int64_t)at->block_x * NORMALIZE_WARPS + at->thread / CUDA_WARP;
  const int64_t step = CUDA_WARP * NORMALIZE_PIECE;
  if (row >= a->rows) return;
  const normalize_row r = normalize_row_at(a, row);
  normalize_known k = normalize_begin(a);
  CUDA_ROLL
  while (k.stage != NORMALIZE_WRITE) {
    float first[CUDA_LANES], second[CUDA_LANES];
    for (int l = 0; l < CUDA_LANES; l++) {
      const normalize_found f =
          normalize_measure(a, &r, &k, (int64_t)CUDA_LANE(at, l) * NORMALIZE_PIECE, step);
      first[l] = f.first;
      second[l] = f.second;
    }
    const normalize_found all = normalize_warp_join(k.stage, first, second);
    normalize_next(a, &k, &all);
  }
  for (int l = 0; l < CUDA_LANES; l++)
    normalize_write(a, &r, &k, (int64_t)CUDA_LANE(at, l) * NORMALIZE_PIECE, step);
}
#endif
