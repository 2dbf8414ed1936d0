/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/dequantize_product_body.h"
#include "tools/standin/twins/twins.h"

static void run(const void *args, const cuda_twin_grid *grid) {
  dequantize_product_args a = *(const dequantize_product_args *)args;
  cuda_twin_view(&a.sums);
  cuda_twin_view(&a.rows);
  cuda_twin_view(&a.columns);
  cuda_twin_view(&a.bias);
  cuda_twin_view(&a.base);
  cuda_twin_view(&a.out);
  for (int64_t t = 0; t < (int64_t)grid->x * grid->threads; t++) dequantize_product_thread(&a, t);
}

const cuda_twin cuda_twin_dequantize_product = {"dequantize_product", run};
