/* SPDX-License-Identifier: MIT
 * comm_data.h - points of a collective, its buffers with guard bytes, and the oracle of reductions, for
 * comm.c. Include after tests/comm/ranks.h. */
#ifndef BS_KIT_COMM_DATA_H
#define BS_KIT_COMM_DATA_H
#include "kit/kit.h"
#include "tests/comm/ranks.h"

/* The parameters of a point of one collective. */
typedef struct kit_point {
  uint32_t kind, dtype;
  uint64_t rows, count;
  int64_t pad;
  int in_place;
  int special;   /* one of each four elements is NaN on some rank; 1: also one is Inf and one -Inf */
  int any_order; /* the call leaves the order of a reduction free */
  uint32_t op, dtype_out, reduce_dtype; /* of reductions; dtypes 0: dtype */
  const char *where;                    /* "", or " of a group" */
} kit_point;

/* A buffer of rows with guard bytes at its end, and its content before the call. */
typedef struct kit_buffer {
  unsigned char *data, *before;
  uint64_t bytes;
} kit_buffer;

void kit_buffer_make(kit_buffer *b, uint64_t bytes);
/* After it is filled. */
void kit_buffer_keep(kit_buffer *b);
void kit_buffer_free(kit_buffer *b);
/* Checks that only `cols` elements of each row have changed; rows 0: none, it is an input. */
void kit_buffer_check(const kit_buffer *b, const kit_point *q, uint32_t rank, uint64_t rows, uint64_t cols,
                      int64_t stride, uint64_t size);
/* "all_reduce max f32 to bf16, 5 rows of 7 in place of a group" */
const char *kit_point_text(const kit_point *q, char *out, size_t size);
uint32_t kit_point_out(const kit_point *q);
uint32_t kit_point_reduce(const kit_point *q);
/* Rank's element i of a special point: NaN or an infinity; 0: an ordinary value. */
double kit_point_special(const kit_point *q, uint32_t rank, uint32_t size, uint64_t i);
/* The result of a reduction in rank order for element i. */
double kit_point_reduced(const kit_point *q, uint32_t size, uint64_t i);
#endif
