/* SPDX-License-Identifier: MIT
 * norm.c - softmax and the normalisations: `normalize` over the last dimension. */
#include <string.h>

#include "graph/lower/build.h"

/* x over its dims from `axis` on, as rows of one dim. */
static uint32_t as_rows(build *b, uint32_t x, uint32_t axis) {
  return build_join_dims(b, x, axis, build_rank(b, x) - axis);
}

/* Since opset 13 over one axis, the last one unless it is given. Before over all dims from `axis` on, from 1
 * on unless it is given. */
static int32_t softmax(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0), rank = build_rank(&b, x);
  const uint32_t kind = node->op[0] == 'L' ? BS_NORMALIZE_LOG_SOFTMAX : BS_NORMALIZE_SOFTMAX;
  build_check(&b, build_is_float(build_dtype(&b, x)), "the operator takes floats");
  build_check(&b, rank > 0, "the rank is 0");
  const int flat = node->opset < 13;
  const int64_t given = lower_int(node, "axis", flat ? 1 : -1);
  const uint32_t axis = flat && given == rank ? rank : build_axis(&b, given, rank);
  if (b.rc != BS_OK) return b.rc;
  if (flat) {
    const build_shape shape = build_shape_of(&b, x);
    const uint32_t joined = axis < rank ? as_rows(&b, x, axis) : build_unsqueeze(&b, x, rank);
    build_out(&b, 0, build_reshape(&b, build_normalize(&b, kind, 0, joined, GNONE, GNONE), &shape));
    return b.rc;
  }
  const int inner = axis + 1 != rank;
  const uint32_t rows = inner ? build_copy(&b, build_move(&b, x, axis, 1)) : x;
  const uint32_t y = build_normalize(&b, kind, 0, rows, GNONE, GNONE);
  build_out(&b, 0, inner ? build_move(&b, y, axis, 0) : y);
  return b.rc;
}

/* scale or bias as gamma or beta [N] of rows; GNONE where its shape is another one than the rows'. */
static uint32_t as_row(build *b, uint32_t value, const build_shape *shape, uint32_t axis) {
  if (value == GNONE || b->rc != BS_OK) return GNONE;
  build_shape own = build_shape_of(b, value), row = {shape->rank - axis, {0}};
  memcpy(row.dims, &shape->dims[axis], row.rank * sizeof row.dims[0]);
  uint32_t skip = 0; /* leading dims of 1 */
  while (own.rank - skip > row.rank && own.dims[skip] == 1) ++skip;
  memmove(own.dims, &own.dims[skip], (own.rank - skip) * sizeof own.dims[0]);
  own.rank -= skip;
  if (!build_same(&own, &row)) return GNONE;
  return build_join_dims(b, build_reshape(b, value, &row), 0, row.rank);
}

/* The outputs 1 and 2 of LayerNormalization: mean and 1 / deviation of the rows, dims 1 in their place. */
static void mean_and_deviation(build *b, uint32_t x, uint32_t axis, double eps) {
  lower_map m;
  uint32_t axes = 0;
  if (!lower_wants(b->node, 1) && !lower_wants(b->node, 2)) return;
  const uint32_t f = build_cast(b, x, build_dtype(b, x) == BS_F64 ? BS_F64 : BS_F32),
                 dtype = build_dtype(b, f);
  for (uint32_t i = axis; i < build_rank(b, x); ++i) axes |= 1u << i;
  const int64_t n = build_count(b, x, axes);
  build_check(b, n > 0, "the rows are empty");
  if (b->rc != BS_OK) return;
  const uint32_t mean = build_reduce(b, BS_FOLD_SUM, f, axes, 1.0 / (double)n);
  const uint32_t away = build_binary(b, BS_EXPR_SUB, f, mean, dtype);
  const uint32_t variance = build_reduce(b, BS_FOLD_SUMSQ, away, axes, 1.0 / (double)n);
  if (b->rc != BS_OK) return;
  lower_map_begin(&m, b->c, dtype);
  const uint8_t v = lower_map_step(&m, BS_EXPR_ADD, lower_map_in(&m, variance), lower_map_const(&m, eps), 0);
  build_out(b, 1, mean);
  build_out(b, 2, build_map(b, &m, lower_map_step(&m, BS_EXPR_RSQRT, v, 0, 0), dtype));
}

/* LayerNormalization (17) and RMSNormalization (23, SimplifiedLayerNormalization of ONNX Runtime): scale and
 * bias of the rows' shape are part of the op, others, which broadcast, follow it. */
static int32_t row_norm(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const int layer = node->op[0] == 'L';
  const uint32_t x = build_in(&b, 0), scale = build_in(&b, 1), bias = layer ? build_optional(&b, 2) : GNONE;
  const build_shape shape = build_shape_of(&b, x);
  const uint32_t dtype = build_dtype(&b, x), axis = build_axis(&b, lower_int(node, "axis", -1), shape.rank);
  const double eps = lower_float(node, "epsilon", 1e-5f);
  build_check(&b, build_is_float(dtype), "the operator takes floats");
  if (build_dtype(&b, scale) != dtype || (bias != GNONE && build_dtype(&b, bias) != dtype))
    build_refuse(&b, build_dtype(&b, scale), "scale or bias of another dtype than X");
  build_check(&b, build_rank(&b, scale) <= shape.rank && build_rank(&b, bias) <= shape.rank,
              "scale or bias has more dims than X");
  if (lower_int(node, "stash_type", 1) != 1 && dtype != BS_F64)
    build_refuse(&b, 0, "stash_type other than 1 (f32)");
  if (b.rc != BS_OK) return b.rc;
  uint32_t gamma = as_row(&b, scale, &shape, axis), beta = as_row(&b, bias, &shape, axis);
  const int apart = gamma == GNONE || (bias != GNONE && beta == GNONE);
  if (apart) gamma = beta = GNONE;
  uint32_t y = build_normalize(&b, layer ? BS_NORMALIZE_LAYER : BS_NORMALIZE_RMS, eps, as_rows(&b, x, axis),
                               gamma, beta);
  y = build_reshape(&b, y, &shape);
  if (apart) {
    y = build_binary(&b, BS_EXPR_MUL, y, build_expand(&b, scale, &shape), dtype);
    if (bias != GNONE) y = build_binary(&b, BS_EXPR_ADD, y, build_expand(&b, bias, &shape), dtype);
  }
  build_out(&b, 0, y);
  if (layer) mean_and_deviation(&b, x, axis, eps);
  return b.rc;
}

/* A value [n] at dim `axis` of a rank, 1 elsewhere. */
static uint32_t along(build *b, uint32_t value, uint32_t axis, uint32_t rank) {
  build_shape shape = {rank, {1, 1, 1, 1, 1, 1}};
  build_check(b, build_rank(b, value) == 1, "scale and bias must have one dim");
  if (b->rc != BS_OK) return GNONE;
  shape.dims[axis] = build_dim(b, value, 0);
  return build_reshape(b, value, &shape);
}

/* Groups of channels are normalised together with all places of the picture. Scale and bias are one number a
 * channel since opset 21, one a group before. InstanceNormalization: each channel is a group. */
static int32_t group_norm(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  lower_map m;
  const int instance = node->op[0] == 'I';
  const uint32_t x = build_in(&b, 0), scale = build_in(&b, 1), bias = build_in(&b, 2),
                 dtype = build_dtype(&b, x);
  const build_shape shape = build_shape_of(&b, x);
  build_check(&b, shape.rank >= 2, "the rank is below 2");
  build_check(&b, build_is_float(dtype), "the operator takes floats");
  if (lower_int(node, "stash_type", 1) != 1 && dtype != BS_F64)
    build_refuse(&b, 0, "stash_type other than 1 (f32)");
  if (b.rc != BS_OK) return b.rc;
  const int64_t channels = shape.dims[1], groups = instance ? channels : lower_int(node, "num_groups", 0);
  build_check(&b, groups > 0 && channels % groups == 0, "num_groups does not divide the channels");
  if (b.rc != BS_OK) return b.rc;
  const int64_t width = build_count(&b, x, ~1u) / groups;
  const build_shape rows = {3, {shape.dims[0], groups, width}};
  const double eps = lower_float(node, "epsilon", 1e-5f);
  uint32_t y = build_normalize(&b, BS_NORMALIZE_LAYER, eps, build_reshape(&b, x, &rows), GNONE, GNONE);
  const int per_group = !instance && node->opset < 21;
  if (!per_group) y = build_reshape(&b, y, &shape);
  const uint32_t gamma = along(&b, scale, 1, build_rank(&b, y)), beta = along(&b, bias, 1, build_rank(&b, y));
  if (b.rc != BS_OK) return b.rc;
  lower_map_begin(&m, c, lower_compute(dtype));
  const uint8_t v = lower_map_in(&m, y), g = lower_map_in(&m, gamma), o = lower_map_in(&m, beta);
  y = build_map(&b, &m, lower_map_step(&m, BS_EXPR_FMA, v, g, o), dtype);
  build_out(&b, 0, build_reshape(&b, y, &shape));
  return b.rc;
}

/* The mean and variance of each channel of x over the batch and all places, as rows of x's rank; and the
 * given ones moved towards them. Some models normalise constant weights so. */
static void batch_statistics(build *b, uint32_t x, uint32_t *io_mean, uint32_t *io_variance) {
  const uint32_t rank = build_rank(b, x), axes = ((1u << rank) - 1u) & ~2u;
  const uint32_t wide = build_dtype(b, x) == BS_F64 ? BS_F64 : BS_F32, given[2] = {*io_mean, *io_variance};
  const uint32_t f = build_cast(b, x, wide);
  const int64_t n = build_count(b, x, axes);
  const double momentum = lower_float(b->node, "momentum", 0.9f);
  build_check(b, rank > 1, "the rank is 1");
  build_check(b, n > 0, "the batch is empty");
  if (b->rc != BS_OK) return;
  const uint32_t mean = build_reduce(b, BS_FOLD_SUM, f, axes, 1.0 / (double)n);
  const uint32_t variance =
      build_reduce(b, BS_FOLD_SUMSQ, build_binary(b, BS_EXPR_SUB, f, mean, wide), axes, 1.0 / (double)n);
  const uint32_t both[2] = {mean, variance};
  const build_shape row = {1, {build_dim(b, x, 1)}};
  for (uint32_t i = 0; i < 2 && b->rc == BS_OK; ++i) {
    const uint32_t dtype = build_dtype(b, given[i]);
    if (lower_wants(b->node, 3 + i))
      build_out(b, 3 + i, build_cast(b, build_reshape(b, both[i], &row), dtype));
    if (!lower_wants(b->node, 1 + i)) continue;
    const uint32_t old = build_scale(b, build_cast(b, given[i], wide), momentum);
    const uint32_t moved = build_binary(b, BS_EXPR_ADD, old, build_scale(b, both[i], 1 - momentum), wide);
    build_out(b, 1 + i, build_cast(b, build_reshape(b, moved, &row), dtype));
  }
  *io_mean = mean;
  *io_variance = variance;
}

/* With the mean and variance of each channel, given or (training) of this batch: (x - mean) scale / sqrt(var
 * + eps) + bias. */
static int32_t batch_norm(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  lower_map m;
  uint32_t row[5], rank, dtype;
  row[0] = build_in(&b, 0);
  rank = build_rank(&b, row[0]);
  dtype = build_dtype(&b, row[0]);
  build_check(&b, rank >= 1, "the rank is 0");
  build_check(&b, build_is_float(dtype), "the operator takes floats");
  int training = lower_int(node, "training_mode", 0) != 0;
  for (uint32_t i = 1; i < node->n_out && node->opset < 14; ++i) training |= lower_wants(node, i);
  if (lower_int(node, "spatial", 1) != 1) build_refuse(&b, 0, "spatial 0");
  const uint32_t axis = rank > 1 ? 1 : 0;
  for (uint32_t i = 1; i < 5; ++i) {
    row[i] = along(&b, build_in(&b, i), axis, rank);
    build_check(&b, build_dim(&b, row[i], axis) == (rank > 1 ? build_dim(&b, row[0], 1) : 1),
                "scale, bias, mean or variance has another length than X has channels");
  }
  if (training) batch_statistics(&b, row[0], &row[3], &row[4]);
  if (b.rc != BS_OK) return b.rc;
  const uint32_t wide = lower_compute(build_dtype(&b, row[4]));
  lower_map_begin(&m, c, wide);
  const uint8_t sum = lower_map_step(&m, BS_EXPR_ADD, lower_map_in(&m, row[4]),
                                     lower_map_const(&m, lower_float(node, "epsilon", 1e-5f)), 0);
  const uint8_t factor = lower_map_step(&m, BS_EXPR_DIV, lower_map_in(&m, row[1]),
                                        lower_map_step(&m, BS_EXPR_SQRT, sum, 0, 0), 0);
  const uint32_t scale = build_map(&b, &m, factor, wide);
  if (b.rc != BS_OK) return b.rc;
  lower_map_begin(&m, c, lower_compute(dtype));
  const uint8_t away = lower_map_step(&m, BS_EXPR_SUB, lower_map_in(&m, row[0]), lower_map_in(&m, row[3]), 0);
  const uint8_t f = lower_map_in(&m, scale), o = lower_map_in(&m, row[2]);
  build_out(&b, 0, build_map(&b, &m, lower_map_step(&m, BS_EXPR_FMA, away, f, o), dtype));
  return b.rc;
}

const lower_rule lower_rules_norm[] = {
    {"Softmax", 1, 0, softmax, NULL},
    {"LogSoftmax", 1, 0, softmax, NULL},
    {"BatchNormalization", 7, 0, batch_norm, NULL},
    {"LayerNormalization", 1, 0, row_norm, NULL}, /* before 17 by ONNX Runtime */
    {"SimplifiedLayerNormalization", 1, 0, row_norm, NULL},
    {"RMSNormalization", 23, 0, row_norm, NULL},
    {"GroupNormalization", 18, 0, group_norm, NULL},
    {"InstanceNormalization", 6, 0, group_norm, NULL},
    {0}};
