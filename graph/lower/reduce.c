/* SPDX-License-Identifier: MIT
 * reduce.c - sums, means, extremes along axes; their places; running sums. */
#include <math.h>
#include <string.h>

#include "graph/lower/build.h"

/* The reduced axes as bits: an input or the attribute; none of either, or an empty list: all axes, or with
 * noop_with_empty_axes none. */
static uint32_t reduced_axes(build *b, uint32_t rank) {
  int64_t axes[BS_MAX_DIMS] = {0};
  int there;
  uint32_t bits = 0;
  const uint32_t n = build_list(b, 1, "axes", axes, BS_MAX_DIMS, &there);
  for (uint32_t i = 0; i < n && b->rc == BS_OK; ++i) bits |= 1u << build_axis(b, axes[i], rank);
  if (n > 0) return bits;
  return lower_int(b->node, "noop_with_empty_axes", 0) ? 0 : (1u << rank) - 1;
}

/* The value without the dims of `axes`, which are 1. */
static uint32_t drop_axes(build *b, uint32_t value, uint32_t axes) {
  const build_shape old = build_shape_of(b, value);
  build_shape shape = {0};
  for (uint32_t i = 0; i < old.rank; ++i) {
    if (!(axes >> i & 1)) shape.dims[shape.rank++] = old.dims[i];
  }
  return build_reshape(b, value, &shape);
}

/* Bool goes through u8: of no elements max gives false and min true, as specified. */
static uint32_t fold(build *b, uint32_t kind, uint32_t x, uint32_t axes, double factor) {
  const uint32_t dtype = build_dtype(b, x);
  if (axes == 0 && kind != BS_FOLD_SUMSQ) return x;
  if (dtype != BS_BOOL) return build_reduce(b, kind, x, axes, factor);
  build_check(b, kind == BS_FOLD_MAX || kind == BS_FOLD_MIN, "the operator takes numbers, not bool");
  return build_cast(b, build_reduce(b, kind, build_cast(b, x, BS_U8), axes, factor), BS_BOOL);
}

/* log(sum(exp(x))), with the largest element taken out; of an infinite one nothing is taken out. */
static uint32_t log_sum_exp(build *b, uint32_t x, uint32_t axes) {
  lower_map m;
  const uint32_t dtype = build_dtype(b, x), most = build_reduce(b, BS_FOLD_MAX, x, axes, 1);
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, lower_compute(dtype));
  const uint8_t v = lower_map_in(&m, most);
  const uint8_t endless = lower_map_step(&m, BS_EXPR_ISINF, v, 0, 0), zero = lower_map_const(&m, 0);
  const uint32_t shift = build_map(b, &m, lower_map_step(&m, BS_EXPR_SELECT, endless, zero, v), dtype);
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, lower_compute(dtype));
  const uint8_t vx = lower_map_in(&m, x), vs = lower_map_in(&m, shift);
  const uint8_t e = lower_map_step(&m, BS_EXPR_EXP, lower_map_step(&m, BS_EXPR_SUB, vx, vs, 0), 0, 0);
  const uint32_t sum = build_reduce(b, BS_FOLD_SUM, build_map(b, &m, e, dtype), axes, 1);
  return build_binary(b, BS_EXPR_ADD, build_unary(b, BS_EXPR_LOG, sum, dtype), shift, dtype);
}

static int32_t reduce(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const char *name = node->op + strlen("Reduce");
  const uint32_t x = build_in(&b, 0), rank = build_rank(&b, x), dtype = build_dtype(&b, x);
  const uint32_t axes = reduced_axes(&b, rank);
  const int floats = build_is_float(dtype);
  uint32_t y = GNONE;
  if (b.rc != BS_OK) return b.rc;
  if (strcmp(name, "Sum") == 0) y = fold(&b, BS_FOLD_SUM, x, axes, 1);
  if (strcmp(name, "Max") == 0) y = fold(&b, BS_FOLD_MAX, x, axes, 1);
  if (strcmp(name, "Min") == 0) y = fold(&b, BS_FOLD_MIN, x, axes, 1);
  if (strcmp(name, "Prod") == 0) y = fold(&b, BS_FOLD_PROD, x, axes, 1);
  if (strcmp(name, "L1") == 0) y = fold(&b, BS_FOLD_SUM, build_unary(&b, BS_EXPR_ABS, x, dtype), axes, 1);
  if (strcmp(name, "Mean") == 0) {
    const int64_t n = build_count(&b, x, axes);
    build_check(&b, floats || n > 0, "the mean of no integers");
    if (floats) {
      y = n > 0 ? fold(&b, BS_FOLD_SUM, x, axes, 1.0 / (double)n)
                : build_scale(&b, fold(&b, BS_FOLD_SUM, x, axes, 1), NAN);
    } else if (n > 0) {
      y = build_binary(&b, BS_EXPR_DIV, fold(&b, BS_FOLD_SUM, x, axes, 1),
                       build_cast(&b, build_real(&b, BS_I64, (double)n), dtype), dtype);
    }
  }
  /* Without an axis each element is squared by itself. */
  const int square = strcmp(name, "SumSquare") == 0, root = strcmp(name, "L2") == 0;
  if (square || root) {
    y = axes == 0 ? build_binary(&b, BS_EXPR_MUL, x, x, dtype) : fold(&b, BS_FOLD_SUMSQ, x, axes, 1);
    if (root && !floats) build_refuse(&b, dtype, "the root of integers");
    if (root) y = build_unary(&b, BS_EXPR_SQRT, y, dtype);
  }
  if (strncmp(name, "LogSum", 6) == 0) {
    build_check(&b, floats, "the operator takes floats, not integers");
    y = name[6] == 'E' ? log_sum_exp(&b, x, axes)
                       : build_unary(&b, BS_EXPR_LOG, fold(&b, BS_FOLD_SUM, x, axes, 1), dtype);
  }
  build_out(&b, 0, lower_int(node, "keepdims", 1) ? y : drop_axes(&b, y, axes));
  return b.rc;
}

static int32_t arg(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0), axis = build_axis(&b, lower_int(node, "axis", 0), build_rank(&b, x));
  const int last = lower_int(node, "select_last_index", 0) != 0;
  const uint32_t kind = strcmp(node->op, "ArgMax") == 0 ? BS_FOLD_ARGMAX : BS_FOLD_ARGMIN;
  uint32_t y = GNONE;
  build_check(&b, build_rank(&b, x) > 0, "the rank is 0");
  build_check(&b, build_dim(&b, x, axis) > 0, "the axis is empty");
  if (b.rc == BS_OK) b.rc = lower_reduce(c, kind, x, 1u << axis, 1, last, BS_I64, &y, err);
  build_out(&b, 0, lower_int(node, "keepdims", 1) ? y : drop_axes(&b, y, 1u << axis));
  return b.rc;
}

static int32_t cumsum(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  uint32_t y = GNONE;
  const uint32_t x = build_in(&b, 0);
  const uint32_t axis = build_axis(&b, build_read_int(&b, build_in(&b, 1), "its axis"), build_rank(&b, x));
  const int exclusive = lower_int(node, "exclusive", 0) != 0, reverse = lower_int(node, "reverse", 0) != 0;
  build_check(&b, build_dtype(&b, x) != BS_BOOL, "the operator takes numbers, not bool");
  if (b.rc == BS_OK) b.rc = lower_cumsum(c, x, axis, exclusive, reverse, &y, err);
  build_out(&b, 0, y);
  return b.rc;
}

const lower_rule lower_rules_reduce[] = {
    {"ReduceSum", 1, 0, reduce, NULL},    {"ReduceMean", 1, 0, reduce, NULL},
    {"ReduceMax", 1, 0, reduce, NULL},    {"ReduceMin", 1, 0, reduce, NULL},
    {"ReduceProd", 1, 0, reduce, NULL},   {"ReduceSumSquare", 1, 0, reduce, NULL},
    {"ReduceL1", 1, 0, reduce, NULL},     {"ReduceL2", 1, 0, reduce, NULL},
    {"ReduceLogSum", 1, 0, reduce, NULL}, {"ReduceLogSumExp", 1, 0, reduce, NULL},
    {"ArgMax", 1, 0, arg, NULL},          {"ArgMin", 1, 0, arg, NULL},
    {"CumSum", 11, 0, cumsum, NULL},      {0}};
