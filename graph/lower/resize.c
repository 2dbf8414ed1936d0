/* SPDX-License-Identifier: MIT
 * resize.c - pictures of another size: along one axis after the other, a weighted sum of one, two or four
 * rows that are taken by constant places (nearest, linear, cubic). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/lower/build.h"

enum { MAX_TAPS = 4, MAX_SIZE = 1 << 24 };

/* How places of the result are places of the input. */
typedef struct resizing {
  const char *coordinates, *nearest; /* attributes of the node; nearest NULL: those of opset 10 */
  uint32_t taps;                     /* 1: nearest, 2: linear, 4: cubic */
  double cubic_a, beyond;            /* beyond: the number outside of a crop */
  int antialias, exclude, crop;
} resizing;

/* One axis: its sizes, and the part that a crop shows. */
typedef struct resize_row {
  int64_t in, out;
  double scale, from, to;
} resize_row;

/* The place of the input that the place `o` of `out` shows. */
static double place_of(const resizing *r, int64_t o, const resize_row *row) {
  const double in = (double)row->in, out = (double)row->out, scale = row->scale;
  const double at = (double)o, half = (at + 0.5) / scale - 0.5;
  if (r->crop) {
    const double first = row->from * (in - 1), last = row->to * (in - 1);
    return row->out > 1 ? first + at * (last - first) / (out - 1) : 0.5 * (first + last);
  }
  if (strcmp(r->coordinates, "asymmetric") == 0) return at / scale;
  if (strcmp(r->coordinates, "align_corners") == 0) return row->out > 1 ? at * (in - 1) / (out - 1) : 0;
  if (strcmp(r->coordinates, "pytorch_half_pixel") == 0) return row->out > 1 ? half : 0;
  if (strcmp(r->coordinates, "tf_half_pixel_for_nn") == 0) return half + 0.5;
  if (strcmp(r->coordinates, "half_pixel_symmetric") == 0) return half + in / 2 * (1 - out / (scale * in));
  return half;
}

static double nearest_of(const resizing *r, double at, double scale) {
  if (r->nearest == NULL) return scale < 1 ? ceil(at) : floor(at); /* opsets 9 and 10: as ONNX Runtime */
  if (strcmp(r->nearest, "floor") == 0) return floor(at);
  if (strcmp(r->nearest, "ceil") == 0) return ceil(at);
  return strcmp(r->nearest, "round_prefer_ceil") == 0 ? floor(at + 0.5) : ceil(at - 0.5);
}

/* The weight of an element at a distance, before the weights of a place are made to sum to 1. */
static double weight_of(const resizing *r, double away) {
  const double d = fabs(away), a = r->cubic_a;
  if (r->taps == 2) return d < 1 ? 1 - d : 0;
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

/* An axis as a table: for each place of the result the elements that it takes, and their weights. */
typedef struct resize_table {
  uint32_t taps;
  int64_t *places; /* [taps, out] */
  double *weights; /* [taps, out] */
  double *beyond;  /* [out]: what is added */
} resize_table;

static void fill_place(const resizing *r, const resize_row *row, int64_t o, resize_table *t) {
  const double at = place_of(r, o, row), shrink = r->antialias && row->scale < 1 ? row->scale : 1;
  const int outside = r->crop && (at < 0 || at > (double)(row->in - 1));
  const uint32_t before = t->taps / 2 - (r->taps > 1);
  const double first = r->taps == 1 ? nearest_of(r, at, row->scale) : floor(at) - (double)before;
  double sum = 0;
  for (uint32_t k = 0; k < t->taps; ++k) {
    const double place = first + k;
    const int beyond = place < 0 || place > (double)(row->in - 1);
    const double weight = r->taps == 1 ? 1 : weight_of(r, (place - at) * shrink);
    t->places[(int64_t)k * row->out + o] = beyond && place > 0 ? row->in - 1 : place > 0 ? (int64_t)place : 0;
    t->weights[(int64_t)k * row->out + o] = beyond && r->exclude ? 0 : weight;
    sum += t->weights[(int64_t)k * row->out + o];
  }
  for (uint32_t k = 0; k < t->taps; ++k) {
    double *weight = &t->weights[(int64_t)k * row->out + o];
    if ((r->exclude || r->antialias) && sum != 0) *weight /= sum;
    if (outside) *weight = 0;
  }
  t->beyond[o] = outside ? r->beyond : 0;
}

static void free_table(resize_table *t) {
  free(t->places);
  free(t->weights);
  free(t->beyond);
}

/* 0: no memory. */
static int make_table(const resizing *r, const resize_row *row, resize_table *t) {
  t->taps = r->taps;
  if (r->antialias && row->scale < 1 && r->taps > 1) {
    const double reach = ceil(r->taps / 2.0 / row->scale);
    t->taps = 2 * (uint32_t)(reach < MAX_SIZE ? reach : MAX_SIZE);
  }
  const size_t n = (size_t)row->out * t->taps;
  t->places = malloc(n * sizeof *t->places + 1);
  t->weights = malloc(n * sizeof *t->weights + 1);
  t->beyond = malloc((size_t)row->out * sizeof *t->beyond + 1);
  if (t->places == NULL || t->weights == NULL || t->beyond == NULL) return 0;
  for (int64_t o = 0; o < row->out; ++o) fill_place(r, row, o, t);
  return 1;
}

/* Few taps: rows that are taken, and their weighted sum. */
static uint32_t by_taps(build *b, const resizing *r, uint32_t x, uint32_t axis, const resize_row *row,
                        const resize_table *t) {
  const uint32_t dtype = build_dtype(b, x), wide = lower_compute(dtype);
  build_shape shape = {build_rank(b, x) - axis, {row->out, 1, 1, 1, 1, 1}};
  lower_map m;
  uint8_t sum = 0;
  lower_map_begin(&m, b->c, wide);
  for (uint32_t k = 0; k < t->taps && b->rc == BS_OK; ++k) {
    const uint32_t y = build_take(b, x, build_ints(b, &t->places[(int64_t)k * row->out], row->out), axis);
    if (r->taps == 1 && !r->crop) return y;
    const uint32_t weight =
        build_cast(b, build_const(b, BS_F64, &shape, &t->weights[(int64_t)k * row->out]), wide);
    if (b->rc != BS_OK) return GNONE;
    const uint8_t v = lower_map_in(&m, y), w = lower_map_in(&m, weight);
    sum = k == 0 ? lower_map_step(&m, BS_EXPR_MUL, v, w, 0) : lower_map_step(&m, BS_EXPR_FMA, v, w, sum);
  }
  if (r->crop && b->rc == BS_OK) {
    const uint32_t more = build_cast(b, build_const(b, BS_F64, &shape, t->beyond), wide);
    if (b->rc == BS_OK) sum = lower_map_step(&m, BS_EXPR_ADD, sum, lower_map_in(&m, more), 0);
  }
  return build_map(b, &m, sum, dtype);
}

/* Many taps: a product with the matrix [in, out] of their weights. */
static uint32_t by_product(build *b, uint32_t x, uint32_t axis, const resize_row *row,
                           const resize_table *t) {
  const build_shape shape = {2, {row->in, row->out}};
  if (row->in * row->out > MAX_SIZE) build_refuse(b, 0, "antialias of a dim this large");
  double *matrix = b->rc == BS_OK ? calloc((size_t)(row->in * row->out) + 1, sizeof *matrix) : NULL;
  if (matrix == NULL && b->rc == BS_OK) build_no_memory(b);
  for (int64_t o = 0; o < row->out && b->rc == BS_OK; ++o)
    for (uint32_t k = 0; k < t->taps; ++k)
      matrix[t->places[(int64_t)k * row->out + o] * row->out + o] += t->weights[(int64_t)k * row->out + o];
  const uint32_t factors = build_reals(b, build_dtype(b, x), &shape, matrix);
  free(matrix);
  const uint32_t rows = build_copy(b, build_move(b, x, axis, 1));
  const uint32_t y =
      build_rank(b, x) > 1
          ? build_contract(b, rows, factors, GNONE, 1)
          : build_squeeze(b, build_contract(b, build_unsqueeze(b, rows, 0), factors, GNONE, 1), 0);
  return build_move(b, y, axis, 0);
}

/* x with `out` elements along an axis. */
static uint32_t resize_axis(build *b, const resizing *r, uint32_t x, uint32_t axis, const resize_row *row) {
  resize_table t = {0};
  uint32_t y = GNONE;
  if (b->rc != BS_OK) return GNONE;
  if (r->antialias && row->scale < 1 && (double)row->out / row->scale > MAX_SIZE)
    build_refuse(b, 0, "antialias of a dim this large");
  if (b->rc == BS_OK && !make_table(r, row, &t)) build_no_memory(b);
  if (b->rc == BS_OK)
    y = t.taps > MAX_TAPS ? by_product(b, x, axis, row, &t) : by_taps(b, r, x, axis, row, &t);
  free_table(&t);
  return y;
}

/* Is the input i there, with elements? Older files write an empty list for none. */
static int is_given(build *b, uint32_t i) {
  const uint32_t value = build_optional(b, i);
  const build_shape shape = build_shape_of(b, value);
  return value != GNONE && build_elements(&shape) > 0;
}

/* The numbers of an input, or of the attribute that Upsample had before opset 9. */
static uint32_t read_scales(build *b, uint32_t place, double *out) {
  const bs_attr *list = gmodel_attr(b->node, "scales");
  uint32_t count = 0;
  if (list != NULL && list->type == BS_ATTR_FLOATS) {
    build_check(b, list->count <= BS_MAX_DIMS, "scales has too many numbers");
    for (; b->rc == BS_OK && count < list->count; ++count) out[count] = list->floats[count];
  } else if (b->rc == BS_OK) {
    b->rc =
        lower_read_floats(b->c, b->node, build_in(b, place), "its scales", out, BS_MAX_DIMS, &count, b->err);
  }
  return count;
}

/* The part of each axis that a crop shows: begins, then ends. */
static void read_crop(build *b, const uint32_t *axes, uint32_t n, resize_row *rows) {
  double crop[2 * BS_MAX_DIMS] = {0};
  uint32_t count = 0;
  if (b->rc == BS_OK)
    b->rc =
        lower_read_floats(b->c, b->node, build_in(b, 1), "its roi", crop, 2 * BS_MAX_DIMS, &count, b->err);
  build_check(b, count == 2 * n, "roi is not twice as long as there are axes");
  for (uint32_t i = 0; i < n && b->rc == BS_OK; ++i) {
    rows[axes[i]].from = crop[i];
    rows[axes[i]].to = crop[n + i];
  }
}

/* One scale for all axes, so that no size is beyond, or below, the wanted one. */
static void keep_aspect(const char *policy, const uint32_t *axes, uint32_t n, resize_row *rows) {
  const int larger = strcmp(policy, "not_smaller") == 0;
  if (n == 0 || strcmp(policy, "stretch") == 0) return;
  double scale = rows[axes[0]].scale;
  for (uint32_t i = 1; i < n; ++i)
    if (larger ? rows[axes[i]].scale > scale : rows[axes[i]].scale < scale) scale = rows[axes[i]].scale;
  for (uint32_t i = 0; i < n; ++i) {
    rows[axes[i]].scale = scale;
    rows[axes[i]].out = (int64_t)floor(scale * (double)rows[axes[i]].in + 0.5);
  }
}

/* The rows' scales, and the sizes that they make or that are given. */
static void read_rows(build *b, const resizing *r, uint32_t rank, resize_row *rows) {
  const bs_attr *chosen = lower_ints(b->node, "axes");
  const uint32_t place = b->node->opset < 11 ? 1 : 2, n = chosen != NULL ? (uint32_t)chosen->count : rank;
  const int by_scale = is_given(b, place) || gmodel_attr(b->node, "scales") != NULL;
  double given[BS_MAX_DIMS] = {0};
  int64_t wanted[BS_MAX_DIMS] = {0};
  uint32_t count = 0, axes[BS_MAX_DIMS] = {0};
  build_check(b, by_scale || is_given(b, 3), "neither scales nor sizes are given");
  build_check(b, n <= rank, "axes has more entries than X has dims");
  if (b->rc != BS_OK) return;
  count = by_scale ? read_scales(b, place, given)
                   : build_read_ints(b, build_in(b, 3), "its sizes", wanted, BS_MAX_DIMS);
  build_check(b, count == n, "scales or sizes has another length than there are axes");
  for (uint32_t i = 0; i < n && b->rc == BS_OK; ++i)
    axes[i] = build_axis(b, chosen != NULL ? chosen->ints[i] : (int64_t)i, rank);
  if (r->crop) read_crop(b, axes, n, rows);
  for (uint32_t i = 0; i < n && b->rc == BS_OK; ++i) {
    resize_row *row = &rows[axes[i]];
    const double dim = (double)row->in; /* of a crop too: ONNX's own shapes are so */
    build_check(b, !by_scale || (given[i] > 0 && given[i] * dim >= 0 && given[i] * dim <= MAX_SIZE),
                "a scale is not positive, or too large");
    build_check(b, by_scale || (wanted[i] >= 0 && wanted[i] <= MAX_SIZE), "a size is negative, or too large");
    if (b->rc != BS_OK) return;
    row->out = by_scale ? (int64_t)floor(given[i] * dim) : wanted[i];
    row->scale = by_scale ? given[i] : (double)row->out / (double)row->in;
  }
  if (!by_scale && b->rc == BS_OK)
    keep_aspect(lower_text(b->node, "keep_aspect_ratio_policy", "stretch"), axes, n, rows);
}

static resizing read_modes(const gmodel_node *node) {
  const char *mode = lower_text(node, "mode", "nearest");
  resizing r = {.cubic_a = lower_float(node, "cubic_coeff_a", -0.75),
                .beyond = lower_float(node, "extrapolation_value", 0),
                .antialias = lower_int(node, "antialias", 0) != 0,
                .exclude = lower_int(node, "exclude_outside", 0) != 0};
  r.taps = strcmp(mode, "nearest") == 0 ? 1 : strcmp(mode, "cubic") == 0 ? 4 : 2;
  r.coordinates =
      lower_text(node, "coordinate_transformation_mode", node->opset < 11 ? "asymmetric" : "half_pixel");
  r.nearest = node->opset < 11 ? NULL : lower_text(node, "nearest_mode", "round_prefer_floor");
  r.crop = strcmp(r.coordinates, "tf_crop_and_resize") == 0;
  return r;
}

static int32_t resize(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const resizing r = read_modes(node);
  uint32_t x = build_in(&b, 0);
  const build_shape shape = build_shape_of(&b, x);
  resize_row rows[BS_MAX_DIMS] = {{0}};
  for (uint32_t i = 0; i < shape.rank; ++i)
    rows[i] = (resize_row){.in = shape.dims[i], .out = shape.dims[i], .scale = 1, .to = 1};
  if (b.rc == BS_OK && (r.taps > 1 || r.crop) && !build_is_float(build_dtype(&b, x)))
    build_refuse(&b, build_dtype(&b, x), r.taps > 1 ? "numbers between integers" : "a crop of integers");
  if (b.rc == BS_OK) read_rows(&b, &r, shape.rank, rows);
  for (uint32_t i = 0; i < shape.rank && b.rc == BS_OK; ++i) {
    const resize_row *row = &rows[i];
    if (row->out == row->in && row->scale == 1 && row->from == 0 && row->to == 1) continue;
    build_check(&b, row->in > 0 || row->out == 0, "an axis of no elements grows");
    x = resize_axis(&b, &r, x, i, row);
  }
  build_out(&b, 0, x);
  return b.rc;
}

const lower_rule lower_rules_resize[] = {
    {"Resize", 10, 0, resize, NULL}, {"Upsample", 7, 9, resize, NULL}, {0}};
