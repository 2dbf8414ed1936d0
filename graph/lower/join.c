/* SPDX-License-Identifier: MIT
 * join.c - values put together from parts, and values made from the index of an element. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/lower/build.h"

/* The longest index that a rule makes. */
enum { MAX_INDEX = 1 << 24 };

static int32_t concat(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  uint32_t parts[256];
  const uint32_t first = build_in(&b, 0), n = node->n_in;
  const uint32_t axis = build_axis(&b, lower_int(node, "axis", 0), build_rank(&b, first));
  const build_shape shape = build_shape_of(&b, first);
  if (n > 256) build_refuse(&b, 0, "it has more than 256 inputs");
  for (uint32_t i = 0; i < n && b.rc == BS_OK; ++i) {
    parts[i] = build_in(&b, i);
    build_shape other = build_shape_of(&b, parts[i]);
    if (other.rank == shape.rank) other.dims[axis] = shape.dims[axis];
    build_check(&b, build_same(&shape, &other), "its inputs differ in a dim that is not joined");
    build_check(&b, build_dtype(&b, parts[i]) == build_dtype(&b, first), "its inputs have different dtypes");
  }
  if (b.rc != BS_OK) return b.rc;
  build_out(&b, 0, n == 1 ? first : build_concat(&b, parts, n, axis));
  return b.rc;
}

/* Negative pads cut off; returns what is left and sets those to 0. */
static uint32_t pad_crop(build *b, uint32_t x, int64_t *begins, int64_t *ends) {
  for (uint32_t i = 0; i < build_rank(b, x) && b->rc == BS_OK; ++i) {
    const int64_t dim = build_dim(b, x, i);
    const int64_t first = begins[i] < 0 ? -begins[i] : 0, last = ends[i] < 0 ? -ends[i] : 0;
    build_check(b, first <= dim && last <= dim - first, "negative pads cut off more than there is");
    if (b->rc == BS_OK) x = build_slice(b, x, i, first, dim - first - last, 1);
    if (begins[i] < 0) begins[i] = 0;
    if (ends[i] < 0) ends[i] = 0;
  }
  return x;
}

/* The frame is cut into boxes. Along axis i one box lies before the input and one after it. They are as wide
 * as the input on the axes before i, and as wide as the output on the axes after i. */
static uint32_t pad_constant(build *b, uint32_t x, const int64_t *begins, const int64_t *ends,
                             uint32_t number) {
  build_shape shape = build_shape_of(b, x);
  const build_shape inner = shape;
  for (uint32_t i = 0; i < shape.rank; ++i) {
    int64_t sum;
    if (__builtin_add_overflow(begins[i], ends[i], &sum) ||
        __builtin_add_overflow(shape.dims[i], sum, &shape.dims[i])) {
      build_check(b, 0, "a dim is too large");
    }
  }
  const uint32_t whole = build_temp(b, build_dtype(b, x), &shape);
  uint32_t core = whole;
  for (uint32_t i = 0; i < shape.rank && b->rc == BS_OK; ++i) {
    const int64_t starts[2] = {0, begins[i] + inner.dims[i]}, counts[2] = {begins[i], ends[i]};
    for (uint32_t side = 0; side < 2; ++side) {
      if (counts[side] > 0)
        build_copy_into(b, number, build_slice(b, core, i, starts[side], counts[side], 1));
    }
    core = build_slice(b, core, i, begins[i], inner.dims[i], 1);
  }
  build_copy_into(b, x, core);
  return whole;
}

/* The index into an axis of n elements for each element of the padded axis. */
static int64_t pad_source(const char *mode, int64_t i, int64_t n) {
  if (strcmp(mode, "edge") == 0) return i < 0 ? 0 : i >= n ? n - 1 : i;
  const int64_t period = strcmp(mode, "wrap") == 0 ? n : 2 * (n - 1);
  if (period <= 0) return 0;
  const int64_t k = (i % period + period) % period;
  return k < n ? k : period - k;
}

static uint32_t pad_by_index(build *b, uint32_t x, uint32_t axis, int64_t begin, int64_t end,
                             const char *mode) {
  const int64_t n = build_dim(b, x, axis);
  if (begin == 0 && end == 0) return x;
  build_check(b, n > 0, "an empty dim is padded with its own elements");
  if (begin > MAX_INDEX || end > MAX_INDEX || n > MAX_INDEX)
    build_refuse(b, 0, "it pads a dim by index beyond 2^24");
  if (b->rc != BS_OK) return GNONE;
  const int64_t count = begin + n + end;
  int64_t *index = calloc((size_t)count, sizeof *index);
  if (index == NULL) {
    build_no_memory(b);
    return GNONE;
  }
  for (int64_t i = 0; i < count; ++i) index[i] = pad_source(mode, i - begin, n);
  const uint32_t places = build_ints(b, index, count);
  free(index);
  return build_take(b, x, places, axis);
}

/* pads: an input since opset 11, the begins of all axes, then the ends; axes (since 18) choose. */
static int32_t pad(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  int64_t pads[2 * BS_MAX_DIMS], axes[BS_MAX_DIMS], begins[BS_MAX_DIMS] = {0}, ends[BS_MAX_DIMS] = {0};
  const char *mode = lower_text(node, "mode", "constant");
  uint32_t x = build_in(&b, 0), n = build_rank(&b, x);
  const uint32_t number = build_optional(&b, 2), chosen = build_optional(&b, 3), rank = n;
  int there;
  for (uint32_t i = 0; i < n; ++i) axes[i] = i;
  if (chosen != GNONE) n = build_read_ints(&b, chosen, "its axes", axes, BS_MAX_DIMS);
  build_check(&b, build_list(&b, 1, "pads", pads, 2 * BS_MAX_DIMS, &there) == 2 * n,
              "pads is not twice as long as axes");
  for (uint32_t i = 0; i < n && b.rc == BS_OK; ++i) {
    const uint32_t axis = build_axis(&b, axes[i], rank);
    begins[axis] = pads[i];
    ends[axis] = pads[n + i];
    build_check(&b, pads[i] > -INT32_MAX && pads[n + i] > -INT32_MAX, "pads cut off more than there is");
  }
  x = pad_crop(&b, x, begins, ends);
  if (strcmp(mode, "constant") == 0) {
    const uint32_t zero =
        number != GNONE ? number : build_real(&b, build_dtype(&b, x), lower_float(node, "value", 0));
    const build_shape scalar = {0}, one = build_shape_of(&b, zero);
    build_check(&b, build_elements(&one) == 1, "constant_value has more than one element");
    build_out(&b, 0, pad_constant(&b, x, begins, ends, build_reshape(&b, zero, &scalar)));
    return b.rc;
  }
  if (strcmp(mode, "edge") != 0 && strcmp(mode, "reflect") != 0 && strcmp(mode, "wrap") != 0) {
    return lower_unsupported(c, node, 0, err, "mode %s", mode);
  }
  for (uint32_t i = 0; i < rank; ++i) x = pad_by_index(&b, x, i, begins[i], ends[i], mode);
  build_out(&b, 0, x);
  return b.rc;
}

/* One axis: the output is seen as [.., times, dim, ..] and the input, repeated, is copied into it. */
static uint32_t tile_axis(build *b, uint32_t x, uint32_t axis, int64_t times) {
  build_shape shape = build_shape_of(b, x);
  const int64_t dim = shape.dims[axis];
  if (times == 1) return x;
  if (times == 0 || dim == 0) {
    shape.dims[axis] = 0;
    return build_temp(b, build_dtype(b, x), &shape);
  }
  if (shape.rank == BS_MAX_DIMS) { /* no dim is left for the repetition */
    build_refuse(b, 0, "it repeats a value of 6 dims");
    return GNONE;
  }
  if (__builtin_mul_overflow(dim, times, &shape.dims[axis])) build_check(b, 0, "a dim is too large");
  const uint32_t whole = build_temp(b, build_dtype(b, x), &shape);
  const uint32_t parts = build_split_dim(b, whole, axis, times, dim);
  build_copy_into(b, build_unsqueeze(b, x, axis), parts);
  return whole;
}

static int32_t tile(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  int64_t times[BS_MAX_DIMS] = {0};
  uint32_t x = build_in(&b, 0);
  const uint32_t rank = build_rank(&b, x);
  build_check(&b, build_read_ints(&b, build_in(&b, 1), "its repeats", times, BS_MAX_DIMS) == rank,
              "repeats differs from the rank in length");
  for (uint32_t i = rank; i-- > 0 && b.rc == BS_OK;) {
    build_check(&b, times[i] >= 0, "a repetition is negative");
    if (b.rc == BS_OK) x = tile_axis(&b, x, i, times[i]);
  }
  build_out(&b, 0, x);
  return b.rc;
}

/* start + i delta. The count must be known, so limit is a constant, and start and delta are. */
static int32_t range(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  lower_map m;
  const uint32_t start = build_in(&b, 0), limit = build_in(&b, 1), delta = build_in(&b, 2);
  const uint32_t dtype = build_dtype(&b, start);
  build_check(&b, build_dtype(&b, limit) == dtype && build_dtype(&b, delta) == dtype,
              "its inputs have different dtypes");
  if ((dtype == BS_F16 || dtype == BS_BF16) && lower_int(node, "stash_type", 1) != 1)
    build_refuse(&b, dtype, "stash_type other than 1 (f32)");
  build_shape shape = {1, {0}};
  if (build_is_float(dtype)) {
    const double from = build_read_real(&b, start, "its start"), to = build_read_real(&b, limit, "its limit");
    const double by = build_read_real(&b, delta, "its delta"), n = ceil((to - from) / by);
    build_check(&b, by != 0 && n < 4e18, "delta is 0, or the range is too long");
    shape.dims[0] = b.rc == BS_OK && n > 0 ? (int64_t)n : 0;
  } else {
    const int64_t from = build_read_int(&b, start, "its start"), to = build_read_int(&b, limit, "its limit");
    const int64_t by = build_read_int(&b, delta, "its delta");
    int64_t way = 0;
    build_check(&b, by != 0, "delta is 0");
    if (b.rc == BS_OK && __builtin_sub_overflow(to, from, &way)) build_check(&b, 0, "the range is too long");
    if (b.rc == BS_OK && by != 0 && (way > 0) == (by > 0) && way != 0) {
      const uint64_t far = way > 0 ? (uint64_t)way : 0 - (uint64_t)way;
      const uint64_t each = by > 0 ? (uint64_t)by : 0 - (uint64_t)by;
      shape.dims[0] = (int64_t)((far - 1) / each) + 1;
    }
  }
  if (b.rc != BS_OK) return b.rc;
  const build_shape scalar = {0};
  lower_map_begin(&m, c, lower_compute(dtype));
  const uint8_t from = lower_map_in(&m, build_expand(&b, build_reshape(&b, start, &scalar), &shape));
  const uint8_t by = lower_map_in(&m, build_expand(&b, build_reshape(&b, delta, &scalar), &shape));
  const uint8_t i = lower_map_step(&m, BS_EXPR_INDEX, 0, 0, 0);
  build_out(
      &b, 0,
      build_map(&b, &m, lower_map_step(&m, BS_EXPR_ADD, from, lower_map_step(&m, BS_EXPR_MUL, i, by, 0), 0),
                dtype));
  return b.rc;
}

/* Keeps the elements with column - row >= k (upper) or <= k; k may be computed. The mask is a program of its
 * own, in i64: floats have no number for each index. */
static int32_t trilu(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  lower_map m;
  const uint32_t x = build_in(&b, 0), k_in = build_optional(&b, 1), rank = build_rank(&b, x);
  const uint32_t dtype = build_dtype(&b, x);
  build_check(&b, rank >= 2, "the rank is below 2");
  const build_shape shape = build_shape_of(&b, x);
  const uint32_t k = k_in != GNONE ? k_in : build_real(&b, BS_I64, 0);
  const build_shape scalar = {0};
  const uint32_t k0 = build_reshape(&b, k, &scalar);
  const build_shape square = {2,
                              {rank >= 2 ? shape.dims[rank - 2] : 1, rank >= 2 ? shape.dims[rank - 1] : 1}};
  if (b.rc != BS_OK) return b.rc;
  lower_map_begin(&m, c, BS_I64);
  const uint8_t vk = lower_map_in(&m, build_expand(&b, k0, &square));
  const uint8_t away = lower_map_step(&m, BS_EXPR_SUB, lower_map_step(&m, BS_EXPR_INDEX, 1, 0, 0),
                                      lower_map_step(&m, BS_EXPR_INDEX, 0, 0, 0), 0);
  const int upper = lower_int(node, "upper", 1) != 0;
  const uint8_t kept =
      upper ? lower_map_step(&m, BS_EXPR_LE, vk, away, 0) : lower_map_step(&m, BS_EXPR_LE, away, vk, 0);
  const uint32_t mask = build_map(&b, &m, kept, BS_BOOL);
  build_out(&b, 0, build_select(&b, mask, x, build_real(&b, dtype, 0)));
  return b.rc;
}

/* 1 on the diagonal k of a matrix of the input's shape, 0 elsewhere. */
static int32_t eye_like(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  lower_map m;
  const uint32_t x = build_in(&b, 0);
  const build_shape shape = build_shape_of(&b, x);
  const int64_t asked = lower_int(node, "dtype", 0), k = lower_int(node, "k", 0);
  const uint32_t dtype = asked != 0 ? build_onnx_dtype(asked) : build_dtype(&b, x);
  uint32_t y = GNONE;
  build_check(&b, shape.rank == 2, "the rank is not 2");
  if (b.rc == BS_OK && dtype == 0) build_refuse(&b, 0, "a dtype that the library does not compute with");
  const uint32_t diagonal = build_expand(&b, build_const(&b, BS_I64, &(build_shape){0}, &k), &shape);
  if (b.rc != BS_OK) return b.rc;
  lower_map_begin(&m, c, BS_I64);
  const uint8_t away = lower_map_step(&m, BS_EXPR_SUB, lower_map_step(&m, BS_EXPR_INDEX, 1, 0, 0),
                                      lower_map_step(&m, BS_EXPR_INDEX, 0, 0, 0), 0);
  const uint8_t one = lower_map_step(&m, BS_EXPR_EQ, lower_map_in(&m, diagonal), away, 0);
  b.rc = lower_map_emit(&m, node, shape.rank, shape.dims, 1, &one, &dtype, &y, err);
  build_out(&b, 0, y);
  return b.rc;
}

/* Axes of other lengths: their middle is cut out, or zeros are added at both ends. */
static int32_t center_crop_pad(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  uint32_t x = build_in(&b, 0), y = GNONE;
  const uint32_t rank = build_rank(&b, x);
  const bs_attr *chosen = lower_ints(node, "axes");
  int64_t wanted[BS_MAX_DIMS] = {0}, pads[2 * BS_MAX_DIMS] = {0};
  const uint32_t n = build_read_ints(&b, build_in(&b, 1), "its shape", wanted, BS_MAX_DIMS);
  build_check(&b, n == (chosen != NULL ? (uint32_t)chosen->count : rank),
              "shape has another length than axes");
  for (uint32_t i = 0; i < n && b.rc == BS_OK; ++i) {
    const uint32_t axis = build_axis(&b, chosen != NULL ? chosen->ints[i] : (int64_t)i, rank);
    const int64_t more = wanted[i] - build_dim(&b, x, axis);
    build_check(&b, wanted[i] >= 0 && wanted[i] <= INT32_MAX, "a dim is negative, or too large");
    const int64_t begin = more >= 0 ? more / 2 : -((-more) / 2);
    pads[axis] = begin;
    pads[rank + axis] = more - begin;
  }
  const uint32_t in[2] = {x, build_ints(&b, pads, 2 * (int64_t)rank)};
  if (b.rc == BS_OK) b.rc = lower_call(c, node, "Pad", in, 2, NULL, 0, &y, 1, err);
  build_out(&b, 0, y);
  return b.rc;
}

/* values[1] where the index along the new axis is the input's (negative ones count from the end). */
static int32_t one_hot(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  lower_map m;
  uint32_t index = build_in(&b, 0);
  const uint32_t values = build_in(&b, 2), rank = build_rank(&b, index);
  const double asked = build_read_real(&b, build_in(&b, 1), "its depth");
  build_check(&b, asked >= 0 && asked < 4e18, "depth is negative or too large");
  if (b.rc != BS_OK) return b.rc;
  const int64_t depth = (int64_t)asked;
  const build_shape pair = build_shape_of(&b, values), scalar = {0};
  build_check(&b, pair.rank == 1 && pair.dims[0] == 2, "values must be [off, on]");
  if (rank == BS_MAX_DIMS) build_refuse(&b, 0, "its output has more than 6 dims");
  const uint32_t axis = build_axis(&b, lower_int(node, "axis", -1), rank + 1);
  index = build_unsqueeze(&b, build_cast(&b, index, BS_I64), axis);
  build_shape shape = build_shape_of(&b, index);
  if (b.rc != BS_OK) return b.rc;
  shape.dims[axis] = depth;
  lower_map_begin(&m, c, BS_I64);
  const uint8_t i = lower_map_in(&m, build_expand(&b, index, &shape)),
                at = lower_map_step(&m, BS_EXPR_INDEX, (uint8_t)axis, 0, 0);
  const uint8_t wrapped = lower_map_step(&m, BS_EXPR_ADD, i, lower_map_const_int(&m, depth), 0);
  const uint8_t hit = lower_map_step(&m, BS_EXPR_OR, lower_map_step(&m, BS_EXPR_EQ, i, at, 0),
                                     lower_map_step(&m, BS_EXPR_EQ, wrapped, at, 0), 0);
  const uint32_t mask = build_map(&b, &m, hit, BS_BOOL);
  const uint32_t off = build_reshape(&b, build_slice(&b, values, 0, 0, 1, 1), &scalar);
  const uint32_t on = build_reshape(&b, build_slice(&b, values, 0, 1, 1, 1), &scalar);
  build_out(&b, 0, build_select(&b, mask, on, off));
  return b.rc;
}

const lower_rule lower_rules_join[] = {{"Concat", 4, 0, concat, NULL},
                                       {"Pad", 2, 0, pad, NULL},
                                       {"Tile", 6, 0, tile, NULL},
                                       {"Range", 11, 0, range, NULL},
                                       {"Trilu", 14, 0, trilu, NULL},
                                       {"EyeLike", 9, 0, eye_like, NULL},
                                       {"CenterCropPad", 18, 0, center_crop_pad, NULL},
                                       {"OneHot", 9, 0, one_hot, NULL},
                                       {0}};
