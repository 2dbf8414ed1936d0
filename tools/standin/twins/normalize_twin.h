/* SPDX-License-Identifier: MIT
 * normalize_twin.h - runs the steps of normalize_block_body.h for every thread of every block; include it
 * after that. Shared memory begins as NaN, so that nothing is read before it is written. */
#include <string.h>

#include "tools/standin/twins/spread_twin.h"

static void normalize_twin_block(const normalize_args *a, cuda_at at) {
  normalize_shared s;
  normalize_local l[CUDA_BLOCK];
  memset(&s, 0xff, sizeof s);
  for (at.thread = 0; at.thread < CUDA_BLOCK; at.thread++) normalize_block_begin(a, &l[at.thread], &at);
  while (l[0].known.stage != NORMALIZE_WRITE) {
    for (at.thread = 0; at.thread < CUDA_BLOCK; at.thread++)
      normalize_block_measure(a, &s, &l[at.thread], &at);
    for (uint32_t half = CUDA_BLOCK / 2; half > 0; half /= 2)
      for (at.thread = 0; at.thread < CUDA_BLOCK; at.thread++)
        normalize_block_fold(&s, &l[at.thread], &at, half);
    for (at.thread = 0; at.thread < CUDA_BLOCK; at.thread++) normalize_block_next(a, &s, &l[at.thread]);
  }
  for (at.thread = 0; at.thread < CUDA_BLOCK; at.thread++) normalize_block_write(a, &l[at.thread], &at);
}

static void normalize_twin(const void *args, const cuda_twin_grid *grid) {
  normalize_args a = *(const normalize_args *)args;
  for (int i = 0; i < NORMALIZE_ARGS; i++) spread_here(&a.args[i], &a.space);
  for (uint32_t x = 0; x < grid->x; x++)
    normalize_twin_block(&a, (cuda_at){.threads = grid->threads, .block_x = x});
}
