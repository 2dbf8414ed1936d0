/* SPDX-License-Identifier: MIT
 *
 * places.c - see places.h. */
#include "places.h"

void cpu_place_dims_add(cpu_place_dim *dims, uint32_t *n, cpu_place_dim dim) {
  if (dim.size == 1) return;
  if (*n > 0) {
    cpu_place_dim *before = &dims[*n - 1];
    if (before->large == dim.size * dim.large && before->small == dim.size * dim.small) {
      before->size *= dim.size;
      before->large = dim.large;
      before->small = dim.small;
      return;
    }
  }
  dims[(*n)++] = dim;
}

/* The leading dims of the small tensor. TUPLES: the batch dims are those of large; the index has them all.
 * ELEMENTS: all are those of large and of the index. ROWS: dims before the axis are those of large; then come
 * the index's, of put one (and the index may have a row for each first coordinate). */
static void make_lead(cpu_places *p, const int64_t *attrs, int put, uint32_t n) {
  const uint32_t axis = (uint32_t)attrs[1], batch = (uint32_t)attrs[2];
  const int rows = attrs[0] == BS_INDEX_ROWS, tuples = attrs[0] == BS_INDEX_TUPLES;
  const int by_row = put && rows && p->index->rank == 2;
  for (uint32_t d = 0; d < n; d++) {
    cpu_place_dim *dim = &p->lead[p->n_lead++];
    *dim = (cpu_place_dim){.size = p->small->dims[d], .small = p->small->strides[d]};
    const int same = tuples ? d < batch : rows ? d < axis : d != axis;
    if (same) dim->large = p->large->strides[d];
    if (!rows)
      dim->index = p->index->strides[d];
    else if (d >= axis)
      dim->index = p->index->strides[by_row ? 1 : d - axis];
    else if (by_row && d == 0)
      dim->index = p->index->strides[0];
  }
}

/* Put: the groups are the coordinates that a place has from its position alone. They come first: of ELEMENTS
 * the axis goes to the end. Take keeps the order of memory, in one group. */
static void make_groups(cpu_places *p, const int64_t *attrs, int put) {
  const uint32_t axis = (uint32_t)attrs[1];
  uint32_t n = !put || attrs[0] == BS_INDEX_TUPLES ? 0 : axis;
  if (put && attrs[0] == BS_INDEX_ELEMENTS) {
    const cpu_place_dim last = p->lead[axis];
    for (uint32_t d = axis; d + 1 < p->n_lead; d++) p->lead[d] = p->lead[d + 1];
    p->lead[p->n_lead - 1] = last;
    n = p->n_lead - 1;
  }
  for (uint32_t d = 0; d < p->n_lead; d++) {
    if (d < n)
      p->groups *= p->lead[d].size;
    else
      p->inner *= p->lead[d].size;
  }
}

void cpu_places_make(const int64_t *attrs, int put, const bs_tensor *large, const bs_tensor *index,
                     const bs_tensor *small, cpu_places *out_places) {
  cpu_places *p = out_places;
  memset(p, 0, sizeof *p);
  p->large = large;
  p->index = index;
  p->small = small;
  p->size = BS_DTYPE_BYTES(large->dtype);
  p->tuple = 1;
  p->first = (uint32_t)attrs[1];
  p->groups = p->inner = p->elements = 1;
  if (attrs[0] == BS_INDEX_TUPLES) {
    p->first = (uint32_t)attrs[2];
    p->tuple = (uint32_t)index->dims[index->rank - 1];
    p->step = index->strides[index->rank - 1];
  }
  const uint32_t behind = attrs[0] == BS_INDEX_ELEMENTS ? 0 : large->rank - p->first - p->tuple;
  make_lead(p, attrs, put, small->rank - behind);
  make_groups(p, attrs, put);
  for (uint32_t k = behind; k-- > 0;) {
    const uint32_t s = small->rank - 1 - k, l = large->rank - 1 - k;
    p->elements *= small->dims[s];
    cpu_place_dims_add(p->rest, &p->n_rest,
                       (cpu_place_dim){small->dims[s], large->strides[l], small->strides[s], 0});
  }
  if (p->n_rest == 0) p->rest[p->n_rest++] = (cpu_place_dim){1, 1, 1, 0};
}

/* The number of the index at an offset, counted from the begin of dimension `axis`. */
static int64_t number_at(const cpu_places *p, int64_t at, uint32_t axis) {
  const int64_t v = p->index->dtype == BS_I64 ? ((const int64_t *)p->index->data)[at]
                                              : (int64_t)((const int32_t *)p->index->data)[at];
  return v < 0 ? v + p->large->dims[axis] : v;
}

int32_t cpu_places_check(const cpu_places *p, const char *op, bs_error *err) {
  const bs_tensor *index = p->index;
  int64_t n = 1;
  for (uint32_t d = 0; d < index->rank; d++) n *= index->dims[d];
  for (int64_t i = 0; i < n; i++) {
    const uint32_t axis = p->first + (uint32_t)(i % p->tuple); /* without tuples there is one number */
    int64_t at = 0, left = i;
    for (uint32_t d = index->rank; d-- > 0; left /= index->dims[d])
      at += left % index->dims[d] * index->strides[d];
    const int64_t size = p->large->dims[axis], v = number_at(p, at, axis);
    if (v >= 0 && v < size) continue;
    bs_fail(err, BS_INVALID_ARGUMENT, "BS-OP-INDEX", "%s: index %lld is outside of dimension %u of size %lld",
            op, (long long)(v < 0 ? v - size : v), axis, (long long)size);
    return bs_fail_hint(err, "an index must be in [%lld, %lld)", (long long)-size, (long long)size);
  }
  return BS_OK;
}

void cpu_places_find(const cpu_places *p, int64_t i, int64_t *out_large, int64_t *out_small) {
  int64_t large = 0, small = 0, at = 0;
  for (uint32_t d = p->n_lead; d-- > 0; i /= p->lead[d].size) {
    const int64_t k = i % p->lead[d].size;
    large += k * p->lead[d].large;
    small += k * p->lead[d].small;
    at += k * p->lead[d].index;
  }
  for (uint32_t t = 0; t < p->tuple; t++)
    large += number_at(p, at + t * p->step, p->first + t) * p->large->strides[p->first + t];
  *out_large = large;
  *out_small = small;
}

void cpu_piece_at(const cpu_place_dim *dims, uint32_t n, int64_t from, int64_t to, cpu_piece *out_piece) {
  const int64_t length = dims[n - 1].size, column = from % length;
  cpu_piece piece = {column * dims[n - 1].large, column * dims[n - 1].small, length - column};
  if (piece.n > to - from) piece.n = to - from;
  int64_t line = from / length;
  for (uint32_t d = n - 1; d-- > 0; line /= dims[d].size) {
    piece.large += line % dims[d].size * dims[d].large;
    piece.small += line % dims[d].size * dims[d].small;
  }
  *out_piece = piece;
}

void cpu_copy_strided(void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t n,
                      uint32_t size) {
  if ((to_stride == 1 && from_stride == 1) || n == 1) {
    memcpy(to, from, (size_t)n * size);
    return;
  }
  uint8_t *out = to;
  const uint8_t *in = from;
  to_stride *= size;
  from_stride *= size;
  switch (size) {
    case 1:
      for (int64_t i = 0; i < n; i++) out[i * to_stride] = in[i * from_stride];
      return;
    case 2:
      for (int64_t i = 0; i < n; i++) memcpy(out + i * to_stride, in + i * from_stride, 2);
      return;
    case 4:
      for (int64_t i = 0; i < n; i++) memcpy(out + i * to_stride, in + i * from_stride, 4);
      return;
    default:
      for (int64_t i = 0; i < n; i++) memcpy(out + i * to_stride, in + i * from_stride, 8);
      return;
  }
}
