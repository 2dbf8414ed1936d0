/* SPDX-License-Identifier: MIT
 * quant.c - between floats and small integers: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/lower/rules.h"

int lower_byte_range(uint32_t dtype, double *out_low, double *out_high) {
  *out_low = dtype == BS_I8 ? -128 : 0;
  *out_high = dtype == BS_I8 ? 127 : 255;
  return dtype == BS_I8 || dtype == BS_U8;
}

/* A scale or zero point (one element, one for each place of the axis, or one for each block along it) so that
 * it broadcasts to x. */
static uint32_t spread(build *b, uint32_t value, uint32_t x, int64_t axis, int64_t block) {
  const build_shape own = build_shape_of(b, value), to = build_shape_of(b, x), scalar = {0};
  if (value == GNONE || b->rc != BS_OK) return GNONE;
  if (block == 0 && build_elements(&own) == 1 && own.rank <= 1) return build_reshape(b, value, &scalar);
  const uint32_t at = build_axis(b, axis, to.rank);
  if (b->rc != BS_OK) return GNONE;
  const int64_t n = to.dims[at];
  if (block == 0) {
    build_shape shape = {to.rank, {1, 1, 1, 1, 1, 1}};
    build_check(b, own.rank == 1 && own.dims[0] == n, "the scale is no vector as long as the axis");
    shape.dims[at] = n;
    return build_reshape(b, value, &shape);
  }
  build_check(b, own.rank == to.rank && block > 0 && own.dims[at] == (n + block - 1) / block,
              "the scale does not fit the blocks");
  if (b->rc == BS_OK && n > 1 << 24) build_refuse(b, 0, "an axis of blocks of more than 2^24 elements");
  if (b->rc != BS_OK) return GNONE;
  int64_t *index = calloc((size_t)n + 1, sizeof *index);
  if (index == NULL) {
    build_no_memory(b);
    return GNONE;
  }
  for (int64_t i = 0; i < n; ++i) index[i] = i / block;
  const uint32_t places = build_ints(b, index, n);
  free(index);
  return build_take(b, value, places, at);
}

uint32_t lower_quantize(build *b, uint32_t x, uint32_t scale, uint32_t zero, uint32_t at, uint32_t dtype) {
  lower_map m;
  double low, high;
  if (b->rc != BS_OK) return GNONE;
  const int wide = build_dtype(b, x) == BS_F64 || build_dtype(b, x) == BS_I32 || at == BS_F64;
  lower_map_begin(&m, b->c, wide ? BS_F64 : BS_F32);
  const uint8_t vx = lower_map_in(&m, x), vs = lower_map_in(&m, scale);
  uint8_t q = lower_map_step(&m, BS_EXPR_DIV, vx, vs, 0);
  if (at == BS_F16 || at == BS_BF16) q = lower_map_step(&m, BS_EXPR_TO, q, (uint8_t)(at >> 8), (uint8_t)at);
  if (lower_byte_range(dtype, &low, &high)) {
    q = lower_map_step(&m, BS_EXPR_ROUND, q, 0, 0);
    if (zero != GNONE) q = lower_map_step(&m, BS_EXPR_ADD, q, lower_map_in(&m, zero), 0);
  } else { /* floats of eight bits */
    high = dtype == BS_F8E4M3 ? 448 : 57344;
    low = -high;
  }
  q = lower_map_step(&m, BS_EXPR_MAX, q, lower_map_const(&m, low), 0);
  return build_map(b, &m, lower_map_step(&m, BS_EXPR_MIN, q, lower_map_const(&m, high), 0), dtype);
}

static int32_t quantize_linear(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  double low, high;
  const uint32_t x = build_in(&b, 0), scale = build_in(&b, 1), zero = build_optional(&b, 2);
  const int64_t axis = lower_int(node, "axis", 1), block = lower_int(node, "block_size", 0);
  const int64_t asked = lower_int(node, "output_dtype", 0), precision = lower_int(node, "precision", 0);
  const uint32_t dtype = zero != GNONE ? build_dtype(&b, zero) : asked != 0 ? build_onnx_dtype(asked) : BS_U8;
  const int small_float = dtype == BS_F8E4M3 || dtype == BS_F8E5M2;
  if (!lower_byte_range(dtype, &low, &high) && !small_float)
    build_refuse(&b, dtype, "an output that is not i8, u8 or fp8");
  if (small_float && !lower_int(node, "saturate", 1)) build_refuse(&b, dtype, "fp8 that does not saturate");
  const uint32_t at = precision != 0 ? build_onnx_dtype(precision) : build_dtype(&b, scale);
  if (!build_is_float(at)) build_refuse(&b, at, "a scale or precision of this dtype");
  build_out(
      &b, 0,
      lower_quantize(&b, x, spread(&b, scale, x, axis, block), spread(&b, zero, x, axis, block), at, dtype));
  return b.rc;
}

/* (x - zero) scale of the node's inputs. */
static uint32_t floats(build *b, const lower_codes *q) {
  lower_map m;
  uint32_t x = q->x, zero = q->zero;
  if (b->rc == BS_OK) b->rc = lower_unpacked(b->c, &x, b->err);
  if (b->rc == BS_OK && zero != GNONE) b->rc = lower_unpacked(b->c, &zero, b->err);
  const uint32_t scale = spread(b, q->scale, x, q->axis, q->block);
  zero = spread(b, zero, x, q->axis, q->block);
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, BS_F32);
  uint8_t v = lower_map_in(&m, x);
  if (zero != GNONE) v = lower_map_step(&m, BS_EXPR_SUB, v, lower_map_in(&m, zero), 0);
  return build_map(b, &m, lower_map_step(&m, BS_EXPR_MUL, v, lower_map_in(&m, scale), 0), q->dtype);
}

int32_t lower_floats_of(lower_ctx *c, const lower_codes *codes, uint32_t *out_value, bs_error *err) {
  const gmodel_node node = {.op = "DequantizeLinear", .domain = "", .name = "", .opset = 21};
  build b = build_begin(c, &node, err);
  *out_value = floats(&b, codes);
  return b.rc;
}

/* A matrix of constants stays quantised. */
static uint32_t stays(build *b, const lower_codes *q) {
  uint32_t out = GNONE;
  const build_shape scale = build_shape_of(b, q->scale);
  lower_codes codes = *q;
  if (b->rc != BS_OK || build_rank(b, q->x) != 2 || !lower_is_const(b->c, q->x) ||
      !lower_is_const(b->c, q->scale) || (q->zero != GNONE && !lower_is_const(b->c, q->zero)))
    return GNONE;
  codes.axis = q->block == 0 && build_elements(&scale) == 1 && scale.rank <= 1
                   ? -1
                   : (int64_t)build_axis(b, q->axis, 2);
  if (b->rc == BS_OK) b->rc = lower_quant_codes(b->c, &codes, &out, b->err);
  return b->rc == BS_OK ? out : GNONE;
}

/* Activations of bytes with one constant scale: a product may take the bytes. */
static void note_activations(build *b, const lower_codes *q, uint32_t y) {
  double low, high;
  const build_shape scale = build_shape_of(b, q->scale);
  if (b->rc != BS_OK || q->block != 0 || build_elements(&scale) != 1 || lower_is_const(b->c, q->x) ||
      !lower_is_const(b->c, q->scale) || !lower_byte_range(build_dtype(b, q->x), &low, &high) ||
      (q->zero != GNONE && !lower_is_const(b->c, q->zero)))
    return;
  b->rc = lower_note_dequantised(b->c, y, q, b->err);
}

static int32_t dequantize_linear(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  lower_codes q = {.x = build_in(&b, 0), .scale = build_in(&b, 1), .zero = build_optional(&b, 2)};
  const int64_t asked = lower_int(node, "output_dtype", 0);
  q.axis = lower_int(node, "axis", 1);
  q.block = lower_int(node, "block_size", 0);
  q.dtype = asked != 0 ? build_onnx_dtype(asked) : build_dtype(&b, q.scale);
  if (!build_is_float(q.dtype) || !build_is_float(build_dtype(&b, q.scale)))
    build_refuse(&b, q.dtype, "an output or scale of this dtype");
  const uint32_t quant = stays(&b, &q), y = quant != GNONE ? quant : floats(&b, &q);
  if (quant == GNONE) note_activations(&b, &q, y);
  build_out(&b, 0, y);
  return b.rc;
}

/* u8 with the range that the values themselves have, 0 included. */
static int32_t dynamic_quantize_linear(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  lower_map m;
  const build_shape scalar = {0};
  const uint32_t x = build_in(&b, 0), rank = build_rank(&b, x), all = (1u << rank) - 1;
  build_check(&b, build_dtype(&b, x) == BS_F32, "the operator takes f32");
  const uint32_t least = rank > 0 ? build_reshape(&b, build_reduce(&b, BS_FOLD_MIN, x, all, 1), &scalar) : x;
  const uint32_t most = rank > 0 ? build_reshape(&b, build_reduce(&b, BS_FOLD_MAX, x, all, 1), &scalar) : x;
  if (b.rc != BS_OK) return b.rc;
  lower_map_begin(&m, c, BS_F32);
  uint8_t zero = lower_map_const(&m, 0), range = lower_map_const(&m, 255);
  const uint8_t low = lower_map_step(&m, BS_EXPR_MIN, lower_map_in(&m, least), zero, 0);
  const uint8_t high = lower_map_step(&m, BS_EXPR_MAX, lower_map_in(&m, most), zero, 0);
  const uint8_t wide = lower_map_step(&m, BS_EXPR_SUB, high, low, 0);
  const uint8_t none = lower_map_step(&m, BS_EXPR_EQ, wide, zero, 0);
  const uint8_t span = lower_map_step(&m, BS_EXPR_SELECT, none, range, wide);
  const uint32_t scale = build_map(&b, &m, lower_map_step(&m, BS_EXPR_DIV, span, range, 0), BS_F32);
  if (b.rc != BS_OK) return b.rc;
  lower_map_begin(&m, c, BS_F32);
  zero = lower_map_const(&m, 0);
  range = lower_map_const(&m, 255);
  const uint8_t first = lower_map_step(&m, BS_EXPR_MIN, lower_map_in(&m, least), zero, 0);
  uint8_t z = lower_map_step(&m, BS_EXPR_DIV, lower_map_step(&m, BS_EXPR_SUB, zero, first, 0),
                             lower_map_in(&m, scale), 0);
  z = lower_map_step(&m, BS_EXPR_MIN, lower_map_step(&m, BS_EXPR_MAX, z, zero, 0), range, 0);
  const uint32_t point = build_map(&b, &m, lower_map_step(&m, BS_EXPR_ROUND, z, 0, 0), BS_U8);
  build_out(&b, 0, lower_quantize(&b, x, scale, point, 0, BS_U8));
  build_out(&b, 1, scale);
  build_out(&b, 2, point);
  return b.rc;
}

const lower_rule lower_rules_quant[] = {{"QuantizeLinear", 10, 0, quantize_linear, NULL},
                                        {"QuantizeLinear", 1, 0, quantize_linear, "com.microsoft"},
                                        {"DequantizeLinear", 10, 0, dequantize_linear, NULL},
                                        {"DequantizeLinear", 1, 0, dequantize_linear, "com.microsoft"},
                                        {"DynamicQuantizeLinear", 11, 0, dynamic_quantize_linear, NULL},
                                        {"MatMulInteger", 10, 0, lower_matmul_integer, NULL},
                                        {"QLinearMatMul", 10, 0, lower_qlinear_matmul, NULL},
                                        {"ConvInteger", 10, 0, lower_conv_integer, NULL},
                                        {"QLinearConv", 10, 0, lower_qlinear_conv, NULL},
                                        {0}};
