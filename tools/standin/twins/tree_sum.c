/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/tree_sum_body.h"
#include "tools/standin/twins/twins.h"

static void run(const void *args, const cuda_twin_grid *grid) {
  tree_sum_args a = *(const tree_sum_args *)args;
  cuda_twin_view(&a.in);
  cuda_twin_view(&a.out);
  for (int64_t t = 0; t < (int64_t)grid->x * grid->threads; t++) tree_sum_thread(&a, t);
}

const cuda_twin cuda_twin_tree_sum = {"tree_sum", run};
