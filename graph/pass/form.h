/* SPDX-License-Identifier: MIT
 * form.h - what a program of map computes, read from its steps: sums, products, polynomials. A pass may
 * replace a program only where its form says so. Every step that a form does not know (min, max, select,
 * compare, isnan, conversions ..) is an operand like an input, so a clamp or a repair is never lost. */
#ifndef BS_GRAPH_PASS_FORM_H
#define BS_GRAPH_PASS_FORM_H
#include "graph/ir/graph.h"

/* A program, and the dtype of its outputs: inside it, a conversion to that dtype is round-off and is looked
 * through. Any other conversion is an operand. */
typedef struct form {
  const gexpr *e;
  uint32_t rounds; /* 0: no conversion is looked through */
} form;

enum { FORM_MAX = 8 };

/* constant + sum of factor[i] * operand[i]; operands differ. */
typedef struct form_sum {
  uint32_t n, has_constant; /* has_constant: there is one, also where it is 0 */
  double constant;
  uint8_t operand[FORM_MAX];
  double factor[FORM_MAX];
} form_sum;

/* factor * product of operand[i] ^ power[i]; operands differ. */
typedef struct form_product {
  uint32_t n;
  double factor;
  uint8_t operand[FORM_MAX];
  double power[FORM_MAX];
} form_product;

/* The program of a map, with the dtype that all its outputs have. */
form form_of(const graph *g, const gnode *map);
/* The operand before the moves and conversions that do not count. */
uint8_t form_operand(const form *f, uint8_t operand);
/* The op of the step that gives an operand, and the step's number; 0: an input or a constant. */
uint8_t form_op(const form *f, uint8_t operand, uint32_t *out_step);
/* 0: the form cannot hold it: too many operands, a factor that is 0 or infinite, or terms that cancel. */
int form_sum_of(const form *f, uint8_t operand, form_sum *out);
int form_product_of(const form *f, uint8_t operand, form_product *out);
/* A constant that an exporter may have rounded to f32: equal within a few roundings of the compute dtype. */
int form_near(const form *f, double value, double wanted);
int form_is_const(const form *f, uint8_t operand, double *out_value);

/* operand == factor * of, factor != 0. */
int form_is_scaled(const form *f, uint8_t operand, uint8_t of, double *out_factor);
/* The sum of these operands, each once, and nothing else. */
int form_is_sum(const form *f, uint8_t operand, const uint8_t *terms, const double *factors, uint32_t n);
/* The product of these operands with these powers, and nothing else. */
int form_is_product(const form *f, uint8_t operand, const uint8_t *factors, const double *powers, uint32_t n);

/* Coefficients of x^i t^k, i to 3, k to 1. */
typedef struct form_poly {
  double c[4][2];
} form_poly;
/* operand as a polynomial of the operands x and t (GX_NO_OPERAND: of x alone). */
enum { GX_NO_OPERAND = 255 };
int form_poly_of(const form *f, uint8_t operand, uint8_t x, uint8_t t, form_poly *out);
#endif
