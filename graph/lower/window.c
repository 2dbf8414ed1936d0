/* SPDX-License-Identifier: MIT
 * window.c - see window.h. */
#include "graph/lower/window.h"

#include <string.h>

static void read_sizes(build *b, const char *attr, int64_t *out, uint32_t n) {
  const bs_attr *list = lower_ints(b->node, attr);
  build_check(b, list == NULL || list->count == n,
              "an attribute has another length than the input has places");
  for (uint32_t i = 0; i < n && b->rc == BS_OK; ++i) {
    out[i] = list != NULL ? list->ints[i] : 1;
    build_check(b, out[i] > 0 && out[i] <= INT32_MAX, "a stride or dilation is not positive");
  }
}

/* The number of windows: with ceil_mode also one that begins in the input or before it and ends beyond. */
static void count_windows(build *b, window *w, uint32_t i, int64_t dim) {
  const int64_t span = (w->kernel[i] - 1) * w->dilation[i] + 1, stride = w->stride[i];
  const int64_t room = dim + w->begin[i] + w->end[i] - span;
  build_check(b, room >= 0, "the kernel is larger than the padded input");
  if (b->rc != BS_OK) return;
  w->out[i] = room / stride + 1;
  if (lower_int(b->node, "ceil_mode", 0) == 0 || room % stride == 0 ||
      w->out[i] * stride >= dim + w->begin[i])
    return;
  w->more[i] = w->out[i] * stride - room;
  w->out[i]++;
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
    count_windows(b, w, i, dim);
  }
}

void window_read(build *b, const build_shape *x, window *w) {
  read_sizes(b, "strides", w->stride, w->places);
  read_sizes(b, "dilations", w->dilation, w->places);
  read_pads(b, x, w);
}

uint32_t window_pad(build *b, uint32_t x, const window *w, uint32_t number) {
  int64_t pads[2 * BS_MAX_DIMS] = {0}, any = 0;
  const uint32_t rank = 2 + w->places;
  for (uint32_t i = 0; i < w->places; ++i) {
    pads[2 + i] = w->begin[i];
    pads[rank + 2 + i] = w->end[i] + w->more[i];
    any |= pads[2 + i] | pads[rank + 2 + i];
  }
  if (any == 0 || b->rc != BS_OK) return x;
  const uint32_t in[3] = {x, build_ints(b, pads, 2 * (int64_t)rank), number};
  uint32_t y = GNONE;
  if (b->rc == BS_OK)
    b->rc = lower_call(b->c, b->node, "Pad", in, number != GNONE ? 3 : 2, NULL, 0, &y, 1, b->err);
  return b->rc == BS_OK ? y : GNONE;
}

uint32_t window_view(build *b, uint32_t x, const window *w) {
  if (w->places > 2) build_refuse(b, 0, "windows over three places");
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

uint32_t window_first(build *b, uint32_t x, const window *w) {
  if (b->rc != BS_OK) return GNONE;
  const gvalue *v = lower_value(b->c, x);
  const build_shape shape = {6, {v->dims[0], v->dims[1], w->kernel[0], w->out[0], v->dims[3], v->dims[4]}};
  const int64_t strides[BS_MAX_DIMS] = {
      v->strides[0], v->strides[1], v->strides[2] * w->dilation[0], v->strides[2] * w->stride[0],
      v->strides[3], v->strides[4]};
  return build_view(b, x, &shape, strides, 0);
}
