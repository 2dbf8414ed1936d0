/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/normalize_warp_body.h"

#include "tools/standin/twins/spread_twin.h"

static void run(const void *args, const cuda_twin_grid *grid) {
  normalize_args a = *(const normalize_args *)args;
  cuda_at at = {.threads = grid->threads};
  for (int i = 0; i < NORMALIZE_ARGS; i++) spread_here(&a.args[i], &a.space);
  for (at.block_x = 0; at.block_x < grid->x; at.block_x++)
    for (at.thread = 0; at.thread < at.threads; at.thread += CUDA_WARP) normalize_warp_row(&a, &at);
}

const cuda_twin cuda_twin_normalize_warp = {"normalize_warp", run};
