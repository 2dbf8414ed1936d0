/* SPDX-License-Identifier: MIT
 * kernel.h - what every kernel's body is written with. A body (ops/NAME_body.h) is compiled twice: by nvcc
 * into the kernel of ops/NAME.cu, and by a C compiler into the CPU twin that the tests launch in its place
 * (tools/standin/twins), so that its index maths is run without a GPU.
 *
 * A kernel takes one struct by value, NAME_args. Bodies come in two forms:
 *   void NAME_thread(const NAME_args *a, int64_t t)      item t of a one-dimensional grid; threads share
 * nothing NAME_shared, NAME_local and steps                    blocks that share memory: see CUDA_STEPS below
 * No C++ beyond what C11 has, no libraries but <math.h>, no undefined behaviour on either side. */
#ifndef BS_PLUGIN_CUDA_KERNEL_H
#define BS_PLUGIN_CUDA_KERNEL_H
#include <math.h>
#include <stdint.h>

#include "blockshock/op.h"

#if defined(__CUDACC__)
#define CUDA_FN static __device__ __forceinline__
#define CUDA_KERNEL extern "C" __global__
#define CUDA_UNROLL _Pragma("unroll")
#define CUDA_ROLL _Pragma("unroll 1")
#else
#define CUDA_UNROLL /* the next loop has a constant count: its arrays stay in registers */
#define CUDA_ROLL   /* the next loop stays a loop: its body is long */
#define CUDA_FN static inline __attribute__((unused))
#endif

/* The position of a thread. */
typedef struct cuda_at {
  uint32_t thread;  /* in the block, 0 .. threads-1 */
  uint32_t threads; /* of a block */
  uint32_t block_x, block_y, block_z;
} cuda_at;

#if defined(__CUDACC__)
/* The item of a thread of a one-dimensional grid. */
static __device__ __forceinline__ int64_t cuda_item(void) {
  return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
static __device__ __forceinline__ cuda_at cuda_here(void) {
  cuda_at at;
  at.thread = threadIdx.x;
  at.threads = blockDim.x;
  at.block_x = blockIdx.x;
  at.block_y = blockIdx.y;
  at.block_z = blockIdx.z;
  return at;
}
#endif

/* CUDA_STEPS, by example: a body whose threads share memory is cut at its barriers into steps. Each step is a
 * function of (args, shared, local, at); `local` has a thread's values that outlive a barrier. The kernel
 * calls a step, __syncthreads(), the next; the twin calls a step for every thread of the block, then the
 * next. Loops around steps have the same count in every thread of a block, which only depends on args and the
 * block's place.
 *
 *   CUDA_FN void sum_load(const sum_args *a, sum_shared *s, sum_local *l, const cuda_at *at);
 *   CUDA_FN void sum_add (const sum_args *a, sum_shared *s, sum_local *l, const cuda_at *at); */

/* A matrix in device memory: element (r, c) of `dtype` at data + (r * row + c * col) * its size. data NULL:
 * an absent argument. Vectors are one row. */
typedef struct cuda_view {
  void *data;
  int64_t rows, cols;
  int64_t row, col; /* strides, in elements */
  uint32_t dtype;   /* enum bs_dtype */
  uint32_t size;    /* bytes of an element */
} cuda_view;

/* The columns of a partition on the device: list NULL means begin, begin + 1, ... */
typedef struct cuda_columns {
  const uint32_t *list;
  int64_t begin, count, total;
} cuda_columns;

CUDA_FN int64_t cuda_column(const cuda_columns *c, int64_t i) {
  return c->list != 0 ? (int64_t)c->list[i] : c->begin + i;
}

/* Kernels are compiled without contraction (-fmad=false): a product and a sum are only fused by this
 * function. The twin rounds twice instead, which the tolerance of such ops covers. */
CUDA_FN float cuda_fma_f32(float a, float b, float c) {
#if defined(__CUDACC__)
  return fmaf(a, b, c);
#else
  return a * b + c;
#endif
}
CUDA_FN double cuda_fma_f64(double a, double b, double c) {
#if defined(__CUDACC__)
  return fma(a, b, c);
#else
  return a * b + c;
#endif
}
#endif
