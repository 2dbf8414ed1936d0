/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/scatter_columns_body.h"
#include "tools/standin/twins/twins.h"

static void run(const void *args, const cuda_twin_grid *grid) {
  scatter_columns_args a = *(const scatter_columns_args *)args;
  cuda_twin_view(&a.full);
  cuda_twin_view(&a.kept);
  a.list = cuda_twin_memory(a.list, (uint64_t)a.kept.cols * sizeof *a.list);
  for (int64_t t = 0; t < (int64_t)grid->x * grid->threads; t++) scatter_columns_thread(&a, t);
}

const cuda_twin cuda_twin_scatter_columns = {"scatter_columns", run};
