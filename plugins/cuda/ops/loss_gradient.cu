/* SPDX-License-Identifier: MIT */
#include "loss_gradient_body.h"

CUDA_KERNEL void CUDA_BLOCK_BOUNDS loss_gradient(const __grid_constant__ loss_gradient_args args) {
  __shared__ loss_gradient_shared shared;
  const cuda_at at = cuda_here();
  loss_gradient_add(&args, &shared, &at);
  for (uint32_t half = CUDA_BLOCK / 2; half > 0; half /= 2) {
    __syncthreads();
    loss_gradient_fold(&shared, &at, half);
  }
  loss_gradient_finish(&args, &shared, &at);
}
