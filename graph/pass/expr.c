/* SPDX-License-Identifier: MIT
 * expr.c - programs in their normal form; a run of steps that is gelu, gelu by tanh, silu, sigmoid or
 * softplus becomes that one step. It is found by its form (form.h), in which the order of factors and terms
 * does not matter. */
#include <math.h>
#include <string.h>

#include "blockshock/expr_value.h"
#include "core/base/error.h"
#include "core/op/expr.h"
#include "graph/ir/query.h"
#include "graph/pass/form.h"
#include "graph/pass/match.h"
#include "graph/pass/pass.h"
#include "graph/pass/program.h"

static double gelu(double x) {
  return bs_expr_value(BS_EXPR_GELU, x, 0, 0);
}
static double gelu_tanh(double x) {
  return bs_expr_value(BS_EXPR_GELU_TANH, x, 0, 0);
}
static double sigmoid(double x) {
  return bs_expr_value(BS_EXPR_SIGMOID, x, 0, 0);
}
static double silu(double x) {
  return bs_expr_value(BS_EXPR_SILU, x, 0, 0);
}
static double softplus(double x) {
  return bs_expr_value(BS_EXPR_SOFTPLUS, x, 0, 0);
}

/* operand == c[0] + c[1] x + c[2] x^2 + c[3] x^3, or with t, that much more times t. */
static int is_poly(const form *f, uint8_t operand, uint8_t x, uint8_t t, const double plain[4],
                   const double with_t[4]) {
  form_poly p;
  if (!form_poly_of(f, operand, x, t, &p)) return 0;
  for (uint32_t i = 0; i < 4; i++)
    if (!form_near(f, p.c[i][0], plain[i]) || !form_near(f, p.c[i][1], with_t[i])) return 0;
  return 1;
}

/* x/2 (1 + t), t a step erf or tanh of a polynomial of x: gelu. x is an input or an earlier step: also a sum,
 * which a form would take apart. */
static int find_gelu(const form *f, uint32_t to, uint8_t *out_from) {
  static const double none[4] = {0}, half[4] = {0, 0.5, 0, 0};
  static const double by_erf[4] = {0, 0.70710678118654752440, 0, 0};
  static const double by_tanh[4] = {0, 0.79788456080286535588, 0, 0.79788456080286535588 * 0.044715};
  const uint8_t end = f->e->steps[to].op;
  if (end != BS_EXPR_MUL && end != BS_EXPR_DIV && end != BS_EXPR_ADD) return 0;
  for (uint32_t t = 0; t < to; t++) {
    const uint8_t op = f->e->steps[t].op, inner = f->e->steps[t].a;
    if (op != BS_EXPR_ERF && op != BS_EXPR_TANH) continue;
    for (uint32_t i = 0; i < f->e->n_in + t; i++) {
      const uint8_t x = (uint8_t)(i < f->e->n_in ? i : GX_STEP + i - f->e->n_in);
      if (!is_poly(f, inner, x, GX_NO_OPERAND, op == BS_EXPR_ERF ? by_erf : by_tanh, none) ||
          !is_poly(f, (uint8_t)(GX_STEP + to), x, (uint8_t)(GX_STEP + t), half, half))
        continue;
      *out_from = x;
      return op == BS_EXPR_ERF ? BS_EXPR_GELU : BS_EXPR_GELU_TANH;
    }
  }
  return 0;
}

/* operand == 1 + exp(x): x. */
static int is_one_plus_exp(const form *f, uint8_t operand, uint8_t *out_x) {
  form_sum s;
  uint32_t step;
  if (!form_sum_of(f, operand, &s) || s.n != 1 || s.constant != 1 || s.factor[0] != 1 ||
      form_op(f, s.operand[0], &step) != BS_EXPR_EXP)
    return 0;
  *out_x = form_operand(f, f->e->steps[step].a);
  return 1;
}

/* operand == -x: x. */
static int is_negated(const form *f, uint8_t operand, uint8_t *out_x) {
  form_sum s;
  if (!form_sum_of(f, operand, &s) || s.n != 1 || s.has_constant || s.factor[0] != -1) return 0;
  *out_x = s.operand[0];
  return 1;
}

/* 1 / (1 + exp(-x)), x / (1 + exp(-x)) or x sigmoid(x). */
static int find_sigmoid(const form *f, uint32_t to, uint8_t *out_from) {
  form_product p;
  uint32_t step;
  if (!form_product_of(f, (uint8_t)(GX_STEP + to), &p) || p.factor != 1 || p.n > 2) return 0;
  for (uint32_t i = 0; i < p.n; i++) {
    const uint8_t other = p.n == 2 ? p.operand[1 - i] : 0;
    uint8_t power = p.operand[i]; /* of e */
    const int by_step = p.power[i] == 1 && form_op(f, p.operand[i], &step) == BS_EXPR_SIGMOID;
    if (by_step)
      *out_from = form_operand(f, f->e->steps[step].a);
    else if (p.power[i] != -1 || !is_one_plus_exp(f, p.operand[i], &power) || !is_negated(f, power, out_from))
      continue;
    if (p.n == 1) return by_step ? 0 : BS_EXPR_SIGMOID;
    if (p.power[1 - i] == 1 && other == *out_from) return BS_EXPR_SILU;
  }
  return 0;
}

static int find_softplus(const form *f, uint32_t to, uint8_t *out_from) {
  return f->e->steps[to].op == BS_EXPR_LOG && is_one_plus_exp(f, f->e->steps[to].a, out_from)
             ? BS_EXPR_SOFTPLUS
             : 0;
}

/* `limit`: log(1 + exp(x)) has no end from 710 on, where softplus is x. */
static const struct known {
  int (*find)(const form *f, uint32_t to, uint8_t *out_from);
  double limit;
} finders[] = {{find_gelu, INFINITY}, {find_sigmoid, INFINITY}, {find_softplus, 700}};

static double (*meaning_of(int op))(double x) {
  switch (op) {
    case BS_EXPR_GELU:
      return gelu;
    case BS_EXPR_GELU_TANH:
      return gelu_tanh;
    case BS_EXPR_SILU:
      return silu;
    case BS_EXPR_SIGMOID:
      return sigmoid;
    default:
      return softplus;
  }
}

/* One step for the steps that end at step `to`. */
static int shorten(const form *f, gexpr *e, uint32_t to, const char **out_why) {
  for (size_t i = 0; i < sizeof finders / sizeof finders[0]; i++) {
    uint8_t from = 0;
    const int op = finders[i].find(f, to, &from);
    if (op == 0) continue;
    if (!program_is_between(e, from, (uint8_t)(GX_STEP + to), meaning_of(op), finders[i].limit)) {
      *out_why = bs_expr_op_name((uint8_t)op);
      continue;
    }
    e->steps[to].op = (uint8_t)op;
    e->steps[to].a = from;
    e->steps[to].b = e->steps[to].c = 0;
    return 1;
  }
  return 0;
}

static int rewrite(gexpr *e, uint32_t rounds, const char **out_why) {
  int changed = program_tidy(e);
  const form f = {e, rounds};
  for (uint32_t i = e->n_steps; i-- > 0;)
    if (i < e->n_steps && shorten(&f, e, i, out_why)) {
      program_tidy(e);
      changed = 1;
    }
  return changed;
}

/* A number of the model becomes a constant of the program. 0: nothing was done. */
static int absorb(graph *g, const gpass_ctx *ctx, uint32_t id, gexpr *e, uint32_t slot, bs_error *err) {
  double number;
  uint64_t bits;
  gnode *n = &g->nodes[id];
  if (n->n_in < 2 || !match_number(g, n->in[slot], &number)) return 0;
  if (e->compute == BS_I64) {
    if (fabs(number) > 9e15) {
      gpass_miss(ctx, id, "the number %g is too large for a constant of the program", number);
      return 0;
    }
    const int64_t whole = (int64_t)number;
    memcpy(&bits, &whole, sizeof bits);
  } else {
    memcpy(&bits, &number, sizeof bits);
  }
  gexpr constant = {.compute = e->compute, .n_const = 1, .n_out = 1, .outs = {GX_CONST}};
  constant.consts[0] = bits;
  if (!program_join(e, (uint8_t)slot, &constant, NULL, 0)) {
    gpass_miss(ctx, id, "the program has no room for the number %g", number);
    return 0;
  }
  program_drop_input(e, (uint8_t)slot);
  for (uint32_t i = slot; i < n->n_in; i++)
    if (graph_set_input(g, id, i, i + 1u < n->n_in ? n->in[i + 1u] : GNONE, err) != BS_OK) return 0;
  n->n_in--;
  return 1;
}

int32_t gpass_expr(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err) {
  for (uint32_t id = g->first; id != GNONE; id = g->nodes[id].next) {
    if (g->nodes[id].op != GOP_MAP) continue;
    gexpr e = g->exprs[g->nodes[id].expr];
    int changed = 0;
    for (uint32_t slot = g->nodes[id].n_in; slot-- > 0;)
      if (slot < g->nodes[id].n_in) changed |= absorb(g, ctx, id, &e, slot, err);
    const char *why = NULL;
    const int shorter = rewrite(&e, form_of(g, &g->nodes[id]).rounds, &why);
    if (why != NULL) gpass_miss(ctx, id, "it has the form of %s, and other values", why);
    if (!shorter && !changed) continue;
    const uint32_t number = graph_expr(g, &e);
    if (number == GNONE) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a program");
    g->nodes[id].expr = number;
    ++*out_changes;
  }
  return BS_OK;
}
