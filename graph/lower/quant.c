/* SPDX-License-Identifier: MIT
 * quant.c - between floats and small integers: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, and
 * the products of quantised matrices. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/lower/build.h"

/* The range of an integer dtype of eight bits; 0: another dtype. */
static int byte_range(uint32_t dtype, double *out_low, double *out_high) {
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

/* x / scale + zero, rounded to the nearest integer before the zero is added, and held in the dtype's range.
 * `at` is the dtype in which the quotient is rounded; 0: as computed. */
static uint32_t quantize(build *b, uint32_t x, uint32_t scale, uint32_t zero, uint32_t at, uint32_t dtype) {
  lower_map m;
  double low, high;
  if (b->rc != BS_OK) return GNONE;
  const int wide = build_dtype(b, x) == BS_F64 || build_dtype(b, x) == BS_I32 || at == BS_F64;
  lower_map_begin(&m, b->c, wide ? BS_F64 : BS_F32);
  const uint8_t vx = lower_map_in(&m, x), vs = lower_map_in(&m, scale);
  uint8_t q = lower_map_step(&m, BS_EXPR_DIV, vx, vs, 0);
  if (at == BS_F16 || at == BS_BF16) q = lower_map_step(&m, BS_EXPR_TO, q, (uint8_t)(at >> 8), (uint8_t)at);
  if (byte_range(dtype, &low, &high)) {
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
  if (!byte_range(dtype, &low, &high) && !small_float)
    build_refuse(&b, dtype, "an output that is not i8, u8 or fp8");
  if (small_float && !lower_int(node, "saturate", 1)) build_refuse(&b, dtype, "fp8 that does not saturate");
  const uint32_t at = precision != 0 ? build_onnx_dtype(precision) : build_dtype(&b, scale);
  if (!build_is_float(at)) build_refuse(&b, at, "a scale or precision of this dtype");
  build_out(&b, 0,
            quantize(&b, x, spread(&b, scale, x, axis, block), spread(&b, zero, x, axis, block), at, dtype));
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
      !lower_is_const(b->c, q->scale) || !byte_range(build_dtype(b, q->x), &low, &high) ||
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
  const uint8_t span = lower_map_step(&m, BS_EXPR_SELECT, none, lower_map_const(&m, 1), wide);
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
  build_out(&b, 0, quantize(&b, x, scale, point, 0, BS_U8));
  build_out(&b, 1, scale);
  build_out(&b, 2, point);
  return b.rc;
}

/* i32: value - zero. A zero point of one dim belongs to the rows (of A, `rows`) or to the columns (of B). */
static uint32_t centered(build *b, uint32_t value, uint32_t zero, int rows) {
  lower_map m;
  const build_shape own = build_shape_of(b, zero), column = {2, {own.dims[0], 1}};
  double low, high;
  build_check(b, byte_range(build_dtype(b, value), &low, &high), "A and B must be i8 or u8");
  if (b->rc != BS_OK) return GNONE;
  if (zero == GNONE) return build_cast(b, value, BS_I32);
  build_check(b, build_dtype(b, zero) == build_dtype(b, value),
              "a zero point has another dtype than its matrix");
  if (rows && own.rank == 1 && own.dims[0] > 1) zero = build_reshape(b, zero, &column);
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, BS_I64);
  const uint8_t v = lower_map_in(&m, value), z = lower_map_in(&m, zero);
  return build_map(b, &m, lower_map_step(&m, BS_EXPR_SUB, v, z, 0), BS_I32);
}

/* The product of integers by MatMul's own rule. */
static uint32_t integer_product(build *b, uint32_t x, uint32_t y) {
  uint32_t out = GNONE;
  const uint32_t in[2] = {x, y};
  if (b->rc == BS_OK) b->rc = lower_call(b->c, b->node, "MatMul", in, 2, NULL, 0, &out, 1, b->err);
  return b->rc == BS_OK ? out : GNONE;
}

/* ---- by a packed weight of i8 ----------------------------------------------------------------- */

/* Longest row whose sums with zero points of bytes fit i32. */
enum { MOST_COLUMNS = 1 << 15 };

/* Can B be the packed weight? Then the product is that of i8, and zero points are added to it. */
static int is_byte_weight(const build *b, uint32_t x, uint32_t x_zero, uint32_t w, uint32_t w_zero) {
  double low, high;
  if (b->rc != BS_OK || !lower_is_const(b->c, w) || lower_is_const(b->c, x)) return 0;
  const build_shape xs = build_shape_of(b, x), ws = build_shape_of(b, w);
  return byte_range(build_dtype(b, x), &low, &high) && byte_range(build_dtype(b, w), &low, &high) &&
         (x_zero == GNONE || build_dtype(b, x_zero) == build_dtype(b, x)) &&
         (w_zero == GNONE || build_dtype(b, w_zero) == build_dtype(b, w)) && ws.rank == 2 && xs.rank >= 2 &&
         xs.dims[xs.rank - 1] == ws.dims[0] && ws.dims[0] <= MOST_COLUMNS;
}

/* value - less as `dtype`. */
static uint32_t lowered(build *b, uint32_t value, int64_t less, uint32_t dtype) {
  lower_map m;
  if (b->rc != BS_OK || (build_dtype(b, value) == dtype && less == 0)) return value;
  lower_map_begin(&m, b->c, BS_I64);
  const uint8_t v = lower_map_in(&m, value);
  return build_map(b, &m, lower_map_step(&m, BS_EXPR_SUB, v, lower_map_const_int(&m, less), 0), dtype);
}

/* A constant of n integers, all 0. */
static int all_zero(build *b, uint32_t value, int64_t n) {
  if (!lower_is_const(b->c, value) || n < 1 || n > 1 << 20) return 0;
  int64_t *v = malloc((size_t)n * sizeof *v);
  int is = v != NULL && build_read_ints(b, value, "the zero points", v, (uint32_t)n) == (uint32_t)n;
  for (int64_t i = 0; is && i < n; i++) is = v[i] == 0;
  free(v);
  return is;
}

/* A zero point less `less` as i32; GNONE: it is known to be 0. An absent one is 0. */
static uint32_t zero_of(build *b, uint32_t zero, int64_t less, int rows) {
  const build_shape scalar = {0}, own = build_shape_of(b, zero), column = {2, {own.dims[0], 1}};
  const int32_t without = (int32_t)-less;
  if (zero == GNONE) return less == 0 ? GNONE : build_const(b, BS_I32, &scalar, &without);
  if (rows && own.rank == 1 && own.dims[0] > 1) zero = build_reshape(b, zero, &column);
  zero = lowered(b, zero, less, BS_I32);
  return b->rc == BS_OK && all_zero(b, zero, build_elements(&own)) ? GNONE : zero;
}

/* The sums of a value along one axis, which stays with size 1. */
static uint32_t sums_of(build *b, uint32_t value, uint32_t axis) {
  uint32_t out = GNONE;
  if (b->rc == BS_OK) b->rc = lower_reduce(b->c, BS_FOLD_SUM, value, 1u << axis, 1, 0, BS_I32, &out, b->err);
  return out;
}

/* -zx times the sum of each column of w: a bias where zx is one number; else GNONE. */
static uint32_t bias_of(build *b, uint32_t w, uint32_t zx) {
  lower_map m;
  const build_shape own = build_shape_of(b, zx), row = {1, {build_dim(b, w, 1)}}, scalar = {0};
  if (zx == GNONE || b->rc != BS_OK || build_elements(&own) != 1) return GNONE;
  const uint32_t sums = build_reshape(b, sums_of(b, w, 0), &row), one = build_reshape(b, zx, &scalar);
  lower_map_begin(&m, b->c, BS_I64);
  const uint8_t v = lower_map_step(&m, BS_EXPR_MUL, lower_map_in(&m, one), lower_map_in(&m, sums), 0);
  return build_map(b, &m, lower_map_step(&m, BS_EXPR_NEG, v, 0, 0), BS_I32);
}

/* The sum over k of (x - zx) (w - zw) is that of x w, less zx (the sum of w), less zw (the sum of x - K zx).
 */
static uint32_t byte_product(build *b, uint32_t x, uint32_t w, uint32_t zx, uint32_t zw) {
  uint32_t product = GNONE;
  lower_map m;
  const int64_t columns = build_dim(b, w, 0);
  const uint32_t bias = bias_of(b, w, zx), turned = build_swap(b, w, 0, 1);
  const int adds = zx != GNONE && bias == GNONE;
  const uint32_t x_sums = zw == GNONE ? GNONE : sums_of(b, x, build_rank(b, x) - 1);
  const uint32_t w_sums = adds ? sums_of(b, w, 0) : GNONE;
  if (b->rc == BS_OK) b->rc = lower_matmul(b->c, x, turned, bias, BS_ACT_NONE, BS_I32, &product, b->err);
  if (b->rc != BS_OK || (!adds && zw == GNONE)) return product;
  lower_map_begin(&m, b->c, BS_I64);
  uint8_t v = lower_map_in(&m, product);
  const uint8_t vx = zx != GNONE ? lower_map_in(&m, zx) : 0;
  if (adds)
    v = lower_map_step(&m, BS_EXPR_SUB, v, lower_map_step(&m, BS_EXPR_MUL, vx, lower_map_in(&m, w_sums), 0),
                       0);
  if (zw != GNONE) {
    uint8_t sum = lower_map_in(&m, x_sums);
    if (zx != GNONE) {
      const uint8_t all = lower_map_step(&m, BS_EXPR_MUL, vx, lower_map_const_int(&m, columns), 0);
      sum = lower_map_step(&m, BS_EXPR_SUB, sum, all, 0);
    }
    v = lower_map_step(&m, BS_EXPR_SUB, v, lower_map_step(&m, BS_EXPR_MUL, lower_map_in(&m, zw), sum, 0), 0);
  }
  return build_map(b, &m, v, BS_I32);
}

/* The product of two matrices of bytes, less their zero points, as i32. */
static uint32_t product_of_bytes(build *b, uint32_t x, uint32_t x_zero, uint32_t y, uint32_t y_zero) {
  if (is_byte_weight(b, x, x_zero, y, y_zero)) {
    const int64_t less = build_dtype(b, y) == BS_U8 ? 128 : 0; /* a weight has i8 */
    const uint32_t w = lowered(b, y, less, BS_I8);
    if (b->rc == BS_OK && lower_is_const(b->c, w))
      return byte_product(b, x, w, zero_of(b, x_zero, 0, 1), zero_of(b, y_zero, less, 0));
  }
  x = centered(b, x, x_zero, 1);
  y = centered(b, y, y_zero, 0);
  return integer_product(b, x, y);
}

static int32_t matmul_integer(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0), x_zero = build_optional(&b, 2);
  const uint32_t y = build_in(&b, 1), y_zero = build_optional(&b, 3);
  build_out(&b, 0, product_of_bytes(&b, x, x_zero, y, y_zero));
  return b.rc;
}

/* A scale of A's rows as a column. */
static uint32_t row_scale(build *b, uint32_t scale) {
  const build_shape own = build_shape_of(b, scale), column = {2, {own.dims[0], 1}};
  return own.rank == 1 && own.dims[0] > 1 ? build_reshape(b, scale, &column) : scale;
}

static int32_t qlinear_matmul(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  lower_map m;
  double low, high;
  const uint32_t x = build_in(&b, 0), x_zero = build_in(&b, 2), y = build_in(&b, 3), y_zero = build_in(&b, 5);
  const uint32_t product = product_of_bytes(&b, x, x_zero, y, y_zero);
  const uint32_t zero = build_in(&b, 7), dtype = build_dtype(&b, zero);
  const uint32_t sx = row_scale(&b, build_in(&b, 1)), sy = build_in(&b, 4),
                 so = row_scale(&b, build_in(&b, 6));
  build_check(&b, byte_range(dtype, &low, &high), "y_zero_point must be i8 or u8");
  if (b.rc != BS_OK) return b.rc;
  const build_shape shape = build_shape_of(&b, product);
  lower_map_begin(&m, c, BS_F64);
  const uint8_t factor = lower_map_step(&m, BS_EXPR_MUL, lower_map_in(&m, sx), lower_map_in(&m, sy), 0);
  uint8_t q = lower_map_step(&m, BS_EXPR_MUL, lower_map_in(&m, product),
                             lower_map_step(&m, BS_EXPR_DIV, factor, lower_map_in(&m, so), 0), 0);
  q = lower_map_step(&m, BS_EXPR_ADD, lower_map_step(&m, BS_EXPR_ROUND, q, 0, 0),
                     lower_map_in(&m, row_scale(&b, zero)), 0);
  q = lower_map_step(&m, BS_EXPR_MAX, q, lower_map_const(&m, low), 0);
  q = lower_map_step(&m, BS_EXPR_MIN, q, lower_map_const(&m, high), 0);
  const uint32_t out = build_map(&b, &m, q, dtype);
  build_out(&b, 0, build_reshape(&b, out, &shape));
  return b.rc;
}

const lower_rule lower_rules_quant[] = {{"QuantizeLinear", 10, 0, quantize_linear, NULL},
                                        {"DequantizeLinear", 10, 0, dequantize_linear, NULL},
                                        {"DynamicQuantizeLinear", 11, 0, dynamic_quantize_linear, NULL},
                                        {"MatMulInteger", 10, 0, matmul_integer, NULL},
                                        {"QLinearMatMul", 10, 0, qlinear_matmul, NULL},
                                        {0}};
