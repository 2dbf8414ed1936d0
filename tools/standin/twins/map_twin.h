/* SPDX-License-Identifier: MIT
 * map_twin.h - runs map_body.h for every thread of every block; include it after that. Shared memory begins
 * as NaN in each block, so that no slot is read before it is written. */
#include <stdlib.h>
#include <string.h>

#include "tools/standin/twins/twins.h"

/* All that the pieces of a space reach of a tensor. */
static void map_twin_spread(const map_args *a, cuda_spread *s) {
  int64_t bytes = s->size;
  if (s->size == 0) return;
  for (int d = 0; d < CUDA_SPACE_DIMS; d++) {
    const int64_t dim = a->space.dims[d].by * (a->dense && d == MAP_LAST ? MAP_EACH : 1);
    bytes += (dim - 1) * s->strides[d] * (int64_t)s->size;
  }
  s->data = cuda_twin_memory(s->data, (uint64_t)bytes);
}

static void map_twin(const void *args, const cuda_twin_grid *grid) {
  map_args a = *(const map_args *)args;
  char *shared = aligned_alloc(MAP_BYTES, grid->shared + MAP_BYTES);
  if (shared == NULL) abort();
  for (uint32_t k = 0; k < a.n_in; k++) map_twin_spread(&a, &a.in[k]);
  for (uint32_t k = 0; k < a.n_out; k++) map_twin_spread(&a, &a.out[k]);
  for (uint32_t block = 0; block < grid->x; block++) {
    cuda_at at = {0, grid->threads, block, 0, 0};
    memset(shared, 0xff, grid->shared);
    for (at.thread = 0; at.thread < at.threads; at.thread++) map_thread(&a, shared, &at);
  }
  free(shared);
}
