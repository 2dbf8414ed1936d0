/* SPDX-License-Identifier: MIT */
#include "scaled_matmul_body.h"

/* Three blocks a multiprocessor: w's next piece is held together with this one, and four would spill on
 * sm_100. */
CUDA_KERNEL void __launch_bounds__(CUDA_BLOCK, 3)
    scaled_matmul(const __grid_constant__ scaled_matmul_args args) {
  __shared__ scaled_matmul_shared shared;
  scaled_matmul_local local;
  const cuda_at at = cuda_here();
  scaled_matmul_add(&args, &local, &at);
  scaled_matmul_put(&shared, &local, &at);
  __syncthreads();
  scaled_matmul_finish(&args, &shared, &at);
}
