/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/scaled_matmul_body.h"

#include <string.h>

#include "tools/standin/twins/twins.h"

/* Shared memory and what threads keep begin as NaN: nothing is read before it is written. */
static void run(const void *args, const cuda_twin_grid *grid) {
  scaled_matmul_args a = *(const scaled_matmul_args *)args;
  cuda_view *const views[] = {&a.x, &a.x_scales, &a.w, &a.w_scales, &a.bias, &a.base, &a.out};
  for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) cuda_twin_view(views[i]);
  for (uint32_t x = 0; x < grid->x; x++) {
    scaled_matmul_local local[CUDA_BLOCK];
    scaled_matmul_shared shared;
    cuda_at at = {.threads = grid->threads, .block_x = x};
    memset(&shared, 0xff, sizeof shared);
    memset(local, 0xff, sizeof local);
    for (at.thread = 0; at.thread < at.threads; at.thread++) scaled_matmul_add(&a, &local[at.thread], &at);
    for (at.thread = 0; at.thread < at.threads; at.thread++)
      scaled_matmul_put(&shared, &local[at.thread], &at);
    for (at.thread = 0; at.thread < at.threads; at.thread++) scaled_matmul_finish(&a, &shared, &at);
  }
}

const cuda_twin cuda_twin_scaled_matmul = {"scaled_matmul", run};
