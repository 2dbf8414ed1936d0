/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/put_fold_body.h"
/**/
#include "tools/standin/twins/indexed_twin.h"

static void run(const void *args, const cuda_twin_grid *grid) {
  put_args a = *(const put_args *)args;
  indexed_args_here(&a.in);
  for (int64_t t = 0; t < (int64_t)grid->x * grid->threads; t++) put_fold_thread(&a, t);
}

const cuda_twin cuda_twin_put_fold = {"put_fold", run};
