/* SPDX-License-Identifier: MIT
 * conv.c - convolutions over one to three places: the padded input seen as overlapping windows, copied once,
 * then one product. With a constant kernel and one group the product is `matmul` with a packed weight. */
#include <string.h>

#include "graph/lower/rules.h"

uint32_t lower_conv_rows(build *b, uint32_t x, const window *w) {
  uint32_t order[BS_MAX_DIMS] = {0};
  const uint32_t p = w->places;
  for (uint32_t i = 0; i < p; ++i) {
    order[1 + i] = 2 + p + i;
    order[2 + p + i] = 2 + i;
  }
  order[1 + p] = 1;
  return build_join_dims(b, build_copy(b, build_permute(b, window_view(b, x, w), order)), 1 + p, 1 + p);
}

/* One group, constant kernel: rows of windows [N out, C kernel] times the kernel [M, C kernel]. */
static uint32_t by_matmul(build *b, uint32_t x, uint32_t kernel, uint32_t bias, const window *w) {
  uint32_t y = GNONE;
  const uint32_t rows = lower_conv_rows(b, x, w), weight = build_join_dims(b, kernel, 1, 1 + w->places);
  if (b->rc == BS_OK)
    b->rc = lower_matmul(b->c, rows, weight, bias, BS_ACT_NONE, build_dtype(b, x), &y, b->err);
  return build_move(b, b->rc == BS_OK ? y : GNONE, 1, 0);
}

/* [N, G, M/G, C/G kernel] x [N, G, C/G kernel, out]. */
uint32_t lower_conv_contract(build *b, uint32_t x, uint32_t kernel, int64_t groups, const window *w) {
  const uint32_t p = w->places;
  const int64_t outputs = build_dim(b, kernel, 0), batch = build_dim(b, x, 0), channels = build_dim(b, x, 1);
  uint32_t columns = build_copy(b, window_view(b, x, w));
  columns = build_join_dims(b, build_join_dims(b, columns, 2 + p, p), 1, 1 + p);
  const int64_t inner = build_dim(b, columns, 1);
  columns = build_split_dim(b, columns, 1, groups, channels > 0 ? inner / groups : 0);
  const uint32_t rows = build_split_dim(b, build_join_dims(b, kernel, 1, 1 + p), 0, groups, outputs / groups);
  const uint32_t y = build_contract(b, build_unsqueeze(b, rows, 0), columns, GNONE, 1);
  build_shape shape = {2 + p, {batch, outputs}};
  for (uint32_t i = 0; i < p; ++i) shape.dims[2 + i] = w->out[i];
  return build_reshape(b, y, &shape);
}

int64_t lower_conv_read(build *b, uint32_t x, uint32_t kernel, uint32_t bias, window *w) {
  const build_shape sx = build_shape_of(b, x), sk = build_shape_of(b, kernel);
  const int64_t groups = lower_int(b->node, "group", 1);
  build_check(b, sx.rank >= 3 && sx.rank == sk.rank, "X and W must have the same rank, at least 3");
  if (b->rc == BS_OK && sx.rank > 2 + WINDOW_PLACES)
    build_refuse(b, 0, "a convolution over more than three places");
  if (b->rc != BS_OK) return 1;
  build_check(b, groups > 0 && sx.dims[1] == sk.dims[1] * groups && sk.dims[0] % groups == 0,
              "the channels do not fit the kernel");
  build_check(b, bias == GNONE || (build_rank(b, bias) == 1 && build_dim(b, bias, 0) == sk.dims[0]),
              "the bias does not fit the kernel");
  w->places = sx.rank - 2;
  const bs_attr *told = lower_ints(b->node, "kernel_shape");
  build_check(b, told == NULL || told->count == w->places,
              "kernel_shape has another length than W has places");
  for (uint32_t i = 0; i < w->places && b->rc == BS_OK; ++i) {
    w->kernel[i] = sk.dims[2 + i];
    build_check(b, told == NULL || told->ints[i] == w->kernel[i], "kernel_shape is not that of W");
    build_check(b, w->kernel[i] > 0 && w->kernel[i] <= INT32_MAX, "the kernel is empty or too large");
  }
  window_read(b, &sx, w);
  return groups;
}

/* Three places as two: what a window takes along the first place becomes channels, its outputs a batch. */
static uint32_t by_slices(build *b, uint32_t x, uint32_t kernel, uint32_t bias, int64_t groups,
                          const window *w) {
  static const uint32_t order[BS_MAX_DIMS] = {0, 3, 1, 2, 4, 5};
  const int64_t batch = build_dim(b, x, 0);
  uint32_t slices = build_permute(b, window_first(b, x, w), order), y = GNONE;
  slices = build_join_dims(b, build_copy(b, slices), 2, 2);
  const uint32_t in[3] = {build_join_dims(b, slices, 0, 2), build_join_dims(b, kernel, 1, 2), bias};
  const bs_attr attrs[3] = {{.name = "strides", .type = BS_ATTR_INTS, .ints = &w->stride[1], .count = 2},
                            {.name = "dilations", .type = BS_ATTR_INTS, .ints = &w->dilation[1], .count = 2},
                            {.name = "group", .type = BS_ATTR_INT, .i = groups}};
  if (b->rc == BS_OK)
    b->rc = lower_call(b->c, b->node, "Conv", in, bias != GNONE ? 3 : 2, attrs, 3, &y, 1, b->err);
  return build_swap(b, build_split_dim(b, b->rc == BS_OK ? y : GNONE, 0, batch, w->out[0]), 1, 2);
}

static int32_t conv(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  window w = {0};
  uint32_t x = build_in(&b, 0);
  const uint32_t kernel = build_in(&b, 1), bias = build_optional(&b, 2), dtype = build_dtype(&b, x);
  const build_shape sk = build_shape_of(&b, kernel);
  build_check(&b, build_is_float(dtype) && dtype == build_dtype(&b, kernel),
              "X and W must be floats of one dtype");
  const int64_t groups = lower_conv_read(&b, x, kernel, bias, &w);
  x = window_pad(&b, x, &w, GNONE);
  if (b.rc != BS_OK) return b.rc;
  if (w.places == 3) {
    build_out(&b, 0, by_slices(&b, x, kernel, bias, groups, &w));
    return b.rc;
  }
  if (groups == 1 && lower_is_const(c, kernel) && !lower_is_const(c, x)) {
    build_out(&b, 0, by_matmul(&b, x, kernel, bias, &w));
    return b.rc;
  }
  uint32_t y = lower_conv_contract(&b, x, kernel, groups, &w);
  build_shape column = {1 + w.places, {sk.dims[0], 1, 1}};
  if (bias != GNONE) y = build_binary(&b, BS_EXPR_ADD, y, build_reshape(&b, bias, &column), dtype);
  build_out(&b, 0, y);
  return b.rc;
}

const lower_rule lower_rules_conv[] = {{"Conv", 1, 0, conv, NULL}, {0}};
