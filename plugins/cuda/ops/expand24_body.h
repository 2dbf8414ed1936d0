/* SPDX-License-Identifier: MIT
 * expand24_body.h - puts the kept values of a 2:4 matrix back at their places, with zeros (+0) elsewhere.
 * Values are moved by size; values beyond the last column are dropped. A thread makes groups of four
 * columns. */
#ifndef BS_PLUGIN_CUDA_EXPAND24_BODY_H
#define BS_PLUGIN_CUDA_EXPAND24_BODY_H
#include "walk.h"

typedef struct expand24_args {
  cuda_view values, out;
  const unsigned char *codes; /* a byte a group, first place + 4 x second, [rows, groups] */
  int64_t groups;             /* of a row */
  int64_t items;              /* rows * groups */
  cuda_divisor by_groups;
  uint32_t whole; /* 1: two values are one piece of memory, and four columns one (of 8 bytes each: two) */
  uint32_t reserved;
} expand24_args;

/* Element i (constant) of four: one of the two values, or zero. */
CUDA_FN uint64_t expand24_at(uint32_t code, const int i, uint64_t first, uint64_t second) {
  return (code & 3u) == (uint32_t)i ? first : (code >> 2 & 3u) == (uint32_t)i ? second : 0;
}

CUDA_FN void expand24_whole(const expand24_args *a, int64_t row, int64_t group, uint32_t code,
                            const int size) {
  const cuda_raw in = cuda_get_bytes(cuda_element(&a->values, row, 2 * group), 2 * size);
  char *to = cuda_element(&a->out, row, 4 * group);
  cuda_raw out = {{0, 0, 0, 0}}, high = {{0, 0, 0, 0}};
  CUDA_UNROLL
  for (int i = 0; i < 4; i++) {
    if (size == 1) cuda_set8(&out, i, (uint32_t)expand24_at(code, i, cuda_raw8(&in, 0), cuda_raw8(&in, 1)));
    if (size == 2)
      cuda_set16(&out, i, (uint32_t)expand24_at(code, i, cuda_raw16(&in, 0), cuda_raw16(&in, 1)));
    if (size == 4) out.word[i] = (uint32_t)expand24_at(code, i, in.word[0], in.word[1]);
    if (size == 8)
      cuda_set64(i < 2 ? &out : &high, i & 1, expand24_at(code, i, cuda_raw64(&in, 0), cuda_raw64(&in, 1)));
  }
  cuda_put_bytes(to, &out, size == 8 ? 16 : 4 * size);
  if (size == 8) cuda_put_bytes(to + 16, &high, 16);
}

CUDA_FN void expand24_single(const expand24_args *a, int64_t row, int64_t group, uint32_t code,
                             const int size) {
  const cuda_raw zero = {{0, 0, 0, 0}};
  CUDA_ROLL
  for (int i = 0; i < 4; i++) {
    const int64_t col = 4 * group + i;
    if (col >= a->out.cols) return;
    cuda_raw v = zero;
    if ((code & 3u) == (uint32_t)i) v = cuda_get_bytes(cuda_element(&a->values, row, 2 * group), size);
    if ((code >> 2 & 3u) == (uint32_t)i)
      v = cuda_get_bytes(cuda_element(&a->values, row, 2 * group + 1), size);
    cuda_put_bytes(cuda_element(&a->out, row, col), &v, size);
  }
}

CUDA_FN void expand24_group(const expand24_args *a, int64_t row, int64_t group, uint32_t code,
                            const int size) {
  if (a->whole != 0 && 4 * group + 4 <= a->out.cols)
    expand24_whole(a, row, group, code, size);
  else
    expand24_single(a, row, group, code, size);
}

CUDA_FN void expand24_thread(const expand24_args *a, int64_t t) {
  if (t >= a->items) return;
  const int64_t row = cuda_divide(&a->by_groups, t), group = t - row * a->groups;
  const uint32_t code = a->codes[t];
  if (a->out.size == 1)
    expand24_group(a, row, group, code, 1);
  else if (a->out.size == 2)
    expand24_group(a, row, group, code, 2);
  else if (a->out.size == 4)
    expand24_group(a, row, group, code, 4);
  else
    expand24_group(a, row, group, code, 8);
}
#endif
