/* SPDX-License-Identifier: MIT
 * space.c - see space.h: the host lays tensors over a space. */
#include "space.h"

#include "ops.h"

cuda_spread cuda_spread_of(const bs_tensor *t, uint32_t rank, const int64_t *dims) {
  cuda_spread out;
  memset(&out, 0, sizeof out);
  if (t == NULL) return out;
  out.data = t->data;
  out.dtype = t->dtype;
  out.size = BS_DTYPE_BYTES(t->dtype);
  for (uint32_t k = 0; k < t->rank && k < rank; k++) {
    const uint32_t from = t->rank - 1 - k, to = rank - 1 - k;
    out.strides[to] = t->dims[from] == 1 && dims[to] != 1 ? 0 : t->strides[from];
  }
  return out;
}

/* Dim d follows dim d - 1 without a gap in all of them. */
static int in_a_row(const cuda_spread *spreads, uint32_t n, uint32_t outer, uint32_t inner, int64_t size) {
  for (uint32_t i = 0; i < n; i++)
    if (spreads[i].data != NULL && spreads[i].strides[outer] != spreads[i].strides[inner] * size) return 0;
  return 1;
}

static void move_dim(cuda_spread *spreads, uint32_t n, uint32_t from, uint32_t to) {
  for (uint32_t i = 0; i < n && from != to; i++) {
    spreads[i].strides[to] = spreads[i].strides[from];
    spreads[i].strides[from] = 0;
  }
}

void cuda_space_make(uint32_t rank, const int64_t *dims, uint32_t keep, cuda_spread *io, uint32_t n,
                     cuda_space *out) {
  int64_t size[CUDA_SPACE_DIMS];
  uint32_t at = CUDA_SPACE_DIMS; /* the first place that is taken */
  memset(out, 0, sizeof *out);
  out->count = 1;
  for (uint32_t d = 0; d < CUDA_SPACE_DIMS; d++) size[d] = 1;
  for (uint32_t i = 0; i < n; i++) { /* to the last places */
    for (uint32_t k = 0; k < rank; k++) {
      const uint32_t from = rank - 1 - k, to = CUDA_SPACE_DIMS - 1 - k;
      const int64_t stride = io[i].strides[from];
      io[i].strides[from] = 0;
      io[i].strides[to] = stride;
    }
  }
  for (uint32_t k = 0; k < rank; k++) {
    const uint32_t from = CUDA_SPACE_DIMS - 1 - k;
    const int64_t dim = dims[rank - 1 - k];
    out->count *= dim;
    if (k < keep) {
      size[from] = dim;
      at = from;
      continue;
    }
    if (dim == 1) continue;
    const int joins = at < CUDA_SPACE_DIMS - keep && in_a_row(io, n, from, at, size[at]);
    if (joins) {
      size[at] *= dim;
      for (uint32_t i = 0; i < n; i++) io[i].strides[from] = 0;
      continue;
    }
    move_dim(io, n, from, --at);
    size[at] = dim;
  }
  for (uint32_t i = 0; i < n; i++) /* of dims of 1 nothing is left */
    for (uint32_t d = 0; d < CUDA_SPACE_DIMS; d++)
      if (d < at || size[d] == 1) io[i].strides[d] = 0;
  out->first = at < CUDA_SPACE_DIMS ? at : CUDA_SPACE_DIMS - 1;
  for (uint32_t d = 0; d < CUDA_SPACE_DIMS; d++) out->dims[d] = cuda_divisor_make(size[d] > 0 ? size[d] : 1);
}
