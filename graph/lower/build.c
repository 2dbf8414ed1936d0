/* SPDX-License-Identifier: MIT */
#include "graph/lower/build.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/size.h"

static int stopped(const build *b) {
  return b->rc != BS_OK;
}

/* ---- inputs, outputs, questions ---------------------------------------------------------------- */

uint32_t build_in(build *b, uint32_t i) {
  if (stopped(b)) return GNONE;
  const uint32_t value = lower_in(b->c, b->node, i);
  if (value == GNONE) b->rc = lower_bad(b->c, b->node, b->err, "input %u is absent", i);
  return value;
}

uint32_t build_optional(build *b, uint32_t i) {
  return stopped(b) || !lower_has(b->node, i) ? GNONE : lower_in(b->c, b->node, i);
}

void build_out(build *b, uint32_t i, uint32_t value) {
  if (!stopped(b)) b->rc = lower_out(b->c, b->node, i, value, b->err);
}

build_shape build_shape_of(const build *b, uint32_t value) {
  build_shape shape = {0};
  if (value == GNONE) return shape;
  const gvalue *v = lower_value(b->c, value);
  shape.rank = v->rank;
  memcpy(shape.dims, v->dims, sizeof shape.dims);
  return shape;
}

uint32_t build_dtype(const build *b, uint32_t value) {
  return value == GNONE ? 0 : lower_dtype(b->c, value);
}

uint32_t build_rank(const build *b, uint32_t value) {
  return value == GNONE ? 0 : lower_rank(b->c, value);
}

int64_t build_dim(const build *b, uint32_t value, uint32_t axis) {
  return value == GNONE || axis >= lower_rank(b->c, value) ? 1 : lower_value(b->c, value)->dims[axis];
}

int build_is_float(uint32_t dtype) {
  return lower_compute(dtype) != BS_I64;
}

uint32_t build_onnx_dtype(int64_t type) {
  static const uint16_t dtypes[] = {0,      BS_F32, BS_U8, BS_I8, 0, 0, BS_I32,  BS_I64,    0, BS_BOOL,
                                    BS_F16, BS_F64, 0,     0,     0, 0, BS_BF16, BS_F8E4M3, 0, BS_F8E5M2};
  return type > 0 && type < (int64_t)(sizeof dtypes / sizeof dtypes[0]) ? dtypes[type] : 0;
}

int64_t build_elements(const build_shape *shape) {
  int64_t n = 1;
  for (uint32_t i = 0; i < shape->rank; ++i) {
    if (!bs_mul_i64(n, shape->dims[i], &n)) return -1;
  }
  return n;
}

int64_t build_count(build *b, uint32_t value, uint32_t axes) {
  int64_t n = 1;
  for (uint32_t i = 0; i < build_rank(b, value) && b->rc == BS_OK; ++i) {
    if ((axes >> i & 1) && !bs_mul_i64(n, build_dim(b, value, i), &n))
      build_refuse(b, 0, "its dims are too large");
  }
  return b->rc == BS_OK ? n : 0;
}

int build_same(const build_shape *a, const build_shape *b) {
  return a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof a->dims[0]) == 0;
}

uint32_t build_axis(build *b, int64_t axis, uint32_t rank) {
  uint32_t positive = 0;
  if (!stopped(b)) b->rc = lower_axis(b->c, b->node, axis, rank, &positive, b->err);
  return stopped(b) ? 0 : positive;
}

build_shape build_broadcast(build *b, const uint32_t *values, uint32_t n) {
  build_shape shape = {0};
  if (!stopped(b)) b->rc = lower_broadcast(b->c, b->node, values, n, &shape.rank, shape.dims, b->err);
  return stopped(b) ? (build_shape){0} : shape;
}

void build_tell_no_memory(const build *b) {
  bs_error_set(b->err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for the lowering of a %s", b->node->op);
}

uint32_t build_read_ints(build *b, uint32_t value, const char *what, int64_t *out, uint32_t max) {
  uint32_t n = 0;
  if (!stopped(b)) b->rc = lower_read_ints(b->c, b->node, value, what, out, max, &n, b->err);
  return stopped(b) ? 0 : n;
}

int64_t build_read_int(build *b, uint32_t value, const char *what) {
  int64_t one = 0;
  build_check(b, build_read_ints(b, value, what, &one, 1) == 1,
              "a value that decides a shape has no element");
  return one;
}

double build_read_real(build *b, uint32_t value, const char *what) {
  double one = 0;
  uint32_t n = 1;
  if (!stopped(b)) b->rc = lower_read_floats(b->c, b->node, value, what, &one, 1, &n, b->err);
  build_check(b, n == 1, "a value that decides a shape has no element");
  return one;
}

uint32_t build_list(build *b, uint32_t i, const char *attr, int64_t *out, uint32_t max, int *out_there) {
  const uint32_t value = build_optional(b, i);
  const bs_attr *list = lower_ints(b->node, attr);
  *out_there = value != GNONE || list != NULL;
  if (stopped(b)) return 0;
  if (value != GNONE) return build_read_ints(b, value, attr, out, max);
  if (list == NULL) return 0;
  build_check(b, list->count <= max, "an attribute has too many numbers");
  if (stopped(b)) return 0;
  memcpy(out, list->ints, list->count * sizeof *out);
  return (uint32_t)list->count;
}

/* ---- constants --------------------------------------------------------------------------------- */

uint32_t build_const(build *b, uint32_t dtype, const build_shape *shape, const void *data) {
  uint32_t value = GNONE;
  if (!stopped(b)) b->rc = lower_const(b->c, dtype, shape->rank, shape->dims, data, &value, b->err);
  return stopped(b) ? GNONE : value;
}

uint32_t build_real(build *b, uint32_t dtype, double number) {
  uint32_t value = GNONE;
  if (!stopped(b)) b->rc = lower_const_scalar(b->c, dtype, number, &value, b->err);
  return stopped(b) ? GNONE : value;
}

uint32_t build_reals(build *b, uint32_t dtype, const build_shape *shape, const double *numbers) {
  const int64_t n = build_elements(shape);
  if (stopped(b)) return GNONE;
  if (dtype == BS_F64) return build_const(b, BS_F64, shape, numbers);
  float *narrow = malloc((size_t)(n > 0 ? n : 0) * sizeof *narrow + 1);
  if (narrow == NULL) build_no_memory(b);
  for (int64_t i = 0; narrow != NULL && i < n; ++i) narrow[i] = (float)numbers[i];
  const uint32_t value = build_const(b, BS_F32, shape, narrow);
  free(narrow);
  return build_cast(b, value, dtype);
}
uint32_t build_ints(build *b, const int64_t *values, int64_t n) {
  const build_shape shape = {1, {n}};
  return build_const(b, BS_I64, &shape, values);
}

/* ---- views ------------------------------------------------------------------------------------- */

uint32_t build_view(build *b, uint32_t value, const build_shape *shape, const int64_t *strides,
                    int64_t offset) {
  uint32_t view = GNONE;
  if (stopped(b)) return GNONE;
  b->rc = lower_view(b->c, value, shape->rank, shape->dims, strides,
                     lower_value(b->c, value)->offset + offset, &view, b->err);
  return stopped(b) ? GNONE : view;
}

uint32_t build_reshape(build *b, uint32_t value, const build_shape *shape) {
  uint32_t view = GNONE;
  if (stopped(b)) return GNONE;
  const build_shape old = build_shape_of(b, value);
  if (build_same(&old, shape)) return value;
  build_check(b, build_elements(&old) == build_elements(shape), "a reshape changes the number of elements");
  if (!stopped(b)) b->rc = lower_reshape(b->c, value, shape->rank, shape->dims, &view, b->err);
  return stopped(b) ? GNONE : view;
}

uint32_t build_permute(build *b, uint32_t value, const uint32_t *order) {
  uint32_t view = GNONE;
  int same = 1;
  for (uint32_t i = 0; i < build_rank(b, value); ++i) same &= order[i] == i;
  if (stopped(b) || same) return value;
  b->rc = lower_transpose(b->c, value, order, &view, b->err);
  return stopped(b) ? GNONE : view;
}

uint32_t build_swap(build *b, uint32_t value, uint32_t x, uint32_t y) {
  uint32_t order[BS_MAX_DIMS] = {0, 1, 2, 3, 4, 5};
  order[x] = y;
  order[y] = x;
  return build_permute(b, value, order);
}

uint32_t build_move(build *b, uint32_t value, uint32_t axis, int to_end) {
  uint32_t order[BS_MAX_DIMS] = {0};
  const uint32_t rank = build_rank(b, value), last = rank - 1;
  for (uint32_t i = 0; i < rank; ++i) {
    if (to_end) {
      order[i] = i == last ? axis : i < axis ? i : i + 1;
    } else {
      order[i] = i == axis ? last : i < axis ? i : i - 1;
    }
  }
  return rank == 0 ? value : build_permute(b, value, order);
}

uint32_t build_expand(build *b, uint32_t value, const build_shape *shape) {
  uint32_t view = GNONE;
  if (stopped(b)) return GNONE;
  const build_shape old = build_shape_of(b, value);
  if (build_same(&old, shape)) return value;
  b->rc = lower_expand(b->c, b->node, value, shape->rank, shape->dims, &view, b->err);
  return stopped(b) ? GNONE : view;
}

uint32_t build_slice(build *b, uint32_t value, uint32_t axis, int64_t begin, int64_t count, int64_t step) {
  uint32_t view = GNONE;
  if (stopped(b)) return GNONE;
  if (begin == 0 && step == 1 && count == build_dim(b, value, axis)) return value;
  b->rc = lower_slice(b->c, value, axis, begin, count, step, &view, b->err);
  return stopped(b) ? GNONE : view;
}

uint32_t build_unsqueeze(build *b, uint32_t value, uint32_t axis) {
  build_shape shape = build_shape_of(b, value);
  if (shape.rank == BS_MAX_DIMS) build_refuse(b, 0, "it needs more than 6 dims");
  if (stopped(b)) return GNONE;
  memmove(&shape.dims[axis + 1], &shape.dims[axis], (shape.rank - axis) * sizeof shape.dims[0]);
  shape.dims[axis] = 1;
  shape.rank += 1;
  return build_reshape(b, value, &shape);
}

uint32_t build_squeeze(build *b, uint32_t value, uint32_t axis) {
  build_shape shape = build_shape_of(b, value);
  if (stopped(b) || shape.rank == 0) return value;
  memmove(&shape.dims[axis], &shape.dims[axis + 1], (shape.rank - axis - 1) * sizeof shape.dims[0]);
  shape.rank -= 1;
  return build_reshape(b, value, &shape);
}

uint32_t build_split_dim(build *b, uint32_t value, uint32_t axis, int64_t outer, int64_t inner) {
  build_shape shape = build_shape_of(b, value);
  if (shape.rank == BS_MAX_DIMS) build_refuse(b, 0, "it needs more than 6 dims");
  if (stopped(b)) return GNONE;
  memmove(&shape.dims[axis + 1], &shape.dims[axis], (shape.rank - axis) * sizeof shape.dims[0]);
  shape.dims[axis] = outer;
  shape.dims[axis + 1] = inner;
  shape.rank += 1;
  return build_reshape(b, value, &shape);
}

uint32_t build_join_dims(build *b, uint32_t value, uint32_t first, uint32_t n) {
  const build_shape old = build_shape_of(b, value);
  build_shape joined = {n, {0}}, shape = {old.rank + 1 - n, {0}};
  if (stopped(b)) return GNONE;
  memcpy(joined.dims, &old.dims[first], n * sizeof joined.dims[0]);
  for (uint32_t i = 0; i < shape.rank; ++i)
    shape.dims[i] = old.dims[i < first ? i : i == first ? first : i + n - 1];
  shape.dims[first] = build_elements(&joined);
  return build_reshape(b, value, &shape);
}

/* ---- kernel ops -------------------------------------------------------------------------------- */

uint32_t build_temp(build *b, uint32_t dtype, const build_shape *shape) {
  uint32_t value = GNONE;
  if (build_elements(shape) == 0) return build_const(b, dtype, shape, ""); /* nothing writes it */
  if (!stopped(b)) b->rc = lower_temp(b->c, dtype, shape->rank, shape->dims, &value, b->err);
  return stopped(b) ? GNONE : value;
}

uint32_t build_map(build *b, lower_map *m, uint8_t out, uint32_t dtype) {
  uint32_t value = GNONE;
  if (!stopped(b)) b->rc = lower_map_one(m, b->node, out, dtype, &value, b->err);
  return stopped(b) ? GNONE : value;
}

void build_map_into(build *b, lower_map *m, uint8_t out, uint32_t into) {
  if (!stopped(b)) b->rc = lower_map_emit_into(m, b->node, 1, &out, &into, b->err);
}

uint32_t build_unary(build *b, uint8_t step, uint32_t value, uint32_t dtype) {
  lower_map m;
  if (stopped(b)) return GNONE;
  lower_map_begin(&m, b->c, lower_compute(build_dtype(b, value)));
  const uint8_t x = lower_map_in(&m, value);
  return build_map(b, &m, lower_map_step(&m, step, x, 0, 0), dtype);
}

uint32_t build_binary(build *b, uint8_t step, uint32_t x, uint32_t y, uint32_t dtype) {
  lower_map m;
  if (stopped(b)) return GNONE;
  lower_map_begin(&m, b->c, lower_compute(build_dtype(b, x)));
  const uint8_t vx = lower_map_in(&m, x), vy = lower_map_in(&m, y);
  return build_map(b, &m, lower_map_step(&m, step, vx, vy, 0), dtype);
}

uint32_t build_select(build *b, uint32_t condition, uint32_t y, uint32_t z) {
  lower_map m;
  if (stopped(b)) return GNONE;
  lower_map_begin(&m, b->c, lower_compute(build_dtype(b, y)));
  const uint8_t vc = lower_map_in(&m, condition), vy = lower_map_in(&m, y), vz = lower_map_in(&m, z);
  return build_map(b, &m, lower_map_step(&m, BS_EXPR_SELECT, vc, vy, vz), build_dtype(b, y));
}

uint32_t build_scale(build *b, uint32_t value, double factor) {
  lower_map m;
  if (stopped(b)) return GNONE;
  lower_map_begin(&m, b->c, lower_compute(build_dtype(b, value)));
  const uint8_t x = lower_map_in(&m, value), f = lower_map_const(&m, factor);
  return build_map(b, &m, lower_map_step(&m, BS_EXPR_MUL, x, f, 0), build_dtype(b, value));
}

uint32_t build_cast(build *b, uint32_t value, uint32_t dtype) {
  uint32_t out = GNONE;
  if (stopped(b) || build_dtype(b, value) == dtype) return value;
  b->rc = lower_cast(b->c, value, dtype, &out, b->err);
  return stopped(b) ? GNONE : out;
}

uint32_t build_copy(build *b, uint32_t value) {
  uint32_t out = GNONE;
  if (!stopped(b)) b->rc = lower_copy(b->c, value, &out, b->err);
  return stopped(b) ? GNONE : out;
}

void build_copy_into(build *b, uint32_t value, uint32_t into) {
  if (stopped(b)) return;
  const build_shape shape = build_shape_of(b, into);
  if (build_elements(&shape) != 0) b->rc = lower_copy_into(b->c, value, into, b->err);
}

uint32_t build_reduce(build *b, uint32_t kind, uint32_t value, uint32_t axes, double factor) {
  uint32_t out = GNONE;
  const uint32_t dtype = build_dtype(b, value);
  if (!stopped(b)) b->rc = lower_reduce(b->c, kind, value, axes, factor, 0, dtype, &out, b->err);
  return stopped(b) ? GNONE : out;
}

uint32_t build_normalize(build *b, uint32_t kind, double eps, uint32_t x, uint32_t gamma, uint32_t beta) {
  uint32_t out = GNONE;
  const uint32_t dtype = build_dtype(b, x);
  if (!stopped(b)) b->rc = lower_normalize(b->c, kind, eps, x, GNONE, gamma, beta, dtype, &out, NULL, b->err);
  return stopped(b) ? GNONE : out;
}

uint32_t build_contract(build *b, uint32_t x, uint32_t y, uint32_t bias, double alpha) {
  uint32_t out = GNONE;
  const uint32_t dtype = build_dtype(b, x);
  if (!build_is_float(dtype) && dtype != BS_I32 && dtype != BS_I64)
    build_refuse(b, dtype, "products of this dtype");
  if (!stopped(b)) b->rc = lower_contract(b->c, x, y, bias, alpha, BS_ACT_NONE, dtype, &out, b->err);
  return stopped(b) ? GNONE : out;
}

uint32_t build_take(build *b, uint32_t data, uint32_t index, uint32_t axis) {
  uint32_t out = GNONE;
  if (!stopped(b)) b->rc = lower_take(b->c, BS_INDEX_ROWS, data, index, axis, 0, &out, b->err);
  return stopped(b) ? GNONE : out;
}

/* Strides are never negative: the values are taken by an index that falls, which is computed once. */
uint32_t build_reverse(build *b, uint32_t value, uint32_t axis) {
  lower_map m;
  const int64_t n = build_dim(b, value, axis);
  const build_shape shape = {1, {n}};
  const uint32_t zero = build_expand(b, build_real(b, BS_I64, 0), &shape);
  if (stopped(b) || n < 2) return value;
  lower_map_begin(&m, b->c, BS_I64);
  const uint8_t none = lower_map_in(&m, zero), last = lower_map_const_int(&m, n - 1);
  const uint8_t i = lower_map_step(&m, BS_EXPR_INDEX, 0, 0, 0);
  (void)none;
  return build_take(b, value, build_map(b, &m, lower_map_step(&m, BS_EXPR_SUB, last, i, 0), BS_I64), axis);
}

uint32_t build_concat(build *b, const uint32_t *parts, uint32_t n, uint32_t axis) {
  build_shape shape = build_shape_of(b, parts[0]);
  int64_t at = 0;
  if (stopped(b)) return GNONE;
  shape.dims[axis] = 0;
  for (uint32_t i = 0; i < n; ++i) {
    if (!bs_add_i64(shape.dims[axis], build_dim(b, parts[i], axis), &shape.dims[axis])) {
      build_check(b, 0, "a dim is too large");
    }
  }
  const uint32_t whole = build_temp(b, build_dtype(b, parts[0]), &shape);
  for (uint32_t i = 0; i < n && !stopped(b); ++i) {
    const int64_t count = build_dim(b, parts[i], axis);
    if (count > 0) build_copy_into(b, parts[i], build_slice(b, whole, axis, at, count, 1));
    at += count;
  }
  return whole;
}
