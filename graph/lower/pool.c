/* SPDX-License-Identifier: MIT
 * pool.c - the largest or the mean of windows over one to three places, and of a whole picture: `reduce` over
 * the windows as a view. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/lower/window.h"

enum { MOST_WINDOWS = 1 << 24 };

/* The number that no window takes for its largest. */
static uint32_t lowest(build *b, uint32_t dtype) {
  return build_real(b, dtype, build_is_float(dtype) ? -INFINITY : dtype == BS_I8 ? -128 : 0);
}

static window read_window(build *b, uint32_t x) {
  window w = {0};
  const build_shape shape = build_shape_of(b, x);
  const bs_attr *kernel = lower_ints(b->node, "kernel_shape");
  build_check(b, shape.rank >= 3, "X has fewer than 3 dims");
  if (b->rc == BS_OK && shape.rank > 2 + WINDOW_PLACES)
    build_refuse(b, 0, "windows over more than three places");
  if (b->rc != BS_OK) return w;
  w.places = shape.rank - 2;
  build_check(b, kernel != NULL && kernel->count == w.places,
              "kernel_shape has another length than X has places");
  for (uint32_t i = 0; i < w.places && b->rc == BS_OK; ++i) {
    w.kernel[i] = kernel->ints[i];
    build_check(b, w.kernel[i] > 0 && w.kernel[i] <= INT32_MAX, "the kernel is empty or too large");
  }
  if (b->rc == BS_OK) window_read(b, &shape, &w);
  return w;
}

static window last_two(const window *w) {
  window two = *w;
  two.places = 2;
  for (uint32_t i = 0; i < 2; ++i) {
    two.stride[i] = w->stride[1 + i];
    two.dilation[i] = w->dilation[1 + i];
    two.kernel[i] = w->kernel[1 + i];
    two.out[i] = w->out[1 + i];
  }
  return two;
}

/* kind over the windows of the padded x: [N, C, out..]. Of three places the first is folded by itself. */
static uint32_t over_windows(build *b, uint32_t kind, uint32_t x, const window *w) {
  if (w->places == 3) {
    const window two = last_two(w);
    const int64_t batch = build_dim(b, x, 0), channels = build_dim(b, x, 1);
    x = build_squeeze(b, build_reduce(b, kind, window_first(b, x, w), 1u << 2, 1), 2);
    const uint32_t y = over_windows(b, kind, build_join_dims(b, x, 0, 2), &two);
    return build_split_dim(b, y, 0, batch, channels);
  }
  const uint32_t axes = ((1u << w->places) - 1u) << 2;
  uint32_t y = build_reduce(b, kind, window_view(b, x, w), axes, 1);
  for (uint32_t i = 0; i < w->places; ++i) y = build_squeeze(b, y, 2);
  return y;
}

/* The place in x of each window's largest element, as an index over all dims of x. storage_order 1: the first
 * dim of a picture varies fastest. */
static uint32_t places_of_largest(build *b, uint32_t padded, const build_shape *x, const window *w) {
  static const uint32_t orders[2][BS_MAX_DIMS] = {{0, 1, 3, 2}, {0, 1, 4, 5, 2, 3}};
  const int by_columns = lower_int(b->node, "storage_order", 0) != 0;
  lower_map m;
  uint32_t which = GNONE;
  if (w->places > 2) build_refuse(b, 0, "the output Indices of windows over three places");
  if (b->rc != BS_OK) return GNONE;
  uint32_t rows = build_copy(b, build_permute(b, window_view(b, padded, w), orders[w->places - 1]));
  rows = build_join_dims(b, rows, 2 + w->places, w->places);
  if (b->rc == BS_OK)
    b->rc = lower_reduce(b->c, BS_FOLD_ARGMAX, rows, 1u << (2 + w->places), 1, 0, BS_I64, &which, b->err);
  which = build_squeeze(b, which, 2 + w->places);
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, BS_I64);
  uint8_t rest = lower_map_in(&m, which), at[2] = {0}, sum = lower_map_step(&m, BS_EXPR_INDEX, 0, 0, 0);
  for (uint32_t i = w->places; i-- > 0;) {
    const uint8_t kernel = lower_map_const_int(&m, w->kernel[i]);
    const uint8_t inside = i > 0 ? lower_map_step(&m, BS_EXPR_FMOD, rest, kernel, 0) : rest;
    if (i > 0) rest = lower_map_step(&m, BS_EXPR_DIV, rest, kernel, 0);
    const uint8_t first =
        lower_map_step(&m, BS_EXPR_FMA, lower_map_step(&m, BS_EXPR_INDEX, (uint8_t)(2 + i), 0, 0),
                       lower_map_const_int(&m, w->stride[i]), lower_map_const_int(&m, -w->begin[i]));
    at[i] = lower_map_step(&m, BS_EXPR_FMA, inside, lower_map_const_int(&m, w->dilation[i]), first);
  }
  sum = lower_map_step(&m, BS_EXPR_FMA, sum, lower_map_const_int(&m, x->dims[1]),
                       lower_map_step(&m, BS_EXPR_INDEX, 1, 0, 0));
  for (uint32_t i = 0; i < w->places; ++i) {
    const uint32_t place = by_columns ? w->places - 1 - i : i;
    sum = lower_map_step(&m, BS_EXPR_FMA, sum, lower_map_const_int(&m, x->dims[2 + place]), at[place]);
  }
  return build_map(b, &m, sum, BS_I64);
}

static int32_t max_pool(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0), dtype = build_dtype(&b, x);
  build_check(&b, build_is_float(dtype) || dtype == BS_I8 || dtype == BS_U8,
              "X has a dtype without a largest");
  const window w = read_window(&b, x);
  if (b.rc != BS_OK) return b.rc;
  const build_shape shape = build_shape_of(&b, x);
  const uint32_t padded = window_pad(&b, x, &w, lowest(&b, dtype));
  if (lower_wants(node, 1)) build_out(&b, 1, places_of_largest(&b, padded, &shape, &w));
  build_out(&b, 0, over_windows(&b, BS_FOLD_MAX, padded, &w));
  return b.rc;
}

/* How many elements of each window along place i count: those of the input, or of its pads too. */
static uint32_t counts(build *b, const window *w, uint32_t i, int64_t dim, int pads) {
  build_shape shape = {w->places - i, {1, 1, 1}};
  shape.dims[0] = w->out[i];
  const int64_t low = pads ? -w->begin[i] : 0, high = pads ? dim + w->end[i] : dim;
  double few[64] = {0};
  build_check(b, w->out[i] <= MOST_WINDOWS, "too many windows");
  if (b->rc != BS_OK) return GNONE;
  double *n = w->out[i] <= 64 ? few : calloc((size_t)w->out[i], sizeof *n);
  if (n == NULL) {
    build_no_memory(b);
    return GNONE;
  }
  for (int64_t o = 0; o < w->out[i]; ++o) {
    const int64_t at = o * w->stride[i] - w->begin[i], step = w->dilation[i];
    const int64_t first = at < low ? (low - at + step - 1) / step : 0;
    const int64_t last = at < high ? (high - 1 - at) / step : -1, most = w->kernel[i] - 1;
    const int64_t count = (last < most ? last : most) - first + 1;
    n[o] = count > 0 ? (double)count : 0;
  }
  const uint32_t value = build_const(b, BS_F64, &shape, n);
  if (n != few) free(n);
  return value;
}

/* The mean of a window is that of the input's elements in it, or with count_include_pad of the pads' too.
 * Elements that ceil_mode adds after the pads never count. */
static int32_t average_pool(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0), dtype = build_dtype(&b, x);
  build_check(&b, build_is_float(dtype), "the operator takes floats");
  const window w = read_window(&b, x);
  if (b.rc != BS_OK) return b.rc;
  const uint32_t wide = dtype == BS_F64 ? BS_F64 : BS_F32; /* a sum of f16 may be beyond f16 */
  const uint32_t padded = window_pad(&b, build_cast(&b, x, wide), &w, GNONE);
  const uint32_t sum = over_windows(&b, BS_FOLD_SUM, padded, &w);
  if (b.rc != BS_OK) return b.rc;
  lower_map m;
  lower_map_begin(&m, c, wide);
  uint8_t y = lower_map_in(&m, sum);
  for (uint32_t i = 0; i < w.places && b.rc == BS_OK; ++i) {
    const uint32_t n = build_cast(
        &b, counts(&b, &w, i, build_dim(&b, x, 2 + i), lower_int(node, "count_include_pad", 0) != 0), wide);
    if (b.rc == BS_OK) y = lower_map_step(&m, BS_EXPR_DIV, y, lower_map_in(&m, n), 0);
  }
  build_out(&b, 0, build_map(&b, &m, y, dtype));
  return b.rc;
}

/* Over all places: they stay as dims of 1. */
static int32_t global_pool(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const int mean = strcmp(node->op, "GlobalAveragePool") == 0;
  const uint32_t x = build_in(&b, 0), rank = build_rank(&b, x), dtype = build_dtype(&b, x);
  build_check(&b, rank >= 3, "X has fewer than 3 dims");
  build_check(&b, build_is_float(dtype), "the operator takes floats");
  if (b.rc != BS_OK) return b.rc;
  const uint32_t axes = ((1u << rank) - 1u) & ~3u;
  const int64_t n = build_count(&b, x, axes);
  build_check(&b, n > 0, "a picture is empty");
  build_out(&b, 0, build_reduce(&b, mean ? BS_FOLD_SUM : BS_FOLD_MAX, x, axes, mean ? 1.0 / (double)n : 1));
  return b.rc;
}

/* The values to the power p, or its root. */
static uint32_t power(build *b, uint32_t x, double p) {
  const uint32_t dtype = build_dtype(b, x);
  lower_map m;
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, dtype);
  const uint8_t v = lower_map_step(&m, BS_EXPR_ABS, lower_map_in(&m, x), 0, 0);
  uint8_t y = v;
  if (p == 2)
    y = lower_map_step(&m, BS_EXPR_MUL, v, v, 0);
  else if (p == 0.5)
    y = lower_map_step(&m, BS_EXPR_SQRT, v, 0, 0);
  else if (p != 1)
    y = lower_map_step(&m, BS_EXPR_POW, v, lower_map_const(&m, p), 0);
  return build_map(b, &m, y, dtype);
}

/* (sum |x|^p)^(1/p) over windows, or over all places. */
static int32_t lp_pool(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const int global = node->op[0] == 'G';
  const uint32_t x = build_in(&b, 0), rank = build_rank(&b, x), dtype = build_dtype(&b, x);
  const double p = (double)lower_int(node, "p", 2);
  build_check(&b, build_is_float(dtype) && rank >= 3, "X must be of floats with 3 dims at least");
  build_check(&b, p >= 1, "p is not positive");
  window w = {0};
  if (!global) w = read_window(&b, x);
  if (b.rc != BS_OK) return b.rc;
  const uint32_t powers = power(&b, build_cast(&b, x, dtype == BS_F64 ? BS_F64 : BS_F32), p);
  const uint32_t sum = global ? build_reduce(&b, BS_FOLD_SUM, powers, ((1u << rank) - 1u) & ~3u, 1)
                              : over_windows(&b, BS_FOLD_SUM, window_pad(&b, powers, &w, GNONE), &w);
  build_out(&b, 0, build_cast(&b, power(&b, sum, 1 / p), dtype));
  return b.rc;
}

/* x / (bias + alpha / size * the sum of the squares of `size` channels around it)^beta. */
static int32_t local_response(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0), dtype = build_dtype(&b, x);
  const build_shape shape = build_shape_of(&b, x);
  const int64_t size = lower_int(node, "size", 0);
  build_check(&b, build_is_float(dtype) && shape.rank >= 2, "X must be of floats with 2 dims at least");
  build_check(&b, size > 0 && size <= INT32_MAX, "size is not positive");
  if (b.rc != BS_OK) return b.rc;
  const int64_t before = (size - 1) / 2;
  const build_shape rows = {4, {shape.dims[0], 1, shape.dims[1], build_count(&b, x, ~3u)}};
  const window w = {2,      {before, 0}, {size - 1 - before, 0},       {0}, {1, 1},
                    {1, 1}, {size, 1},   {shape.dims[1], rows.dims[3]}};
  const uint32_t wide = dtype == BS_F64 ? BS_F64 : BS_F32;
  const uint32_t squares = power(&b, build_cast(&b, build_reshape(&b, x, &rows), wide), 2);
  const uint32_t sum =
      build_reshape(&b, over_windows(&b, BS_FOLD_SUM, window_pad(&b, squares, &w, GNONE), &w), &shape);
  lower_map m;
  if (b.rc != BS_OK) return b.rc;
  lower_map_begin(&m, c, wide);
  const uint8_t base = lower_map_step(&m, BS_EXPR_FMA, lower_map_in(&m, sum),
                                      lower_map_const(&m, lower_float(node, "alpha", 1e-4f) / (double)size),
                                      lower_map_const(&m, lower_float(node, "bias", 1)));
  const uint8_t by =
      lower_map_step(&m, BS_EXPR_POW, base, lower_map_const(&m, lower_float(node, "beta", 0.75)), 0);
  build_out(&b, 0, build_map(&b, &m, lower_map_step(&m, BS_EXPR_DIV, lower_map_in(&m, x), by, 0), dtype));
  return b.rc;
}

const lower_rule lower_rules_pool[] = {{"MaxPool", 1, 0, max_pool, NULL},
                                       {"AveragePool", 1, 0, average_pool, NULL},
                                       {"GlobalAveragePool", 1, 0, global_pool, NULL},
                                       {"GlobalMaxPool", 1, 0, global_pool, NULL},
                                       {"LpPool", 2, 0, lp_pool, NULL},
                                       {"GlobalLpPool", 2, 0, lp_pool, NULL},
                                       {"LRN", 1, 0, local_response, NULL},
                                       {0}};
