/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/adamw_update_body.h"
#include "tools/standin/twins/twins.h"

static void run(const void *args, const cuda_twin_grid *grid) {
  adamw_update_args a = *(const adamw_update_args *)args;
  cuda_twin_view(&a.w);
  cuda_twin_view(&a.dw);
  cuda_twin_view(&a.m);
  cuda_twin_view(&a.v);
  a.hyper = cuda_twin_memory(a.hyper, 8 * sizeof *a.hyper);
  if (a.beyond.codes != NULL)
    a.beyond.codes = cuda_twin_memory(a.beyond.codes, (uint64_t)(a.w.rows * a.beyond.groups));
  for (int64_t t = 0; t < (int64_t)grid->x * grid->threads; t++) adamw_update_thread(&a, t);
}

const cuda_twin cuda_twin_adamw_update = {"adamw_update", run};
