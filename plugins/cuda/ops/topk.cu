/* SPDX-License-Identifier: MIT */
#include "topk_body.h"

CUDA_KERNEL void __launch_bounds__(TOPK_THREADS, 2) topk(const __grid_constant__ topk_args args) {
  extern __shared__ uint64_t topk_words[];
  const cuda_at at = cuda_here();
  const topk_line line = topk_start(&args, &at);
  topk_load(&args, topk_words, &line, &at);
  __syncthreads();
  CUDA_ROLL
  for (uint32_t run = 2; run <= args.words; run *= 2) {
    CUDA_ROLL
    for (uint32_t apart = run / 2; apart > 0; apart /= 2) {
      topk_step(&args, topk_words, &at, run, apart);
      __syncthreads();
    }
  }
  topk_write(&args, topk_words, &line, &at);
}
