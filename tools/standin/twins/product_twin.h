/* SPDX-License-Identifier: MIT
 * product_twin.h - runs the steps of product_body.h for every thread of every block; include it after that.
 * Shared memory and the values of threads begin as NaN, so that nothing is read before it is written. */
#include <string.h>

#include "tools/standin/twins/twins.h"

static void product_args_here(product_args *a) {
  const int64_t listed = a->picks == PRODUCT_PICKS_A_DEPTH ? a->depth : a->cols;
  cuda_twin_view(&a->a.at);
  cuda_twin_view(&a->b.at);
  cuda_twin_view(&a->c);
  cuda_twin_view(&a->bias);
  cuda_twin_view(&a->residual);
  a->list = cuda_twin_memory(a->list, (uint64_t)listed * sizeof *a->list);
  a->alpha = cuda_twin_memory(a->alpha, sizeof *a->alpha);
}

typedef struct product_block {
  product_shared shared;
  product_local local[PRODUCT_THREADS];
} product_block;

typedef void (*product_step_fn)(const product_args *a, product_shared *s, product_local *l,
                                const cuda_at *at);

static void product_all(const product_args *a, product_block *b, uint32_t block, product_step_fn step) {
  for (uint32_t t = 0; t < PRODUCT_THREADS; t++) {
    const cuda_at at = {t, PRODUCT_THREADS, block, 0, 0};
    step(a, &b->shared, &b->local[t], &at);
  }
}

static void product_twin(const void *args, const cuda_twin_grid *grid) {
  product_args a = *(const product_args *)args;
  _Alignas(16) product_block b; /* as the shared memory of a block is */
  product_args_here(&a);
  for (uint32_t block = 0; block < grid->x; block++) {
    memset(&b, 0xff, sizeof b);
    product_all(&a, &b, block, product_start);
    for (int64_t stage = 0; stage < product_stages(&a); stage++) {
      product_all(&a, &b, block, product_put);
      for (uint32_t t = 0; t < PRODUCT_THREADS; t++) {
        const cuda_at at = {t, PRODUCT_THREADS, block, 0, 0};
        product_multiply(&a, &b.shared, &b.local[t], &at, stage);
      }
    }
    product_all(&a, &b, block, product_keep);
    product_all(&a, &b, block, product_finish);
  }
}
