/* SPDX-License-Identifier: MIT
 * view.c - movement without arithmetic: views of the same memory, and constants. */
#include <string.h>

#include "core/base/size.h"
#include "graph/lower/build.h"

static int32_t identity(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  build_out(&b, 0, build_in(&b, 0));
  return b.rc;
}

/* At inference it passes its input on; training mode draws random numbers that no specification fixes. */
static int32_t dropout(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0), training = build_optional(&b, 2), ratio = build_optional(&b, 1);
  if (training != GNONE && build_read_int(&b, training, "its training_mode") != 0) {
    if (ratio == GNONE || build_read_real(&b, ratio, "its ratio") != 0) {
      build_refuse(&b, 0, "training mode draws random numbers");
    }
  }
  build_out(&b, 0, x);
  if (lower_wants(node, 1)) {
    const build_shape shape = build_shape_of(&b, x);
    build_out(&b, 1, build_expand(&b, build_real(&b, BS_BOOL, 1), &shape));
  }
  return b.rc;
}

static int32_t constant(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const bs_attr *a = gmodel_attr(node, "value"), *number;
  uint32_t value = GNONE;
  build_check(&b, node->n_attr == 1, "it needs exactly one of its attributes");
  if (b.rc != BS_OK) return b.rc;
  if (a != NULL && a->type == BS_ATTR_TENSOR && a->tensor != NULL) {
    b.rc = lower_const_model(c, a->tensor->dtype, a->tensor->rank, a->tensor->dims, a->data, &value, err);
  } else if ((number = gmodel_attr(node, "value_float")) != NULL) {
    value = build_real(&b, BS_F32, number->f);
  } else if ((number = gmodel_attr(node, "value_int")) != NULL) {
    const build_shape scalar = {0};
    value = build_const(&b, BS_I64, &scalar, &number->i);
  } else if ((number = lower_ints(node, "value_ints")) != NULL) {
    value = build_ints(&b, number->ints, (int64_t)number->count);
  } else if ((number = gmodel_attr(node, "value_floats")) != NULL && number->type == BS_ATTR_FLOATS) {
    const build_shape shape = {1, {(int64_t)number->count}};
    value = build_cast(&b, build_const(&b, BS_F64, &shape, number->floats), BS_F32);
  } else {
    build_refuse(&b, 0, "the constant is text or sparse");
  }
  build_out(&b, 0, value);
  return b.rc;
}

/* One element that is seen everywhere: no memory, no op. */
static int32_t constant_of_shape(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  build_shape shape = {0};
  const bs_attr *a = gmodel_attr(node, "value");
  uint32_t value = GNONE;
  shape.rank = build_read_ints(&b, build_in(&b, 0), "its shape", shape.dims, BS_MAX_DIMS);
  for (uint32_t i = 0; i < shape.rank; ++i) build_check(&b, shape.dims[i] >= 0, "a dim is negative");
  build_check(&b, build_elements(&shape) >= 0, "the shape is too large");
  if (b.rc == BS_OK && a != NULL && a->type == BS_ATTR_TENSOR && a->tensor != NULL) {
    b.rc = lower_const_model(c, a->tensor->dtype, a->tensor->rank, a->tensor->dims, a->data, &value, err);
    const build_shape one = build_shape_of(&b, value), scalar = {0};
    build_check(&b, build_elements(&one) == 1, "its value has more than one element");
    value = build_reshape(&b, value, &scalar);
  } else {
    value = build_real(&b, BS_F32, 0);
  }
  build_out(&b, 0, build_expand(&b, value, &shape));
  return b.rc;
}

/* dims of 0 keep the input's (without allowzero), one -1 is what remains. */
static int32_t reshape(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0);
  const lower_dims old = build_dims_of(&b, x);
  lower_dims shape = {0};
  const int allow_zero = lower_int(node, "allowzero", 0) != 0;
  int64_t known = 1, all = 1;
  uint32_t open = LOWER_DEEP_DIMS;
  shape.rank = build_read_ints(&b, build_in(&b, 1), "its shape", shape.dims, LOWER_DEEP_DIMS);
  for (uint32_t i = 0; i < shape.rank && b.rc == BS_OK; ++i) {
    if (shape.dims[i] == -1) {
      build_check(&b, open == LOWER_DEEP_DIMS, "two dims are -1");
      open = i;
      continue;
    }
    if (shape.dims[i] == 0 && !allow_zero) {
      build_check(&b, i < old.rank, "a dim of 0 has no dim to keep");
      shape.dims[i] = i < old.rank ? old.dims[i] : 0;
    }
    build_check(&b, shape.dims[i] >= 0, "a dim is negative");
    if (__builtin_mul_overflow(known, shape.dims[i], &known)) build_check(&b, 0, "the shape is too large");
  }
  for (uint32_t i = 0; i < old.rank; ++i)
    if (__builtin_mul_overflow(all, old.dims[i], &all)) build_check(&b, 0, "the shape is too large");
  if (open != LOWER_DEEP_DIMS && b.rc == BS_OK) {
    build_check(&b, known > 0 || !allow_zero, "a dim of 0 beside -1");
    shape.dims[open] = known > 0 ? all / known : 0;
  }
  build_out(&b, 0, build_reshape_dims(&b, x, &shape));
  return b.rc;
}

static int32_t flatten(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0);
  const build_shape old = build_shape_of(&b, x);
  int64_t axis = lower_int(node, "axis", 1);
  if (axis < 0) axis += old.rank;
  build_check(&b, axis >= 0 && axis <= (int64_t)old.rank, "axis is beyond the rank");
  if (b.rc != BS_OK) return b.rc;
  const uint32_t front = (1u << axis) - 1;
  const build_shape shape = {2, {build_count(&b, x, front), build_count(&b, x, ~front)}};
  build_out(&b, 0, build_reshape(&b, x, &shape));
  return b.rc;
}

static int32_t transpose(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0), rank = build_dims_of(&b, x).rank;
  const bs_attr *perm = lower_ints(node, "perm");
  uint32_t order[LOWER_DEEP_DIMS] = {0}, seen = 0;
  build_check(&b, perm == NULL || perm->count == rank, "perm has another length than the rank");
  for (uint32_t i = 0; i < rank && b.rc == BS_OK; ++i) {
    const int64_t from = perm != NULL ? perm->ints[i] : (int64_t)rank - 1 - i;
    build_check(&b, from >= 0 && from < (int64_t)rank && !(seen >> from & 1), "perm is no permutation");
    if (b.rc != BS_OK) return b.rc;
    order[i] = (uint32_t)from;
    seen |= 1u << from;
  }
  build_out(&b, 0, build_permute_dims(&b, x, order));
  return b.rc;
}

/* The axes of input 1 (since opset 13) or of the attribute as bits of a rank; *out_there 0: none are given.
 */
static uint32_t axes_bits(build *b, uint32_t rank, int *out_there, uint32_t *out_count) {
  int64_t axes[LOWER_DEEP_DIMS] = {0};
  uint32_t bits = 0;
  *out_count = build_list(b, 1, "axes", axes, LOWER_DEEP_DIMS, out_there);
  for (uint32_t i = 0; i < *out_count && b->rc == BS_OK; ++i) {
    const uint32_t axis = build_axis(b, axes[i], rank);
    build_check(b, !(bits >> axis & 1), "an axis is named twice");
    bits |= 1u << axis;
  }
  return bits;
}

/* Dims that are left out where they are 1: of another size there are others. */
static void keep_ones(build *b, const lower_dims *shape) {
  for (uint32_t i = 0; i < shape->rank && b->rc == BS_OK; ++i)
    b->rc = lower_keep(b->c, shape->dims[i] > 1, GKEPT_LINEAR, b->err);
}

static int32_t squeeze(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0);
  const lower_dims old = build_dims_of(&b, x);
  lower_dims shape = {0};
  int there;
  uint32_t count;
  const uint32_t axes = axes_bits(&b, old.rank, &there, &count);
  for (uint32_t i = 0; i < old.rank; ++i) {
    const int gone = there ? axes >> i & 1 : old.dims[i] == 1;
    build_check(&b, !gone || old.dims[i] == 1, "a dim that is squeezed is not 1");
    if (!gone) shape.dims[shape.rank++] = old.dims[i];
  }
  if (!there) keep_ones(&b, &old);
  build_out(&b, 0, build_reshape_dims(&b, x, &shape));
  return b.rc;
}

static int32_t unsqueeze(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0);
  const lower_dims old = build_dims_of(&b, x);
  lower_dims shape = {0};
  int64_t axes[LOWER_DEEP_DIMS] = {0};
  int there;
  uint32_t bits = 0, from = 0;
  const uint32_t count = build_list(&b, 1, "axes", axes, LOWER_DEEP_DIMS, &there);
  build_check(&b, there, "axes are absent");
  if (b.rc == BS_OK && old.rank + count > LOWER_DEEP_DIMS)
    build_refuse(&b, 0, "its output has more than 12 dims");
  if (b.rc != BS_OK) return b.rc;
  shape.rank = old.rank + count;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t axis = build_axis(&b, axes[i], shape.rank);
    build_check(&b, !(bits >> axis & 1), "an axis is named twice");
    bits |= 1u << axis;
  }
  for (uint32_t i = 0; i < shape.rank && b.rc == BS_OK; ++i)
    shape.dims[i] = bits >> i & 1 ? 1 : old.dims[from++];
  build_out(&b, 0, build_reshape_dims(&b, x, &shape));
  return b.rc;
}

/* Broadcasts both ways: a dim of 1 in the shape keeps the input's. */
static int32_t expand(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0);
  const build_shape old = build_shape_of(&b, x);
  build_shape shape = {0};
  int64_t dims[BS_MAX_DIMS] = {0};
  const uint32_t n = build_read_ints(&b, build_in(&b, 1), "its shape", dims, BS_MAX_DIMS);
  shape.rank = n > old.rank ? n : old.rank;
  for (uint32_t i = 0; i < shape.rank; ++i) {
    const int64_t mine = i + old.rank >= shape.rank ? old.dims[i + old.rank - shape.rank] : 1;
    const int64_t asked = i + n >= shape.rank ? dims[i + n - shape.rank] : 1;
    build_check(&b, asked >= 0 && (mine == asked || mine == 1 || asked == 1), "the shapes do not broadcast");
    shape.dims[i] = mine == 1 ? asked : mine;
  }
  build_check(&b, build_elements(&shape) >= 0, "the shape is too large");
  build_out(&b, 0, build_expand(&b, x, &shape));
  return b.rc;
}

/* One axis of a slice by numpy's rules: first element, count and step. */
static void slice_range(int64_t dim, int64_t start, int64_t end, int64_t step, int64_t *out_first,
                        int64_t *out_count) {
  const int64_t least = step > 0 ? 0 : -1, most = step > 0 ? dim : dim - 1;
  if (start < 0) start = start < -dim ? least : start + dim;
  if (end < 0) end = end < -dim ? least : end + dim;
  if (start > most) start = most;
  if (start < least) start = least;
  if (end > most) end = most;
  if (end < least) end = least;
  const int64_t way = step > 0 ? end - start : start - end;
  const uint64_t size = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
  *out_first = start;
  *out_count = way > 0 && size > 0 ? (int64_t)(((uint64_t)way - 1) / size) + 1 : 0;
}

static uint32_t slice_axis(build *b, uint32_t x, uint32_t axis, int64_t start, int64_t end, int64_t step) {
  int64_t first, count;
  build_check(b, step != 0, "a step is 0");
  if (b->rc != BS_OK) return GNONE;
  slice_range(build_dim(b, x, axis), start, end, step, &first, &count);
  if (count == 0) return build_slice(b, x, axis, 0, 0, 1);
  if (count == 1) step = 1;
  if (step > 0) return build_slice(b, x, axis, first, count, step);
  const int64_t lowest = first + (count - 1) * step;
  return build_reverse(b, build_slice(b, x, axis, lowest, count, -step), axis);
}

static int32_t slice(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  int64_t starts[BS_MAX_DIMS], ends[BS_MAX_DIMS], axes[BS_MAX_DIMS], steps[BS_MAX_DIMS];
  uint32_t x = build_in(&b, 0), seen = 0;
  int there, axes_there;
  const uint32_t rank = build_rank(&b, x), steps_in = build_optional(&b, 4);
  const uint32_t n = build_list(&b, 1, "starts", starts, BS_MAX_DIMS, &there);
  build_check(&b, there, "starts is absent");
  build_check(&b, build_list(&b, 2, "ends", ends, BS_MAX_DIMS, &there) == n && there,
              "starts and ends differ in length");
  const uint32_t n_axes = build_list(&b, 3, "axes", axes, BS_MAX_DIMS, &axes_there);
  build_check(&b, !axes_there || n_axes == n, "axes differ in length");
  for (uint32_t i = 0; i < n; ++i) {
    if (!axes_there) axes[i] = i;
    steps[i] = 1;
  }
  if (steps_in != GNONE) {
    build_check(&b, build_read_ints(&b, steps_in, "its steps", steps, BS_MAX_DIMS) == n,
                "steps differ in length");
  }
  for (uint32_t i = 0; i < n && b.rc == BS_OK; ++i) {
    const uint32_t axis = build_axis(&b, axes[i], rank);
    build_check(&b, !(seen >> axis & 1), "an axis is named twice");
    seen |= 1u << axis;
    x = slice_axis(&b, x, axis, starts[i], ends[i], steps[i]);
  }
  build_out(&b, 0, x);
  return b.rc;
}

/* The lengths of the outputs: an input (or until opset 12 an attribute), or equal parts, the last one
 * shorter. */
static int32_t split(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0);
  const uint32_t axis = build_axis(&b, lower_int(node, "axis", 0), build_rank(&b, x));
  const int64_t dim = build_dim(&b, x, axis), parts = lower_int(node, "num_outputs", node->n_out);
  int64_t lengths[256] = {0}, at = 0;
  int there;
  const uint32_t n = build_list(&b, 1, "split", lengths, 256, &there);
  build_check(&b, there ? n == node->n_out : parts == (int64_t)node->n_out,
              "another number of outputs than of parts");
  build_check(&b, there || node->opset >= 18 || dim % (parts > 0 ? parts : 1) == 0,
              "the parts are not equal");
  for (uint32_t i = 0; i < node->n_out && b.rc == BS_OK; ++i) {
    const int64_t each = parts > 0 ? (dim + parts - 1) / parts : 0, left = dim - at;
    const int64_t count = there ? lengths[i] : each < left ? each : left;
    build_check(&b, count >= 0 && count <= left, "the parts are longer than the dim");
    build_out(&b, i, build_slice(&b, x, axis, at, count, 1));
    at += count;
  }
  build_check(&b, at == dim, "the parts are shorter than the dim");
  return b.rc;
}

static int32_t shape(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const lower_dims s = build_dims_of(&b, build_in(&b, 0));
  const int64_t rank = s.rank;
  int64_t start = lower_int(node, "start", 0), end = lower_int(node, "end", rank);
  if (start < 0) start = start < -rank ? 0 : start + rank;
  if (end < 0) end = end < -rank ? 0 : end + rank;
  if (start > rank) start = rank;
  if (end > rank) end = rank;
  build_out(&b, 0,
            build_ints(&b, &s.dims[start < LOWER_DEEP_DIMS ? start : 0], end > start ? end - start : 0));
  return b.rc;
}

static int32_t size(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const build_shape s = build_shape_of(&b, build_in(&b, 0)), scalar = {0};
  const int64_t n = build_elements(&s);
  build_out(&b, 0, build_const(&b, BS_I64, &scalar, &n));
  return b.rc;
}

/* Dims of a picture become channels, or the reverse. mode DCR: the block's dims stand before the channels,
 * CRD: after them. */
static int32_t depth_space(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const int to_space = node->op[0] == 'D', crd = strcmp(lower_text(node, "mode", "DCR"), "CRD") == 0;
  const uint32_t x = build_in(&b, 0);
  const build_shape shape = build_shape_of(&b, x);
  const int64_t block = lower_int(node, "blocksize", 0);
  build_check(&b, shape.rank == 4, "X must have 4 dims");
  build_check(&b, block > 0 && block <= INT32_MAX, "blocksize is not positive");
  if (b.rc != BS_OK) return b.rc;
  const int64_t n = shape.dims[0], depth = shape.dims[1], h = shape.dims[2], w = shape.dims[3];
  static const uint32_t orders[2][2][6] = {{{0, 3, 5, 1, 2, 4}, {0, 1, 3, 5, 2, 4}},
                                           {{0, 3, 4, 1, 5, 2}, {0, 1, 4, 2, 5, 3}}};
  int64_t square = 0, deep = 0;
  build_check(&b, bs_mul_i64(block, block, &square) && bs_mul_i64(depth, square, &deep),
              "blocksize is too large");
  if (b.rc != BS_OK) return b.rc;
  build_shape split = {6, {n, depth, h / block, block, w / block, block}},
              out = {4, {n, deep, h / block, w / block}};
  build_check(&b, to_space ? depth % square == 0 : h % block == 0 && w % block == 0,
              "blocksize does not divide the dims");
  if (to_space) {
    const int64_t channels = depth / square;
    split = crd ? (build_shape){6, {n, channels, block, block, h, w}}
                : (build_shape){6, {n, block, block, channels, h, w}};
    out = (build_shape){4, {n, channels, h * block, w * block}};
  }
  const uint32_t parts = build_permute(&b, build_reshape(&b, x, &split), orders[to_space][crd]);
  build_out(&b, 0, build_reshape(&b, parts, &out));
  return b.rc;
}

const lower_rule lower_rules_view[] = {{"Identity", 1, 0, identity, NULL},
                                       {"Dropout", 7, 0, dropout, NULL},
                                       {"Constant", 1, 0, constant, NULL},
                                       {"ConstantOfShape", 9, 0, constant_of_shape, NULL},
                                       {"Reshape", 5, 0, reshape, NULL},
                                       {"Flatten", 1, 0, flatten, NULL},
                                       {"Transpose", 1, 0, transpose, NULL},
                                       {"Squeeze", 1, 0, squeeze, NULL},
                                       {"Unsqueeze", 1, 0, unsqueeze, NULL},
                                       {"Expand", 8, 0, expand, NULL},
                                       {"Slice", 1, 0, slice, NULL},
                                       {"DepthToSpace", 1, 0, depth_space, NULL},
                                       {"SpaceToDepth", 1, 0, depth_space, NULL},
                                       {"Split", 2, 0, split, NULL},
                                       {"Shape", 1, 0, shape, NULL},
                                       {"Size", 1, 0, size, NULL},
                                       {0}};
