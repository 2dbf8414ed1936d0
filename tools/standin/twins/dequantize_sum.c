/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/dequantize_sum_body.h"
#include "tools/standin/twins/twins.h"

static void run(const void *args, const cuda_twin_grid *grid) {
  dequantize_sum_args a = *(const dequantize_sum_args *)args;
  cuda_twin_view(&a.q);
  cuda_twin_view(&a.scales);
  cuda_twin_view(&a.out);
  for (int64_t t = 0; t < (int64_t)grid->x * grid->threads; t++) dequantize_sum_thread(&a, t);
}

const cuda_twin cuda_twin_dequantize_sum = {"dequantize_sum", run};
