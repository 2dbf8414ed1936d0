/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/take_body.h"
/**/
#include "tools/standin/twins/indexed_twin.h"

static void run(const void *args, const cuda_twin_grid *grid) {
  take_args a = *(const take_args *)args;
  indexed_args_here(&a);
  for (int64_t t = 0; t < (int64_t)grid->x * grid->threads; t++) take_thread(&a, t);
}

const cuda_twin cuda_twin_take = {"take", run};
