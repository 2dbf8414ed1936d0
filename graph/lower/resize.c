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
  double cubic_a;
} resizing;

/* The place of the input that the place `o` of `out` shows. */
static double place_of(const resizing *r, int64_t o, int64_t in, int64_t out, double scale) {
  const double at = (double)o, half = (at + 0.5) / scale - 0.5;
  if (strcmp(r->coordinates, "asymmetric") == 0) return at / scale;
  if (strcmp(r->coordinates, "align_corners") == 0) /* sizes by scales are not rounded here */
    return out > 1 ? at * (double)(in - 1) / (scale * (double)in - 1) : 0;
  if (strcmp(r->coordinates, "pytorch_half_pixel") == 0) return out > 1 ? half : 0;
  if (strcmp(r->coordinates, "half_pixel_symmetric") == 0)
    return half + (double)in / 2 * (1 - (double)out / (scale * (double)in));
  return half;
}

static double nearest_of(const resizing *r, double at, double scale) {
  if (r->nearest == NULL) return scale < 1 ? ceil(at) : floor(at); /* opsets 9 and 10: as ONNX Runtime */
  if (strcmp(r->nearest, "floor") == 0) return floor(at);
  if (strcmp(r->nearest, "ceil") == 0) return ceil(at);
  return strcmp(r->nearest, "round_prefer_ceil") == 0 ? floor(at + 0.5) : ceil(at - 0.5);
}

static void cubic_weights(double a, double t, double *out) {
  const double s = 1 - t;
  out[0] = ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a;
  out[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
  out[2] = ((a + 2) * s - (a + 3)) * s * s + 1;
  out[3] = ((a * (s + 1) - 5 * a) * (s + 1) + 8 * a) * (s + 1) - 4 * a;
}

/* The places and weights of the taps of result `o`. */
static void taps_of(const resizing *r, double at, double scale, int64_t in, int64_t *places,
                    double *weights) {
  double first = floor(at);
  if (r->taps == 1) {
    first = nearest_of(r, at, scale);
  } else if (r->taps == 2) {
    weights[1] = at - first;
    weights[0] = 1 - weights[1];
  } else {
    cubic_weights(r->cubic_a, at - first, weights);
    first -= 1;
  }
  for (uint32_t k = 0; k < r->taps; ++k) {
    const double place = first + k;
    places[k] = place < 0 ? 0 : place > (double)(in - 1) ? in - 1 : (int64_t)place;
  }
}

typedef struct tables {
  int64_t *places[MAX_TAPS];
  double *weights[MAX_TAPS];
} tables;

static int make_tables(const resizing *r, int64_t in, int64_t out, double scale, tables *t) {
  int64_t *places = malloc((size_t)(out * r->taps) * sizeof *places + 1);
  double *weights = malloc((size_t)(out * r->taps) * sizeof *weights + 1);
  t->places[0] = places;
  t->weights[0] = weights;
  if (places == NULL || weights == NULL) return 0;
  for (uint32_t k = 0; k < r->taps; ++k) {
    t->places[k] = places + (int64_t)k * out;
    t->weights[k] = weights + (int64_t)k * out;
  }
  for (int64_t o = 0; o < out; ++o) {
    int64_t place[MAX_TAPS] = {0};
    double weight[MAX_TAPS] = {0};
    taps_of(r, place_of(r, o, in, out, scale), scale, in, place, weight);
    for (uint32_t k = 0; k < r->taps; ++k) {
      t->places[k][o] = place[k];
      t->weights[k][o] = weight[k];
    }
  }
  return 1;
}

/* x with `out` elements along an axis. */
static uint32_t resize_axis(build *b, const resizing *r, uint32_t x, uint32_t axis, int64_t out,
                            double scale) {
  const uint32_t rank = build_rank(b, x), dtype = build_dtype(b, x), wide = lower_compute(dtype);
  tables t = {0};
  build_shape row = {rank - axis, {out, 1, 1, 1, 1, 1}};
  lower_map m;
  if (b->rc != BS_OK) return GNONE;
  if (!make_tables(r, build_dim(b, x, axis), out, scale, &t)) build_no_memory(b);
  uint32_t y = GNONE;
  uint8_t sum = 0;
  if (b->rc == BS_OK) lower_map_begin(&m, b->c, wide);
  for (uint32_t k = 0; k < r->taps && b->rc == BS_OK; ++k) {
    y = build_take(b, x, build_ints(b, t.places[k], out), axis);
    if (r->taps == 1) break;
    const uint32_t weight = build_cast(b, build_const(b, BS_F64, &row, t.weights[k]), wide);
    if (b->rc != BS_OK) break;
    const uint8_t v = lower_map_in(&m, y), w = lower_map_in(&m, weight);
    sum = k == 0 ? lower_map_step(&m, BS_EXPR_MUL, v, w, 0) : lower_map_step(&m, BS_EXPR_FMA, v, w, sum);
  }
  if (r->taps > 1) y = build_map(b, &m, sum, dtype);
  free(t.places[0]);
  free(t.weights[0]);
  return y;
}

/* Is the input i there, with elements? Older files write an empty list for none. */
static int is_given(build *b, uint32_t i) {
  const uint32_t value = build_optional(b, i);
  const build_shape shape = build_shape_of(b, value);
  return value != GNONE && build_elements(&shape) > 0;
}

/* Scales of the axes, and the sizes that they make or that are given. */
static void read_sizes(build *b, const build_shape *shape, double *scales, int64_t *sizes) {
  const bs_attr *chosen = lower_ints(b->node, "axes");
  const uint32_t place = b->node->opset < 11 ? 1 : 2,
                 n = chosen != NULL ? (uint32_t)chosen->count : shape->rank;
  const int by_scale = is_given(b, place);
  double given[BS_MAX_DIMS] = {0};
  int64_t wanted[BS_MAX_DIMS] = {0};
  uint32_t count = 0;
  build_check(b, by_scale || is_given(b, 3), "neither scales nor sizes are given");
  build_check(b, n <= shape->rank, "axes has more entries than X has dims");
  if (b->rc != BS_OK) return;
  if (by_scale)
    b->rc = lower_read_floats(b->c, b->node, build_in(b, place), "its scales", given, BS_MAX_DIMS, &count,
                              b->err);
  else
    count = build_read_ints(b, build_in(b, 3), "its sizes", wanted, BS_MAX_DIMS);
  build_check(b, count == n, "scales or sizes has another length than there are axes");
  for (uint32_t i = 0; i < n && b->rc == BS_OK; ++i) {
    const uint32_t axis = build_axis(b, chosen != NULL ? chosen->ints[i] : (int64_t)i, shape->rank);
    if (b->rc != BS_OK) return;
    const double dim = (double)shape->dims[axis];
    build_check(b, !by_scale || (given[i] > 0 && given[i] * dim <= MAX_SIZE),
                "a scale is not positive, or too large");
    build_check(b, by_scale || (wanted[i] >= 0 && wanted[i] <= MAX_SIZE), "a size is negative, or too large");
    if (b->rc != BS_OK) return;
    sizes[axis] = by_scale ? (int64_t)floor(given[i] * dim) : wanted[i];
    scales[axis] = by_scale ? given[i] : (double)sizes[axis] / dim;
  }
}

static void read_modes(build *b, resizing *r) {
  const gmodel_node *node = b->node;
  const char *mode = lower_text(node, "mode", "nearest"), *crop = "tf_crop_and_resize";
  r->taps = strcmp(mode, "nearest") == 0 ? 1 : strcmp(mode, "cubic") == 0 ? 4 : 2;
  r->coordinates =
      lower_text(node, "coordinate_transformation_mode", node->opset < 11 ? "asymmetric" : "half_pixel");
  r->nearest = node->opset < 11 ? NULL : lower_text(node, "nearest_mode", "round_prefer_floor");
  r->cubic_a = lower_float(node, "cubic_coeff_a", -0.75);
  if (strcmp(r->coordinates, crop) == 0 || strcmp(r->coordinates, "tf_half_pixel_for_nn") == 0)
    build_refuse(b, 0, "this coordinate_transformation_mode");
  if (lower_int(node, "antialias", 0) != 0) build_refuse(b, 0, "antialias");
  if (lower_int(node, "exclude_outside", 0) != 0) build_refuse(b, 0, "exclude_outside");
  if (strcmp(lower_text(node, "keep_aspect_ratio_policy", "stretch"), "stretch") != 0)
    build_refuse(b, 0, "a keep_aspect_ratio_policy other than stretch");
}

static int32_t resize(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  resizing r = {0};
  uint32_t x = build_in(&b, 0);
  const build_shape shape = build_shape_of(&b, x);
  double scales[BS_MAX_DIMS];
  int64_t sizes[BS_MAX_DIMS];
  for (uint32_t i = 0; i < BS_MAX_DIMS; ++i) {
    scales[i] = 1;
    sizes[i] = shape.dims[i];
  }
  read_modes(&b, &r);
  if (b.rc == BS_OK && r.taps > 1 && !build_is_float(build_dtype(&b, x)))
    build_refuse(&b, build_dtype(&b, x), "numbers between integers");
  if (b.rc == BS_OK) read_sizes(&b, &shape, scales, sizes);
  for (uint32_t i = 0; i < shape.rank && b.rc == BS_OK; ++i) {
    if (sizes[i] == shape.dims[i] && scales[i] == 1) continue;
    build_check(&b, shape.dims[i] > 0 || sizes[i] == 0, "an axis of no elements grows");
    x = resize_axis(&b, &r, x, i, sizes[i], scales[i]);
  }
  build_out(&b, 0, x);
  return b.rc;
}

const lower_rule lower_rules_resize[] = {
    {"Resize", 10, 0, resize, NULL}, {"Upsample", 9, 9, resize, NULL}, {0}};
