/* SPDX-License-Identifier: MIT
 * schema_index.c - the core ops take and put: reading and writing at places that an index tensor names. Used
 * by schema_table.c. */
#include "core/base/dtype.h"
#include "core/op/schema.h"

/* Has arg i the dims of arg a from..to-1 at its own dims from `at` on. */
static int32_t same_run(const bs_op_query *q, uint32_t i, uint32_t at, uint32_t a, uint32_t from, uint32_t to,
                        bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t d = from; rc == BS_OK && d < to; d++) rc = bs_op_check_dim(q, i, at + d - from, a, d, err);
  return rc;
}

static void link_run(const bs_op_query *q, bs_op_links *links, uint32_t i, uint32_t at, uint32_t a,
                     uint32_t from, uint32_t to) {
  for (uint32_t d = from; d < to; d++) bs_op_link(q, links, i, at + d - from, a, d);
}

static int32_t check_common(const bs_op_query *q, bs_error *err) {
  const bs_tensor_desc *base = q->args[0], *index = q->args[1];
  if (base->rank < 1 || !bs_op_is_index(index->dtype))
    return bs_op_refuse(err, base->rank < 1 ? "BS-OP-RANK" : "BS-OP-DTYPE", q->op,
                        "arg 0 of rank %u, index %s: at least 1, and i32 or i64", base->rank,
                        bs_dtype_name(index->dtype));
  for (uint32_t i = 2; i < q->nargs; i++)
    if (q->args[i]->dtype != base->dtype)
      return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "arg %u is %s, arg 0 %s: must be equal", i,
                          bs_dtype_name(q->args[i]->dtype), bs_dtype_name(base->dtype));
  const int32_t rc = bs_op_check_attr(q, 0, BS_INDEX_ROWS, BS_INDEX_TUPLES, "kind", err);
  if (rc != BS_OK || q->attrs[0] == BS_INDEX_TUPLES) return rc;
  return bs_op_check_attr(q, 1, 0, (int64_t)base->rank - 1, "axis", err);
}

/* TUPLES: how many coordinates a tuple has; -1: index has no dimension for them, or too many. */
static int64_t tuple_of(const bs_op_query *q) {
  const bs_tensor_desc *base = q->args[0], *index = q->args[1];
  if (index->rank < 1) return -1;
  const int64_t m = index->dims[index->rank - 1], batch = q->attrs[2];
  return batch < 0 || batch >= (int64_t)index->rank || batch >= (int64_t)base->rank || m < 1 ||
                 m > (int64_t)base->rank - batch
             ? -1
             : m;
}

/* Checks `moved` (out of take, updates of put) of TUPLES. Its dims are those of index but the last, then
 * those of base after the tuple. */
static int32_t check_tuples(const bs_op_query *q, bs_error *err) {
  const bs_tensor_desc *base = q->args[0], *index = q->args[1];
  const int64_t m = tuple_of(q), batch = q->attrs[2];
  if (m < 0)
    return bs_op_refuse(err, "BS-OP-SHAPE", q->op, "arg 0 of rank %u, index of rank %u, %lld batch dims: %s",
                        base->rank, index->rank, (long long)batch,
                        "the last dim of index is the length of a tuple of coordinates");
  const uint32_t lead = index->rank - 1, skip = (uint32_t)(batch + m);
  int32_t rc = bs_op_check_rank(q, 2, lead + base->rank - skip, err);
  if (rc == BS_OK) rc = same_run(q, 1, 0, 0, 0, (uint32_t)batch, err);
  if (rc == BS_OK) rc = same_run(q, 2, 0, 1, 0, lead, err);
  return rc == BS_OK ? same_run(q, 2, lead, 0, skip, base->rank, err) : rc;
}

static void link_tuples(const bs_op_query *q, bs_op_links *links) {
  const bs_tensor_desc *base = q->args[0], *index = q->args[1];
  const uint32_t lead = index->rank - 1, skip = (uint32_t)(q->attrs[2] + tuple_of(q));
  link_run(q, links, 1, 0, 0, 0, (uint32_t)q->attrs[2]);
  link_run(q, links, 2, 0, 1, 0, lead);
  link_run(q, links, 2, lead, 0, skip, base->rank);
}

/* ELEMENTS: `moved` has index's dims, which are none above base's off the axis. */
static int32_t check_elements(const bs_op_query *q, bs_error *err) {
  const bs_tensor_desc *base = q->args[0], *index = q->args[1];
  int32_t rc = bs_op_check_rank(q, 1, base->rank, err);
  if (rc == BS_OK) rc = bs_op_check_dims(q, 2, 1, 0, err);
  for (uint32_t d = 0; rc == BS_OK && d < base->rank; d++)
    if ((int64_t)d != q->attrs[1] && index->dims[d] > base->dims[d])
      rc = bs_op_refuse(err, "BS-OP-SHAPE", q->op, "index has %lld in dimension %u, arg 0 %lld",
                        (long long)index->dims[d], d, (long long)base->dims[d]);
  return rc;
}

static void link_elements(const bs_op_query *q, bs_op_links *links) {
  bs_op_link_all(q, links, 1, 1);
  bs_op_link_all(q, links, 2, 1);
  for (uint32_t d = 0; d < q->args[0]->rank; d++)
    if ((int64_t)d != q->attrs[1]) bs_op_link(q, links, 0, d, 1, d); /* a larger one stays as prepared */
}

/* ---- take: data, index, out ----------------------------------------------------------------- */

int32_t bs_op_check_take(const bs_op_query *q, bs_error *err) {
  const uint32_t rank = q->args[0]->rank, index = q->args[1]->rank, axis = (uint32_t)q->attrs[1];
  int32_t rc = check_common(q, err);
  if (rc != BS_OK) return rc;
  if (q->attrs[0] == BS_INDEX_TUPLES) return check_tuples(q, err);
  if (q->attrs[0] == BS_INDEX_ELEMENTS) return check_elements(q, err);
  rc = bs_op_check_rank(q, 2, rank + index - 1, err);
  if (rc == BS_OK) rc = same_run(q, 2, 0, 0, 0, axis, err);
  if (rc == BS_OK) rc = same_run(q, 2, axis, 1, 0, index, err);
  return rc == BS_OK ? same_run(q, 2, axis + index, 0, axis + 1, rank, err) : rc;
}

void bs_op_link_take(const bs_op_query *q, bs_op_links *links) {
  const uint32_t rank = q->args[0]->rank, index = q->args[1]->rank, axis = (uint32_t)q->attrs[1];
  links->touched[1] = 1;
  links->touched[2] = 2; /* what is read of data, and out */
  if (q->attrs[0] == BS_INDEX_TUPLES) {
    link_tuples(q, links);
  } else if (q->attrs[0] == BS_INDEX_ELEMENTS) {
    link_elements(q, links);
  } else {
    link_run(q, links, 2, 0, 0, 0, axis);
    link_run(q, links, 2, axis, 1, 0, index);
    link_run(q, links, 2, axis + index, 0, axis + 1, rank);
    bs_op_link(q, links, 0, axis, 0, axis);
  }
}

/* ---- put: base, index, updates, out --------------------------------------------------------- */

static int32_t check_put_rows(const bs_op_query *q, bs_error *err) {
  const bs_tensor_desc *base = q->args[0], *index = q->args[1];
  const uint32_t axis = (uint32_t)q->attrs[1];
  if (index->rank != 1 && (index->rank != 2 || axis == 0))
    return bs_op_refuse(err, "BS-OP-RANK", q->op, "index of rank %u at axis %u: 1, or 2 behind axis 0",
                        index->rank, axis);
  int32_t rc = bs_op_check_rank(q, 2, base->rank, err);
  if (rc == BS_OK && index->rank == 2) rc = bs_op_check_dim(q, 1, 0, 0, 0, err);
  for (uint32_t d = 0; rc == BS_OK && d < base->rank; d++)
    rc = d == axis ? bs_op_check_dim(q, 2, d, 1, index->rank - 1, err) : bs_op_check_dim(q, 2, d, 0, d, err);
  return rc;
}

int32_t bs_op_check_put(const bs_op_query *q, bs_error *err) {
  int32_t rc = check_common(q, err);
  if (rc == BS_OK) rc = bs_op_check_dims(q, 3, 0, 0, err);
  if (rc == BS_OK) rc = bs_op_check_attr(q, 2, 0, 0, "batch dims", err);
  if (rc == BS_OK) rc = bs_op_check_attr(q, 3, BS_PUT_SET, BS_PUT_MIN, "reduction", err);
  if (rc == BS_OK && q->attrs[3] != BS_PUT_SET && q->args[0]->dtype == BS_BOOL)
    rc = bs_op_refuse(err, "BS-OP-DTYPE", q->op, "bool can only be set");
  if (rc != BS_OK) return rc;
  if (q->attrs[0] == BS_INDEX_TUPLES) return check_tuples(q, err);
  return q->attrs[0] == BS_INDEX_ELEMENTS ? check_elements(q, err) : check_put_rows(q, err);
}

void bs_op_link_put(const bs_op_query *q, bs_op_links *links) {
  const uint32_t rank = q->args[0]->rank, axis = (uint32_t)q->attrs[1];
  links->touched[1] = 1;
  links->touched[2] = 2; /* updates, and the places that they go to */
  if (q->attrs[0] == BS_INDEX_TUPLES) {
    link_tuples(q, links);
  } else if (q->attrs[0] == BS_INDEX_ELEMENTS) {
    link_elements(q, links);
  } else {
    const uint32_t last = q->args[1]->rank - 1;
    for (uint32_t d = 0; d < rank; d++)
      if (d != axis) bs_op_link(q, links, 2, d, 0, d);
    bs_op_link(q, links, 2, axis, 1, last);
    if (last == 1) bs_op_link(q, links, 1, 0, 0, 0);
  }
  for (uint32_t d = 0; d < rank; d++) { /* base: its own numbers where it has none; out alike */
    const int fixed =
        q->attrs[0] == BS_INDEX_ELEMENTS && (int64_t)d != q->attrs[1] && links->links[0][d] == 0;
    if (fixed) continue;
    bs_op_link(q, links, 0, d, 0, d);
    bs_op_link(q, links, 3, d, 0, d);
  }
}
