/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/ranks_reduce_body.h"
#include "tools/standin/twins/twins.h"

static void locate(const cuda_walk *walk, cuda_rank_rows *rows, uint32_t n, uint32_t dtype) {
  for (uint32_t r = 0; r < n; r++) {
    cuda_view view = {.data = rows[r].data,
                      .rows = walk->rows,
                      .cols = walk->vectors * walk->width + walk->tail,
                      .row = rows[r].row,
                      .col = 1,
                      .dtype = dtype,
                      .size = BS_DTYPE_BYTES(dtype)};
    cuda_twin_view(&view);
    rows[r].data = view.data;
  }
}

static void run(const void *args, const cuda_twin_grid *grid) {
  ranks_reduce_args a = *(const ranks_reduce_args *)args;
  locate(&a.walk, a.in, a.n_in, a.dtype_in);
  locate(&a.walk, a.out, a.n_out, a.dtype_out);
  for (int64_t t = 0; t < (int64_t)grid->x * grid->threads; t++) ranks_reduce_thread(&a, t);
}

const cuda_twin cuda_twin_ranks_reduce = {"ranks_reduce", run};
