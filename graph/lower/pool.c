/* SPDX-License-Identifier: MIT
 * pool.c - the largest or the mean of windows over one or two places, and of a whole picture: `reduce` over
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
    build_refuse(b, 0, "windows over more than two places");
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

/* kind over the windows of the padded x: [N, C, out..]. */
static uint32_t over_windows(build *b, uint32_t kind, uint32_t x, const window *w, double factor) {
  const uint32_t axes = ((1u << w->places) - 1u) << 2;
  uint32_t y = build_reduce(b, kind, window_view(b, x, w), axes, factor);
  for (uint32_t i = 0; i < w->places; ++i) y = build_squeeze(b, y, 2);
  return y;
}

static int32_t max_pool(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0), dtype = build_dtype(&b, x);
  build_check(&b, build_is_float(dtype) || dtype == BS_I8 || dtype == BS_U8,
              "X has a dtype without a largest");
  if (lower_wants(node, 1)) build_refuse(&b, 0, "the output Indices");
  const window w = read_window(&b, x);
  if (b.rc != BS_OK) return b.rc;
  build_out(&b, 0, over_windows(&b, BS_FOLD_MAX, window_pad(&b, x, &w, lowest(&b, dtype)), &w, 1));
  return b.rc;
}

/* How many elements of each window along place i count: those of the input, or of its pads too. */
static uint32_t counts(build *b, const window *w, uint32_t i, int64_t dim, int pads) {
  build_shape shape = {w->places - i, {1, 1}};
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
  const uint32_t sum = over_windows(&b, BS_FOLD_SUM, padded, &w, 1);
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

const lower_rule lower_rules_pool[] = {{"MaxPool", 1, 0, max_pool, NULL},
                                       {"AveragePool", 1, 0, average_pool, NULL},
                                       {"GlobalAveragePool", 1, 0, global_pool, NULL},
                                       {"GlobalMaxPool", 1, 0, global_pool, NULL},
                                       {0}};
