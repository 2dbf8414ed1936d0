/* SPDX-License-Identifier: MIT
 * quant_product.c - products and convolutions of bytes with zero points, as i32 or rounded to bytes again:
 * MatMulInteger, QLinearMatMul, ConvInteger, QLinearConv. */
#include <stdlib.h>

#include "graph/lower/rules.h"

/* i32: value - zero. A zero point of one dim belongs to the rows (of A, `rows`) or to the columns (of B). */
static uint32_t centered(build *b, uint32_t value, uint32_t zero, int rows) {
  lower_map m;
  const build_shape own = build_shape_of(b, zero), column = {2, {own.dims[0], 1}};
  double low, high;
  build_check(b, lower_byte_range(build_dtype(b, value), &low, &high), "A and B must be i8 or u8");
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
  return lower_byte_range(build_dtype(b, x), &low, &high) &&
         lower_byte_range(build_dtype(b, w), &low, &high) &&
         (x_zero == GNONE || build_dtype(b, x_zero) == build_dtype(b, x)) &&
         (w_zero == GNONE || build_dtype(b, w_zero) == build_dtype(b, w)) && ws.rank == 2 && xs.rank >= 2 &&
         xs.dims[xs.rank - 1] == ws.dims[0] && ws.dims[0] <= MOST_COLUMNS;
}

/* The bytes of a constant as they lie; NULL: it is none, or a view. */
static const uint8_t *bytes_of(build *b, uint32_t value) {
  if (b->rc != BS_OK || !lower_is_const(b->c, value)) return NULL;
  const gvalue *v = lower_value(b->c, value);
  if (v->kind == GV_VIEW || BS_DTYPE_BYTES(v->dtype) != 1) return NULL;
  b->rc = lower_ask(b->c, value, b->err);
  return b->rc == BS_OK ? v->data : NULL;
}

/* value - less as `dtype`. */
static uint32_t lowered(build *b, uint32_t value, int64_t less, uint32_t dtype) {
  lower_map m;
  if (b->rc != BS_OK || (build_dtype(b, value) == dtype && less == 0)) return value;
  lower_map_begin(&m, b->c, BS_I64);
  const uint8_t v = lower_map_in(&m, value);
  return build_map(b, &m, lower_map_step(&m, BS_EXPR_SUB, v, lower_map_const_int(&m, less), 0), dtype);
}

/* A weight of u8 less 128 as i8: it is packed, so that its bytes are given back then. */
static uint32_t byte_weight(build *b, uint32_t value, int64_t less) {
  lower_keep_computed(b->c, 1);
  const uint32_t out = lowered(b, value, less, BS_I8);
  lower_keep_computed(b->c, 0);
  return out;
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

/* A zero point less `less`; GNONE: it is known to be 0. An absent one is 0. */
static uint32_t zero_of(build *b, uint32_t zero, int64_t less, int rows) {
  const build_shape scalar = {0}, own = build_shape_of(b, zero), column = {2, {own.dims[0], 1}};
  const int32_t without = (int32_t)-less;
  if (zero == GNONE) return less == 0 ? GNONE : build_const(b, BS_I32, &scalar, &without);
  if (rows && own.rank == 1 && own.dims[0] > 1) zero = build_reshape(b, zero, &column);
  if (less != 0) zero = lowered(b, zero, less, BS_I32);
  return b->rc == BS_OK && all_zero(b, zero, build_elements(&own)) ? GNONE : zero;
}

/* The sums of a value along one axis, which stays with size 1. */
static uint32_t sums_of(build *b, uint32_t value, uint32_t axis) {
  uint32_t out = GNONE;
  if (b->rc == BS_OK) b->rc = lower_reduce(b->c, BS_FOLD_SUM, value, 1u << axis, 1, 0, BS_I32, &out, b->err);
  return out;
}

/* The sum of each column of a weight w of i8, [1,N]; w is `given`, or that of u8 less 128. */
static uint32_t column_sums(build *b, uint32_t w, uint32_t given) {
  const uint8_t *bytes = bytes_of(b, given);
  const int64_t rows = build_dim(b, w, 0), columns = build_dim(b, w, 1);
  const build_shape shape = {2, {1, columns}};
  if (bytes == NULL) return sums_of(b, w, 0);
  const uint8_t flip = build_dtype(b, given) == BS_I8 ? 0x80u : 0;
  int32_t *sums = calloc((size_t)columns + 1u, sizeof *sums);
  if (sums == NULL) {
    build_no_memory(b);
    return GNONE;
  }
  for (int64_t k = 0; k < rows; k++)
    for (int64_t n = 0; n < columns; n++) sums[n] += (int32_t)(bytes[k * columns + n] ^ flip) - 128;
  const uint32_t out = build_const(b, BS_I32, &shape, sums);
  free(sums);
  return out;
}

/* bias - zx times the sum of each column of w: a bias where zx is one number; else the bias. */
static uint32_t bias_of(build *b, uint32_t w, uint32_t given, uint32_t zx, uint32_t bias) {
  lower_map m;
  const build_shape own = build_shape_of(b, zx), row = {1, {build_dim(b, w, 1)}}, scalar = {0};
  if (zx == GNONE || b->rc != BS_OK || build_elements(&own) != 1) return bias;
  const uint32_t sums = build_reshape(b, column_sums(b, w, given), &row), one = build_reshape(b, zx, &scalar);
  lower_map_begin(&m, b->c, BS_I64);
  uint8_t v = lower_map_step(&m, BS_EXPR_MUL, lower_map_in(&m, one), lower_map_in(&m, sums), 0);
  v = bias == GNONE ? lower_map_step(&m, BS_EXPR_NEG, v, 0, 0)
                    : lower_map_step(&m, BS_EXPR_SUB, lower_map_in(&m, bias), v, 0);
  return build_map(b, &m, v, BS_I32);
}

/* The sum over k of (x - zx) (w - zw) is that of x w, less zx (the sum of w), less zw (the sum of x - K zx);
 * plus the bias. */
static uint32_t byte_product(build *b, uint32_t x, uint32_t w, uint32_t given, uint32_t zx, uint32_t zw,
                             uint32_t more) {
  uint32_t product = GNONE;
  lower_map m;
  const int64_t columns = build_dim(b, w, 0);
  const build_shape own = build_shape_of(b, zx);
  const uint32_t bias = bias_of(b, w, given, zx, more), turned = build_swap(b, w, 0, 1);
  const int adds = zx != GNONE && build_elements(&own) != 1;
  const uint32_t x_sums = zw == GNONE ? GNONE : sums_of(b, x, build_rank(b, x) - 1);
  const uint32_t w_sums = adds ? column_sums(b, w, given) : GNONE;
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

/* The product of two matrices of bytes, less their zero points, as i32. Numbers that are not constant stay
 * bytes where they can: the sum of (x - zx) (y - zy) is that of (x - zx) y, less zy (the sum of x - zx). */
static uint32_t product_of_values(build *b, uint32_t x, uint32_t x_zero, uint32_t y, uint32_t y_zero) {
  lower_map m;
  double low, high;
  uint32_t product = GNONE;
  const uint32_t rank = build_rank(b, x), zeros = build_rank(b, y_zero), dtype = build_dtype(b, y);
  if (b->rc != BS_OK) return GNONE;
  if (rank < 2 || build_rank(b, y) < 2 || (y_zero != GNONE && zeros > 1) ||
      !lower_byte_range(dtype, &low, &high) || lower_is_const(b->c, y) ||
      (y_zero != GNONE && build_dtype(b, y_zero) != dtype))
    return integer_product(b, centered(b, x, x_zero, 1), centered(b, y, y_zero, 0));
  x = x_zero != GNONE ? centered(b, x, x_zero, 1) : x;
  build_check(b, x_zero != GNONE || lower_byte_range(build_dtype(b, x), &low, &high),
              "A and B must be i8 or u8");
  if (b->rc == BS_OK) b->rc = lower_contract(b->c, x, y, GNONE, 1, BS_ACT_NONE, BS_I32, &product, b->err);
  const build_shape own = build_shape_of(b, y_zero);
  if (b->rc != BS_OK || y_zero == GNONE || all_zero(b, y_zero, build_elements(&own))) return product;
  const uint32_t sums = sums_of(b, x, rank - 1);
  lower_map_begin(&m, b->c, BS_I64);
  const uint8_t v = lower_map_in(&m, product), zero = lower_map_in(&m, y_zero), sum = lower_map_in(&m, sums);
  const uint8_t less = lower_map_step(&m, BS_EXPR_MUL, zero, sum, 0);
  return build_map(b, &m, lower_map_step(&m, BS_EXPR_SUB, v, less, 0), BS_I32);
}

uint32_t lower_product_of_bytes(build *b, uint32_t x, uint32_t x_zero, uint32_t y, uint32_t y_zero,
                                uint32_t bias) {
  if (is_byte_weight(b, x, x_zero, y, y_zero)) {
    const int64_t less = build_dtype(b, y) == BS_U8 ? 128 : 0; /* a weight has i8 */
    const uint32_t w = byte_weight(b, y, less);
    if (b->rc == BS_OK && lower_is_const(b->c, w))
      return byte_product(b, x, w, y, zero_of(b, x_zero, 0, 1), zero_of(b, y_zero, less, 0), bias);
  }
  const uint32_t product = product_of_values(b, x, x_zero, y, y_zero);
  return bias == GNONE ? product : build_binary(b, BS_EXPR_ADD, product, bias, BS_I32);
}

int32_t lower_matmul_integer(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0), x_zero = build_optional(&b, 2);
  const uint32_t y = build_in(&b, 1), y_zero = build_optional(&b, 3);
  build_out(&b, 0, lower_product_of_bytes(&b, x, x_zero, y, y_zero, GNONE));
  return b.rc;
}

/* ---- rounded to bytes ---------------------------------------------------------------------------- */

/* A scale of A's rows as a column. */
static uint32_t row_scale(build *b, uint32_t scale) {
  const build_shape own = build_shape_of(b, scale), column = {2, {own.dims[0], 1}};
  return own.rank == 1 && own.dims[0] > 1 ? build_reshape(b, scale, &column) : scale;
}

uint32_t lower_product_scale(build *b, uint32_t sx, uint32_t sy, uint32_t so) {
  lower_map m;
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, BS_F32);
  uint8_t v = lower_map_step(&m, BS_EXPR_MUL, lower_map_in(&m, sx), lower_map_in(&m, sy), 0);
  if (so != GNONE) v = lower_map_step(&m, BS_EXPR_DIV, v, lower_map_in(&m, so), 0);
  return build_map(b, &m, v, BS_F32);
}

uint32_t lower_rounded(build *b, uint32_t sums, uint32_t scale, uint32_t zero, uint32_t dtype) {
  lower_map m;
  double low, high;
  build_check(b, lower_byte_range(dtype, &low, &high), "the result must be i8 or u8");
  if (b->rc != BS_OK) return GNONE;
  const build_shape shape = build_shape_of(b, sums);
  lower_map_begin(&m, b->c, BS_F32);
  uint8_t q = lower_map_step(&m, BS_EXPR_MUL, lower_map_in(&m, sums), lower_map_in(&m, scale), 0);
  q = lower_map_step(&m, BS_EXPR_ROUND, q, 0, 0);
  if (zero != GNONE) q = lower_map_step(&m, BS_EXPR_ADD, q, lower_map_in(&m, zero), 0);
  q = lower_map_step(&m, BS_EXPR_MAX, q, lower_map_const(&m, low), 0);
  q = lower_map_step(&m, BS_EXPR_MIN, q, lower_map_const(&m, high), 0);
  return build_reshape(b, build_map(b, &m, q, dtype), &shape);
}

int32_t lower_qlinear_matmul(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0), x_zero = build_in(&b, 2), y = build_in(&b, 3), y_zero = build_in(&b, 5);
  const uint32_t product = lower_product_of_bytes(&b, x, x_zero, y, y_zero, GNONE);
  const uint32_t zero = build_in(&b, 7),
                 scale = lower_product_scale(&b, row_scale(&b, build_in(&b, 1)), build_in(&b, 4),
                                             row_scale(&b, build_in(&b, 6)));
  build_out(&b, 0, lower_rounded(&b, product, scale, row_scale(&b, zero), build_dtype(&b, zero)));
  return b.rc;
}

/* ---- convolutions -------------------------------------------------------------------------------- */

/* A number for each output channel of places.. as it broadcasts to y; one number as it is. */
static uint32_t of_channels(build *b, uint32_t value, uint32_t places) {
  const build_shape own = build_shape_of(b, value);
  build_shape column = {1 + places, {own.dims[0], 1, 1, 1}};
  return value != GNONE && own.rank == 1 && own.dims[0] > 1 ? build_reshape(b, value, &column) : value;
}

/* The sums of a convolution, [N, M, out..]. */
static uint32_t convolve(build *b, uint32_t x, uint32_t x_zero, uint32_t kernel, uint32_t w_zero,
                         uint32_t bias) {
  window w = {0};
  const build_shape own = build_shape_of(b, x_zero), scalar = {0};
  build_check(b, x_zero == GNONE || build_elements(&own) == 1, "the zero point of X is not one number");
  const int64_t groups = lower_conv_read(b, x, kernel, bias, &w);
  if (w.places > 2) build_refuse(b, 0, "a convolution of bytes over three places");
  if (b->rc != BS_OK) return GNONE;
  if (x_zero != GNONE) x_zero = build_reshape(b, x_zero, &scalar);
  if (groups == 1 && lower_is_const(b->c, kernel) && !lower_is_const(b->c, x)) {
    const uint32_t rows = lower_conv_rows(b, window_pad(b, x, &w, x_zero), &w);
    const uint32_t weight = build_swap(b, build_join_dims(b, kernel, 1, 1 + w.places), 0, 1);
    return build_move(b, lower_product_of_bytes(b, rows, x_zero, weight, w_zero, bias), 1, 0);
  }
  const uint32_t shifted = of_channels(b, w_zero, w.places + 1);
  const uint32_t y = lower_conv_contract(b, window_pad(b, centered(b, x, x_zero, 0), &w, GNONE),
                                         centered(b, kernel, shifted, 0), groups, &w);
  return bias == GNONE ? y : build_binary(b, BS_EXPR_ADD, y, of_channels(b, bias, w.places), BS_I32);
}

int32_t lower_conv_integer(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0), kernel = build_in(&b, 1);
  build_out(&b, 0, convolve(&b, x, build_optional(&b, 2), kernel, build_optional(&b, 3), GNONE));
  return b.rc;
}

int32_t lower_qlinear_conv(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0), x_zero = build_in(&b, 2), kernel = build_in(&b, 3),
                 zero = build_in(&b, 7);
  const uint32_t bias = build_optional(&b, 8);
  const uint32_t sums = convolve(&b, x, x_zero, kernel, build_in(&b, 5), bias);
  if (b.rc != BS_OK) return b.rc;
  const uint32_t places = build_rank(&b, sums) - 2;
  const uint32_t scale = lower_product_scale(&b, build_in(&b, 1), build_in(&b, 4), build_in(&b, 6));
  build_out(&b, 0, lower_rounded(&b, sums, of_channels(&b, scale, places), zero, build_dtype(&b, zero)));
  return b.rc;
}
