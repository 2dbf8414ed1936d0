/* SPDX-License-Identifier: MIT
 * spread_twin.h - the device pointer of a cuda_spread as the host's, for all that the space reaches. */
#ifndef BS_STANDIN_TWINS_SPREAD_TWIN_H
#define BS_STANDIN_TWINS_SPREAD_TWIN_H
#include "plugins/cuda/ops/space.h"
#include "tools/standin/twins/twins.h"

/* Each element of the space is the first of a line, which goes on for `places` of `step`. */
static inline void spread_lines_here(cuda_spread *v, const cuda_space *space, int64_t places, int64_t step) {
  uint64_t last = (uint64_t)places * (uint64_t)step;
  for (uint32_t d = space->first; d < CUDA_SPACE_DIMS; d++)
    last += (uint64_t)(space->dims[d].by - 1) * (uint64_t)v->strides[d];
  if (v->data != NULL) v->data = cuda_twin_memory(v->data, (last + 1) * v->size);
}

static inline void spread_here(cuda_spread *v, const cuda_space *space) {
  spread_lines_here(v, space, 0, 0);
}
#endif
