/* SPDX-License-Identifier: MIT
 * unpool.c - elements of windows put back into pictures: MaxUnpool and Col2Im. */
#include <stdlib.h>
#include <string.h>

#include "graph/lower/build.h"

enum { MOST_PLACES = 1 << 24, PLACES = 3 };

static void read_numbers(build *b, const char *attr, int64_t otherwise, int64_t least, int64_t *out,
                         uint32_t n) {
  const bs_attr *list = lower_ints(b->node, attr);
  build_check(b, list == NULL || list->count == n, "an attribute has another length than there are places");
  for (uint32_t i = 0; i < n && b->rc == BS_OK; ++i) {
    out[i] = list != NULL ? list->ints[i] : otherwise;
    build_check(b, out[i] >= least && out[i] <= INT32_MAX, "a number of an attribute is out of range");
  }
}

/* Each element of X goes to the place that its index names, counted over all dims of the output. */
static int32_t max_unpool(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0), index = build_in(&b, 1), asked = build_optional(&b, 2);
  const build_shape sx = build_shape_of(&b, x), si = build_shape_of(&b, index);
  const uint32_t n = sx.rank - 2;
  int64_t kernel[BS_MAX_DIMS] = {0}, stride[BS_MAX_DIMS] = {0}, pads[2 * BS_MAX_DIMS] = {0},
          wanted[BS_MAX_DIMS] = {0};
  build_shape out = sx;
  uint32_t y = GNONE;
  build_check(&b, sx.rank >= 3 && build_same(&sx, &si),
              "X and I must have the same shape of 3 dims at least");
  if (b.rc != BS_OK) return b.rc;
  read_numbers(&b, "kernel_shape", 1, 1, kernel, n);
  read_numbers(&b, "strides", 1, 1, stride, n);
  read_numbers(&b, "pads", 0, 0, pads, 2 * n);
  for (uint32_t i = 0; i < n && b.rc == BS_OK; ++i) {
    build_check(&b, sx.dims[2 + i] <= INT32_MAX, "a dim is too large");
    out.dims[2 + i] = (sx.dims[2 + i] - 1) * stride[i] + kernel[i] - pads[i] - pads[n + i];
    build_check(&b, out.dims[2 + i] > 0, "the pads cut off more than there is");
  }
  if (asked != GNONE) {
    build_check(&b, build_read_ints(&b, asked, "its output_shape", wanted, BS_MAX_DIMS) == sx.rank,
                "output_shape has another length than X has dims");
    for (uint32_t i = 0; i < sx.rank && b.rc == BS_OK; ++i)
      if (wanted[i] != out.dims[i]) build_refuse(&b, 0, "an output_shape other than the kernel gives");
  }
  const build_shape from = {1, {build_count(&b, x, ~0u)}}, to = {1, {build_elements(&out)}};
  build_check(&b, to.dims[0] >= 0, "the output is too large");
  if (b.rc != BS_OK) return b.rc;
  const uint32_t base = build_expand(&b, build_real(&b, build_dtype(&b, x), 0), &to);
  const uint32_t places = build_reshape(&b, index, &from), values = build_reshape(&b, x, &from);
  if (b.rc == BS_OK) b.rc = lower_put(c, BS_INDEX_ELEMENTS, BS_PUT_SET, base, places, values, 0, &y, err);
  build_out(&b, 0, build_reshape(&b, y, &out));
  return b.rc;
}

/* A Col2Im: of each place the padded picture, the block, and how many blocks there are. */
typedef struct columns {
  uint32_t n;
  int64_t image[PLACES], block[PLACES], dilation[PLACES], stride[PLACES], pads[2 * PLACES], padded[PLACES],
      steps[PLACES], elements, blocks, area;
} columns;

static void read_columns(build *b, columns *d) {
  d->n = build_read_ints(b, build_in(b, 1), "its image_shape", d->image, PLACES);
  build_check(b, build_read_ints(b, build_in(b, 2), "its block_shape", d->block, PLACES) == d->n && d->n > 0,
              "image_shape and block_shape differ in length");
  read_numbers(b, "dilations", 1, 1, d->dilation, d->n);
  read_numbers(b, "strides", 1, 1, d->stride, d->n);
  read_numbers(b, "pads", 0, 0, d->pads, 2 * d->n);
  d->elements = d->blocks = d->area = 1;
  for (uint32_t i = 0; i < d->n && b->rc == BS_OK; ++i) {
    build_check(
        b, d->image[i] > 0 && d->image[i] <= MOST_PLACES && d->block[i] > 0 && d->block[i] <= MOST_PLACES,
        "a size is not positive, or too large");
    if (b->rc != BS_OK) return;
    d->padded[i] = d->image[i] + d->pads[i] + d->pads[d->n + i];
    const int64_t room = d->padded[i] - (d->block[i] - 1) * d->dilation[i] - 1;
    build_check(b, room >= 0, "a block is larger than the padded picture");
    d->steps[i] = room >= 0 ? room / d->stride[i] + 1 : 1;
    if (__builtin_mul_overflow(d->elements, d->block[i], &d->elements) ||
        __builtin_mul_overflow(d->blocks, d->steps[i], &d->blocks) ||
        __builtin_mul_overflow(d->area, d->padded[i], &d->area))
      build_check(b, 0, "the picture is too large");
  }
}

/* The place in the padded picture of each element of each block. */
static uint32_t places_of(build *b, const columns *d) {
  int64_t count = 0;
  if (b->rc == BS_OK && (__builtin_mul_overflow(d->elements, d->blocks, &count) || count > MOST_PLACES))
    build_refuse(b, 0, "more than 2^24 elements of blocks");
  int64_t *places = b->rc == BS_OK ? malloc((size_t)count * sizeof *places + 1) : NULL;
  if (places == NULL) {
    build_no_memory(b);
    return GNONE;
  }
  for (int64_t i = 0; i < count; ++i) {
    int64_t element = i / d->blocks, block = i % d->blocks, scale = 1, at = 0;
    for (uint32_t k = d->n; k-- > 0;) {
      at += (element % d->block[k] * d->dilation[k] + block % d->steps[k] * d->stride[k]) * scale;
      element /= d->block[k];
      block /= d->steps[k];
      scale *= d->padded[k];
    }
    places[i] = at;
  }
  const build_shape shape = {2, {count, 1}};
  const uint32_t value = build_const(b, BS_I64, &shape, places);
  free(places);
  return value;
}

/* [N, C elements, blocks] to [N, C, image..]: the sum of all blocks where they lie. */
static int32_t col2im(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  static const uint32_t rows_first[3] = {2, 0, 1}, rows_last[3] = {1, 2, 0};
  build b = build_begin(c, node, err);
  columns d = {0};
  const uint32_t x = build_in(&b, 0);
  const build_shape sx = build_shape_of(&b, x);
  uint32_t y = GNONE;
  read_columns(&b, &d);
  build_check(&b, sx.rank == 3 && build_is_float(build_dtype(&b, x)),
              "the input must be of floats with 3 dims");
  build_check(&b, b.rc != BS_OK || (sx.dims[1] % d.elements == 0 && sx.dims[2] == d.blocks),
              "the input does not fit the blocks");
  const uint32_t places = places_of(&b, &d);
  if (b.rc != BS_OK) return b.rc;
  const int64_t channels = sx.dims[1] / d.elements;
  const build_shape split = {3, {sx.dims[0], channels, d.elements * d.blocks}},
                    whole = {3, {d.area, sx.dims[0], channels}};
  build_shape out = {2 + d.n, {sx.dims[0], channels}};
  const uint32_t rows = build_copy(&b, build_permute(&b, build_reshape(&b, x, &split), rows_first));
  const uint32_t base = build_expand(&b, build_real(&b, build_dtype(&b, x), 0), &whole);
  if (b.rc == BS_OK) b.rc = lower_put(c, BS_INDEX_TUPLES, BS_PUT_ADD, base, places, rows, 0, &y, err);
  for (uint32_t i = 0; i < d.n; ++i) out.dims[2 + i] = d.padded[i];
  y = build_reshape(&b, build_permute(&b, b.rc == BS_OK ? y : GNONE, rows_last), &out);
  for (uint32_t i = 0; i < d.n; ++i) y = build_slice(&b, y, 2 + i, d.pads[i], d.image[i], 1);
  build_out(&b, 0, y);
  return b.rc;
}

const lower_rule lower_rules_unpool[] = {
    {"MaxUnpool", 9, 0, max_unpool, NULL}, {"Col2Im", 18, 0, col2im, NULL}, {0}};
