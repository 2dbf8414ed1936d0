/* SPDX-License-Identifier: MIT
 * conv_transpose.c - the transposed convolution over one to three places: X with zeros between its elements,
 * and a convolution of it by the kernel from its end to its begin, with inputs and outputs exchanged. */
#include <string.h>

#include "graph/lower/window.h"

/* X [N, C, places..] with stride - 1 zeros between neighbours along each place: each element becomes a row
 * that begins with it, and the last row is cut after it. */
static uint32_t spread(build *b, uint32_t x, const int64_t *stride, uint32_t places) {
  for (uint32_t i = 0; i < places && b->rc == BS_OK; ++i) {
    build_shape none = build_shape_of(b, x);
    const int64_t dim = none.dims[2 + i];
    build_check(b, dim <= INT32_MAX && dim * stride[i] <= INT32_MAX, "a dim is too large");
    if (stride[i] == 1 || dim <= 1 || b->rc != BS_OK) continue;
    none.dims[2 + i] = dim * (stride[i] - 1);
    const uint32_t zeros = build_expand(b, build_real(b, build_dtype(b, x), 0), &none);
    const uint32_t parts[2] = {build_unsqueeze(b, x, 3 + i),
                               build_split_dim(b, zeros, 2 + i, dim, stride[i] - 1)};
    x = build_join_dims(b, build_concat(b, parts, 2, 3 + i), 2 + i, 2);
    x = build_slice(b, x, 2 + i, 0, (dim - 1) * stride[i] + 1, 1);
  }
  return x;
}

/* W [C, M/G, kernel..] as the kernel [M, C/G, kernel..] of a convolution. */
static uint32_t exchanged(build *b, uint32_t kernel, int64_t groups, uint32_t places) {
  const int64_t inputs = build_dim(b, kernel, 0);
  for (uint32_t i = 0; i < places; ++i) kernel = build_reverse(b, kernel, 2 + i);
  if (b->rc != BS_OK) return GNONE;
  kernel = build_swap(b, build_split_dim(b, kernel, 0, groups, inputs / groups), 1, 2);
  return build_join_dims(b, kernel, 0, 2);
}

static void read_numbers(build *b, const char *attr, int64_t otherwise, int64_t least, int64_t *out,
                         uint32_t n) {
  const bs_attr *list = lower_ints(b->node, attr);
  build_check(b, list == NULL || list->count == n, "an attribute has another length than X has places");
  for (uint32_t i = 0; i < n && b->rc == BS_OK; ++i) {
    out[i] = list != NULL ? list->ints[i] : otherwise;
    build_check(b, out[i] >= least && out[i] <= INT32_MAX, "a number of an attribute is out of range");
  }
}

static int32_t conv_transpose(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  uint32_t x = build_in(&b, 0);
  const uint32_t kernel = build_in(&b, 1), bias = build_optional(&b, 2);
  const build_shape sx = build_shape_of(&b, x), sk = build_shape_of(&b, kernel);
  const int64_t groups = lower_int(node, "group", 1);
  const uint32_t places = sx.rank - 2;
  const char *automatic = lower_text(node, "auto_pad", "NOTSET");
  const int same = strncmp(automatic, "SAME", 4) == 0, upper = strcmp(automatic, "SAME_UPPER") == 0;
  int64_t stride[WINDOW_PLACES] = {0}, dilation[WINDOW_PLACES] = {0}, more[WINDOW_PLACES] = {0},
          wanted[WINDOW_PLACES] = {0}, begin_end[2 * WINDOW_PLACES] = {0}, pads[2 * BS_MAX_DIMS] = {0};
  build_check(&b, sx.rank >= 3 && sx.rank == sk.rank, "X and W must have the same rank, at least 3");
  if (b.rc == BS_OK && places > WINDOW_PLACES)
    build_refuse(&b, 0, "a convolution over more than three places");
  if (b.rc != BS_OK) return b.rc;
  build_check(&b, groups > 0 && sx.dims[1] == sk.dims[0] && sk.dims[0] % groups == 0,
              "the channels do not fit the kernel");
  read_numbers(&b, "strides", 1, 1, stride, places);
  read_numbers(&b, "dilations", 1, 1, dilation, places);
  read_numbers(&b, "output_padding", 0, 0, more, places);
  read_numbers(&b, "pads", 0, 0, begin_end, 2 * places);
  read_numbers(&b, "output_shape", 0, 0, wanted, places);
  for (uint32_t i = 0; i < places && b.rc == BS_OK; ++i) {
    build_check(
        &b, sk.dims[2 + i] > 0 && sk.dims[2 + i] <= INT32_MAX && sk.dims[2 + i] * dilation[i] <= INT32_MAX,
        "the kernel is empty or too large");
    const int64_t span = (sk.dims[2 + i] - 1) * dilation[i];
    if (same) wanted[i] = sx.dims[2 + i] * stride[i];
    if (wanted[i] > 0) { /* what is beyond it is cut off, half at each end; what is missing is 0 */
      const int64_t cut = stride[i] * (sx.dims[2 + i] - 1) + more[i] + span + 1 - wanted[i];
      const int64_t half = cut >= 0 ? cut / 2 : -((1 - cut) / 2);
      begin_end[i] = upper ? half : cut - half;
      begin_end[places + i] = cut - begin_end[i];
    }
    pads[2 + i] = span - begin_end[i];
    pads[sx.rank + 2 + i] = span - begin_end[places + i] + more[i];
  }
  x = spread(&b, x, stride, places);
  const uint32_t padded_in[2] = {x, build_ints(&b, pads, 2 * (int64_t)sx.rank)};
  uint32_t padded = GNONE, y = GNONE;
  if (b.rc == BS_OK) b.rc = lower_call(c, node, "Pad", padded_in, 2, NULL, 0, &padded, 1, err);
  const uint32_t in[3] = {padded, exchanged(&b, kernel, groups, places), bias};
  const bs_attr attrs[2] = {{.name = "dilations", .type = BS_ATTR_INTS, .ints = dilation, .count = places},
                            {.name = "group", .type = BS_ATTR_INT, .i = groups}};
  if (b.rc == BS_OK) b.rc = lower_call(c, node, "Conv", in, bias != GNONE ? 3 : 2, attrs, 2, &y, 1, err);
  build_out(&b, 0, y);
  return b.rc;
}

const lower_rule lower_rules_conv_transpose[] = {{"ConvTranspose", 1, 0, conv_transpose, NULL}, {0}};
