/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/attention_row.h"

#include "tools/standin/twins/attention_args.h"

static void run(const void *args, const cuda_twin_grid *grid) {
  attention_args a = *(const attention_args *)args;
  cuda_at at = {.threads = grid->threads};
  attention_args_here(&a);
  for (at.block_z = 0; at.block_z < grid->z; at.block_z++)
    for (at.block_y = 0; at.block_y < grid->y; at.block_y++)
      for (at.block_x = 0; at.block_x < grid->x; at.block_x++)
        for (at.thread = 0; at.thread < at.threads; at.thread += CUDA_WARP) attention_row_here(&a, &at);
}

const cuda_twin cuda_twin_attention_rows = {"attention_rows", run};
