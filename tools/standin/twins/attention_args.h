/* SPDX-License-Identifier: MIT
 * attention_args.h - the device pointers of attention_args as the host's. */
#ifndef BS_STANDIN_TWINS_ATTENTION_ARGS_H
#define BS_STANDIN_TWINS_ATTENTION_ARGS_H
#include "plugins/cuda/ops/attention_row.h"
#include "tools/standin/twins/twins.h"

static inline void attention_view_here(attention_view *v, int64_t b, int64_t h, int64_t rows, int64_t cols) {
  const int64_t dims[4] = {b, h, rows, cols};
  uint64_t last = 0;
  for (int i = 0; i < 4; i++) {
    if (dims[i] == 0) v->data = NULL; /* nothing is read */
    last += dims[i] > 0 ? (uint64_t)((dims[i] - 1) * v->strides[i]) : 0;
  }
  v->data = cuda_twin_memory(v->data, (last + 1) * v->size);
}

static inline void attention_args_here(attention_args *a) {
  const int64_t B = a->B, H = a->H, G = H / a->repeat, queries = B * H * a->S;
  attention_view_here(&a->q, B, H, a->S, a->D);
  attention_view_here(&a->k, B, G, a->T, a->D);
  attention_view_here(&a->v, B, G, a->T, a->E);
  attention_view_here(&a->mask, B, H, a->S, a->T);
  attention_view_here(&a->y, B, H, a->S, a->E);
  attention_view_here(&a->lse, B, H, a->S, 1);
  a->lengths = cuda_twin_memory(a->lengths, (uint64_t)((B - 1) * a->lengths_step + 1) * sizeof *a->lengths);
  a->descale = cuda_twin_memory(a->descale, (uint64_t)(2 * a->descale_step + 1) * sizeof *a->descale);
  if (a->splits > 1)
    a->partial = cuda_twin_memory(a->partial, (uint64_t)(a->splits * queries * (a->E + 2)) * sizeof(float));
}
#endif
