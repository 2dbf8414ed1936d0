/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/expand24_body.h"
#include "tools/standin/twins/twins.h"

static void run(const void *args, const cuda_twin_grid *grid) {
  expand24_args a = *(const expand24_args *)args;
  cuda_twin_view(&a.values);
  cuda_twin_view(&a.out);
  a.codes = cuda_twin_memory(a.codes, (uint64_t)a.items);
  for (int64_t t = 0; t < (int64_t)grid->x * grid->threads; t++) expand24_thread(&a, t);
}

const cuda_twin cuda_twin_expand24 = {"expand24", run};
