/* SPDX-License-Identifier: MIT
 * columns_body.h - picking and spreading the columns of a partition. A thread holds the places of some
 * neighbouring kept columns and moves them for several rows; a list of columns is read once for these, and
 * one that repeats is not read at all. Two of each four columns, the halves of a complement mask, are picked
 * out of 16 bytes by a permutation. */
#ifndef BS_PLUGIN_CUDA_COLUMNS_BODY_H
#define BS_PLUGIN_CUDA_COLUMNS_BODY_H
#include "walk.h"

enum {
  CUDA_COLUMNS_ROWS = 4,  /* that a thread moves */
  CUDA_COLUMNS_BYTES = 8, /* of a row, at most */
  CUDA_COLUMNS_SLOTS = 12 /* kept columns of a period that a word of slots has room for */
};

typedef struct columns_args {
  cuda_walk walk; /* over groups of rows of the kept side */
  cuda_view full, kept;
  const uint32_t *list; /* NULL: the columns repeat */
  int64_t period;
  uint64_t slots;        /* place of the i-th kept column of a period, 5 bits each */
  int64_t skip;          /* kept columns of the pattern before the partition's first one */
  cuda_divisor by_slots; /* kept columns of a period */
  uint32_t pairs;        /* gather: 1 where pieces are two of each four columns of 16 aligned bytes */
  uint32_t select; /* of such: which bytes of two words are kept; of 4 byte elements first + 16 x second */
} columns_args;

/* The full side's column of kept column i. */
CUDA_FN int64_t columns_place(const columns_args *a, int64_t i) {
  if (a->list != 0) return (int64_t)a->list[i];
  const int64_t n = a->skip + i, turn = cuda_divide(&a->by_slots, n), slot = n - turn * a->by_slots.by;
  return turn * a->period + (int64_t)(a->slots >> (5 * slot) & 31u);
}

/* Element i, which is constant, of `size` bytes, which is one too. */
CUDA_FN uint64_t columns_element(const cuda_raw *raw, const int i, const int size) {
  if (size == 1) return cuda_raw8(raw, i);
  if (size == 2) return cuda_raw16(raw, i);
  return size == 4 ? (uint64_t)raw->word[i & 1] : cuda_raw64(raw, 0);
}
CUDA_FN void columns_set(cuda_raw *raw, const int i, const int size, const cuda_raw *element) {
  if (size == 1) {
    cuda_set8(raw, i, element->word[0]);
  } else if (size == 2) {
    cuda_set16(raw, i, element->word[0]);
  } else if (size == 4) {
    raw->word[i & 1] = element->word[0];
  } else {
    *raw = *element;
  }
}

/* The bytes of low and high (0 .. 7) that the four nibbles of `select` name, the lowest first. */
CUDA_FN uint32_t columns_permute(uint32_t low, uint32_t high, uint32_t select) {
#if defined(__CUDACC__)
  return __byte_perm(low, high, select);
#else
  const uint64_t both = (uint64_t)high << 32 | low;
  uint32_t out = 0;
  for (int i = 0; i < 4; i++) out |= (uint32_t)(both >> (8 * (select >> (4 * i) & 7u)) & 0xffu) << (8 * i);
  return out;
#endif
}
CUDA_FN uint32_t columns_word(const cuda_raw *raw, uint32_t i) {
  return i == 0 ? raw->word[0] : i == 1 ? raw->word[1] : i == 2 ? raw->word[2] : raw->word[3];
}

/* Kept columns at->col .. of two of each four: they are in the 16 bytes that hold both halves. */
CUDA_FN void columns_gather_pairs(const columns_args *a, const cuda_place *at, const int size) {
  const int64_t first = at->row * CUDA_COLUMNS_ROWS, from = 2 * (a->skip + at->col);
  cuda_raw in[CUDA_COLUMNS_ROWS];
  CUDA_UNROLL
  for (int r = 0; r < CUDA_COLUMNS_ROWS; r++)
    if (first + r < a->kept.rows) in[r] = cuda_get_bytes(cuda_element(&a->full, first + r, from), 16);
  CUDA_UNROLL
  for (int r = 0; r < CUDA_COLUMNS_ROWS; r++) {
    if (first + r >= a->kept.rows) continue;
    cuda_raw out = {{0, 0, 0, 0}};
    if (size == 4) {
      out.word[0] = columns_word(&in[r], a->select & 3u);
      out.word[1] = columns_word(&in[r], a->select >> 4);
    } else {
      out.word[0] = columns_permute(in[r].word[0], in[r].word[1], a->select);
      out.word[1] = columns_permute(in[r].word[2], in[r].word[3], a->select);
    }
    cuda_put_bytes(cuda_element(&a->kept, first + r, at->col), &out, 8);
  }
}

CUDA_FN void columns_gather(const columns_args *a, const cuda_place *at, const int count, const int size) {
  int64_t place[8];
  cuda_raw raw[CUDA_COLUMNS_ROWS];
  const int64_t first = at->row * CUDA_COLUMNS_ROWS;
  CUDA_UNROLL
  for (int i = 0; i < count; i++) place[i] = columns_place(a, at->col + i);
  CUDA_UNROLL
  for (int r = 0; r < CUDA_COLUMNS_ROWS; r++) {
    raw[r].word[0] = raw[r].word[1] = raw[r].word[2] = raw[r].word[3] = 0;
    CUDA_UNROLL
    for (int i = 0; i < count; i++) {
      if (first + r >= a->kept.rows) continue;
      const cuda_raw element = cuda_get_bytes(cuda_element(&a->full, first + r, place[i]), size);
      columns_set(&raw[r], i, size, &element);
    }
  }
  CUDA_UNROLL
  for (int r = 0; r < CUDA_COLUMNS_ROWS; r++)
    if (first + r < a->kept.rows)
      cuda_put_bytes(cuda_element(&a->kept, first + r, at->col), &raw[r], count * size);
}

CUDA_FN void columns_scatter(const columns_args *a, const cuda_place *at, const int count, const int size) {
  int64_t place[8];
  cuda_raw raw[CUDA_COLUMNS_ROWS];
  const int64_t first = at->row * CUDA_COLUMNS_ROWS;
  CUDA_UNROLL
  for (int i = 0; i < count; i++) place[i] = columns_place(a, at->col + i);
  CUDA_UNROLL
  for (int r = 0; r < CUDA_COLUMNS_ROWS; r++)
    if (first + r < a->kept.rows)
      raw[r] = cuda_get_bytes(cuda_element(&a->kept, first + r, at->col), count * size);
  CUDA_UNROLL
  for (int r = 0; r < CUDA_COLUMNS_ROWS; r++) {
    if (first + r >= a->kept.rows) continue;
    CUDA_UNROLL
    for (int i = 0; i < count; i++) {
      const uint64_t bits = columns_element(&raw[r], i, size);
      const cuda_raw element = {{(uint32_t)bits, (uint32_t)(bits >> 32), 0, 0}};
      cuda_put_bytes(cuda_element(&a->full, first + r, place[i]), &element, size);
    }
  }
}

CUDA_FN void columns_move(const columns_args *a, const cuda_place *at, const int count, const int size,
                          const int scatter) {
  if (scatter)
    columns_scatter(a, at, count, size);
  else if (count > 1 && a->pairs != 0)
    columns_gather_pairs(a, at, size);
  else
    columns_gather(a, at, count, size);
}

CUDA_FN void columns_some(const columns_args *a, int64_t item, const int count, const int size,
                          const int scatter) {
  CUDA_ROLL
  for (int i = 0; i < CUDA_WALK_DEEP; i++) {
    const cuda_place at = cuda_walk_place(&a->walk, item + i * CUDA_BLOCK, count);
    if (at.live) columns_move(a, &at, count, size, scatter);
  }
}

CUDA_FN void columns_thread(const columns_args *a, int64_t t, const int scatter) {
  const cuda_start start = cuda_walk_start(&a->walk, t);
  const uint32_t size = a->kept.size;
  if (start.whole && size == 1) columns_some(a, start.item, 8, 1, scatter);
  if (start.whole && size == 2) columns_some(a, start.item, 4, 2, scatter);
  if (start.whole && size == 4) columns_some(a, start.item, 2, 4, scatter);
  if (!start.whole && size == 1) columns_some(a, start.item, 1, 1, scatter);
  if (!start.whole && size == 2) columns_some(a, start.item, 1, 2, scatter);
  if (!start.whole && size == 4) columns_some(a, start.item, 1, 4, scatter);
  if (!start.whole && size == 8) columns_some(a, start.item, 1, 8, scatter);
}
#endif
