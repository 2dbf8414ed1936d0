/* SPDX-License-Identifier: MIT
 * attention_kernel.h - the order of the steps of attention_body.h in its kernels,
 * ops/attention_TYPE_WIDTH.cu; tools/standin/twins/attention_twin.h is the same for the twins. */
#ifndef BS_PLUGIN_CUDA_ATTENTION_KERNEL_H
#define BS_PLUGIN_CUDA_ATTENTION_KERNEL_H
#include "attention_body.h"

/* A tile is multiplied while the next stages - 1 arrive. With several stages one barrier a tile is enough:
 * after it all threads have multiplied the previous tile, whose place is then filled. */
static __device__ __forceinline__ void attention_work(const attention_args *a, cuda_shared shared,
                                                      attention_local *local, const cuda_at *at,
                                                      uint32_t index) {
  cuda_async async;
  const attention_item item = attention_item_at(a, at, index);
  const int32_t ahead = (int32_t)a->stages - 1;
  cuda_async_start(&async);
  attention_begin(a, local);
  attention_fetch_q(a, shared, &async, at, &item);
  for (int32_t tile = item.begin; tile < item.begin + ahead; tile++)
    attention_fetch(a, shared, &async, at, &item, tile);
  for (int32_t tile = item.begin; tile < item.end; tile++) {
    if (ahead == 0) {
      __syncthreads();
      attention_fetch(a, shared, &async, at, &item, tile);
    }
    cuda_async_wait(&async, ahead > 0 ? (uint32_t)ahead - 1 : 0);
    __syncthreads();
    if (ahead > 0) attention_fetch(a, shared, &async, at, &item, tile + ahead);
    attention_tile(a, shared, local, at, &item, tile);
  }
  cuda_async_finish(&async);
  attention_finish(a, local, at, &item);
}

static __device__ __forceinline__ void attention_run(const attention_args *a) {
  extern __shared__ __align__(128) char attention_shared[];
  attention_local local;
  const cuda_shared shared = cuda_shared_of(attention_shared);
  const cuda_at at = cuda_here();
  if (a->persistent == 0) {
    attention_work(a, shared, &local, &at, 0);
    return;
  }
  for (uint32_t index = blockIdx.x; index < a->items; index += gridDim.x) {
    attention_work(a, shared, &local, &at, index);
    __syncthreads(); /* the last tile is read by all */
  }
}
#endif
