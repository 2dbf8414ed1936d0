/* SPDX-License-Identifier: MIT
 * conv.c - convolutions over one or two places: the padded input seen as overlapping windows, copied once,
 * then one product. With a constant kernel and one group the product is `matmul` with a packed weight. */
#include <string.h>

#include "graph/lower/build.h"

enum { MAX_PLACES = 2 };

/* Sizes of each place: of the input with its pads, of the kernel, of the output. */
typedef struct window {
  uint32_t places;
  int64_t begin[MAX_PLACES], end[MAX_PLACES], stride[MAX_PLACES], dilation[MAX_PLACES], kernel[MAX_PLACES],
      out[MAX_PLACES];
} window;

static void read_sizes(build *b, const char *attr, int64_t *out, uint32_t n) {
  const bs_attr *list = lower_ints(b->node, attr);
  build_check(b, list == NULL || list->count == n,
              "an attribute has another length than the input has places");
  for (uint32_t i = 0; i < n && b->rc == BS_OK; ++i) {
    out[i] = list != NULL ? list->ints[i] : 1;
    build_check(b, out[i] > 0 && out[i] <= INT32_MAX, "a stride or dilation is not positive");
  }
}

static void read_pads(build *b, const build_shape *x, window *w) {
  const bs_attr *pads = lower_ints(b->node, "pads");
  const char *automatic = lower_text(b->node, "auto_pad", "NOTSET");
  const int same = strncmp(automatic, "SAME", 4) == 0;
  build_check(b, pads == NULL || pads->count == 2 * w->places,
              "pads is not twice as long as the input has places");
  for (uint32_t i = 0; i < w->places && b->rc == BS_OK; ++i) {
    const int64_t span = (w->kernel[i] - 1) * w->dilation[i] + 1, dim = x->dims[2 + i];
    if (same) {
      const int64_t outs = (dim + w->stride[i] - 1) / w->stride[i],
                    need = (outs - 1) * w->stride[i] + span - dim;
      const int64_t total = need > 0 ? need : 0, small = total / 2;
      w->begin[i] = strcmp(automatic, "SAME_UPPER") == 0 ? small : total - small;
      w->end[i] = total - w->begin[i];
    } else if (pads != NULL && strcmp(automatic, "NOTSET") == 0) {
      w->begin[i] = pads->ints[i];
      w->end[i] = pads->ints[w->places + i];
    }
    build_check(b, w->begin[i] >= 0 && w->end[i] >= 0 && w->begin[i] <= INT32_MAX && w->end[i] <= INT32_MAX,
                "a pad is negative");
    const int64_t room = dim + w->begin[i] + w->end[i] - span;
    build_check(b, room >= 0, "the kernel is larger than the padded input");
    w->out[i] = room / w->stride[i] + 1;
  }
}

static uint32_t padded(build *b, uint32_t x, const window *w) {
  int64_t pads[2 * BS_MAX_DIMS] = {0}, any = 0;
  const uint32_t rank = 2 + w->places;
  for (uint32_t i = 0; i < w->places; ++i) {
    pads[2 + i] = w->begin[i];
    pads[rank + 2 + i] = w->end[i];
    any |= w->begin[i] | w->end[i];
  }
  if (any == 0 || b->rc != BS_OK) return x;
  const uint32_t in[2] = {x, build_ints(b, pads, 2 * (int64_t)rank)};
  uint32_t y = GNONE;
  if (b->rc == BS_OK) b->rc = lower_call(b->c, b->node, "Pad", in, 2, NULL, 0, &y, 1, b->err);
  return b->rc == BS_OK ? y : GNONE;
}

/* The windows as a view [N, C, kernel.., out..]. */
static uint32_t windows(build *b, uint32_t x, const window *w) {
  if (b->rc != BS_OK) return GNONE;
  const gvalue *v = lower_value(b->c, x);
  build_shape shape = {2 + 2 * w->places, {v->dims[0], v->dims[1]}};
  int64_t strides[BS_MAX_DIMS] = {v->strides[0], v->strides[1]};
  for (uint32_t i = 0; i < w->places; ++i) {
    shape.dims[2 + i] = w->kernel[i];
    strides[2 + i] = v->strides[2 + i] * w->dilation[i];
    shape.dims[2 + w->places + i] = w->out[i];
    strides[2 + w->places + i] = v->strides[2 + i] * w->stride[i];
  }
  return build_view(b, x, &shape, strides, 0);
}

/* One group, constant kernel: rows of windows [N out, C kernel] times the kernel [M, C kernel]. */
static uint32_t by_matmul(build *b, uint32_t x, uint32_t kernel, uint32_t bias, const window *w) {
  uint32_t order[BS_MAX_DIMS] = {0}, y = GNONE;
  const uint32_t p = w->places;
  for (uint32_t i = 0; i < p; ++i) {
    order[1 + i] = 2 + p + i;
    order[2 + p + i] = 2 + i;
  }
  order[1 + p] = 1;
  uint32_t rows = build_copy(b, build_permute(b, windows(b, x, w), order));
  rows = build_join_dims(b, rows, 1 + p, 1 + p);
  const uint32_t weight = build_join_dims(b, kernel, 1, 1 + p);
  if (b->rc == BS_OK)
    b->rc = lower_matmul(b->c, rows, weight, bias, BS_ACT_NONE, build_dtype(b, x), &y, b->err);
  return build_move(b, b->rc == BS_OK ? y : GNONE, 1, 0);
}

/* [N, G, M/G, C/G kernel] x [N, G, C/G kernel, out]. */
static uint32_t by_contract(build *b, uint32_t x, uint32_t kernel, int64_t groups, const window *w) {
  const uint32_t p = w->places;
  const int64_t outputs = build_dim(b, kernel, 0), batch = build_dim(b, x, 0), channels = build_dim(b, x, 1);
  uint32_t columns = build_copy(b, windows(b, x, w));
  columns = build_join_dims(b, build_join_dims(b, columns, 2 + p, p), 1, 1 + p);
  const int64_t inner = build_dim(b, columns, 1);
  columns = build_split_dim(b, columns, 1, groups, channels > 0 ? inner / groups : 0);
  const uint32_t rows = build_split_dim(b, build_join_dims(b, kernel, 1, 1 + p), 0, groups, outputs / groups);
  const uint32_t y = build_contract(b, build_unsqueeze(b, rows, 0), columns, GNONE, 1);
  build_shape shape = {2 + p, {batch, outputs}};
  for (uint32_t i = 0; i < p; ++i) shape.dims[2 + i] = w->out[i];
  return build_reshape(b, y, &shape);
}

static int32_t conv(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  window w = {0};
  uint32_t x = build_in(&b, 0);
  const uint32_t kernel = build_in(&b, 1), bias = build_optional(&b, 2), dtype = build_dtype(&b, x);
  const build_shape sx = build_shape_of(&b, x), sk = build_shape_of(&b, kernel);
  const int64_t groups = lower_int(node, "group", 1);
  build_check(&b, sx.rank >= 3 && sx.rank == sk.rank, "X and W must have the same rank, at least 3");
  build_check(&b, build_is_float(dtype) && dtype == build_dtype(&b, kernel),
              "X and W must be floats of one dtype");
  if (b.rc == BS_OK && sx.rank > 2 + MAX_PLACES)
    build_refuse(&b, 0, "a convolution over more than two places");
  if (b.rc != BS_OK) return b.rc;
  build_check(&b, groups > 0 && sx.dims[1] == sk.dims[1] * groups && sk.dims[0] % groups == 0,
              "the channels do not fit the kernel");
  build_check(&b, bias == GNONE || (build_rank(&b, bias) == 1 && build_dim(&b, bias, 0) == sk.dims[0]),
              "the bias does not fit the kernel");
  w.places = sx.rank - 2;
  const bs_attr *told = lower_ints(node, "kernel_shape");
  build_check(&b, told == NULL || told->count == w.places,
              "kernel_shape has another length than W has places");
  for (uint32_t i = 0; i < w.places && b.rc == BS_OK; ++i) {
    w.kernel[i] = sk.dims[2 + i];
    build_check(&b, told == NULL || told->ints[i] == w.kernel[i], "kernel_shape is not that of W");
    build_check(&b, w.kernel[i] > 0 && w.kernel[i] <= INT32_MAX, "the kernel is empty or too large");
  }
  read_sizes(&b, "strides", w.stride, w.places);
  read_sizes(&b, "dilations", w.dilation, w.places);
  read_pads(&b, &sx, &w);
  x = padded(&b, x, &w);
  if (b.rc != BS_OK) return b.rc;
  if (groups == 1 && lower_is_const(c, kernel) && !lower_is_const(c, x)) {
    build_out(&b, 0, by_matmul(&b, x, kernel, bias, &w));
    return b.rc;
  }
  uint32_t y = by_contract(&b, x, kernel, groups, &w);
  build_shape column = {1 + w.places, {sk.dims[0], 1, 1}};
  if (bias != GNONE) y = build_binary(&b, BS_EXPR_ADD, y, build_reshape(&b, bias, &column), dtype);
  build_out(&b, 0, y);
  return b.rc;
}

const lower_rule lower_rules_conv[] = {{"Conv", 1, 0, conv, NULL}, {0}};
