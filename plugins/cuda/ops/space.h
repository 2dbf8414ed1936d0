/* SPDX-License-Identifier: MIT
 * space.h - tensors of up to six dims in the kernels of the ops of graphs. A space is what a kernel walks:
 * its dims, brought into the form that needs the fewest divisions. Each tensor is spread over it: a stride a
 * dim of the space, 0 where the tensor repeats. space.c has the host side. */
#ifndef BS_PLUGIN_CUDA_SPACE_H
#define BS_PLUGIN_CUDA_SPACE_H
#include "walk.h"

enum { CUDA_SPACE_DIMS = BS_MAX_DIMS };

/* data NULL: an absent argument. */
typedef struct cuda_spread {
  void *data;
  int64_t strides[CUDA_SPACE_DIMS]; /* in elements, of the space's dims */
  uint32_t dtype;                   /* enum bs_dtype */
  uint32_t size;                    /* bytes of an element */
} cuda_spread;

/* The dims end at the last place; those before `first` are 1. */
typedef struct cuda_space {
  int64_t count; /* elements */
  cuda_divisor dims[CUDA_SPACE_DIMS];
  uint32_t first;
  uint32_t reserved;
} cuda_space;

/* The coordinates of element i, row-major. One store for each dim, without a branch around it: nvcc would
 * join the stores and keep out_at in local memory. */
CUDA_FN void cuda_space_at(const cuda_space *s, int64_t i, int64_t *out_at) {
  CUDA_UNROLL
  for (int d = CUDA_SPACE_DIMS - 1; d >= 0; d--) {
    const int64_t outer = d > (int)s->first ? cuda_divide(&s->dims[d], i) : 0;
    out_at[d] = i - outer * s->dims[d].by;
    i = outer;
  }
}

/* The element of a tensor at these coordinates: elements from its data. */
CUDA_FN int64_t cuda_spread_offset(const cuda_spread *v, const int64_t *at) {
  int64_t offset = 0;
  CUDA_UNROLL
  for (int d = 0; d < CUDA_SPACE_DIMS; d++) offset += at[d] * v->strides[d];
  return offset;
}

CUDA_FN char *cuda_spread_element(const cuda_spread *v, int64_t offset) {
  return (char *)v->data + offset * (int64_t)v->size;
}

#if !defined(__CUDACC__)
/* A tensor over the dims of a space: its last dims are the space's last ones, and it repeats along those that
 * it lacks or has as 1. NULL: absent. */
cuda_spread cuda_spread_of(const bs_tensor *tensor, uint32_t rank, const int64_t *dims);
/* Joins dims that lie in a row in all of the tensors, leaves out dims of 1, and moves the rest to the last
 * places, in the space and in the tensors. `keep`: so many of the last dims are joined with no other. */
void cuda_space_make(uint32_t rank, const int64_t *dims, uint32_t keep, cuda_spread *io_spreads, uint32_t n,
                     cuda_space *out_space);
#endif
#endif
