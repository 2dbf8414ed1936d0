/* SPDX-License-Identifier: MIT
 * reduce_twin.h - runs the steps of reduce_body.h for every thread of every block; include it after that.
 * Shared memory begins as NaN, so that nothing is read before it is written. */
#include <string.h>

#include "tools/standin/twins/spread_twin.h"

static void reduce_twin_block(const reduce_args *a, cuda_at at) {
  reduce_shared s;
  memset(&s, 0xff, sizeof s);
  for (at.thread = 0; at.thread < CUDA_BLOCK; at.thread++) reduce_measure(a, &s, &at);
  for (uint32_t half = a->team / 2; half > 0; half /= 2)
    for (at.thread = 0; at.thread < CUDA_BLOCK; at.thread++) reduce_fold(a, &s, &at, half);
  for (at.thread = 0; at.thread < CUDA_BLOCK; at.thread++) reduce_write(a, &s, &at);
}

static void reduce_twin(const void *args, const cuda_twin_grid *grid) {
  reduce_args a = *(const reduce_args *)args;
  uint64_t last = 0; /* of what is folded to one element */
  for (uint32_t d = a.inner.first; d < CUDA_SPACE_DIMS; d++)
    last += (uint64_t)(a.inner.dims[d].by - 1) * (uint64_t)a.inside.strides[d];
  for (uint32_t d = a.outer.first; d < CUDA_SPACE_DIMS; d++)
    last += (uint64_t)(a.outer.dims[d].by - 1) * (uint64_t)a.in.strides[d];
  a.in.data = cuda_twin_memory(a.in.data, a.inner.count > 0 ? (last + 1) * a.in.size : 0);
  spread_here(&a.out, &a.outer);
  for (uint32_t x = 0; x < grid->x; x++)
    reduce_twin_block(&a, (cuda_at){.threads = grid->threads, .block_x = x});
}
