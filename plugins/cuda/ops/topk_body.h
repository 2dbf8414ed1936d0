/* SPDX-License-Identifier: MIT
 * topk_body.h - the k first values of each line along an axis, and their places. A block sorts a line in
 * shared memory by a bitonic network. What it sorts are words: above a number in the order of the values,
 * below it the place, so that of equal values the lower place comes first. The number of a value of 8 bytes
 * takes the whole word, and its place lies behind the words. */
#ifndef BS_PLUGIN_CUDA_TOPK_BODY_H
#define BS_PLUGIN_CUDA_TOPK_BODY_H
#include "space.h"

enum {
  TOPK_THREADS = 512, /* a block, at most */
  TOPK_MOST = 8192,   /* values of a line */
  TOPK_WIDE = 4096,   /* values of 8 bytes of a line */
  TOPK_SHARED = TOPK_MOST * 8
};

typedef struct topk_args {
  cuda_space lines;
  cuda_spread in, values, indices; /* over the lines */
  int64_t in_along, values_along, indices_along;
  uint32_t n, k;
  uint32_t words;    /* n up to a power of two */
  uint32_t smallest; /* 1: rising */
  uint32_t floats;
  uint32_t wide; /* 1: values of 8 bytes */
} topk_args;

/* A block's line: the elements at which it begins. */
typedef struct topk_line {
  int64_t in, values, indices;
} topk_line;

CUDA_FN topk_line topk_start(const topk_args *a, const cuda_at *at) {
  int64_t place[CUDA_SPACE_DIMS];
  topk_line line;
  cuda_space_at(&a->lines, at->block_x, place);
  line.in = cuda_spread_offset(&a->in, place);
  line.values = cuda_spread_offset(&a->values, place);
  line.indices = cuda_spread_offset(&a->indices, place);
  return line;
}

/* Numbers in the order of floats: all NaNs are one, the largest, and both zeros are one. */
CUDA_FN uint32_t topk_order_float(float v) {
  const uint32_t bits = cuda_bits_f32(v);
  if (v != v) return UINT32_MAX;
  if (v == 0.0f) return 0x80000000u;
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
CUDA_FN uint64_t topk_order_wide(const topk_args *a, int64_t offset) {
  const uint64_t sign = UINT64_C(1) << 63;
  if (!a->floats) return (uint64_t)cuda_load_i64(a->in.dtype, a->in.data, offset) ^ sign;
  const double v = cuda_load_f64(a->in.dtype, a->in.data, offset);
  const uint64_t bits = cuda_bits_f64(v);
  if (v != v) return UINT64_MAX;
  if (v == 0.0) return sign;
  return (bits & sign) != 0 ? ~bits : bits | sign;
}
CUDA_FN uint32_t topk_order(const topk_args *a, int64_t offset) {
  if (a->floats) return topk_order_float(cuda_load_f32(a->in.dtype, a->in.data, offset));
  return (uint32_t)cuda_load_i64(a->in.dtype, a->in.data, offset) ^ 0x80000000u;
}
CUDA_FN uint64_t topk_word(const topk_args *a, int64_t offset, uint32_t i) {
  if (a->wide) {
    const uint64_t order = topk_order_wide(a, offset);
    return a->smallest ? order : ~order;
  }
  const uint32_t order = topk_order(a, offset);
  return (uint64_t)(a->smallest ? order : ~order) << 32 | i;
}

/* The places of wide values. */
CUDA_FN uint32_t *topk_places(const topk_args *a, uint64_t *words) {
  return (uint32_t *)(words + a->words);
}

/* Words beyond the line come last. */
CUDA_FN void topk_load(const topk_args *a, uint64_t *words, const topk_line *line, const cuda_at *at) {
  CUDA_ROLL
  for (uint32_t i = at->thread; i < a->words; i += at->threads) {
    words[i] = i < a->n ? topk_word(a, line->in + (int64_t)i * a->in_along, i) : UINT64_MAX;
    if (a->wide) topk_places(a, words)[i] = i;
  }
}

/* One step of the network: pairs at a distance of `apart`, in runs of `run` words that rise and fall. */
CUDA_FN void topk_step(const topk_args *a, uint64_t *words, const cuda_at *at, uint32_t run, uint32_t apart) {
  uint32_t *places = topk_places(a, words);
  CUDA_ROLL
  for (uint32_t p = at->thread; p < a->words / 2; p += at->threads) {
    const uint32_t low = 2 * p - (p & (apart - 1)), high = low + apart;
    const uint64_t x = words[low], y = words[high];
    const uint32_t i = a->wide ? places[low] : 0, j = a->wide ? places[high] : 0;
    const int above = x > y || (x == y && i > j), falls = (low & run) != 0;
    if (above == falls) continue;
    words[low] = y;
    words[high] = x;
    if (!a->wide) continue;
    places[low] = j;
    places[high] = i;
  }
}

/* Floats are written as a conversion by way of f64 writes them: a NaN becomes a quiet one. */
CUDA_FN void topk_write(const topk_args *a, uint64_t *words, const topk_line *line, const cuda_at *at) {
  CUDA_ROLL
  for (uint32_t i = at->thread; i < a->k; i += at->threads) {
    const uint32_t place = a->wide ? topk_places(a, words)[i] : (uint32_t)words[i], dtype = a->in.dtype;
    const int64_t from = line->in + (int64_t)place * a->in_along;
    const int64_t to = line->values + (int64_t)i * a->values_along;
    if (a->floats)
      cuda_store_f64(dtype, a->values.data, to, cuda_load_f64(dtype, a->in.data, from));
    else
      cuda_store_i64(dtype, a->values.data, to, cuda_load_i64(dtype, a->in.data, from));
    cuda_store_i64(a->indices.dtype, a->indices.data, line->indices + (int64_t)i * a->indices_along,
                   (int64_t)place);
  }
}
#endif
