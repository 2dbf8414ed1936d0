/* SPDX-License-Identifier: MIT
 * contrib_quant.c - MatMulNBits and GatherBlockQuantized of com.microsoft: products with, and rows of,
 * constants that stay quantised. Their definitions are public (ContribOperators.md of ONNX Runtime). */
#include <string.h>

#include "graph/lower/rules.h"

/* A constant without gaps of n elements. */
static void check_constant(build *b, uint32_t value, int64_t n, const char *what) {
  const build_shape shape = build_shape_of(b, value);
  if (value == GNONE || b->rc != BS_OK) return;
  const gvalue *v = lower_value(b->c, value);
  if (!lower_is_const(b->c, value) || v->kind == GV_VIEW) build_refuse(b, 0, "a weight that is computed");
  build_check(b, build_elements(&shape) == n, what);
}

/* The zero points of a row fill whole bytes, or they are floats, one a block. */
static void check_zeros(build *b, uint32_t zero, int64_t rows, int64_t blocks, uint32_t bits) {
  if (zero == GNONE || b->rc != BS_OK) return;
  const int floats = build_is_float(build_dtype(b, zero));
  build_check(b, floats || build_dtype(b, zero) == BS_U8, "the zero points are neither u8 nor floats");
  check_constant(b, zero, rows * (floats || bits == 8 ? blocks : (blocks + 1) / 2),
                 "the zero points do not fit the blocks");
}

static void check_blocks(build *b, int64_t bits, int64_t block) {
  if (bits != 4 && bits != 8) build_refuse(b, 0, "codes that have not 4 or 8 bits");
  if (block < 16 || block > 256 || (block & (block - 1)) != 0)
    build_refuse(b, 0, "blocks that are no power of two from 16 to 256");
}

/* g_idx may say what is so anyway: column k belongs to block k / block_size. */
static void check_order(build *b, uint32_t index, int64_t cols, int64_t block) {
  if (index == GNONE || b->rc != BS_OK) return;
  const build_shape shape = build_shape_of(b, index);
  const gvalue *v = lower_value(b->c, index);
  int plain = lower_is_const(b->c, index) && v->kind != GV_VIEW && v->dtype == BS_I32 &&
              build_elements(&shape) == cols;
  const unsigned char *data = v->data;
  for (int64_t k = 0; plain && k < cols; k++) {
    int32_t group;
    memcpy(&group, data + (uint64_t)k * sizeof group, sizeof group);
    plain = group == (int32_t)(k / block);
  }
  if (!plain) build_refuse(b, 0, "columns in another order than that of the blocks (g_idx)");
}

int32_t lower_matmul_nbits(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const int64_t n = lower_int(node, "N", 0), k = lower_int(node, "K", 0), bits = lower_int(node, "bits", 4);
  const int64_t block = lower_int(node, "block_size", 0);
  const uint32_t x = build_in(&b, 0), dtype = build_dtype(&b, x), bias = build_optional(&b, 5);
  lower_blocks w = {.codes = build_in(&b, 1),
                    .scale = build_in(&b, 2),
                    .zero = build_optional(&b, 3),
                    .bits = (uint32_t)bits,
                    .rows = n,
                    .cols = k,
                    .block = block,
                    .x_bytes = lower_int(node, "accuracy_level", 0) == 4};
  uint32_t quant = GNONE, y = GNONE;
  check_blocks(&b, bits, block);
  build_check(&b, n > 0 && k > 0 && n <= INT32_MAX && k <= INT32_MAX, "N or K is not above 0");
  build_check(&b, build_is_float(dtype) && build_is_float(build_dtype(&b, w.scale)),
              "A or the scales are no floats");
  if (b.rc != BS_OK) return b.rc;
  const int64_t blocks = (k + block - 1) / block;
  w.stride = blocks * block;
  if (build_dtype(&b, w.codes) != BS_U8)
    build_refuse(&b, build_dtype(&b, w.codes), "codes that are not in u8");
  check_constant(&b, w.codes, n * w.stride * bits / 8, "B does not fit N, K and the blocks");
  check_constant(&b, w.scale, n * blocks, "the scales do not fit the blocks");
  check_zeros(&b, w.zero, n, blocks, w.bits);
  check_order(&b, build_optional(&b, 4), k, block);
  build_check(&b, bias == GNONE || (build_rank(&b, bias) == 1 && build_dim(&b, bias, 0) == n),
              "the bias is no row of N");
  build_check(&b, build_rank(&b, x) > 0 && build_dim(&b, x, build_rank(&b, x) - 1) == k,
              "A has not K columns");
  if (b.rc == BS_OK) b.rc = lower_quant_blocks(c, &w, &quant, err);
  if (b.rc == BS_OK) b.rc = lower_matmul_q(c, x, quant, bias, dtype, &y, err);
  build_out(&b, 0, y);
  return b.rc;
}

/* Data of 4 bits has its own zero points; u8 holds two codes of 4 bits, or one of 8, around 2^(bits-1). */
int32_t lower_gather_blocks(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t data = build_in(&b, 0), index = build_in(&b, 1), scale = build_in(&b, 2);
  const uint32_t zero = build_optional(&b, 3), dtype = build_dtype(&b, scale), at = build_dtype(&b, index);
  const int64_t bits = lower_int(node, "bits", 4), block = lower_int(node, "block_size", 128);
  uint32_t quant = GNONE, y = GNONE;
  build_check(&b, build_is_float(dtype), "the scales are no floats");
  build_check(&b, at == BS_I32 || at == BS_I64, "the indices are not i32 or i64");
  check_blocks(&b, bits, block);
  if (build_rank(&b, data) != 2 || build_axis(&b, lower_int(node, "gather_axis", 0), 2) != 0 ||
      build_axis(&b, lower_int(node, "quantize_axis", 1), 2) != 1)
    build_refuse(&b, 0, "another table than rows of blocks");
  if (b.rc != BS_OK) return b.rc;
  const int packed = build_dtype(&b, data) == BS_U8;
  const int64_t rows = build_dim(&b, data, 0), cols = build_dim(&b, data, 1) * (packed ? 8 / bits : 1);
  const int64_t blocks = (cols + block - 1) / block;
  check_constant(&b, data, rows * build_dim(&b, data, 1), "the table has gaps");
  check_constant(&b, scale, rows * blocks, "the scales do not fit the blocks");
  if (packed) {
    const lower_blocks w = {data, scale, zero, (uint32_t)bits, rows, cols, block, cols, 0};
    check_zeros(&b, zero, rows, blocks, w.bits);
    if (b.rc == BS_OK) b.rc = lower_quant_blocks(c, &w, &quant, err);
  } else {
    const lower_codes w = {data, scale, zero, 1, block, dtype};
    check_constant(&b, zero, rows * blocks, "the zero points do not fit the blocks");
    if (b.rc == BS_OK) b.rc = lower_quant_codes(c, &w, &quant, err);
    if (b.rc == BS_OK && quant == GNONE) build_refuse(&b, 0, "a table of this dtype");
  }
  if (b.rc == BS_OK) b.rc = lower_take_q(c, quant, index, dtype, &y, err);
  build_out(&b, 0, y);
  return b.rc;
}
