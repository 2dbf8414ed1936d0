/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/activate_body.h"
#include "tools/standin/twins/twins.h"

static void run(const void *args, const cuda_twin_grid *grid) {
  activate_args a = *(const activate_args *)args;
  cuda_twin_view(&a.in);
  cuda_twin_view(&a.out);
  for (int64_t t = 0; t < (int64_t)grid->x * grid->threads; t++) activate_thread(&a, t);
}

const cuda_twin cuda_twin_activate = {"activate", run};
