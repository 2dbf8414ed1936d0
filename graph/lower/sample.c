/* SPDX-License-Identifier: MIT
 * sample.c - pictures read at places that are computed: GridSample, AffineGrid, RoiAlign, DeformConv. */
#include <math.h>
#include <string.h>

#include "graph/lower/rules.h"
#include "graph/lower/taps.h"

/* The places of an axis in elements from numbers between -1 and 1. */
static uint32_t unnormalised(build *b, uint32_t grid, uint32_t which, int64_t size, int corners) {
  const uint32_t rank = build_rank(b, grid);
  const uint32_t given = build_squeeze(b, build_slice(b, grid, rank - 1, which, 1, 1), rank - 1);
  const uint32_t wide = build_dtype(b, grid) == BS_F64 ? BS_F64 : BS_F32;
  lower_map m;
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, wide);
  const uint8_t one = lower_map_const(&m, 1), half = lower_map_const(&m, 0.5);
  const uint8_t v = lower_map_step(&m, BS_EXPR_ADD, lower_map_in(&m, given), one, 0);
  uint8_t at;
  if (corners) {
    at = lower_map_step(&m, BS_EXPR_MUL, lower_map_step(&m, BS_EXPR_MUL, v, half, 0),
                        lower_map_const(&m, (double)(size - 1)), 0);
  } else {
    const uint8_t wide_place = lower_map_step(&m, BS_EXPR_MUL, v, lower_map_const(&m, (double)size), 0);
    at = lower_map_step(&m, BS_EXPR_MUL, lower_map_step(&m, BS_EXPR_SUB, wide_place, one, 0), half, 0);
  }
  return build_map(b, &m, at, wide);
}

static int32_t grid_sample(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0), grid = build_in(&b, 1);
  const build_shape sx = build_shape_of(&b, x), sg = build_shape_of(&b, grid);
  const char *mode = lower_text(node, "mode", node->opset < 20 ? "bilinear" : "linear");
  const char *beyond = lower_text(node, "padding_mode", "zeros");
  const uint32_t n = sx.rank - 2;
  taps_rule rule = {.count = mode[0] == 'n'                                               ? 1
                             : strcmp(mode, "cubic") == 0 || strcmp(mode, "bicubic") == 0 ? 4
                                                                                          : 2,
                    .beyond = beyond[0] == 'z'   ? TAPS_ZERO
                              : beyond[0] == 'b' ? TAPS_BORDER
                                                 : TAPS_REFLECT,
                    .corners = lower_int(node, "align_corners", 0) != 0,
                    .cubic_a = -0.75};
  build_check(&b, sx.rank >= 3 && sg.rank == sx.rank, "X and grid must have the same rank, at least 3");
  build_check(&b, build_is_float(build_dtype(&b, grid)), "grid must be of floats");
  if (b.rc == BS_OK && sx.rank > 5) build_refuse(&b, 0, "pictures of more than three places");
  if (b.rc == BS_OK && !build_is_float(build_dtype(&b, x)))
    build_refuse(&b, build_dtype(&b, x), "numbers between integers");
  if (b.rc != BS_OK) return b.rc;
  build_check(&b, sg.dims[sg.rank - 1] == n && sg.dims[0] == sx.dims[0], "grid does not fit X");
  build_count(&b, x, ~3u); /* refuses what no number counts */
  build_count(&b, grid, ~1u);
  taps axes[TAPS_AXES];
  taps_sum sum = {.data = taps_channels_last(&b, x), .batch_dims = 1, .n_axes = n, .more = GNONE};
  int64_t stride = 1;
  for (uint32_t i = n; i-- > 0 && b.rc == BS_OK;) {
    const int64_t size = sx.dims[2 + i];
    uint32_t at = unnormalised(&b, grid, n - 1 - i, size, rule.corners);
    at = build_join_dims(&b, at, 1, n);
    axes[i] = taps_make(&b, at, size, &rule);
    sum.axes[i] = &axes[i];
    sum.strides[i] = stride;
    stride *= size;
  }
  if (b.rc != BS_OK) return b.rc;
  build_shape out = {sx.rank, {sx.dims[0]}};
  for (uint32_t i = 0; i < n; ++i) out.dims[1 + i] = sg.dims[1 + i];
  out.dims[sx.rank - 1] = sx.dims[1];
  build_out(&b, 0, build_move(&b, build_reshape(&b, taps_read(&b, &sum), &out), 1, 0));
  return b.rc;
}

/* One row of places from -1 to 1, of the shape [1, .., n, .., 1]. */
static uint32_t places_of(build *b, uint32_t dtype, int64_t n, int corners, uint32_t axis, uint32_t rank) {
  build_shape shape = {rank, {1, 1, 1, 1, 1, 1}};
  lower_map m;
  const uint32_t wide = dtype == BS_F64 ? BS_F64 : BS_F32;
  uint32_t y = GNONE;
  shape.dims[axis] = n;
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, wide);
  const double scale = corners ? (n > 1 ? 2.0 / (double)(n - 1) : 0) : 2.0 / (double)n;
  const double first = corners ? -1 : 1.0 / (double)n - 1;
  const uint32_t none = build_expand(b, build_real(b, wide, 0), &shape);
  if (b->rc != BS_OK) return GNONE;
  const uint8_t zero = lower_map_in(&m, none), i = lower_map_step(&m, BS_EXPR_INDEX, (uint8_t)axis, 0, 0);
  uint8_t v = lower_map_step(&m, BS_EXPR_FMA, i, lower_map_const(&m, scale), lower_map_const(&m, first));
  v = lower_map_step(&m, BS_EXPR_ADD, v, zero, 0);
  b->rc = lower_map_emit(&m, b->node, shape.rank, shape.dims, 1, &v, &dtype, &y, b->err);
  return y;
}

/* grid[n, place.., i] = theta[n, i, :] (x, y, .., 1). */
static int32_t affine_grid(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t theta = build_in(&b, 0), dtype = build_dtype(&b, theta);
  const build_shape st = build_shape_of(&b, theta);
  int64_t size[BS_MAX_DIMS] = {0};
  const uint32_t rank = build_read_ints(&b, build_in(&b, 1), "its size", size, BS_MAX_DIMS), n = rank - 2;
  const int corners = lower_int(node, "align_corners", 0) != 0;
  build_check(&b, rank == 4 || rank == 5, "size must have 4 or 5 numbers");
  build_check(&b,
              st.rank == 3 && st.dims[1] == (int64_t)rank - 2 && st.dims[2] == (int64_t)rank - 1 &&
                  st.dims[0] == size[0],
              "theta does not fit the size");
  for (uint32_t i = 0; i < rank && b.rc == BS_OK; ++i)
    build_check(&b, size[i] > 0 && size[i] <= 1 << 24, "a size is not positive, or too large");
  if (b.rc != BS_OK) return b.rc;
  uint32_t parts[3] = {0};
  for (uint32_t i = 0; i < n && b.rc == BS_OK; ++i) {
    lower_map m;
    uint32_t in[4];
    build_shape one = {1 + n, {size[0], 1, 1, 1}};
    for (uint32_t k = 0; k <= n; ++k) {
      const uint32_t row = build_slice(&b, build_slice(&b, theta, 1, i, 1, 1), 2, k, 1, 1);
      in[k] = build_reshape(&b, row, &one);
    }
    if (b.rc != BS_OK) return b.rc;
    lower_map_begin(&m, c, lower_compute(dtype));
    uint8_t v = lower_map_in(&m, in[n]);
    for (uint32_t k = 0; k < n && b.rc == BS_OK; ++k) {
      const uint32_t place = places_of(&b, dtype, size[rank - 1 - k], corners, n - k, 1 + n);
      if (b.rc == BS_OK)
        v = lower_map_step(&m, BS_EXPR_FMA, lower_map_in(&m, in[k]), lower_map_in(&m, place), v);
    }
    parts[i] = build_map(&b, &m, v, dtype);
    parts[i] = build_unsqueeze(&b, parts[i], 1 + n);
  }
  if (b.rc == BS_OK) build_out(&b, 0, build_concat(&b, parts, n, 1 + n));
  return b.rc;
}

/* The places of one axis that each box reads, [R, bins, samples]: begin + (bin + (sample + 1/2) / samples)
 * width. */
static uint32_t box_places(build *b, uint32_t rois, uint32_t low, int64_t bins, int64_t samples, double scale,
                           int half_pixel) {
  const build_shape shape = {3, {build_dim(b, rois, 0), bins, samples}};
  build_shape one = shape;
  lower_map m;
  one.dims[1] = one.dims[2] = 1;
  const uint32_t from = build_reshape(b, build_slice(b, rois, 1, low, 1, 1), &one);
  const uint32_t to = build_reshape(b, build_slice(b, rois, 1, low + 2, 1, 1), &one);
  uint32_t y = GNONE;
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, BS_F32);
  const uint8_t factor = lower_map_const(&m, scale), shift = lower_map_const(&m, half_pixel ? -0.5 : 0);
  const uint8_t begin = lower_map_step(&m, BS_EXPR_FMA, lower_map_in(&m, from), factor, shift);
  const uint8_t end = lower_map_step(&m, BS_EXPR_FMA, lower_map_in(&m, to), factor, shift);
  uint8_t width = lower_map_step(&m, BS_EXPR_SUB, end, begin, 0);
  if (!half_pixel) width = lower_map_step(&m, BS_EXPR_MAX, width, lower_map_const(&m, 1), 0);
  const uint8_t bin = lower_map_step(&m, BS_EXPR_DIV, width, lower_map_const(&m, (double)bins), 0);
  const uint8_t inside =
      lower_map_step(&m, BS_EXPR_DIV,
                     lower_map_step(&m, BS_EXPR_ADD, lower_map_step(&m, BS_EXPR_INDEX, 2, 0, 0),
                                    lower_map_const(&m, 0.5), 0),
                     lower_map_const(&m, (double)samples), 0);
  const uint8_t at = lower_map_step(&m, BS_EXPR_ADD, lower_map_step(&m, BS_EXPR_INDEX, 1, 0, 0), inside, 0);
  const uint8_t place = lower_map_step(&m, BS_EXPR_FMA, at, bin, begin);
  const uint32_t dtype = BS_F32;
  b->rc = lower_map_emit(&m, b->node, shape.rank, shape.dims, 1, &place, &dtype, &y, b->err);
  return y;
}

/* For each box a grid of bins: the mean (or the largest) of a number of samples in each. */
static int32_t roi_align(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0), rois = build_in(&b, 1), which = build_in(&b, 2);
  const build_shape sx = build_shape_of(&b, x), sr = build_shape_of(&b, rois);
  const int64_t bins[2] = {lower_int(node, "output_height", 1), lower_int(node, "output_width", 1)};
  const int64_t samples = lower_int(node, "sampling_ratio", 0);
  const char *way = lower_text(node, "coordinate_transformation_mode", "half_pixel");
  const int half = node->opset >= 16 && strcmp(way, "half_pixel") == 0;
  const double scale = lower_float(node, "spatial_scale", 1);
  const int largest = strcmp(lower_text(node, "mode", "avg"), "max") == 0;
  build_check(&b, sx.rank == 4 && sr.rank == 2 && sr.dims[1] == 4 && build_rank(&b, which) == 1,
              "X must have 4 dims, rois must be rows of 4");
  build_check(&b, build_dim(&b, which, 0) == sr.dims[0], "batch_indices has another length than rois");
  build_check(&b, bins[0] > 0 && bins[1] > 0 && bins[0] <= 1 << 20 && bins[1] <= 1 << 20,
              "an output size is not positive");
  build_check(&b, samples >= 0 && samples <= 1 << 10, "sampling_ratio is negative, or too large");
  build_count(&b, x, ~2u);
  if (samples == 0) build_refuse(&b, 0, "sampling_ratio 0: the number of samples depends on the boxes");
  if (b.rc != BS_OK) return b.rc;
  const taps_rule rule = {.count = 2, .beyond = TAPS_ROI};
  taps axes[2];
  taps_sum sum = {.n_axes = 2, .strides = {sx.dims[3], 1}, .largest = largest};
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t at = box_places(&b, rois, 1 - i, bins[i], samples, scale, half);
    axes[i] = taps_make(&b, at, sx.dims[2 + i], &rule);
    const build_shape shape = {
        5,
        {sr.dims[0], i == 0 ? bins[0] : 1, i == 0 ? samples : 1, i == 1 ? bins[1] : 1, i == 1 ? samples : 1}};
    for (uint32_t k = 0; k < 2 && b.rc == BS_OK; ++k) {
      axes[i].index[k] = build_reshape(&b, axes[i].index[k], &shape);
      axes[i].weight[k] = build_reshape(&b, axes[i].weight[k], &shape);
    }
    sum.axes[i] = &axes[i];
  }
  const build_shape one = {5, {sr.dims[0], 1, 1, 1, 1}};
  sum.data = build_join_dims(&b, taps_channels_last(&b, x), 0, 2);
  const uint32_t picture = build_cast(&b, build_reshape(&b, which, &one), BS_I64);
  if (b.rc != BS_OK) return b.rc;
  sum.more = build_binary(&b, BS_EXPR_MUL, picture, build_real(&b, BS_I64, (double)(sx.dims[2] * sx.dims[3])),
                          BS_I64);
  const uint32_t y = build_reduce(&b, largest ? BS_FOLD_MAX : BS_FOLD_SUM, taps_read(&b, &sum),
                                  1u << 2 | 1u << 4, largest ? 1 : 1.0 / (double)(samples * samples));
  const build_shape out = {4, {sr.dims[0], bins[0], bins[1], sx.dims[1]}};
  build_out(&b, 0, build_move(&b, build_reshape(&b, y, &out), 1, 0));
  return b.rc;
}

/* How a DeformConv reads: output (oh, ow), kernel element k, offsets [N, groups, K, oh, ow] of one axis. */
typedef struct deform {
  int64_t batch, channels, height, width, groups, kernel[2], out[2], stride[2], dilation[2], begin[2];
} deform;

static uint32_t deform_places(build *b, const deform *d, uint32_t offsets, uint32_t axis) {
  lower_map m;
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, lower_compute(build_dtype(b, offsets)));
  const uint8_t k = lower_map_step(&m, BS_EXPR_INDEX, 2, 0, 0),
                columns = lower_map_const(&m, (double)d->kernel[1]);
  const uint8_t row = lower_map_step(&m, BS_EXPR_FLOOR, lower_map_step(&m, BS_EXPR_DIV, k, columns, 0), 0, 0);
  const uint8_t tap = axis == 0 ? row : lower_map_step(&m, BS_EXPR_FMOD, k, columns, 0);
  uint8_t at = lower_map_step(&m, BS_EXPR_FMA, lower_map_step(&m, BS_EXPR_INDEX, (uint8_t)(3 + axis), 0, 0),
                              lower_map_const(&m, (double)d->stride[axis]),
                              lower_map_const(&m, (double)-d->begin[axis]));
  at = lower_map_step(&m, BS_EXPR_FMA, tap, lower_map_const(&m, (double)d->dilation[axis]), at);
  at = lower_map_step(&m, BS_EXPR_ADD, at, lower_map_in(&m, offsets), 0);
  return build_map(b, &m, at, build_dtype(b, offsets) == BS_F64 ? BS_F64 : BS_F32);
}

static void deform_sizes(build *b, deform *d, const build_shape *sx, const build_shape *sw) {
  const bs_attr *strides = lower_ints(b->node, "strides"), *pads = lower_ints(b->node, "pads"),
                *dilations = lower_ints(b->node, "dilations");
  build_check(b,
              (strides == NULL || strides->count == 2) && (dilations == NULL || dilations->count == 2) &&
                  (pads == NULL || pads->count == 4),
              "an attribute has another length than X has places");
  for (uint32_t i = 0; i < 2 && b->rc == BS_OK; ++i) {
    d->kernel[i] = sw->dims[2 + i];
    d->stride[i] = strides != NULL ? strides->ints[i] : 1;
    d->dilation[i] = dilations != NULL ? dilations->ints[i] : 1;
    d->begin[i] = pads != NULL ? pads->ints[i] : 0;
    const int64_t end = pads != NULL ? pads->ints[2 + i] : 0;
    build_check(b,
                d->kernel[i] > 0 && d->kernel[i] <= INT32_MAX && d->stride[i] > 0 && d->dilation[i] > 0 &&
                    d->dilation[i] <= INT32_MAX && d->stride[i] <= INT32_MAX && d->begin[i] >= 0 &&
                    end >= 0 && d->begin[i] <= INT32_MAX && end <= INT32_MAX,
                "a kernel, stride, dilation or pad is out of range");
    if (b->rc != BS_OK) return;
    const int64_t room = sx->dims[2 + i] + d->begin[i] + end - (d->kernel[i] - 1) * d->dilation[i] - 1;
    build_check(b, room >= 0, "the kernel is larger than the padded input");
    d->out[i] = room >= 0 ? room / d->stride[i] + 1 : 0;
  }
}

/* A convolution that reads each element of its windows at an offset. */
static int32_t deform_conv(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0), kernel = build_in(&b, 1), offset = build_in(&b, 2),
                 bias = build_optional(&b, 3), mask = build_optional(&b, 4);
  const build_shape sx = build_shape_of(&b, x), sw = build_shape_of(&b, kernel),
                    so = build_shape_of(&b, offset);
  const int64_t groups = lower_int(node, "group", 1);
  deform d = {.groups = lower_int(node, "offset_group", 1)};
  if (b.rc == BS_OK && sx.rank != 4) build_refuse(&b, 0, "pictures of another number of places than two");
  build_check(&b, sw.rank == 4 && so.rank == 4 && build_is_float(build_dtype(&b, x)),
              "X, W and offset must have 4 dims");
  build_check(&b,
              groups > 0 && d.groups > 0 && sx.dims[1] % d.groups == 0 && sx.dims[1] == sw.dims[1] * groups &&
                  sw.dims[0] % groups == 0,
              "the channels do not fit the kernel or the groups");
  if (b.rc == BS_OK) deform_sizes(&b, &d, &sx, &sw);
  if (b.rc != BS_OK) return b.rc;
  build_count(&b, x, ~1u);
  const int64_t each = sx.dims[1] / d.groups, taps_n = build_count(&b, kernel, ~3u);
  int64_t area = 0, places = 0;
  if (b.rc == BS_OK &&
      (taps_n > 1 << 20 || d.groups > 1 << 20 || __builtin_mul_overflow(d.out[0], d.out[1], &area) ||
       __builtin_mul_overflow(area, taps_n, &places)))
    build_refuse(&b, 0, "a kernel or a picture this large");
  build_check(&b,
              so.dims[0] == sx.dims[0] && so.dims[1] == d.groups * taps_n * 2 && so.dims[2] == d.out[0] &&
                  so.dims[3] == d.out[1],
              "offset has another shape than X and W ask for");
  if (b.rc != BS_OK) return b.rc;
  const build_shape split = {6, {sx.dims[0], d.groups, taps_n, 2, d.out[0], d.out[1]}},
                    flat = {3, {sx.dims[0], d.groups, places}},
                    pictures = {4, {sx.dims[0], d.groups, each, sx.dims[2] * sx.dims[3]}};
  const uint32_t offsets = build_reshape(&b, offset, &split);
  const taps_rule rule = {.count = 2, .beyond = TAPS_ZERO};
  taps axes[2];
  taps_sum sum = {.batch_dims = 2, .n_axes = 2, .more = GNONE, .strides = {sx.dims[3], 1}};
  for (uint32_t i = 0; i < 2 && b.rc == BS_OK; ++i) {
    const uint32_t own = build_squeeze(&b, build_slice(&b, offsets, 3, i, 1, 1), 3);
    axes[i] = taps_make(&b, build_reshape(&b, deform_places(&b, &d, own, i), &flat), sx.dims[2 + i], &rule);
    sum.axes[i] = &axes[i];
  }
  sum.data = build_copy(&b, build_swap(&b, build_reshape(&b, x, &pictures), 2, 3));
  uint32_t columns = taps_read(&b, &sum); /* [N, groups, K area, C / groups] */
  if (mask != GNONE && b.rc == BS_OK) {
    const build_shape one = {4, {sx.dims[0], d.groups, places, 1}}, sm = build_shape_of(&b, mask);
    build_check(&b, build_elements(&sm) == build_elements(&one),
                "mask has another shape than offset asks for");
    columns = build_binary(&b, BS_EXPR_MUL, columns, build_reshape(&b, mask, &one), build_dtype(&b, x));
  }
  const build_shape rows = {4, {sx.dims[0], groups, sw.dims[1] * taps_n, area}},
                    weights = {4, {1, groups, sw.dims[0] / groups, sw.dims[1] * taps_n}},
                    out = {4, {sx.dims[0], sw.dims[0], d.out[0], d.out[1]}}, column = {3, {sw.dims[0], 1, 1}};
  columns = build_reshape(&b, build_copy(&b, build_swap(&b, columns, 2, 3)), &rows);
  uint32_t y =
      build_reshape(&b, build_contract(&b, build_reshape(&b, kernel, &weights), columns, GNONE, 1), &out);
  if (bias != GNONE)
    y = build_binary(&b, BS_EXPR_ADD, y, build_reshape(&b, bias, &column), build_dtype(&b, x));
  build_out(&b, 0, y);
  return b.rc;
}

const lower_rule lower_rules_sample[] = {{"GridSample", 16, 0, grid_sample, NULL},
                                         {"AffineGrid", 20, 0, affine_grid, NULL},
                                         {"RoiAlign", 10, 0, roi_align, NULL},
                                         {"DeformConv", 19, 0, deform_conv, NULL},
                                         {0}};
