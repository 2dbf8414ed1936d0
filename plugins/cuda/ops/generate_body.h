/* SPDX-License-Identifier: MIT
 * generate_body.h - generates a matrix in place: out[r,c] = the element of row r and the column of c, rounded
 * as the source's read rounds. One counter gives four elements, so a run of columns is made in pieces. For a
 * list of columns, and for the kept ones of a 2:4 weight, a thread makes single elements. */
#ifndef BS_PLUGIN_CUDA_GENERATE_BODY_H
#define BS_PLUGIN_CUDA_GENERATE_BODY_H
#include "philox.h"

typedef struct generate_args {
  cuda_walk walk;
  cuda_view out;        /* columns after the wanted ones become zero */
  cuda_columns columns; /* of the whole matrix */
  /* For a 2:4 weight: out's columns are two a group of `columns`; a byte a group, first place + 4 x
   * second. */
  const unsigned char *codes;
  int64_t groups;
  uint64_t seed;
  uint64_t first, line; /* element (row 0 of out, column 0) and from a row to the next */
  uint32_t stream, law;
  uint32_t threshold, bound;
  float a, b;
  uint32_t dtype; /* of the source: the dtype of the first rounding */
  uint32_t by;    /* the type of a value between its two roundings; CUDA_BY_COPY: there is one */
} generate_args;

CUDA_FN float generate_of_word(const generate_args *a, uint32_t w) {
  if (a->law == BS_LAW_TERNARY) return (w >> 1) >= a->threshold ? 0.0f : (w & 1u) != 0 ? 1.0f : -1.0f;
  if (a->law == BS_LAW_INTEGER)
    return (float)((int64_t)philox_high(w, 2u * a->bound + 1u) - (int64_t)a->bound);
  if (a->law != BS_LAW_UNIFORM) return 0.0f;
  const float scaled = philox_uniform(w) * a->b;
  return scaled + a->a;
}
CUDA_FN float generate_of_normal(const generate_args *a, float z) {
  const float scaled = z * a->b;
  if (a->law == BS_LAW_NORMAL) return scaled + a->a;
  return scaled > a->a ? a->a : scaled < -a->a ? -a->a : scaled;
}
/* Two neighbours, the first of an even index. */
CUDA_FN void generate_pair(const generate_args *a, uint32_t w0, uint32_t w1, float *v) {
  if (a->law == BS_LAW_NORMAL || a->law == BS_LAW_CLIPPED) {
    float z0, z1;
    philox_normals(w0, w1, &z0, &z1);
    v[0] = generate_of_normal(a, z0);
    v[1] = generate_of_normal(a, z1);
  } else {
    v[0] = generate_of_word(a, w0);
    v[1] = generate_of_word(a, w1);
  }
}
CUDA_FN void generate_four(const generate_args *a, uint64_t block, float *v) {
  const philox_words c = philox_block(a->seed, a->stream, block);
  generate_pair(a, c.w[0], c.w[1], v);
  generate_pair(a, c.w[2], c.w[3], v + 2);
}

/* Generates `count` (constant: 2, 4, 8) elements from index on, at any position in its counter. */
CUDA_FN void generate_run(const generate_args *a, uint64_t index, float *v, const int count) {
  float c[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  const uint32_t shift = (uint32_t)(index & 3u);
  generate_four(a, index >> 2, c);
  if (count > 4 || shift + (uint32_t)count > 4) generate_four(a, (index >> 2) + 1, c + 4);
  if (count > 4 && shift > 0) generate_four(a, (index >> 2) + 2, c + 8);
  CUDA_UNROLL
  for (int i = 0; i < count; i++)
    v[i] = shift == 0 ? c[i] : shift == 1 ? c[i + 1] : shift == 2 ? c[i + 2] : c[i + 3];
}
CUDA_FN float generate_one(const generate_args *a, uint64_t index) {
  const philox_words c = philox_block(a->seed, a->stream, index >> 2);
  float v[2];
  generate_pair(a, (index & 2u) != 0 ? c.w[2] : c.w[0], (index & 2u) != 0 ? c.w[3] : c.w[1], v);
  return (index & 1u) != 0 ? v[1] : v[0];
}

CUDA_FN cuda_raw generate_round(const generate_args *a, const float *v, const int count) {
  if (a->by == CUDA_BY_COPY) return cuda_narrow_f32(a->out.dtype, v, count);
  const cuda_raw raw = cuda_narrow_f32(a->dtype, v, count);
  if (a->by == CUDA_BY_I64 && count <= 4) {
    int64_t whole[4];
    cuda_widen_i64(a->dtype, &raw, whole, count);
    return cuda_narrow_i64(a->out.dtype, whole, count);
  }
  float rounded[CUDA_WALK_WIDTH];
  cuda_widen_f32(a->dtype, &raw, rounded, count);
  return cuda_narrow_f32(a->out.dtype, rounded, count);
}

/* The index of column c of out among the wanted ones; from columns.count on there is none. */
CUDA_FN int64_t generate_wanted(const generate_args *a, int64_t row, int64_t c) {
  if (a->codes == 0) return c;
  const int64_t group = c >> 1;
  if (group >= a->groups) return a->columns.count;
  return 4 * group + (a->codes[row * a->groups + group] >> 2 * (c & 1) & 3);
}

CUDA_FN void generate_some(const generate_args *a, int64_t item, const int count) {
  CUDA_ROLL
  for (int i = 0; i < CUDA_WALK_DEEP; i++) {
    const cuda_place at = cuda_walk_place(&a->walk, item + i * CUDA_BLOCK, count);
    float v[CUDA_WALK_WIDTH] = {0, 0, 0, 0, 0, 0, 0, 0};
    if (!at.live) continue;
    const uint64_t base = a->first + (uint64_t)at.row * a->line;
    if (count == 1) {
      const int64_t k = generate_wanted(a, at.row, at.col);
      if (k < a->columns.count) v[0] = generate_one(a, base + (uint64_t)cuda_column(&a->columns, k));
    } else if (at.col < a->columns.count) {
      generate_run(a, base + (uint64_t)(a->columns.begin + at.col), v, count);
      CUDA_UNROLL
      for (int j = 0; j < count; j++)
        if (at.col + j >= a->columns.count) v[j] = 0.0f;
    }
    const cuda_raw raw = generate_round(a, v, count);
    cuda_view_put(&a->out, &at, &raw, count);
  }
}

CUDA_FN void generate_thread(const generate_args *a, int64_t t) {
  const cuda_start start = cuda_walk_start(&a->walk, t);
  if (!start.whole) {
    generate_some(a, start.item, 1);
  } else if (a->walk.width == 2) {
    generate_some(a, start.item, 2);
  } else if (a->walk.width == 4) {
    generate_some(a, start.item, 4);
  } else {
    generate_some(a, start.item, 8);
  }
}
#endif
