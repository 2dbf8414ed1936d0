/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/activate_dx_body.h"
#include "tools/standin/twins/twins.h"

static void run(const void *args, const cuda_twin_grid *grid) {
  activate_dx_args a = *(const activate_dx_args *)args;
  cuda_twin_view(&a.dy);
  cuda_twin_view(&a.z);
  cuda_twin_view(&a.dz);
  for (int64_t t = 0; t < (int64_t)grid->x * grid->threads; t++) activate_dx_thread(&a, t);
}

const cuda_twin cuda_twin_activate_dx = {"activate_dx", run};
