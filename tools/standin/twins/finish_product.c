/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/finish_product_body.h"
#include "tools/standin/twins/twins.h"

static void run(const void *args, const cuda_twin_grid *grid) {
  finish_product_args a = *(const finish_product_args *)args;
  cuda_twin_view(&a.sums);
  cuda_twin_view(&a.bias);
  cuda_twin_view(&a.residual);
  cuda_twin_view(&a.out);
  for (int64_t t = 0; t < (int64_t)grid->x * grid->threads; t++) finish_product_thread(&a, t);
}

const cuda_twin cuda_twin_finish_product = {"finish_product", run};
