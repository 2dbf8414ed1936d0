/* SPDX-License-Identifier: MIT */
#include "plugins/cuda/ops/loss_gradient_body.h"

#include <string.h>

#include "tools/standin/twins/twins.h"

static void run(const void *args, const cuda_twin_grid *grid) {
  loss_gradient_args a = *(const loss_gradient_args *)args;
  cuda_twin_view(&a.y);
  cuda_twin_view(&a.target);
  cuda_twin_view(&a.dy);
  cuda_twin_view(&a.loss);
  for (uint32_t x = 0; x < grid->x; x++) {
    loss_gradient_shared shared;
    cuda_at at = {.threads = grid->threads, .block_x = x};
    memset(&shared, 0xff, sizeof shared); /* NaN */
    for (at.thread = 0; at.thread < at.threads; at.thread++) loss_gradient_add(&a, &shared, &at);
    for (uint32_t half = CUDA_BLOCK / 2; half > 0; half /= 2)
      for (at.thread = 0; at.thread < at.threads; at.thread++) loss_gradient_fold(&shared, &at, half);
    for (at.thread = 0; at.thread < at.threads; at.thread++) loss_gradient_finish(&a, &shared, &at);
  }
}

const cuda_twin cuda_twin_loss_gradient = {"loss_gradient", run};
