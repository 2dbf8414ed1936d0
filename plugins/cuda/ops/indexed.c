/* SPDX-License-Identifier: MIT
 * indexed.c - see indexed.h: the host lays the tensors of take and put over the walk of their kernels. */
#include "indexed.h"

enum { LARGE, INDEX, SMALL, EXTRA, SPREADS };

cuda_indexed cuda_indexed_of(const bs_op_query *q, int put) {
  const cuda_indexed how = {q->op, q->attrs[0], (uint32_t)q->attrs[1], (uint32_t)q->attrs[2], put != 0};
  return how;
}

static int no(bs_op_answer *out, uint32_t reason, const char *text) {
  (void)cuda_answer_no(out, reason, "%s", text);
  return 0;
}

/* Ranks of which the walk reads no dim that a tensor lacks. */
static int ranks_fit(const bs_op_query *q, int put) {
  const uint32_t large = q->args[0]->rank, index = q->args[1]->rank, small = q->args[2]->rank;
  const int64_t axis = q->attrs[1], batch = q->attrs[2];
  if (q->attrs[0] == BS_INDEX_TUPLES) {
    if (index == 0 || batch < 0 || batch >= (int64_t)index || batch >= (int64_t)large) return 0;
    const int64_t skip = batch + q->args[1]->dims[index - 1];
    return skip <= (int64_t)large && (int64_t)small == (int64_t)index - 1 + (int64_t)large - skip;
  }
  if (axis < 0 || axis >= (int64_t)large) return 0;
  if (q->attrs[0] == BS_INDEX_ELEMENTS) return index == large && small == large;
  if (!put) return small == large + index - 1;
  return small == large && (index == 1 || (index == 2 && axis > 0));
}

int cuda_indexed_legal(const bs_op_query *q, int put, bs_op_answer *out) {
  const uint32_t nargs = put ? 4 : 3;
  if (q->nargs != nargs || q->args == NULL) return no(out, BS_REASON_RANK, "another number of arguments");
  for (uint32_t i = 0; i < nargs; i++) {
    if (q->args[i] == NULL || q->args[i]->rank > BS_MAX_DIMS || !cuda_arg_ok(q, i, q->args[i]->rank))
      return no(out, BS_REASON_RANK, "needs tensors of known dtypes");
    if (i != 1 && q->args[i]->dtype != q->args[0]->dtype)
      return no(out, BS_REASON_DTYPE, "all but the index have one dtype");
  }
  if (q->args[1]->dtype != BS_I32 && q->args[1]->dtype != BS_I64)
    return no(out, BS_REASON_DTYPE, "the index is of i32 or i64");
  if (q->attrs[0] < BS_INDEX_ROWS || q->attrs[0] > BS_INDEX_TUPLES)
    return no(out, BS_REASON_NOT_BUILT, "this kind of index is not known");
  if (put && q->args[3]->rank != q->args[0]->rank)
    return no(out, BS_REASON_RANK, "output and base differ in rank");
  return ranks_fit(q, put) ? 1 : no(out, BS_REASON_RANK, "the index does not fit the other tensors");
}

uint32_t cuda_indexed_run(const cuda_indexed *how, const bs_tensor *index, uint32_t *out_first) {
  *out_first = how->kind == BS_INDEX_TUPLES ? 0 : how->axis;
  return how->kind == BS_INDEX_TUPLES ? index->rank - 1 : 1;
}

/* ---- strides over the small tensor's dims --------------------------------------------------------- */

static void lay_tuples(const cuda_indexed *how, const bs_tensor *large, const bs_tensor *index, uint32_t rank,
                       cuda_spread *v, indexed_args *a) {
  const uint32_t lead = index->rank - 1;
  a->tuple = (uint32_t)index->dims[lead];
  a->step = index->strides[lead];
  for (uint32_t c = 0; c < a->tuple; c++) {
    a->sizes[c] = large->dims[how->batch + c];
    a->along[c] = large->strides[how->batch + c];
  }
  for (uint32_t d = 0; d < lead; d++) v[INDEX].strides[d] = index->strides[d];
  for (uint32_t d = 0; d < how->batch; d++) v[LARGE].strides[d] = large->strides[d];
  for (uint32_t d = lead; d < rank; d++)
    v[LARGE].strides[d] = large->strides[d - lead + how->batch + a->tuple];
}

/* Dims of positions that stand in the place of the axis: of take those of the index, else one. */
static void lay_axis(const cuda_indexed *how, const bs_tensor *large, const bs_tensor *index, uint32_t rank,
                     cuda_spread *v, indexed_args *a) {
  const uint32_t axis = how->axis, rows = how->kind == BS_INDEX_ROWS;
  const uint32_t wide = rows && !how->put ? index->rank : 1;
  a->tuple = 1;
  a->sizes[0] = large->dims[axis];
  a->along[0] = large->strides[axis];
  for (uint32_t d = 0; d < rank; d++) {
    if (d < axis)
      v[LARGE].strides[d] = large->strides[d];
    else if (d >= axis + wide)
      v[LARGE].strides[d] = large->strides[d - wide + 1];
    if (!rows)
      v[INDEX].strides[d] = index->strides[d];
    else if (!how->put && d >= axis && d < axis + wide)
      v[INDEX].strides[d] = index->strides[d - axis];
  }
  if (!rows || !how->put) return;
  v[INDEX].strides[axis] = index->strides[index->rank - 1];
  if (index->rank == 2) v[INDEX].strides[0] = index->strides[0];
}

static cuda_spread bare(const bs_tensor *t) {
  cuda_spread v;
  memset(&v, 0, sizeof v);
  if (t == NULL) return v;
  v.data = t->data;
  v.dtype = t->dtype;
  v.size = BS_DTYPE_BYTES(t->dtype);
  return v;
}

void cuda_indexed_lay(const cuda_indexed *how, const bs_tensor *large, const bs_tensor *index,
                      const bs_tensor *small, cuda_spread *extra, indexed_args *out) {
  cuda_spread v[SPREADS] = {bare(large), bare(index), bare(small), bare(NULL)};
  memset(out, 0, sizeof *out);
  if (extra != NULL) v[EXTRA] = *extra;
  for (uint32_t d = 0; d < small->rank; d++) {
    v[SMALL].strides[d] = small->strides[d];
    if (index == NULL) v[LARGE].strides[d] = large->strides[d];
  }
  if (index != NULL && how->kind == BS_INDEX_TUPLES)
    lay_tuples(how, large, index, small->rank, v, out);
  else if (index != NULL)
    lay_axis(how, large, index, small->rank, v, out);
  cuda_space_make(small->rank, small->dims, 0, v, SPREADS, &out->space);
  out->large = v[LARGE];
  out->index = v[INDEX];
  out->small = v[SMALL];
  if (extra != NULL) *extra = v[EXTRA];
}

/* ---- units ---------------------------------------------------------------------------------------- */

static int multiple(const cuda_spread *v, int64_t width) {
  if ((uintptr_t)v->data % ((uint64_t)width * v->size) != 0) return 0;
  for (uint32_t d = 0; d + 1 < CUDA_SPACE_DIMS; d++)
    if (v->strides[d] % width != 0) return 0;
  return 1;
}

static void gather_units(cuda_spread *v, int64_t width) {
  for (uint32_t d = 0; d + 1 < CUDA_SPACE_DIMS; d++) v->strides[d] /= width;
  v->size *= (uint32_t)width;
}

void cuda_indexed_widen(indexed_args *a) {
  const uint32_t last = CUDA_SPACE_DIMS - 1;
  const int64_t dim = a->space.dims[last].by;
  int64_t width = 16 / a->small.size;
  if (a->large.strides[last] != 1 || a->small.strides[last] != 1 || a->index.strides[last] != 0) return;
  for (; width > 1; width /= 2) {
    int fits = dim % width == 0 && multiple(&a->large, width) && multiple(&a->small, width);
    for (uint32_t c = 0; c < a->tuple; c++) fits = fits && a->along[c] % width == 0;
    if (fits) break;
  }
  gather_units(&a->large, width);
  gather_units(&a->small, width);
  for (uint32_t c = 0; c < a->tuple; c++) a->along[c] /= width;
  a->space.dims[last] = cuda_divisor_make(dim / width);
  a->space.count /= width;
}

int32_t cuda_indexed_check(const cuda_indexed *how, const indexed_args *a, bs_error *err) {
  for (uint32_t c = 0; c < a->tuple && a->space.count > 0; c++)
    if (a->sizes[c] == 0)
      return bs_fail(err, BS_INVALID_ARGUMENT, "BS-OP-INDEX", "%s: an index into a dimension of size 0",
                     how->op);
  return BS_OK;
}

int32_t cuda_indexed_copy_all(const cuda_device *device, const bs_tensor *from, const bs_tensor *to,
                              CUstream stream, bs_error *err) {
  indexed_args args;
  cuda_indexed_lay(NULL, from, NULL, to, NULL, &args);
  cuda_indexed_widen(&args);
  return cuda_launch_items(device, CUDA_TAKE, args.space.count, stream, &args, err);
}
