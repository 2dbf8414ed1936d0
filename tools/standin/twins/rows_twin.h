/* SPDX-License-Identifier: MIT
 * rows_twin.h - runs the steps of rows_body.h for every thread of every block; include it after that. Shared
 * memory and the values of threads begin as NaN, so that nothing is read before it is written. */
#include <stdlib.h>
#include <string.h>

#include "tools/standin/twins/twins.h"

typedef struct rows_block_memory {
  rows_shared shared;
  rows_local local[ROWS_THREADS];
} rows_block_memory;

static void rows_twin(const void *args, const cuda_twin_grid *grid) {
  rows_args a = *(const rows_args *)args;
  rows_block_memory *m = malloc(sizeof *m);
  if (m == NULL) abort();
  cuda_twin_view(&a.p.a.at);
  cuda_twin_view(&a.p.b.at);
  cuda_twin_view(&a.p.c);
  cuda_twin_view(&a.p.bias);
  cuda_twin_view(&a.p.residual);
  for (uint32_t block = 0; block < grid->x; block++) {
    cuda_at at = {0, ROWS_THREADS, block, 0, 0};
    memset(m, 0xff, sizeof *m);
    for (at.thread = 0; at.thread < ROWS_THREADS; at.thread++) rows_add(&a, &m->local[at.thread], &at);
    for (int pass = 0; pass < ROWS_MOST / 4 && 4 * pass < a.p.rows; pass++) {
      for (at.thread = 0; at.thread < ROWS_THREADS; at.thread++)
        rows_put(&m->shared, &m->local[at.thread], &at, pass);
      for (at.thread = 0; at.thread < ROWS_THREADS; at.thread++) rows_fold(&m->shared, &at);
      for (at.thread = 0; at.thread < ROWS_THREADS; at.thread++) rows_finish(&a, &m->shared, &at, pass);
    }
  }
  free(m);
}
