/* SPDX-License-Identifier: MIT
 * put_body.h - the common part of put_set and put_fold. A thread has one unit of the updates. Other positions
 * may name the same place; these differ along the axis, or are any tuple. */
#ifndef BS_PLUGIN_CUDA_PUT_BODY_H
#define BS_PLUGIN_CUDA_PUT_BODY_H
#include "indexed_body.h"

enum { PUT_POSITIONS = 4096 }; /* that a thread searches at most */

typedef struct put_args {
  indexed_args in;      /* large: the output; small: the updates */
  cuda_spread position; /* over in.space: its strides give the number of a position */
  cuda_space order;     /* over these numbers */
  cuda_spread order_index, order_small;
  uint32_t how; /* enum bs_put */
  uint32_t reserved;
} put_args;

/* A thread's unit. */
typedef struct put_at {
  int64_t position; /* its number */
  int64_t line;     /* of the index: position 0 among those that may name the same place */
  int64_t place;    /* as the index names it; -1: outside */
  int64_t from, to; /* in the updates, in the output */
} put_at;

/* How far position j is from position 0 in one of the tensors. */
CUDA_FN int64_t put_far(const put_args *a, const cuda_spread *v, int64_t j) {
  int64_t at[CUDA_SPACE_DIMS];
  if (a->order.first == CUDA_SPACE_DIMS - 1) return j * v->strides[CUDA_SPACE_DIMS - 1];
  cuda_space_at(&a->order, j, at);
  return cuda_spread_offset(v, at);
}

CUDA_FN put_at put_start(const put_args *a, int64_t t) {
  int64_t at[CUDA_SPACE_DIMS];
  put_at p;
  cuda_space_at(&a->in.space, t, at);
  const int64_t index = cuda_spread_offset(&a->in.index, at);
  p.position = cuda_spread_offset(&a->position, at);
  p.line = index - put_far(a, &a->order_index, p.position);
  p.place = indexed_place(&a->in, index, 0);
  p.from = cuda_spread_offset(&a->in.small, at);
  p.to = p.place + cuda_spread_offset(&a->in.large, at);
  return p;
}

/* The first of positions `from` to `to` - 1 that names the thread's place; `to`: none does. */
CUDA_FN int64_t put_search(const put_args *a, const put_at *p, int64_t from, int64_t to) {
  CUDA_ROLL
  for (int64_t j = from; j < to; j++)
    if (indexed_place(&a->in, p->line + put_far(a, &a->order_index, j), 0) == p->place) return j;
  return to;
}
#endif
