/* SPDX-License-Identifier: MIT
 * comm_data.c - buffers of collectives between bytes that must stay, between the rows too, and the serial
 * oracle of reductions by any operation. */
#include "kit/comm_data.h"

#include <math.h>
#include <stdio.h>

enum { TAIL = 64 };

void kit_buffer_make(kit_buffer *b, uint64_t bytes) {
  b->bytes = bytes + TAIL;
  b->data = malloc(b->bytes);
  b->before = malloc(b->bytes);
  kit_assert(b->data != NULL && b->before != NULL, "no memory for a message");
  memset(b->data, 0xA5, b->bytes);
}

void kit_buffer_keep(kit_buffer *b) {
  memcpy(b->before, b->data, b->bytes);
}

void kit_buffer_free(kit_buffer *b) {
  free(b->data);
  free(b->before);
  memset(b, 0, sizeof *b);
}

void kit_buffer_check(const kit_buffer *b, const kit_point *q, uint32_t rank, uint64_t rows, uint64_t cols,
                      int64_t stride, uint64_t size) {
  const uint64_t pitch = (uint64_t)stride * size;
  char text[160];
  for (uint64_t row = 0, at = 0; at < b->bytes;
       row++) { /* from the end of a row's elements to the next row */
    const uint64_t begin = row < rows ? at + cols * size : at;
    const uint64_t end = row + 1 < rows ? at + pitch : b->bytes;
    if (memcmp(b->data + begin, b->before + begin, end - begin) != 0) {
      const int between = row + 1 < rows;
      kit_fail("%s: rank %u: %s", kit_point_text(q, text, sizeof text), rank,
               rows == 0 ? "changes its input"
               : between ? "writes between the rows of its output"
                         : "writes behind its output");
    }
    at = end;
  }
}

const char *kit_point_text(const kit_point *q, char *out, size_t size) {
  static const char *const kinds[BS_COLL_COUNT_] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                                    "all_to_all", "send",       "recv",           "barrier"};
  static const char *const ops[] = {"", " max", " min"};
  const uint32_t to = kit_point_out(q);
  snprintf(out, size, "%s%s %s%s%s, %llu rows of %llu%s%s%s", kinds[q->kind], ops[q->op],
           bs_dtype_name(q->dtype), to != q->dtype ? " to " : "", to != q->dtype ? bs_dtype_name(to) : "",
           (unsigned long long)q->rows, (unsigned long long)q->count,
           q->special    ? " with NaN and Inf"
           : q->in_place ? " in place"
                         : "",
           q->any_order ? " in any order" : "", q->where != NULL ? q->where : "");
  return out;
}

uint32_t kit_point_out(const kit_point *q) {
  return q->dtype_out != 0 ? q->dtype_out : q->dtype;
}

uint32_t kit_point_reduce(const kit_point *q) {
  return q->reduce_dtype != 0 ? q->reduce_dtype : q->dtype;
}

double kit_point_special(const kit_point *q, uint32_t rank, uint32_t size, uint64_t i) {
  static const double values[4] = {0.0, INFINITY, NAN, -INFINITY};
  if (!q->special || rank != i / 4 % size) return 0.0;
  return q->special == 1 || i % 4 == 2 ? values[i % 4] : 0.0;
}

double kit_point_reduced(const kit_point *q, uint32_t size, uint64_t i) {
  const uint32_t reduce = kit_point_reduce(q);
  const double special = kit_point_special(q, (uint32_t)(i / 4 % size), size, i);
  if (special != 0.0) return special;
  double all = 0.0;
  for (uint32_t r = 0; r < size; r++) {
    const double v = rounded(reduce, rounded(q->dtype, value_of(q->dtype, r, i)));
    if (r == 0)
      all = v;
    else if (q->op == BS_REDUCE_MAX)
      all = v > all ? v : all;
    else if (q->op == BS_REDUCE_MIN)
      all = v < all ? v : all;
    else
      all = rounded(reduce, all + v);
  }
  return rounded(kit_point_out(q), all);
}
