/* SPDX-License-Identifier: MIT
 * quantize_groups_body.h - int8 or fp8 values with an f32 scale for each group of columns of a row, or of all
 * rows: scale = max |in| / L, L the dtype's largest value, q = in / scale to the nearest value, ties to even.
 * A group with a NaN or an infinity has the scale NaN and zeros. A block takes some whole groups of a row, or
 * one that is larger than that: its threads find the largest magnitudes in shared memory, then round. The
 * second read of the input comes from the cache.
 * If rows share scales, blocks combine them in the first row's: four launches clear it, put the bits of the
 * largest magnitudes there, round by them, and make scales of them. */
#ifndef BS_PLUGIN_CUDA_QUANTIZE_GROUPS_BODY_H
#define BS_PLUGIN_CUDA_QUANTIZE_GROUPS_BODY_H
#include "walk.h"

enum { CUDA_QUANTIZE_SPAN = 2048 }; /* columns of a block, if groups are not larger */

typedef struct quantize_groups_args {
  cuda_view in, q, scales;
  int64_t group;          /* columns */
  int64_t groups;         /* of a row */
  int64_t block_groups;   /* of a block: at most CUDA_QUANTIZE_SPAN */
  cuda_divisor by_blocks; /* blocks of a row */
  cuda_divisor by_group;
  uint32_t width;    /* columns that a thread takes at a time: 4, within one group; 1 */
  uint32_t together; /* 1: the 32 threads of a warp are always in one group */
  uint32_t stage;    /* below */
  float largest;     /* L */
} quantize_groups_args;

/* ALL: a row's own scales, in one launch. The others in this order; CLEAR and END of one row's blocks. */
enum {
  CUDA_QUANTIZE_ALL = 0,
  CUDA_QUANTIZE_CLEAR,
  CUDA_QUANTIZE_MEASURE,
  CUDA_QUANTIZE_ROUND,
  CUDA_QUANTIZE_END
};

typedef struct quantize_groups_shared {
  uint32_t most[CUDA_QUANTIZE_SPAN]; /* bits of the largest magnitude of each group */
} quantize_groups_shared;

/* The work of a block. */
typedef struct quantize_groups_part {
  int64_t row, first, groups; /* groups first .. first + groups - 1 */
  int64_t begin, end;         /* their columns */
} quantize_groups_part;

CUDA_FN quantize_groups_part quantize_groups_here(const quantize_groups_args *a, const cuda_at *at) {
  quantize_groups_part p;
  p.row = cuda_divide(&a->by_blocks, at->block_x);
  p.first = ((int64_t)at->block_x - p.row * a->by_blocks.by) * a->block_groups;
  p.groups = a->groups - p.first < a->block_groups ? a->groups - p.first : a->block_groups;
  p.begin = p.first * a->group;
  p.end = a->in.cols - p.begin < p.groups * a->group ? a->in.cols : p.begin + p.groups * a->group;
  return p;
}

CUDA_FN void quantize_groups_max(uint32_t *most, uint32_t magnitude, uint32_t together) {
#if defined(__CUDACC__)
  if (together != 0) {
    magnitude = __reduce_max_sync(0xffffffffu, magnitude);
    if ((threadIdx.x & 31u) != 0) return;
  }
  if (magnitude != 0) atomicMax(most, magnitude);
#else
  (void)together;
  if (magnitude > *most) *most = magnitude;
#endif
}

CUDA_FN float quantize_groups_scale(const quantize_groups_args *a, uint32_t most) {
  return most < 0x7f800000u ? cuda_f32_bits(most) / a->largest : cuda_f32_bits(0x7fc00000u);
}

/* The first row's scale of a group, as bits. */
CUDA_FN uint32_t *quantize_groups_first(const quantize_groups_args *a, int64_t group) {
  return (uint32_t *)(void *)cuda_element(&a->scales, 0, group);
}

CUDA_FN void quantize_groups_begin(const quantize_groups_args *a, quantize_groups_shared *s,
                                   const cuda_at *at) {
  const quantize_groups_part p = quantize_groups_here(a, at);
  for (int64_t i = at->thread; i < p.groups; i += at->threads) {
    uint32_t *first = quantize_groups_first(a, p.first + i);
    s->most[i] = a->stage == CUDA_QUANTIZE_ROUND ? *first : 0;
    if (a->stage == CUDA_QUANTIZE_CLEAR) *first = 0;
    if (a->stage == CUDA_QUANTIZE_END) *first = cuda_bits_f32(quantize_groups_scale(a, *first));
  }
}

CUDA_FN uint32_t quantize_groups_magnitude(const quantize_groups_args *a, int64_t row, int64_t col) {
  return cuda_bits_f32(*(const float *)(const void *)cuda_element(&a->in, row, col)) & 0x7fffffffu;
}

/* A larger magnitude has larger bits, also for infinity and NaN. All threads of a warp have the same number
 * of iterations. */
CUDA_FN void quantize_groups_measure(const quantize_groups_args *a, quantize_groups_shared *s,
                                     const cuda_at *at) {
  const quantize_groups_part p = quantize_groups_here(a, at);
  const int64_t step = (int64_t)at->threads * a->width;
  if (a->stage != CUDA_QUANTIZE_ALL && a->stage != CUDA_QUANTIZE_MEASURE) return;
  for (int64_t base = p.begin; base < p.end; base += step) {
    const int64_t c = base + (int64_t)at->thread * a->width;
    uint32_t most = 0;
    if (a->width == 4 && c + 4 <= p.end) {
      const cuda_raw raw = cuda_get_bytes(cuda_element(&a->in, p.row, c), 16);
      CUDA_UNROLL
      for (int i = 0; i < 4; i++) {
        const uint32_t magnitude = raw.word[i] & 0x7fffffffu;
        most = magnitude > most ? magnitude : most;
      }
    } else {
      for (int64_t e = c; e < c + a->width && e < p.end; e++) {
        const uint32_t magnitude = quantize_groups_magnitude(a, p.row, e);
        most = magnitude > most ? magnitude : most;
      }
    }
    const int64_t inside = c < p.end ? c - p.begin : 0;
    quantize_groups_max(&s->most[cuda_divide(&a->by_group, inside)], most, a->together);
  }
}

CUDA_FN uint32_t quantize_groups_round(const quantize_groups_args *a, float v, float scale) {
  const float of = scale > 0.0f ? v / scale : 0.0f; /* of a NaN scale nothing */
  const float r = of > a->largest ? a->largest : of < -a->largest ? -a->largest : of;
  if (a->q.dtype == BS_F8E4M3) return cuda_f8e4m3_of_f32(r);
  if (a->q.dtype == BS_F8E5M2) return cuda_f8e5m2_of_f32(r);
  return (uint32_t)(int32_t)rintf(r);
}

/* Keeps the larger of this block's and the others' magnitudes. */
CUDA_FN void quantize_groups_meet(uint32_t *first, uint32_t most) {
#if defined(__CUDACC__)
  atomicMax(first, most);
#else
  if (most > *first) *first = most;
#endif
}

CUDA_FN void quantize_groups_finish(const quantize_groups_args *a, const quantize_groups_shared *s,
                                    const cuda_at *at) {
  const quantize_groups_part p = quantize_groups_here(a, at);
  for (int64_t i = at->thread; i < p.groups; i += at->threads) {
    const uint32_t most = s->most[i];
    if (a->stage == CUDA_QUANTIZE_ALL || (a->stage == CUDA_QUANTIZE_ROUND && p.row > 0))
      *(float *)(void *)cuda_element(&a->scales, p.row, p.first + i) = quantize_groups_scale(a, most);
    if (a->stage == CUDA_QUANTIZE_MEASURE) quantize_groups_meet(quantize_groups_first(a, p.first + i), most);
  }
  if (a->stage != CUDA_QUANTIZE_ALL && a->stage != CUDA_QUANTIZE_ROUND) return;
  const int64_t step = (int64_t)at->threads * a->width;
  for (int64_t c = p.begin + (int64_t)at->thread * a->width; c < p.end; c += step) {
    const float scale = quantize_groups_scale(a, s->most[cuda_divide(&a->by_group, c - p.begin)]);
    if (a->width == 4 && c + 4 <= p.end) {
      const cuda_raw raw = cuda_get_bytes(cuda_element(&a->in, p.row, c), 16);
      cuda_raw q = {{0, 0, 0, 0}};
      CUDA_UNROLL
      for (int i = 0; i < 4; i++)
        cuda_set8(&q, i, quantize_groups_round(a, cuda_f32_bits(raw.word[i]), scale));
      cuda_put_bytes(cuda_element(&a->q, p.row, c), &q, 4);
      continue;
    }
    for (int64_t e = c; e < c + a->width && e < p.end; e++) {
      const float v = *(const float *)(const void *)cuda_element(&a->in, p.row, e);
      *(unsigned char *)cuda_element(&a->q, p.row, e) = (unsigned char)quantize_groups_round(a, v, scale);
    }
  }
}
#endif
