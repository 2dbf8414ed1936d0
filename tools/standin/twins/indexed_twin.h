/* SPDX-License-Identifier: MIT
 * indexed_twin.h - the device pointers of indexed_args as the host's. */
#ifndef BS_STANDIN_TWINS_INDEXED_TWIN_H
#define BS_STANDIN_TWINS_INDEXED_TWIN_H
#include "plugins/cuda/ops/indexed_body.h"
#include "tools/standin/twins/twins.h"

/* `more`: elements that the index reaches beyond the walk. */
static inline void indexed_spread_here(const indexed_args *a, cuda_spread *v, int64_t more) {
  int64_t last = more;
  for (int d = 0; d < CUDA_SPACE_DIMS; d++) last += (a->space.dims[d].by - 1) * v->strides[d];
  v->data = cuda_twin_memory(v->data, (uint64_t)(last + 1) * v->size);
}

static inline void indexed_args_here(indexed_args *a) {
  int64_t named = 0;
  for (uint32_t c = 0; c < a->tuple; c++) named += (a->sizes[c] - 1) * a->along[c];
  indexed_spread_here(a, &a->large, named);
  indexed_spread_here(a, &a->small, 0);
  if (a->tuple > 0) indexed_spread_here(a, &a->index, (int64_t)(a->tuple - 1) * a->step);
}
#endif
