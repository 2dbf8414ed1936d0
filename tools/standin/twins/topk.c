/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/topk_body.h"

#include <stdlib.h>
#include <string.h>

#include "tools/standin/twins/twins.h"

static void spread_here(const topk_args *a, cuda_spread *v, int64_t along, uint32_t count) {
  int64_t last = ((int64_t)count - 1) * along;
  for (int d = 0; d < CUDA_SPACE_DIMS; d++) last += (a->lines.dims[d].by - 1) * v->strides[d];
  v->data = cuda_twin_memory(v->data, (uint64_t)(last + 1) * v->size);
}

static void block(const topk_args *a, uint64_t *words, cuda_at at) {
  const topk_line line = topk_start(a, &at);
  for (at.thread = 0; at.thread < at.threads; at.thread++) topk_load(a, words, &line, &at);
  for (uint32_t run = 2; run <= a->words; run *= 2)
    for (uint32_t apart = run / 2; apart > 0; apart /= 2)
      for (at.thread = 0; at.thread < at.threads; at.thread++) topk_step(a, words, &at, run, apart);
  for (at.thread = 0; at.thread < at.threads; at.thread++) topk_write(a, words, &line, &at);
}

static void run(const void *args, const cuda_twin_grid *grid) {
  topk_args a = *(const topk_args *)args;
  cuda_at at = {.threads = grid->threads};
  uint64_t *words = malloc(grid->shared);
  if (words == NULL) abort();
  spread_here(&a, &a.in, a.in_along, a.n);
  spread_here(&a, &a.values, a.values_along, a.k);
  spread_here(&a, &a.indices, a.indices_along, a.k);
  for (at.block_x = 0; at.block_x < grid->x; at.block_x++) {
    memset(words, 0x55, grid->shared);
    block(&a, words, at);
  }
  free(words);
}

const cuda_twin cuda_twin_topk = {"topk", run};
