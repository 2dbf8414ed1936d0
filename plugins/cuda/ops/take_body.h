/* SPDX-License-Identifier: MIT
 * take_body.h - out = the places of data that an index names. A thread moves one unit. An index outside of
 * its dimension reads 0, because a kernel cannot fail. */
#ifndef BS_PLUGIN_CUDA_TAKE_BODY_H
#define BS_PLUGIN_CUDA_TAKE_BODY_H
#include "indexed_body.h"

typedef indexed_args take_args;

CUDA_FN void take_thread(const take_args *a, int64_t t) {
  int64_t at[CUDA_SPACE_DIMS];
  if (t >= a->space.count) return;
  cuda_space_at(&a->space, t, at);
  const int64_t from =
      indexed_place(a, cuda_spread_offset(&a->index, at), 1) + cuda_spread_offset(&a->large, at);
  const int64_t to = cuda_spread_offset(&a->small, at);
  indexed_copy(cuda_spread_element(&a->large, from), cuda_spread_element(&a->small, to), a->small.size);
}
#endif
