/* SPDX-License-Identifier: MIT
 * attention_twin.h - runs the steps of attention_body.h in the order of attention_kernel.h; include it after
 * ATTENTION_WIDTH and ATTENTION_BF16 are defined. Shared memory and the values of warps begin as large
 * numbers, not as NaN: a query with a NaN would be computed again, and then right. */
#include <stdlib.h>
#include <string.h>

#include "plugins/cuda/ops/attention_body.h"
#include "tools/standin/twins/attention_args.h"

typedef struct attention_block {
  attention_args a;
  cuda_at at;
  attention_item item;
  attention_local warps[ATTENTION_THREADS / CUDA_WARP];
  cuda_async async[ATTENTION_THREADS];
  cuda_shared shared;
} attention_block;

static void attention_fetch_all(attention_block *b, int32_t tile) {
  for (b->at.thread = 0; b->at.thread < b->at.threads; b->at.thread++)
    attention_fetch(&b->a, b->shared, &b->async[b->at.thread], &b->at, &b->item, tile);
}

static void attention_tile_all(attention_block *b, int32_t tile) {
  for (b->at.thread = 0; b->at.thread < b->at.threads; b->at.thread += CUDA_WARP)
    attention_tile(&b->a, b->shared, &b->warps[b->at.thread / CUDA_WARP], &b->at, &b->item, tile);
}

static void attention_work(attention_block *b, uint32_t index, uint32_t bytes) {
  const int32_t ahead = (int32_t)b->a.stages - 1;
  b->item = attention_item_at(&b->a, &b->at, index);
  memset(b->warps, 0x44, sizeof b->warps);
  memset(b->shared, 0x44, bytes);
  for (uint32_t t = 0; t < b->at.threads; t++) {
    b->at.thread = t;
    cuda_async_start(&b->async[t]);
    if (t % CUDA_WARP == 0) attention_begin(&b->a, &b->warps[t / CUDA_WARP]);
    attention_fetch_q(&b->a, b->shared, &b->async[t], &b->at, &b->item);
  }
  for (int32_t tile = b->item.begin; tile < b->item.begin + ahead; tile++) attention_fetch_all(b, tile);
  for (int32_t tile = b->item.begin; tile < b->item.end; tile++) {
    if (ahead == 0) attention_fetch_all(b, tile);
    for (uint32_t t = 0; t < b->at.threads; t++)
      cuda_async_wait(&b->async[t], ahead > 0 ? (uint32_t)ahead - 1 : 0);
    if (ahead > 0) attention_fetch_all(b, tile + ahead);
    attention_tile_all(b, tile);
  }
  for (uint32_t t = 0; t < b->at.threads; t++) cuda_async_finish(&b->async[t]);
  for (b->at.thread = 0; b->at.thread < b->at.threads; b->at.thread += CUDA_WARP)
    attention_finish(&b->a, &b->warps[b->at.thread / CUDA_WARP], &b->at, &b->item);
}

static void attention_twin(const void *args, const cuda_twin_grid *grid) {
  attention_block *b = calloc(1, sizeof *b);
  if (b == NULL) abort();
  b->a = *(const attention_args *)args;
  b->shared = aligned_alloc(128, (grid->shared + 127u) / 128u * 128u);
  if (b->shared == NULL) abort();
  attention_args_here(&b->a);
  b->at.threads = grid->threads;
  for (uint32_t z = 0; z < grid->z; z++)
    for (uint32_t y = 0; y < grid->y; y++)
      for (uint32_t x = 0; x < grid->x; x++) {
        b->at.block_x = x;
        b->at.block_y = y;
        b->at.block_z = z;
        if (b->a.persistent == 0) attention_work(b, 0, grid->shared);
        for (uint32_t index = x; b->a.persistent != 0 && index < b->a.items; index += grid->x)
          attention_work(b, index, grid->shared);
      }
  free(b->shared);
  free(b);
}
