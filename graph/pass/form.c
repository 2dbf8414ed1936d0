/* SPDX-License-Identifier: MIT
 * form.c - sums and products of a program. */
#include "graph/pass/form.h"

#include <math.h>
#include <string.h>

#include "core/base/dtype.h"
#include "graph/ir/query.h"

form form_of(const graph *g, const gnode *map) {
  const uint32_t dtype = g->values[map->out[0]].dtype;
  int alike = bs_dtype_is_float(dtype);
  for (uint32_t i = 1; i < map->n_out; i++) alike &= g->values[map->out[i]].dtype == dtype;
  return (form){&g->exprs[map->expr], alike ? dtype : 0};
}

uint8_t form_op(const form *f, uint8_t operand, uint32_t *out_step) {
  if (operand < GX_STEP) return 0;
  *out_step = operand - (uint32_t)GX_STEP;
  return f->e->steps[*out_step].op;
}

/* Steps that give 0 or 1, so that a conversion to bool changes nothing. */
static int is_truth(uint8_t op) {
  return op == BS_EXPR_NOT || op == BS_EXPR_ISNAN || op == BS_EXPR_ISINF || op == BS_EXPR_LT ||
         op == BS_EXPR_LE || op == BS_EXPR_EQ || op == BS_EXPR_AND || op == BS_EXPR_OR || op == BS_EXPR_XOR;
}

uint8_t form_operand(const form *f, uint8_t operand) {
  uint32_t i, inner;
  for (;;) {
    const uint8_t op = form_op(f, operand, &i);
    if (op != BS_EXPR_MOV && op != BS_EXPR_TO) return operand;
    const uint32_t to = op == BS_EXPR_TO ? (uint32_t)f->e->steps[i].b << 8 | f->e->steps[i].c : 0;
    const int truth = to == BS_BOOL && is_truth(form_op(f, f->e->steps[i].a, &inner));
    if (op == BS_EXPR_TO && !truth && to != f->rounds) return operand; /* no dtype is 0 */
    operand = f->e->steps[i].a;
  }
}

int form_is_const(const form *f, uint8_t operand, double *out_value) {
  operand = form_operand(f, operand);
  if (operand < GX_CONST || operand >= GX_STEP || f->e->compute == BS_I64) return 0;
  memcpy(out_value, &f->e->consts[operand - GX_CONST], sizeof *out_value);
  return 1;
}

/* Four roundings of f32: a constant of two factors, each rounded once. An f64 program has f64 constants. */
int form_near(const form *f, double value, double wanted) {
  const double share = f->e->compute == BS_F64 ? 0x1p-50 : 0x1p-22;
  return fabs(value - wanted) <= share * fabs(wanted);
}

/* ---- sums ------------------------------------------------------------------------------------ */

static int usable(double factor) {
  return isfinite(factor) && factor != 0;
}

static int add_term(form_sum *s, uint8_t operand, double factor) {
  uint32_t i = 0;
  while (i < s->n && s->operand[i] != operand) i++;
  if (i == FORM_MAX) return 0;
  if (i == s->n) {
    s->operand[s->n] = operand;
    s->factor[s->n++] = 0;
  }
  s->factor[i] += factor;
  return usable(s->factor[i]);
}

/* A step that multiplies one operand by a constant; `out_factor` is multiplied by it. 0: it does not. */
static int constant_factor(const form *f, uint32_t step, uint8_t *out_operand, double *io_factor) {
  const uint8_t op = f->e->steps[step].op, a = f->e->steps[step].a, b = f->e->steps[step].b;
  double c;
  *out_operand = a;
  if (op == BS_EXPR_NEG) {
    *io_factor = -*io_factor;
    return 1;
  }
  if (op == BS_EXPR_DIV && form_is_const(f, b, &c)) {
    *io_factor /= c;
    return usable(*io_factor);
  }
  if (op != BS_EXPR_MUL) return 0;
  const int second = form_is_const(f, b, &c);
  if (!second && !form_is_const(f, a, &c)) return 0;
  *out_operand = second ? a : b;
  *io_factor *= c;
  return usable(*io_factor);
}

static int collect_sum(const form *f, uint8_t operand, double factor, form_sum *s, uint32_t depth) {
  uint32_t i;
  uint8_t inner;
  double c;
  operand = form_operand(f, operand);
  if (depth == 0) return 0;
  if (form_is_const(f, operand, &c)) {
    s->has_constant = 1;
    s->constant += factor * c;
    return isfinite(s->constant);
  }
  const uint8_t op = form_op(f, operand, &i);
  if (op == BS_EXPR_ADD || op == BS_EXPR_SUB) {
    const double second = op == BS_EXPR_ADD ? factor : -factor;
    return collect_sum(f, f->e->steps[i].a, factor, s, depth - 1) &&
           collect_sum(f, f->e->steps[i].b, second, s, depth - 1);
  }
  if (op == BS_EXPR_NEG || op == BS_EXPR_MUL || op == BS_EXPR_DIV) {
    double times = factor;
    if (constant_factor(f, i, &inner, &times)) return collect_sum(f, inner, times, s, depth - 1);
  }
  return add_term(s, operand, factor);
}

int form_sum_of(const form *f, uint8_t operand, form_sum *out) {
  memset(out, 0, sizeof *out);
  return f->e->compute != BS_I64 && collect_sum(f, operand, 1, out, FORM_MAX);
}

/* ---- products -------------------------------------------------------------------------------- */

/* Equal operands are one factor where all powers are whole and positive: x x is x^2, but x / x is not 1. */
static int add_factor(form_product *p, uint8_t operand, double power) {
  uint32_t i = 0;
  while (i < p->n && p->operand[i] != operand) i++;
  if (i == FORM_MAX) return 0;
  if (i < p->n) {
    if (power < 1 || p->power[i] < 1 || power != floor(power) || p->power[i] != floor(p->power[i])) return 0;
    p->power[i] += power;
    return 1;
  }
  p->operand[p->n] = operand;
  p->power[p->n++] = power;
  return 1;
}

/* The power that a step of one operand raises it to; 0: another step. */
static double power_of(const form *f, uint32_t step) {
  double c;
  switch (f->e->steps[step].op) {
    case BS_EXPR_RECIP:
      return -1;
    case BS_EXPR_SQRT:
      return 0.5;
    case BS_EXPR_RSQRT:
      return -0.5;
    case BS_EXPR_POW:
      return form_is_const(f, f->e->steps[step].b, &c) && fabs(c) <= 4 ? c : 0;
    default:
      return 0;
  }
}

static int collect_product(const form *f, uint8_t operand, double power, form_product *p, uint32_t depth) {
  uint32_t i = 0;
  double c;
  operand = form_operand(f, operand);
  if (depth == 0) return 0;
  if (form_is_const(f, operand, &c)) {
    p->factor *= power == 1 ? c : pow(c, power);
    return usable(p->factor);
  }
  const uint8_t op = form_op(f, operand, &i);
  const int whole = power == floor(power);
  if (op == BS_EXPR_NEG && power == 1) {
    p->factor = -p->factor;
    return collect_product(f, f->e->steps[i].a, power, p, depth - 1);
  }
  if (whole && (op == BS_EXPR_MUL || op == BS_EXPR_DIV)) {
    const double second = op == BS_EXPR_MUL ? power : -power;
    return collect_product(f, f->e->steps[i].a, power, p, depth - 1) &&
           collect_product(f, f->e->steps[i].b, second, p, depth - 1);
  }
  const double inner = op != 0 ? power_of(f, i) : 0;
  if (inner != 0 && fabs(power) == 1)
    return collect_product(f, f->e->steps[i].a, power * inner, p, depth - 1);
  return add_factor(p, operand, power);
}

int form_product_of(const form *f, uint8_t operand, form_product *out) {
  memset(out, 0, sizeof *out);
  out->factor = 1;
  return f->e->compute != BS_I64 && collect_product(f, operand, 1, out, FORM_MAX);
}

/* ---- questions ------------------------------------------------------------------------------- */

int form_is_scaled(const form *f, uint8_t operand, uint8_t of, double *out_factor) {
  form_product p;
  if (!form_product_of(f, operand, &p) || p.n != 1 || p.operand[0] != of || p.power[0] != 1) return 0;
  *out_factor = p.factor;
  return 1;
}

int form_is_sum(const form *f, uint8_t operand, const uint8_t *terms, const double *factors, uint32_t n) {
  form_sum s;
  if (!form_sum_of(f, operand, &s) || s.n != n || s.has_constant) return 0;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t k = 0;
    while (k < n && s.operand[k] != terms[i]) k++;
    if (k == n || s.factor[k] != factors[i]) return 0;
  }
  return 1;
}

int form_is_product(const form *f, uint8_t operand, const uint8_t *factors, const double *powers,
                    uint32_t n) {
  form_product p;
  if (!form_product_of(f, operand, &p) || p.n != n || p.factor != 1) return 0;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t k = 0;
    while (k < n && p.operand[k] != factors[i]) k++;
    if (k == n || p.power[k] != powers[i]) return 0;
  }
  return 1;
}

/* ---- polynomials ----------------------------------------------------------------------------- */

static int poly_mul(const form_poly *a, const form_poly *b, form_poly *out) {
  form_poly p = {{{0}}};
  for (uint32_t i = 0; i < 8; i++)
    for (uint32_t k = 0; k < 8; k++) {
      const double c = a->c[i / 2][i % 2] * b->c[k / 2][k % 2];
      if (c == 0) continue;
      if (i / 2 + k / 2 > 3 || i % 2 + k % 2 > 1) return 0;
      p.c[i / 2 + k / 2][i % 2 + k % 2] += c;
    }
  *out = p;
  return 1;
}

static void poly_add(const form_poly *a, const form_poly *b, double times, form_poly *out) {
  for (uint32_t i = 0; i < 8; i++) out->c[i / 2][i % 2] = a->c[i / 2][i % 2] + times * b->c[i / 2][i % 2];
}

static int poly_const(const form_poly *p, double *out_value) {
  for (uint32_t i = 1; i < 8; i++)
    if (p->c[i / 2][i % 2] != 0) return 0;
  *out_value = p->c[0][0];
  return usable(*out_value);
}

static int poly_step(const form *f, uint32_t step, const form_poly *a, const form_poly *b, form_poly *out) {
  static const form_poly zero;
  double c;
  switch (f->e->steps[step].op) {
    case BS_EXPR_NEG:
      poly_add(&zero, a, -1, out);
      return 1;
    case BS_EXPR_ADD:
    case BS_EXPR_SUB:
      poly_add(a, b, f->e->steps[step].op == BS_EXPR_ADD ? 1 : -1, out);
      return 1;
    case BS_EXPR_MUL:
      return poly_mul(a, b, out);
    case BS_EXPR_DIV:
      if (!poly_const(b, &c)) return 0;
      poly_add(&zero, a, 1 / c, out);
      return 1;
    case BS_EXPR_POW:
      if (!poly_const(b, &c) || (c != 2 && c != 3)) return 0;
      return poly_mul(a, a, out) && (c == 2 || poly_mul(out, a, out));
    default:
      return 0;
  }
}

/* Each step once, in order: the work does not grow with how often a value is used. */
int form_poly_of(const form *f, uint8_t operand, uint8_t x, uint8_t t, form_poly *out) {
  form_poly values[GX_STEP + GX_MAX_STEPS]; /* made where it is known */
  uint8_t known[GX_STEP + GX_MAX_STEPS] = {0};
  if (f->e->compute == BS_I64) return 0;
  operand = form_operand(f, operand);
  for (uint32_t i = 0; i <= operand; i++) {
    form_poly *p = &values[i];
    memset(p, 0, sizeof *p);
    known[i] = 1;
    if (i == x) {
      p->c[1][0] = 1;
    } else if (i == t) {
      p->c[0][1] = 1;
    } else if (i >= GX_STEP) {
      const uint32_t step = i - GX_STEP, arity = gexpr_arity(f->e->steps[step].op);
      const uint8_t a = form_operand(f, f->e->steps[step].a), b = form_operand(f, f->e->steps[step].b);
      const uint8_t seen = form_operand(f, (uint8_t)i);
      if (seen != i) {
        known[i] = known[seen];
        *p = values[seen];
      } else {
        known[i] = arity > 0 && arity < 3 && known[a] && (arity == 1 || known[b]) &&
                   poly_step(f, step, &values[a], arity == 2 ? &values[b] : &values[a], p);
      }
    } else {
      known[i] = (uint8_t)form_is_const(f, (uint8_t)i, &p->c[0][0]);
    }
  }
  *out = values[operand];
  return known[operand];
}
