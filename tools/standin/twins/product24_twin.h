/* SPDX-License-Identifier: MIT
 * product24_twin.h - as product_twin.h, for product24_body.h. */
#include <string.h>

#include "tools/standin/twins/twins.h"

static void product24_args_here(product24_args *a) {
  const int64_t rows = a->form == PRODUCT24_OUT    ? a->p.rows
                       : a->form == PRODUCT24_ROWS ? a->p.cols
                                                   : a->p.depth;
  cuda_twin_view(&a->p.a.at);
  cuda_twin_view(&a->p.b.at);
  cuda_twin_view(&a->p.c);
  cuda_twin_view(&a->p.bias);
  cuda_twin_view(&a->p.residual);
  a->p.alpha = cuda_twin_memory(a->p.alpha, sizeof *a->p.alpha);
  a->codes = cuda_twin_memory(a->codes, (uint64_t)(rows * a->groups));
}

typedef struct product24_block {
  product24_shared shared;
  product24_local local[PRODUCT_THREADS];
} product24_block;

typedef void (*product24_step_fn)(const product24_args *a, product24_shared *s, product24_local *l,
                                  const cuda_at *at);

static void product24_all(const product24_args *a, product24_block *b, uint32_t block,
                          product24_step_fn step) {
  for (uint32_t t = 0; t < PRODUCT_THREADS; t++) {
    const cuda_at at = {t, PRODUCT_THREADS, block, 0, 0};
    step(a, &b->shared, &b->local[t], &at);
  }
}

static void product24_twin(const void *args, const cuda_twin_grid *grid) {
  product24_args a = *(const product24_args *)args;
  _Alignas(16) product24_block b; /* as the shared memory of a block is */
  product24_args_here(&a);
  for (uint32_t block = 0; block < grid->x; block++) {
    memset(&b, 0xff, sizeof b);
    product24_all(&a, &b, block, product24_start);
    for (int64_t stage = 0; stage < product_stages(&a.p); stage++) {
      product24_all(&a, &b, block, product24_put);
      for (uint32_t t = 0; t < PRODUCT_THREADS; t++) {
        const cuda_at at = {t, PRODUCT_THREADS, block, 0, 0};
        product24_multiply(&a, &b.shared, &b.local[t], &at, stage);
      }
    }
    product24_all(&a, &b, block, product24_keep);
    product24_all(&a, &b, block, product24_finish);
  }
}
