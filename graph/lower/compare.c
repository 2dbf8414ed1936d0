/* SPDX-License-Identifier: MIT
 * compare.c - comparisons, logic, choice and conversion: one `map` each. */
#include <string.h>

#include "graph/lower/build.h"

static int32_t compare(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  uint32_t x = build_in(&b, 0), y = build_in(&b, 1);
  build_check(&b, build_dtype(&b, x) == build_dtype(&b, y), "its inputs have different dtypes");
  /* a > b is b < a, also where one is NaN. */
  if (strncmp(node->op, "Greater", 7) == 0) {
    const uint32_t first = x;
    x = y;
    y = first;
  }
  const uint8_t step = strcmp(node->op, "Equal") == 0 ? BS_EXPR_EQ
                       : strstr(node->op, "OrEqual")  ? BS_EXPR_LE
                                                      : BS_EXPR_LT;
  build_out(&b, 0, build_binary(&b, step, x, y, BS_BOOL));
  return b.rc;
}

/* Bit by bit, of integers. */
static int32_t bitwise(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const char *name = node->op + strlen("Bitwise");
  const uint32_t x = build_in(&b, 0), dtype = build_dtype(&b, x);
  build_check(&b, !build_is_float(dtype) && dtype != BS_BOOL, "the operator takes integers");
  if (b.rc != BS_OK) return b.rc;
  if (name[0] == 'N') {
    lower_map m;
    lower_map_begin(&m, c, BS_I64);
    const uint8_t y = lower_map_step(&m, BS_EXPR_XOR, lower_map_in(&m, x), lower_map_const_int(&m, -1), 0);
    build_out(&b, 0, build_map(&b, &m, y, dtype));
    return b.rc;
  }
  const uint32_t y = build_in(&b, 1);
  build_check(&b, build_dtype(&b, y) == dtype, "its inputs have different dtypes");
  const uint8_t step = name[0] == 'A' ? BS_EXPR_AND : name[0] == 'O' ? BS_EXPR_OR : BS_EXPR_XOR;
  build_out(&b, 0, build_binary(&b, step, x, y, dtype));
  return b.rc;
}

static int32_t logic(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0);
  build_check(&b, build_dtype(&b, x) == BS_BOOL, "the operator takes bool");
  if (strcmp(node->op, "Not") == 0) {
    build_out(&b, 0, build_unary(&b, BS_EXPR_NOT, x, BS_BOOL));
    return b.rc;
  }
  const uint32_t y = build_in(&b, 1);
  build_check(&b, build_dtype(&b, y) == BS_BOOL, "the operator takes bool");
  const uint8_t step = node->op[0] == 'A' ? BS_EXPR_AND : node->op[0] == 'O' ? BS_EXPR_OR : BS_EXPR_XOR;
  build_out(&b, 0, build_binary(&b, step, x, y, BS_BOOL));
  return b.rc;
}

static int32_t is_nan(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0);
  build_check(&b, build_is_float(build_dtype(&b, x)), "the operator takes floats");
  build_out(&b, 0, build_unary(&b, BS_EXPR_ISNAN, x, BS_BOOL));
  return b.rc;
}

static int32_t is_inf(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  lower_map m;
  const uint32_t x = build_in(&b, 0);
  build_check(&b, build_is_float(build_dtype(&b, x)), "the operator takes floats");
  if (b.rc != BS_OK) return b.rc;
  const int negative = lower_int(node, "detect_negative", 1) != 0;
  const int positive = lower_int(node, "detect_positive", 1) != 0;
  lower_map_begin(&m, c, lower_compute(build_dtype(&b, x)));
  const uint8_t v = lower_map_in(&m, x), zero = lower_map_const(&m, 0);
  uint8_t y = lower_map_step(&m, BS_EXPR_ISINF, v, 0, 0);
  if (!negative) y = lower_map_step(&m, BS_EXPR_AND, y, lower_map_step(&m, BS_EXPR_LT, zero, v, 0), 0);
  if (!positive) y = lower_map_step(&m, BS_EXPR_AND, y, lower_map_step(&m, BS_EXPR_LT, v, zero, 0), 0);
  build_out(&b, 0, build_map(&b, &m, y, BS_BOOL));
  return b.rc;
}

static int32_t where(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t condition = build_in(&b, 0), x = build_in(&b, 1), y = build_in(&b, 2);
  build_check(&b, build_dtype(&b, condition) == BS_BOOL, "the condition is not bool");
  build_check(&b, build_dtype(&b, x) == build_dtype(&b, y), "X and Y have different dtypes");
  build_out(&b, 0, build_select(&b, condition, x, y));
  return b.rc;
}

/* Conversions to a float of eight bits saturate unless the attribute says otherwise, also infinities. */
static uint32_t convert(build *b, uint32_t x, uint32_t dtype) {
  const double most = dtype == BS_F8E4M3 ? 448 : dtype == BS_F8E5M2 ? 57344 : 0;
  const uint32_t from = build_dtype(b, x);
  if (most == 0 || from == dtype || b->rc != BS_OK) return build_cast(b, x, dtype);
  if (!lower_int(b->node, "saturate", 1)) {
    if (dtype == BS_F8E4M3) build_refuse(b, dtype, "a cast to f8e4m3 saturates always");
    return build_cast(b, x, dtype);
  }
  lower_map m;
  lower_map_begin(&m, b->c, from == BS_F64 ? BS_F64 : BS_F32);
  const uint8_t low = lower_map_const(&m, -most), high = lower_map_const(&m, most);
  const uint8_t above = lower_map_step(&m, BS_EXPR_MAX, lower_map_in(&m, x), low, 0);
  return build_map(b, &m, lower_map_step(&m, BS_EXPR_MIN, above, high, 0), dtype);
}

/* A quantised constant stays so in another float; of a float constant it is known what was cast. */
static uint32_t cast_of(build *b, uint32_t x, uint32_t dtype) {
  uint32_t y = GNONE;
  if (b->rc != BS_OK) return GNONE;
  const int quant = lower_is_quant(b->c, x);
  if (quant && build_is_float(dtype)) {
    b->rc = lower_quant_cast(b->c, x, dtype, &y, b->err);
    return b->rc == BS_OK ? y : GNONE;
  }
  if (quant) b->rc = lower_wide(b->c, b->node, x, &x, b->err);
  const int matrix = b->rc == BS_OK && build_rank(b, x) == 2 && lower_is_const(b->c, x) &&
                     build_is_float(build_dtype(b, x)) && build_is_float(dtype) && build_dtype(b, x) != dtype;
  y = b->rc == BS_OK ? convert(b, x, dtype) : GNONE;
  if (matrix && y != GNONE) b->rc = lower_note_cast(b->c, y, x, b->err);
  return b->rc == BS_OK ? y : GNONE;
}

static int32_t cast(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0);
  const int64_t to = lower_int(node, "to", 0);
  const uint32_t dtype = build_onnx_dtype(to);
  if (to < 1 || to > 31) return lower_bad(c, node, err, "its attribute 'to' is %lld, no type", (long long)to);
  if (dtype == 0) return lower_unsupported(c, node, 0, err, "a cast to the ONNX type %lld", (long long)to);
  build_out(&b, 0, cast_of(&b, x, dtype));
  return b.rc;
}

static int32_t cast_like(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0), like = build_in(&b, 1);
  build_out(&b, 0, convert(&b, x, build_dtype(&b, like)));
  return b.rc;
}

const lower_rule lower_rules_compare[] = {{"Equal", 7, 0, compare, NULL},
                                          {"Less", 7, 0, compare, NULL},
                                          {"LessOrEqual", 12, 0, compare, NULL},
                                          {"Greater", 7, 0, compare, NULL},
                                          {"GreaterOrEqual", 12, 0, compare, NULL},
                                          {"And", 7, 0, logic, NULL},
                                          {"Or", 7, 0, logic, NULL},
                                          {"Xor", 7, 0, logic, NULL},
                                          {"Not", 1, 0, logic, NULL},
                                          {"BitwiseAnd", 18, 0, bitwise, NULL},
                                          {"BitwiseOr", 18, 0, bitwise, NULL},
                                          {"BitwiseXor", 18, 0, bitwise, NULL},
                                          {"BitwiseNot", 18, 0, bitwise, NULL},
                                          {"IsNaN", 9, 0, is_nan, NULL},
                                          {"IsInf", 10, 0, is_inf, NULL},
                                          {"Where", 9, 0, where, NULL},
                                          {"Cast", 9, 0, cast, NULL},
                                          {"CastLike", 15, 0, cast_like, NULL},
                                          {0}};
