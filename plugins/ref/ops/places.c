/* SPDX-License-Identifier: MIT
 * places.c - the positions of an index and the places that they name: shared by take and put. */
#include "places.h"

void ref_places_make(const ref_plan *plan, const char *op, int put, const bs_tensor *large,
                     const bs_tensor *index, const bs_tensor *small, ref_places *out_places) {
  ref_places *p = out_places;
  memset(p, 0, sizeof *p);
  p->host = plan->host;
  p->op = op;
  p->kind = plan->attrs[0];
  p->large = ref_spread_of(large, large->rank, large->dims);
  p->small = ref_spread_of(small, small->rank, small->dims);
  p->index = ref_spread_of(index, index->rank, index->dims);
  if (p->kind == BS_INDEX_TUPLES) {
    p->batch = (uint32_t)plan->attrs[2];
    p->tuple = (uint32_t)index->dims[index->rank - 1];
    p->rank = index->rank - 1;
  } else {
    p->axis = (uint32_t)plan->attrs[1];
    p->by_row = put && p->kind == BS_INDEX_ROWS && index->rank == 2;
    p->rank = p->kind == BS_INDEX_ELEMENTS ? small->rank : p->axis + (p->by_row ? 1 : index->rank);
  }
  p->trailing = small->rank - p->rank;
  p->count = ref_elements(p->rank, small->dims);
}

/* One number of the index, counted from the beginning of dimension `axis`. */
static int32_t read_index(const ref_places *p, const int64_t *at, uint32_t axis, int64_t *out_index,
                          bs_error *err) {
  const ref_view v = {
      .data = ref_at(&p->index, at), .dtype = p->index.dtype, .size = p->index.size, .rows = 1, .cols = 1};
  const int64_t size = p->large.dims[axis];
  int64_t index = 0;
  const int32_t rc = ref_load(p->host, &v, 0, NULL, 0, 1, BS_I64, &index);
  if (rc != BS_OK) return rc;
  *out_index = index < 0 ? index + size : index;
  if (*out_index >= 0 && *out_index < size) return BS_OK;
  bs_fail(err, BS_INVALID_ARGUMENT, "BS-OP-INDEX", "%s: index %lld is outside of dimension %u of size %lld",
          p->op, (long long)index, axis, (long long)size);
  return bs_fail_hint(err, "an index must be in [%lld, %lld)", (long long)-size, (long long)size);
}

int32_t ref_places_find(const ref_places *p, int64_t i, int64_t *out_large, int64_t *out_small,
                        bs_error *err) {
  int64_t at[BS_MAX_DIMS + 1] = {0};
  memset(out_large, 0, BS_MAX_DIMS * sizeof *out_large);
  memset(out_small, 0, BS_MAX_DIMS * sizeof *out_small);
  ref_coordinates(i, p->rank, p->small.dims, out_small);
  if (p->kind == BS_INDEX_TUPLES) {
    int32_t rc = BS_OK;
    memcpy(at, out_small, p->rank * sizeof *at);
    memcpy(out_large, out_small, p->batch * sizeof *at);
    for (uint32_t c = 0; rc == BS_OK && c < p->tuple; c++) {
      at[p->rank] = c;
      rc = read_index(p, at, p->batch + c, &out_large[p->batch + c], err);
    }
    return rc;
  }
  memcpy(out_large, out_small, (p->kind == BS_INDEX_ELEMENTS ? p->rank : p->axis) * sizeof *at);
  if (p->kind == BS_INDEX_ELEMENTS) {
    memcpy(at, out_small, p->rank * sizeof *at);
  } else if (p->by_row) {
    at[0] = out_small[0];
    at[1] = out_small[p->axis];
  } else {
    memcpy(at, out_small + p->axis, p->index.rank * sizeof *at);
  }
  return read_index(p, at, p->axis, &out_large[p->axis], err);
}

/* The trailing dims are the last ones of both tensors and alike. */
int64_t ref_places_lines(const ref_places *p) {
  return ref_lines(p->trailing, p->small.dims + p->rank);
}

ref_view ref_places_line(const ref_places *p, const ref_spread *s, const int64_t *at, int64_t line) {
  const uint32_t first = s->rank - p->trailing, last = s->rank > 0 ? s->rank - 1 : 0;
  int64_t there[BS_MAX_DIMS];
  memcpy(there, at, sizeof there);
  if (p->trailing > 1) ref_coordinates(line, p->trailing - 1, s->dims + first, there + first);
  ref_view v = ref_line_along(s, last, there);
  if (p->trailing == 0) v.cols = 1;
  return v;
}

int32_t ref_copy_line(const bs_host *host, const ref_view *from, const ref_view *to) {
  enum { PIECE = 128 };
  _Alignas(8) unsigned char piece[PIECE * 8];
  int32_t rc = BS_OK;
  for (int64_t c = 0; rc == BS_OK && c < to->cols; c += PIECE) {
    const int64_t n = to->cols - c < PIECE ? to->cols - c : PIECE;
    rc = ref_load(host, from, 0, NULL, c, n, from->dtype, piece);
    if (rc == BS_OK) rc = ref_store(host, to, 0, c, n, to->dtype, piece);
  }
  return rc;
}
