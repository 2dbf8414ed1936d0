/* SPDX-License-Identifier: MIT
 * angle.c - inverse trigonometric and hyperbolic functions, from roots, logarithms, sines and powers of e:
 * one `map` each. Cancellation is avoided, so that small numbers keep their digits. */
#include <string.h>

#include "graph/lower/build.h"

static uint8_t step2(lower_map *m, uint8_t op, uint8_t x, uint8_t y) {
  return lower_map_step(m, op, x, y, 0);
}
static uint8_t step1(lower_map *m, uint8_t op, uint8_t x) {
  return lower_map_step(m, op, x, 0, 0);
}
static uint8_t number(lower_map *m, double x) {
  return lower_map_const(m, x);
}

/* y of |x| with the sign of x. */
static uint8_t signed_as(lower_map *m, uint8_t x, uint8_t y) {
  return lower_map_step(m, BS_EXPR_SELECT, step2(m, BS_EXPR_LT, x, number(m, 0)), step1(m, BS_EXPR_NEG, y),
                        y);
}

/* h with sin p = h cos p: a step of Newton's from p, whose error becomes its square. */
static uint8_t nearer(lower_map *m, uint8_t h, uint8_t p) {
  const uint8_t c = step1(m, BS_EXPR_COS, p), s = step1(m, BS_EXPR_SIN, p);
  const uint8_t off = step2(m, BS_EXPR_SUB, step2(m, BS_EXPR_MUL, h, c), s);
  return lower_map_step(m, BS_EXPR_FMA, c, off, p);
}

/* 2 atan(h), h = r / (1 + sqrt(1 + r^2)), r the smaller of |x| and 1/|x|: h is at most 0.415. */
static uint8_t atan_of(lower_map *m, uint8_t x) {
  static const double terms[4] = {8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1};
  const uint8_t one = number(m, 1), size = step1(m, BS_EXPR_ABS, x);
  const uint8_t large = step2(m, BS_EXPR_LT, one, size);
  const uint8_t r = lower_map_step(m, BS_EXPR_SELECT, large, step1(m, BS_EXPR_RECIP, size), size);
  const uint8_t root = step1(m, BS_EXPR_SQRT, lower_map_step(m, BS_EXPR_FMA, r, r, one));
  const uint8_t h = step2(m, BS_EXPR_DIV, r, step2(m, BS_EXPR_ADD, root, one));
  const uint8_t square = step2(m, BS_EXPR_MUL, h, h);
  uint8_t p = number(m, terms[0]);
  for (uint32_t i = 1; i < 4; ++i) p = lower_map_step(m, BS_EXPR_FMA, p, square, number(m, terms[i]));
  p = lower_map_step(m, BS_EXPR_FMA, step2(m, BS_EXPR_MUL, p, square), h, h);
  p = nearer(m, h, nearer(m, h, p));
  p = step2(m, BS_EXPR_ADD, p, p);
  const uint8_t rest = step2(m, BS_EXPR_SUB, number(m, 1.57079632679489661923), p);
  return signed_as(m, x, lower_map_step(m, BS_EXPR_SELECT, large, rest, p));
}

/* atan(x / sqrt((1 - x) (1 + x))) */
static uint8_t asin_of(lower_map *m, uint8_t x) {
  const uint8_t one = number(m, 1);
  const uint8_t less = step2(m, BS_EXPR_SUB, one, x), more = step2(m, BS_EXPR_ADD, one, x);
  const uint8_t root = step1(m, BS_EXPR_SQRT, step2(m, BS_EXPR_MUL, less, more));
  return atan_of(m, step2(m, BS_EXPR_DIV, x, root));
}

/* 2 atan(sqrt((1 - x) / (1 + x))) */
static uint8_t acos_of(lower_map *m, uint8_t x) {
  const uint8_t one = number(m, 1);
  const uint8_t less = step2(m, BS_EXPR_SUB, one, x), more = step2(m, BS_EXPR_ADD, one, x);
  const uint8_t half = atan_of(m, step1(m, BS_EXPR_SQRT, step2(m, BS_EXPR_DIV, less, more)));
  return step2(m, BS_EXPR_ADD, half, half);
}

/* (e^|x| + e^-|x|) / 2, without an infinity before the result is one. */
static uint8_t cosh_of(lower_map *m, uint8_t x) {
  const uint8_t half = number(m, 0.5);
  const uint8_t root = step1(m, BS_EXPR_EXP, step2(m, BS_EXPR_MUL, step1(m, BS_EXPR_ABS, x), half));
  const uint8_t part = step2(m, BS_EXPR_MUL, root, half);
  const uint8_t rest = step2(m, BS_EXPR_DIV, step2(m, BS_EXPR_DIV, half, root), root);
  return lower_map_step(m, BS_EXPR_FMA, root, part, rest);
}

static uint8_t sinh_of(lower_map *m, uint8_t x) {
  return step2(m, BS_EXPR_MUL, step1(m, BS_EXPR_TANH, x), cosh_of(m, x));
}

/* log(1 + w): the logarithm of u, the sum as it was rounded, is off by as much as u - 1 is. */
static uint8_t log_of_more(lower_map *m, uint8_t w) {
  const uint8_t one = number(m, 1), u = step2(m, BS_EXPR_ADD, w, one), d = step2(m, BS_EXPR_SUB, u, one);
  const uint8_t log = step1(m, BS_EXPR_LOG, u);
  const uint8_t near = step2(m, BS_EXPR_MUL, w, step2(m, BS_EXPR_DIV, log, d));
  const uint8_t none = step2(m, BS_EXPR_EQ, d, number(m, 0)),
                large = step2(m, BS_EXPR_LT, number(m, 0x1p60), w);
  return lower_map_step(m, BS_EXPR_SELECT, large, log, lower_map_step(m, BS_EXPR_SELECT, none, w, near));
}

/* log 2 size for a large one, else log(1 + w). */
static uint8_t log_of_twice(lower_map *m, uint8_t size, uint8_t w) {
  const uint8_t large = step2(m, BS_EXPR_LT, number(m, 0x1p60), size);
  const uint8_t log = step2(m, BS_EXPR_ADD, step1(m, BS_EXPR_LOG, size), number(m, 0.69314718055994530942));
  return lower_map_step(m, BS_EXPR_SELECT, large, log, log_of_more(m, w));
}

/* log(x + sqrt(x^2 + 1)): of w = |x| + x^2 / (1 + sqrt(x^2 + 1)). */
static uint8_t asinh_of(lower_map *m, uint8_t x) {
  const uint8_t one = number(m, 1), size = step1(m, BS_EXPR_ABS, x);
  const uint8_t square = step2(m, BS_EXPR_MUL, size, size);
  const uint8_t root = step1(m, BS_EXPR_SQRT, step2(m, BS_EXPR_ADD, square, one));
  const uint8_t more = step2(m, BS_EXPR_DIV, square, step2(m, BS_EXPR_ADD, root, one));
  return signed_as(m, x, log_of_twice(m, size, step2(m, BS_EXPR_ADD, size, more)));
}

/* log(x + sqrt(x^2 - 1)): of w = (x - 1) + sqrt((x - 1) (x + 1)). */
static uint8_t acosh_of(lower_map *m, uint8_t x) {
  const uint8_t one = number(m, 1), less = step2(m, BS_EXPR_SUB, x, one);
  const uint8_t root = step1(m, BS_EXPR_SQRT, step2(m, BS_EXPR_MUL, less, step2(m, BS_EXPR_ADD, x, one)));
  return log_of_twice(m, x, step2(m, BS_EXPR_ADD, less, root));
}

/* log((1 + x) / (1 - x)) / 2: of w = 2 |x| / (1 - |x|). */
static uint8_t atanh_of(lower_map *m, uint8_t x) {
  const uint8_t size = step1(m, BS_EXPR_ABS, x);
  const uint8_t w =
      step2(m, BS_EXPR_DIV, step2(m, BS_EXPR_ADD, size, size), step2(m, BS_EXPR_SUB, number(m, 1), size));
  return signed_as(m, x, step2(m, BS_EXPR_MUL, log_of_more(m, w), number(m, 0.5)));
}

static const struct angle_row {
  const char *op;
  uint8_t (*steps)(lower_map *m, uint8_t x);
} angles[] = {{"Acos", acos_of}, {"Acosh", acosh_of}, {"Asin", asin_of}, {"Asinh", asinh_of},
              {"Atan", atan_of}, {"Atanh", atanh_of}, {"Cosh", cosh_of}, {"Sinh", sinh_of}};

static int32_t angle(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  lower_map m;
  const uint32_t x = build_in(&b, 0), dtype = build_dtype(&b, x);
  build_check(&b, build_is_float(dtype), "the operator takes floats");
  if (b.rc != BS_OK) return b.rc;
  const struct angle_row *row = angles;
  while (strcmp(row->op, node->op) != 0) ++row;
  lower_map_begin(&m, c, lower_compute(dtype));
  build_out(&b, 0, build_map(&b, &m, row->steps(&m, lower_map_in(&m, x)), dtype));
  return b.rc;
}

const lower_rule lower_rules_angle[] = {
    {"Acos", 7, 0, angle, NULL},  {"Acosh", 9, 0, angle, NULL}, {"Asin", 7, 0, angle, NULL},
    {"Asinh", 9, 0, angle, NULL}, {"Atan", 7, 0, angle, NULL},  {"Atanh", 9, 0, angle, NULL},
    {"Cosh", 9, 0, angle, NULL},  {"Sinh", 9, 0, angle, NULL},  {0}};
