/* SPDX-License-Identifier: MIT
 * timing.h - finds the fastest of several ways to make a product: scratch memory and a clock, for the
 * libraries' choices of algorithms (cublaslt/choose.c, cusparselt/choose.c). */
#ifndef BS_PLUGIN_CUDA_TIMING_H
#define BS_PLUGIN_CUDA_TIMING_H
#include "ops.h"

enum { CUDA_STAGE_BLOCKS = 5 };

/* Matrices of random bytes: multipliers draw less power on zeros, and clocks would be too kind. */
typedef struct cuda_stage {
  const bs_exec *exec;
  const cuda_device *device;
  void *random; /* on the host */
  void *blocks[CUDA_STAGE_BLOCKS];
  uint32_t count;
  CUevent start, stop;
} cuda_stage;

/* Call cuda_stage_end after any result. */
int32_t cuda_stage_begin(cuda_stage *stage, const bs_exec *exec, bs_error *err);
/* Device memory of random bytes, the stage's; BS_NO_MEMORY. */
int32_t cuda_stage_block(cuda_stage *stage, uint64_t bytes, void **out_block, bs_error *err);
/* Milliseconds of a few calls of queue, which queues one product on the device's default stream, after one
 * untimed call that loads the kernel. *out_refused 1: this way does not work, which is not an error: *out_ms
 * stays negative. */
int32_t cuda_stage_time(const cuda_stage *stage,
                        int32_t (*queue)(const void *arg, int *out_refused, bs_error *err), const void *arg,
                        float *out_ms, bs_error *err);
void cuda_stage_end(cuda_stage *stage);
#endif
