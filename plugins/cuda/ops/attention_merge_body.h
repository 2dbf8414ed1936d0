/* SPDX-License-Identifier: MIT
 * attention_merge_body.h - attention whose keys were cut in parts (attention_body.h): a warp adds the parts
 * of a query in their order. If the result is NaN attention_row computes the query again. */
#ifndef BS_PLUGIN_CUDA_ATTENTION_MERGE_BODY_H
#define BS_PLUGIN_CUDA_ATTENTION_MERGE_BODY_H
#include "attention_row.h"

CUDA_FN const float *attention_part(const attention_args *a, int64_t query, uint32_t part) {
  return a->partial + ((int64_t)part * a->B * a->H * a->S + query) * (a->E + 2);
}

/* 2^(a part's largest score - the largest of all); a part without a key has 0. */
CUDA_FN float attention_weight(const attention_args *a, const float *part, float most) {
  return exp2f(part[a->E] - (most == -INFINITY ? 0.0f : most));
}

/* A warp's step. */
CUDA_FN void attention_merge_row(const attention_args *a, const cuda_at *at, uint32_t b, uint32_t h,
                                 int32_t s) {
  const int64_t query = ((int64_t)b * a->H + h) * a->S + s;
  const float factor = attention_factor(a, 2);
  void *y = (void *)(uintptr_t)attention_at(&a->y, b, h, s);
  uint32_t bad[CUDA_LANES];
  float most = -INFINITY, total = 0.0f;
  for (uint32_t p = 0; p < a->splits; p++) most = fmaxf(most, attention_part(a, query, p)[a->E]);
  for (uint32_t p = 0; p < a->splits; p++) {
    const float *part = attention_part(a, query, p);
    total = cuda_fma_f32(attention_weight(a, part, most), part[a->E + 1], total);
  }
  for (int l = 0; l < CUDA_LANES; l++) {
    bad[l] = total != total;
    CUDA_ROLL
    for (int32_t e = (int32_t)CUDA_LANE(at, l); e < a->E; e += CUDA_WARP) {
      float sum = 0.0f;
      for (uint32_t p = 0; p < a->splits; p++) {
        const float *part = attention_part(a, query, p);
        sum = cuda_fma_f32(attention_weight(a, part, most), part[e], sum);
      }
      bad[l] |= sum != sum;
      cuda_store_f32(a->y.dtype, y, e, total == 0.0f ? 0.0f : sum * (factor / total));
    }
    if (CUDA_LANE(at, l) == 0)
      attention_put_lse(a, b, h, s,
                        total == 0.0f ? -INFINITY : (most + log2f(total) - ATTENTION_LIFT) * ATTENTION_LN2);
  }
  if (cuda_ballot(bad) == 0) return;
#if defined(__CUDACC__)
  __syncwarp();
#endif
  attention_row(a, at, b, h, s);
}

CUDA_FN void attention_merge_here(const attention_args *a, const cuda_at *at) {
  const int64_t s = (int64_t)at->block_x * ATTENTION_ROWS_WARPS + at->thread / CUDA_WARP;
  if (s < a->S) attention_merge_row(a, at, at->block_z, at->block_y, (int32_t)s);
}
#endif
