/* SPDX-License-Identifier: MIT
 * qlinear.c - the operators of com.microsoft over bytes that ONNX Runtime's quantize_static writes in its
 * format QOperator: the floats of the bytes, an operator of ai.onnx, bytes again; products by whole numbers.
 * Their definitions are public (ContribOperators.md of ONNX Runtime). */
#include <string.h>

#include "graph/lower/rules.h"

/* The floats of the bytes at input i, which is followed by a scale and perhaps a zero point. */
static uint32_t floats_at(build *b, uint32_t i) {
  lower_codes codes = {.x = build_in(b, i), .scale = build_in(b, i + 1), .zero = build_optional(b, i + 2)};
  uint32_t out = GNONE;
  codes.axis = 0;
  codes.dtype = BS_F32;
  const build_shape scale = build_shape_of(b, codes.scale);
  build_check(b, build_elements(&scale) == 1, "a scale is not one number");
  if (b->rc == BS_OK) b->rc = lower_floats_of(b->c, &codes, &out, b->err);
  return b->rc == BS_OK ? out : GNONE;
}

/* The output: floats as bytes, by the scale at input i and the zero point at input i + 1. */
static int32_t bytes_out(build *b, uint32_t y, uint32_t i, uint32_t like) {
  const build_shape scalar = {0};
  uint32_t scale = build_in(b, i), zero = build_optional(b, i + 1);
  const build_shape own = build_shape_of(b, scale);
  build_check(b, build_elements(&own) == 1, "the scale of the result is not one number");
  const uint32_t dtype = build_dtype(b, zero != GNONE ? zero : like);
  scale = build_reshape(b, scale, &scalar);
  if (zero != GNONE) zero = build_reshape(b, zero, &scalar);
  build_out(b, 0, lower_quantize(b, y, scale, zero, 0, dtype));
  return b->rc;
}

static uint32_t call(build *b, const char *op, const uint32_t *in, uint32_t n_in) {
  uint32_t y = GNONE;
  if (b->rc == BS_OK)
    b->rc = lower_call(b->c, b->node, op, in, n_in, b->node->attrs, b->node->n_attr, &y, 1, b->err);
  return b->rc == BS_OK ? y : GNONE;
}

/* QLinearAdd, QLinearMul. */
static int32_t two(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = floats_at(&b, 0), y = floats_at(&b, 3);
  const uint8_t step = node->op[7] == 'A' ? BS_EXPR_ADD : BS_EXPR_MUL;
  return bytes_out(&b, build_binary(&b, step, x, y, BS_F32), 6, build_in(&b, 0));
}

/* QLinearSigmoid, QLinearLeakyRelu: the operator of the name without "QLinear". */
static int32_t one(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = floats_at(&b, 0);
  return bytes_out(&b, call(&b, node->op + strlen("QLinear"), &x, 1), 3, build_in(&b, 0));
}

/* QLinearAveragePool and QLinearGlobalAveragePool; channels_last: [N, places.., C]. */
static int32_t pool(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const int last = lower_int(node, "channels_last", 0) != 0;
  uint32_t x = floats_at(&b, 0);
  if (last) x = build_move(&b, x, 1, 0);
  uint32_t y = call(&b, node->op + strlen("QLinear"), &x, 1);
  if (last) y = build_move(&b, y, 1, 1);
  return bytes_out(&b, y, 3, build_in(&b, 0));
}

static int32_t concat(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  enum { MOST = 16 };
  build b = build_begin(c, node, err);
  uint32_t parts[MOST];
  const uint32_t n = node->n_in < 2 ? 0 : (node->n_in - 2) / 3;
  build_check(&b, n > 0 && node->n_in == 2 + 3 * n, "the inputs are no scale, zero point and parts");
  if (b.rc == BS_OK && n > MOST) build_refuse(&b, 0, "more than 16 parts");
  if (b.rc != BS_OK) return b.rc;
  for (uint32_t i = 0; i < n; ++i) parts[i] = floats_at(&b, 2 + 3 * i);
  return bytes_out(&b, call(&b, "Concat", parts, n), 0, build_in(&b, 2));
}

/* Before opset 13 the dims from the axis on were one. */
static int32_t softmax(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  uint32_t x = floats_at(&b, 0);
  const build_shape shape = build_shape_of(&b, x);
  const uint32_t rank = shape.rank, axis = build_axis(&b, lower_int(node, "axis", -1), rank);
  const bs_attr to_last = {.name = "axis", .type = BS_ATTR_INT, .i = -1};
  const int joins = lower_int(node, "opset", 13) < 13;
  uint32_t y = GNONE;
  if (joins)
    x = build_join_dims(&b, x, axis, rank - axis);
  else
    x = build_move(&b, x, axis, 1);
  if (b.rc == BS_OK) b.rc = lower_call(c, node, "Softmax", &x, 1, &to_last, 1, &y, 1, err);
  if (b.rc != BS_OK) return b.rc;
  y = joins ? build_reshape(&b, y, &shape) : build_move(&b, y, axis, 0);
  return bytes_out(&b, y, 3, build_in(&b, 0));
}

/* (A B + C) alpha, C of i32 in steps of the product; floats, or bytes where a scale of y is there. */
static int32_t gemm(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  uint32_t x = build_in(&b, 0), w = build_in(&b, 3);
  const uint32_t sx = build_in(&b, 1), zx = build_optional(&b, 2), sw = build_in(&b, 4),
                 zw = build_optional(&b, 5);
  const uint32_t more = build_optional(&b, 6), so = build_optional(&b, 7), zo = build_optional(&b, 8);
  const double alpha = lower_float(node, "alpha", 1);
  build_check(&b, build_rank(&b, x) == 2 && build_rank(&b, w) == 2, "A and B must be matrices");
  if (lower_int(node, "transA", 0) != 0) x = build_swap(&b, x, 0, 1);
  if (lower_int(node, "transB", 0) != 0) w = build_swap(&b, w, 0, 1);
  const int row = more != GNONE && build_rank(&b, more) == 1 && build_dim(&b, more, 0) == build_dim(&b, w, 1);
  uint32_t sums = lower_product_of_bytes(&b, x, zx, w, zw, row ? more : GNONE);
  if (more != GNONE && !row) sums = build_binary(&b, BS_EXPR_ADD, sums, more, BS_I32);
  uint32_t scale = lower_product_scale(&b, sx, sw, so);
  if (alpha != 1) scale = build_scale(&b, scale, alpha);
  if (so == GNONE)
    build_out(&b, 0, build_binary(&b, BS_EXPR_MUL, build_cast(&b, sums, BS_F32), scale, BS_F32));
  else
    build_out(&b, 0, lower_rounded(&b, sums, scale, zo, zo != GNONE ? build_dtype(&b, zo) : BS_U8));
  return b.rc;
}

/* sums scale + bias as floats. */
static int32_t floats_out(build *b, uint32_t sums, uint32_t scale, uint32_t bias) {
  lower_map m;
  if (b->rc != BS_OK) return b->rc;
  lower_map_begin(&m, b->c, BS_F32);
  uint8_t v = lower_map_step(&m, BS_EXPR_MUL, lower_map_in(&m, sums), lower_map_in(&m, scale), 0);
  if (bias != GNONE) v = lower_map_step(&m, BS_EXPR_ADD, v, lower_map_in(&m, bias), 0);
  build_out(b, 0, build_map(b, &m, v, BS_F32));
  return b->rc;
}

static int32_t integer_to_float(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0), w = build_in(&b, 1), sx = build_in(&b, 2), sw = build_in(&b, 3);
  const uint32_t sums = lower_product_of_bytes(&b, x, build_optional(&b, 4), w, build_optional(&b, 5), GNONE);
  return floats_out(&b, sums, lower_product_scale(&b, sx, sw, GNONE), build_optional(&b, 6));
}

/* A is rounded by DynamicQuantizeLinear. */
static int32_t dynamic_matmul(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  uint32_t x[3] = {GNONE, GNONE, GNONE};
  const uint32_t a = build_in(&b, 0), w = build_in(&b, 1), sw = build_in(&b, 2);
  if (b.rc == BS_OK) b.rc = lower_call(c, node, "DynamicQuantizeLinear", &a, 1, NULL, 0, x, 3, err);
  const uint32_t sums = lower_product_of_bytes(&b, x[0], x[2], w, build_optional(&b, 3), GNONE);
  return floats_out(&b, sums, lower_product_scale(&b, x[1], sw, GNONE), build_optional(&b, 4));
}

const lower_rule lower_rules_qlinear[] = {{"DynamicQuantizeMatMul", 1, 0, dynamic_matmul, "com.microsoft"},
                                          {"MatMulIntegerToFloat", 1, 0, integer_to_float, "com.microsoft"},
                                          {"QGemm", 1, 0, gemm, "com.microsoft"},
                                          {"QLinearAdd", 1, 0, two, "com.microsoft"},
                                          {"QLinearAveragePool", 1, 0, pool, "com.microsoft"},
                                          {"QLinearConcat", 1, 0, concat, "com.microsoft"},
                                          {"QLinearGlobalAveragePool", 1, 0, pool, "com.microsoft"},
                                          {"QLinearLeakyRelu", 1, 0, one, "com.microsoft"},
                                          {"QLinearMul", 1, 0, two, "com.microsoft"},
                                          {"QLinearSigmoid", 1, 0, one, "com.microsoft"},
                                          {"QLinearSoftmax", 1, 0, softmax, "com.microsoft"},
                                          {0}};
