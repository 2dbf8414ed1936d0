/* SPDX-License-Identifier: MIT
 * loss_gradient_body.h - a loss of outputs and its gradient, token by token, in f64: docs/ops.md. A block
 * makes one token: its threads take every 256th output, and are added in one order. In steps (kernel.h): add,
 * then halves of the threads, finish. */
#ifndef BS_PLUGIN_CUDA_LOSS_GRADIENT_BODY_H
#define BS_PLUGIN_CUDA_LOSS_GRADIENT_BODY_H
#include "walk.h"

typedef struct loss_gradient_args {
  cuda_view y, target, dy, loss; /* target may be absent; dy may be y */
  double factor;                 /* of y - target */
  uint32_t sum;                  /* 1: the loss is the sum of y, whose gradient is 1 */
  uint32_t reserved;
} loss_gradient_args;

typedef struct loss_gradient_shared {
  double sums[CUDA_BLOCK];
} loss_gradient_shared;

CUDA_FN void loss_gradient_add(const loss_gradient_args *a, loss_gradient_shared *s, const cuda_at *at) {
  const int64_t row = at->block_x;
  double sum = 0.0;
  CUDA_ROLL
  for (int64_t c = at->thread; c < a->y.cols; c += CUDA_BLOCK) {
    const double y = cuda_load_f64(a->y.dtype, cuda_element(&a->y, row, c), 0);
    double d = y;
    if (a->target.data != 0) d = y - cuda_load_f64(a->target.dtype, cuda_element(&a->target, row, c), 0);
    const double square = d * d;
    sum += a->sum != 0 ? y : square;
    cuda_store_f64(a->dy.dtype, cuda_element(&a->dy, row, c), 0, a->sum != 0 ? 1.0 : d * a->factor);
  }
  s->sums[at->thread] = sum;
}

/* Adds to the sums of `half` threads those of the next `half` threads. */
CUDA_FN void loss_gradient_fold(loss_gradient_shared *s, const cuda_at *at, uint32_t half) {
  if (at->thread < half) s->sums[at->thread] += s->sums[at->thread + half];
}

CUDA_FN void loss_gradient_finish(const loss_gradient_args *a, const loss_gradient_shared *s,
                                  const cuda_at *at) {
  if (at->thread == 0) *(double *)(void *)cuda_element(&a->loss, at->block_x, 0) = s->sums[0];
}
#endif
