/* SPDX-License-Identifier: MIT
 * elementwise.c - arithmetic, functions and activations: one `map` each. */
#include <math.h>
#include <string.h>

#include "graph/lower/build.h"

/* Operators that are one step. FLOATS: defined for floats only. */
enum { ANY_NUMBER = 0, FLOATS = 1 };
typedef struct step_row {
  const char *op;
  uint8_t step, floats;
} step_row;

static const step_row unary_steps[] = {{"Abs", BS_EXPR_ABS, ANY_NUMBER},
                                       {"Neg", BS_EXPR_NEG, ANY_NUMBER},
                                       {"Sign", BS_EXPR_SIGN, ANY_NUMBER},
                                       {"Floor", BS_EXPR_FLOOR, FLOATS},
                                       {"Ceil", BS_EXPR_CEIL, FLOATS},
                                       {"Round", BS_EXPR_ROUND, FLOATS},
                                       {"Sqrt", BS_EXPR_SQRT, FLOATS},
                                       {"Exp", BS_EXPR_EXP, FLOATS},
                                       {"Log", BS_EXPR_LOG, FLOATS},
                                       {"Sin", BS_EXPR_SIN, FLOATS},
                                       {"Cos", BS_EXPR_COS, FLOATS},
                                       {"Tanh", BS_EXPR_TANH, FLOATS},
                                       {"Erf", BS_EXPR_ERF, FLOATS},
                                       {"Sigmoid", BS_EXPR_SIGMOID, FLOATS},
                                       {"Softplus", BS_EXPR_SOFTPLUS, FLOATS},
                                       {"Reciprocal", BS_EXPR_RECIP, FLOATS},
                                       {0}};

static const step_row binary_steps[] = {{"Add", BS_EXPR_ADD, ANY_NUMBER},
                                        {"Sub", BS_EXPR_SUB, ANY_NUMBER},
                                        {"Mul", BS_EXPR_MUL, ANY_NUMBER},
                                        {"Div", BS_EXPR_DIV, ANY_NUMBER},
                                        {0}};

static const step_row variadic_steps[] = {{"Min", BS_EXPR_MIN, ANY_NUMBER},
                                          {"Max", BS_EXPR_MAX, ANY_NUMBER},
                                          {"Sum", BS_EXPR_ADD, FLOATS},
                                          {"Mean", BS_EXPR_ADD, FLOATS},
                                          {0}};

static const step_row *find_step(const step_row *rows, const char *op) {
  while (rows->op != NULL && strcmp(rows->op, op) != 0) ++rows;
  return rows;
}

/* The dtype of the node's first input, which must be one that the operator takes. */
static uint32_t checked_dtype(build *b, const step_row *row) {
  const uint32_t dtype = build_dtype(b, build_in(b, 0));
  build_check(b, dtype != BS_BOOL, "the operator takes numbers, not bool");
  build_check(b, !row->floats || build_is_float(dtype), "the operator takes floats, not integers");
  return dtype;
}

/* The values must have one dtype. */
static void check_alike(build *b, uint32_t x, uint32_t y) {
  build_check(b, build_dtype(b, x) == build_dtype(b, y), "its inputs have different dtypes");
}

static int32_t unary(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const step_row *row = find_step(unary_steps, node->op);
  const uint32_t dtype = checked_dtype(&b, row);
  build_out(&b, 0, build_unary(&b, row->step, build_in(&b, 0), dtype));
  return b.rc;
}

static int32_t binary(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const step_row *row = find_step(binary_steps, node->op);
  const uint32_t dtype = checked_dtype(&b, row), x = build_in(&b, 0), y = build_in(&b, 1);
  check_alike(&b, x, y);
  build_out(&b, 0, build_binary(&b, row->step, x, y, dtype));
  return b.rc;
}

/* Any number of inputs: chains of programs of eight inputs. */
static int32_t variadic(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const step_row *row = find_step(variadic_steps, node->op);
  const uint32_t dtype = checked_dtype(&b, row);
  const int mean = strcmp(node->op, "Mean") == 0;
  uint32_t sum = build_in(&b, 0);
  for (uint32_t i = 1; (i < node->n_in || (mean && i == 1)) && b.rc == BS_OK;) {
    lower_map m;
    lower_map_begin(&m, c, lower_compute(dtype));
    uint8_t acc = lower_map_in(&m, sum);
    for (const uint32_t end = i + 8; i < end && i < node->n_in && b.rc == BS_OK; ++i) {
      const uint32_t next = build_in(&b, i);
      check_alike(&b, sum, next);
      if (b.rc == BS_OK) acc = lower_map_step(&m, row->step, acc, lower_map_in(&m, next), 0);
    }
    const int last = i >= node->n_in;
    if (mean && last) acc = lower_map_step(&m, BS_EXPR_DIV, acc, lower_map_const(&m, (double)node->n_in), 0);
    sum = build_map(&b, &m, acc, dtype);
    if (last) break;
  }
  build_out(&b, 0, sum);
  return b.rc;
}

/* 1: a constant whose numbers f32 holds exactly. */
static int small_numbers(build *b, uint32_t value) {
  enum { MOST = 64 };
  const build_shape shape = build_shape_of(b, value);
  const int64_t n = build_elements(&shape);
  int64_t numbers[MOST];
  if (b->rc != BS_OK || !lower_is_const(b->c, value) || n > MOST) return 0;
  const uint32_t read = build_read_ints(b, value, "its exponent", numbers, MOST);
  for (uint32_t i = 0; i < read; ++i) {
    if (numbers[i] < -(1 << 24) || numbers[i] > 1 << 24) return 0;
  }
  return b->rc == BS_OK;
}

/* A float to an integer power in f64. No float holds each integer: whether the exponent is odd, which decides
 * the sign, is found in i64. The base -0 has a sign too: its reciprocal is -Inf. */
static uint32_t integer_power(build *b, uint32_t x, uint32_t y) {
  lower_map m;
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, BS_I64);
  const uint8_t n = lower_map_in(&m, y);
  const uint8_t rest = lower_map_step(&m, BS_EXPR_FMOD, n, lower_map_const_int(&m, 2), 0);
  const uint32_t even =
      build_map(b, &m, lower_map_step(&m, BS_EXPR_EQ, rest, lower_map_const_int(&m, 0), 0), BS_BOOL);
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, BS_F64);
  const uint8_t v = lower_map_in(&m, x), zero = lower_map_const(&m, 0);
  const uint8_t size =
      lower_map_step(&m, BS_EXPR_POW, lower_map_step(&m, BS_EXPR_ABS, v, 0, 0), lower_map_in(&m, y), 0);
  const uint8_t below =
      lower_map_step(&m, BS_EXPR_OR, lower_map_step(&m, BS_EXPR_LT, v, zero, 0),
                     lower_map_step(&m, BS_EXPR_LT, lower_map_step(&m, BS_EXPR_RECIP, v, 0, 0), zero, 0), 0);
  const uint8_t negative = lower_map_step(&m, BS_EXPR_AND, below,
                                          lower_map_step(&m, BS_EXPR_NOT, lower_map_in(&m, even), 0, 0), 0);
  return build_map(
      b, &m, lower_map_step(&m, BS_EXPR_SELECT, negative, lower_map_step(&m, BS_EXPR_NEG, size, 0, 0), size),
      build_dtype(b, x));
}

/* Base and exponent may differ in dtype; the result has the base's. */
static int32_t power(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  lower_map m;
  const uint32_t x = build_in(&b, 0), y = build_in(&b, 1);
  const uint32_t tx = build_dtype(&b, x), ty = build_dtype(&b, y);
  build_check(&b, tx != BS_BOOL && ty != BS_BOOL, "the operator takes numbers, not bool");
  const int floats = build_is_float(tx) || build_is_float(ty),
            mixed = build_is_float(tx) != build_is_float(ty);
  const uint32_t wide = (tx == BS_F64 || ty == BS_F64 || mixed) ? BS_F64 : BS_F32;
  if (b.rc != BS_OK) return b.rc;
  if (mixed && build_is_float(tx) && !small_numbers(&b, y)) {
    build_out(&b, 0, integer_power(&b, x, y));
    return b.rc;
  }
  lower_map_begin(&m, c, floats ? (tx == BS_F32 && mixed ? BS_F32 : wide) : BS_I64);
  const uint8_t vx = lower_map_in(&m, x), vy = lower_map_in(&m, y);
  build_out(&b, 0, build_map(&b, &m, lower_map_step(&m, BS_EXPR_POW, vx, vy, 0), tx));
  return b.rc;
}

/* fmod 1: C's remainder, the sign of the dividend; 0: the sign of the divisor (integers; since opset 28
 * floats too). A float remainder of 0 takes the divisor's sign. */
static int32_t modulo(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  lower_map m;
  const uint32_t x = build_in(&b, 0), y = build_in(&b, 1), dtype = build_dtype(&b, x);
  check_alike(&b, x, y);
  build_check(&b, dtype != BS_BOOL, "the operator takes numbers, not bool");
  const int fmod = lower_int(node, "fmod", 0) != 0;
  build_check(&b, fmod || !build_is_float(dtype) || node->opset >= 28, "fmod must be 1 for floats");
  if (b.rc != BS_OK) return b.rc;
  lower_map_begin(&m, c, lower_compute(dtype));
  const uint8_t vx = lower_map_in(&m, x), vy = lower_map_in(&m, y);
  uint8_t r = lower_map_step(&m, BS_EXPR_FMOD, vx, vy, 0);
  if (!fmod) {
    const uint8_t zero = lower_map_const(&m, 0);
    const uint8_t signs = lower_map_step(&m, BS_EXPR_XOR, lower_map_step(&m, BS_EXPR_LT, r, zero, 0),
                                         lower_map_step(&m, BS_EXPR_LT, vy, zero, 0), 0);
    /* Both comparisons give 0 or 1; a remainder of zero is never moved. */
    const uint8_t none = lower_map_step(&m, BS_EXPR_EQ, r, zero, 0);
    const uint8_t moved =
        lower_map_step(&m, BS_EXPR_SELECT, signs, lower_map_step(&m, BS_EXPR_ADD, r, vy, 0), r);
    uint8_t at_zero = r;
    if (build_is_float(dtype))
      at_zero = lower_map_step(&m, BS_EXPR_MUL, lower_map_step(&m, BS_EXPR_SIGN, vy, 0, 0), zero, 0);
    r = lower_map_step(&m, BS_EXPR_SELECT, none, at_zero, moved);
  }
  const uint32_t out = build_map(&b, &m, r, dtype);
  build_out(&b, 0, out);
  return b.rc;
}

/* Bounds are inputs since opset 11, attributes before; each may be absent. A lower bound above the upper one
 * gives the upper. */
static int32_t clip(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  lower_map m;
  const uint32_t x = build_in(&b, 0), dtype = build_dtype(&b, x);
  if (b.rc != BS_OK) return b.rc;
  lower_map_begin(&m, c, lower_compute(dtype));
  uint8_t y = lower_map_in(&m, x);
  for (uint32_t i = 1; i <= 2; ++i) {
    uint32_t bound = build_optional(&b, i);
    const double given = lower_float(node, i == 1 ? "min" : "max", NAN);
    if (node->opset < 11 && !isnan(given)) bound = build_real(&b, dtype, given);
    if (bound == GNONE) continue;
    const build_shape shape = build_shape_of(&b, bound);
    check_alike(&b, x, bound);
    build_check(&b, build_elements(&shape) == 1, "a bound has more than one element");
    if (b.rc != BS_OK) return b.rc;
    const build_shape scalar = {0};
    const uint8_t limit = lower_map_in(&m, build_reshape(&b, bound, &scalar));
    y = lower_map_step(&m, i == 1 ? BS_EXPR_MAX : BS_EXPR_MIN, y, limit, 0);
  }
  build_out(&b, 0, m.expr.n_steps == 0 ? x : build_map(&b, &m, y, dtype));
  return b.rc;
}

/* ---- activations: a function of the first input (and SwiGLU's second) -------------------------- */

static uint8_t relu(lower_map *m, const gmodel_node *node, uint8_t x) {
  (void)node;
  return lower_map_step(m, BS_EXPR_MAX, x, lower_map_const(m, 0), 0);
}

static uint8_t gelu(lower_map *m, const gmodel_node *node, uint8_t x) {
  const int by_tanh = strcmp(lower_text(node, "approximate", "none"), "tanh") == 0;
  return lower_map_step(m, by_tanh ? BS_EXPR_GELU_TANH : BS_EXPR_GELU, x, 0, 0);
}

static uint8_t swish(lower_map *m, const gmodel_node *node, uint8_t x) {
  const double alpha = lower_float(node, "alpha", 1);
  if (alpha == 1) return lower_map_step(m, BS_EXPR_SILU, x, 0, 0);
  const uint8_t scaled = lower_map_step(m, BS_EXPR_MUL, x, lower_map_const(m, alpha), 0);
  return lower_map_step(m, BS_EXPR_MUL, x, lower_map_step(m, BS_EXPR_SIGMOID, scaled, 0, 0), 0);
}

/* max(0, min(1, alpha x + beta)) */
static uint8_t hard_sigmoid_of(lower_map *m, uint8_t x, double alpha, double beta) {
  const uint8_t line = lower_map_step(m, BS_EXPR_FMA, x, lower_map_const(m, alpha), lower_map_const(m, beta));
  const uint8_t below = lower_map_step(m, BS_EXPR_MIN, line, lower_map_const(m, 1), 0);
  return lower_map_step(m, BS_EXPR_MAX, below, lower_map_const(m, 0), 0);
}

static uint8_t hard_sigmoid(lower_map *m, const gmodel_node *node, uint8_t x) {
  return hard_sigmoid_of(m, x, lower_float(node, "alpha", 0.2f), lower_float(node, "beta", 0.5f));
}

static uint8_t hard_swish(lower_map *m, const gmodel_node *node, uint8_t x) {
  (void)node;
  return lower_map_step(m, BS_EXPR_MUL, x, hard_sigmoid_of(m, x, 1.0 / 6.0, 0.5), 0);
}

static uint8_t mish(lower_map *m, const gmodel_node *node, uint8_t x) {
  (void)node;
  const uint8_t soft = lower_map_step(m, BS_EXPR_SOFTPLUS, x, 0, 0);
  return lower_map_step(m, BS_EXPR_MUL, x, lower_map_step(m, BS_EXPR_TANH, soft, 0, 0), 0);
}

static uint8_t leaky_relu(lower_map *m, const gmodel_node *node, uint8_t x) {
  const uint8_t slope = lower_map_const(m, lower_float(node, "alpha", 0.01f));
  const uint8_t negative = lower_map_step(m, BS_EXPR_LT, x, lower_map_const(m, 0), 0);
  return lower_map_step(m, BS_EXPR_SELECT, negative, lower_map_step(m, BS_EXPR_MUL, x, slope, 0), x);
}

static uint8_t elu(lower_map *m, const gmodel_node *node, uint8_t x) {
  const uint8_t e = lower_map_step(m, BS_EXPR_EXP, x, 0, 0);
  const uint8_t less = lower_map_step(m, BS_EXPR_SUB, e, lower_map_const(m, 1), 0);
  const uint8_t scaled =
      lower_map_step(m, BS_EXPR_MUL, less, lower_map_const(m, lower_float(node, "alpha", 1)), 0);
  const uint8_t negative = lower_map_step(m, BS_EXPR_LT, x, lower_map_const(m, 0), 0);
  return lower_map_step(m, BS_EXPR_SELECT, negative, scaled, x);
}

/* alpha (e^x - 1) of x <= 0, else x, times gamma. */
static uint8_t selu(lower_map *m, const gmodel_node *node, uint8_t x) {
  const double alpha = lower_float(node, "alpha", 1.67326319217681884765625),
               gamma = lower_float(node, "gamma", 1.05070102214813232421875);
  const uint8_t e = lower_map_step(m, BS_EXPR_EXP, x, 0, 0);
  const uint8_t less = lower_map_step(m, BS_EXPR_SUB, e, lower_map_const(m, 1), 0);
  const uint8_t low = lower_map_step(m, BS_EXPR_MUL, less, lower_map_const(m, alpha), 0);
  const uint8_t negative = lower_map_step(m, BS_EXPR_LE, x, lower_map_const(m, 0), 0);
  return lower_map_step(m, BS_EXPR_MUL, lower_map_step(m, BS_EXPR_SELECT, negative, low, x),
                        lower_map_const(m, gamma), 0);
}

/* max(0, x) + min(0, alpha (e^(x / alpha) - 1)) */
static uint8_t celu(lower_map *m, const gmodel_node *node, uint8_t x) {
  const uint8_t alpha = lower_map_const(m, lower_float(node, "alpha", 1)), zero = lower_map_const(m, 0);
  const uint8_t e = lower_map_step(m, BS_EXPR_EXP, lower_map_step(m, BS_EXPR_DIV, x, alpha, 0), 0, 0);
  const uint8_t less = lower_map_step(m, BS_EXPR_SUB, e, lower_map_const(m, 1), 0);
  const uint8_t low = lower_map_step(m, BS_EXPR_MIN, lower_map_step(m, BS_EXPR_MUL, less, alpha, 0), zero, 0);
  return lower_map_step(m, BS_EXPR_ADD, lower_map_step(m, BS_EXPR_MAX, x, zero, 0), low, 0);
}

static uint8_t thresholded_relu(lower_map *m, const gmodel_node *node, uint8_t x) {
  const uint8_t above =
      lower_map_step(m, BS_EXPR_LT, lower_map_const(m, lower_float(node, "alpha", 1)), x, 0);
  return lower_map_step(m, BS_EXPR_SELECT, above, x, lower_map_const(m, 0));
}

static uint8_t softsign(lower_map *m, const gmodel_node *node, uint8_t x) {
  (void)node;
  const uint8_t size = lower_map_step(m, BS_EXPR_ABS, x, 0, 0);
  return lower_map_step(m, BS_EXPR_DIV, x, lower_map_step(m, BS_EXPR_ADD, size, lower_map_const(m, 1), 0), 0);
}

static uint8_t tangent(lower_map *m, const gmodel_node *node, uint8_t x) {
  (void)node;
  return lower_map_step(m, BS_EXPR_DIV, lower_map_step(m, BS_EXPR_SIN, x, 0, 0),
                        lower_map_step(m, BS_EXPR_COS, x, 0, 0), 0);
}

/* x + bias below -lambd, x - bias above lambd, else 0 */
static uint8_t shrink(lower_map *m, const gmodel_node *node, uint8_t x) {
  const double lambd = lower_float(node, "lambd", 0.5);
  const uint8_t bias = lower_map_const(m, lower_float(node, "bias", 0));
  const uint8_t above = lower_map_step(m, BS_EXPR_LT, lower_map_const(m, lambd), x, 0);
  const uint8_t below = lower_map_step(m, BS_EXPR_LT, x, lower_map_const(m, -lambd), 0);
  const uint8_t high = lower_map_step(m, BS_EXPR_SELECT, above, lower_map_step(m, BS_EXPR_SUB, x, bias, 0),
                                      lower_map_const(m, 0));
  return lower_map_step(m, BS_EXPR_SELECT, below, lower_map_step(m, BS_EXPR_ADD, x, bias, 0), high);
}

static const struct activation_row {
  const char *op;
  uint8_t (*steps)(lower_map *m, const gmodel_node *node, uint8_t x);
} activations[] = {{"Relu", relu},
                   {"Gelu", gelu},
                   {"Swish", swish},
                   {"SwiGLU", swish},
                   {"Mish", mish},
                   {"HardSigmoid", hard_sigmoid},
                   {"HardSwish", hard_swish},
                   {"LeakyRelu", leaky_relu},
                   {"Elu", elu},
                   {"Selu", selu},
                   {"Celu", celu},
                   {"ThresholdedRelu", thresholded_relu},
                   {"Softsign", softsign},
                   {"Tan", tangent},
                   {"Shrink", shrink}};

static int32_t activation(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  lower_map m;
  const uint32_t x = build_in(&b, 0), dtype = build_dtype(&b, x);
  const struct activation_row *row = activations;
  while (strcmp(row->op, node->op) != 0) ++row;
  if (row->steps == shrink && !build_is_float(dtype)) build_refuse(&b, dtype, "integers");
  build_check(&b, build_is_float(dtype) || (row->steps == relu && dtype != BS_BOOL),
              "the operator takes floats");
  if (b.rc != BS_OK) return b.rc;
  lower_map_begin(&m, c, lower_compute(dtype));
  uint8_t y = row->steps(&m, node, lower_map_in(&m, x));
  if (strcmp(node->op, "SwiGLU") == 0) {
    const uint32_t up = build_in(&b, 1);
    const build_shape sx = build_shape_of(&b, x), su = build_shape_of(&b, up);
    build_check(&b, build_same(&sx, &su), "A and B differ in shape");
    check_alike(&b, x, up);
    if (b.rc == BS_OK) y = lower_map_step(&m, BS_EXPR_MUL, y, lower_map_in(&m, up), 0);
  }
  build_out(&b, 0, build_map(&b, &m, y, dtype));
  return b.rc;
}

/* slope x of x < 0, else x; slope broadcasts to x. */
static int32_t prelu(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  lower_map m;
  const uint32_t x = build_in(&b, 0), slope = build_in(&b, 1), dtype = build_dtype(&b, x);
  const build_shape shape = build_shape_of(&b, x);
  check_alike(&b, x, slope);
  build_check(&b, dtype != BS_BOOL, "the operator takes numbers, not bool");
  const uint32_t row = build_expand(&b, slope, &shape);
  if (b.rc != BS_OK) return b.rc;
  lower_map_begin(&m, c, lower_compute(dtype));
  const uint8_t v = lower_map_in(&m, x), low = lower_map_step(&m, BS_EXPR_MUL, v, lower_map_in(&m, row), 0);
  const uint8_t negative = lower_map_step(&m, BS_EXPR_LT, v, lower_map_const(&m, 0), 0);
  build_out(&b, 0, build_map(&b, &m, lower_map_step(&m, BS_EXPR_SELECT, negative, low, v), dtype));
  return b.rc;
}

const lower_rule lower_rules_elementwise[] = {{"Abs", 6, 0, unary, NULL},
                                              {"Neg", 6, 0, unary, NULL},
                                              {"Sign", 9, 0, unary, NULL},
                                              {"Floor", 6, 0, unary, NULL},
                                              {"Ceil", 6, 0, unary, NULL},
                                              {"Round", 11, 0, unary, NULL},
                                              {"Sqrt", 6, 0, unary, NULL},
                                              {"Exp", 6, 0, unary, NULL},
                                              {"Log", 6, 0, unary, NULL},
                                              {"Sin", 7, 0, unary, NULL},
                                              {"Cos", 7, 0, unary, NULL},
                                              {"Tanh", 6, 0, unary, NULL},
                                              {"Erf", 9, 0, unary, NULL},
                                              {"Sigmoid", 6, 0, unary, NULL},
                                              {"Softplus", 1, 0, unary, NULL},
                                              {"Reciprocal", 6, 0, unary, NULL},
                                              {"Add", 7, 0, binary, NULL},
                                              {"Sub", 7, 0, binary, NULL},
                                              {"Mul", 7, 0, binary, NULL},
                                              {"Div", 7, 0, binary, NULL},
                                              {"Min", 8, 0, variadic, NULL},
                                              {"Max", 8, 0, variadic, NULL},
                                              {"Sum", 8, 0, variadic, NULL},
                                              {"Mean", 8, 0, variadic, NULL},
                                              {"Pow", 7, 0, power, NULL},
                                              {"Mod", 10, 0, modulo, NULL},
                                              {"Clip", 6, 0, clip, NULL},
                                              {"Relu", 6, 0, activation, NULL},
                                              {"Gelu", 20, 0, activation, NULL},
                                              {"Swish", 24, 0, activation, NULL},
                                              {"SwiGLU", 28, 0, activation, NULL},
                                              {"Mish", 18, 0, activation, NULL},
                                              {"HardSigmoid", 6, 0, activation, NULL},
                                              {"HardSwish", 14, 0, activation, NULL},
                                              {"LeakyRelu", 6, 0, activation, NULL},
                                              {"Elu", 6, 0, activation, NULL},
                                              {"Selu", 6, 0, activation, NULL},
                                              {"Celu", 12, 0, activation, NULL},
                                              {"ThresholdedRelu", 10, 0, activation, NULL},
                                              {"Softsign", 1, 0, activation, NULL},
                                              {"Tan", 7, 0, activation, NULL},
                                              {"Shrink", 9, 0, activation, NULL},
                                              {"PRelu", 7, 0, prelu, NULL},
                                              {0}};
