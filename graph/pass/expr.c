/* SPDX-License-Identifier: MIT
 * expr.c - programs in their normal form; a run of steps that is gelu, gelu by tanh, silu, sigmoid or
 * softplus becomes that one step. Which run it is, is found by its values and not by its form, so that the
 * order in which an exporter wrote it does not matter. */
#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/ir/query.h"
#include "graph/pass/match.h"
#include "graph/pass/pass.h"
#include "graph/pass/program.h"

static double gelu(double x) {
  return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
}
static double gelu_tanh(double x) {
  return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
static double sigmoid(double x) {
  return 1 / (1 + exp(-x));
}
static double silu(double x) {
  return x / (1 + exp(-x));
}
static double softplus(double x) {
  return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static const struct known {
  uint8_t op;
  double (*value)(double x);
} functions[] = {{BS_EXPR_GELU, gelu},
                 {BS_EXPR_GELU_TANH, gelu_tanh},
                 {BS_EXPR_SILU, silu},
                 {BS_EXPR_SIGMOID, sigmoid},
                 {BS_EXPR_SOFTPLUS, softplus}};

/* Is `to`, as a function of `from` alone, this one? Constants of an exporter are rounded to f32. */
static int is_function(const gexpr *e, uint8_t from, uint8_t to, double (*value)(double x)) {
  for (int i = -40; i <= 40; i++) {
    const double x = i % 2 == 0 ? 0.2 * i : 0.73 * i;
    double got;
    if (!program_between(e, from, to, x, &got)) return 0;
    const double want = value(x);
    if (!(fabs(got - want) <= 1e-6 * fabs(want) + 2e-7 * fmin(fabs(x) + 0.1, 1))) return 0;
  }
  return 1;
}

static int is_named(uint8_t op) {
  return op == BS_EXPR_GELU || op == BS_EXPR_GELU_TANH || op == BS_EXPR_SILU;
}

/* One step for the run of steps that ends at step `to`. */
static int shorten(gexpr *e, uint32_t to) {
  double unused;
  if (is_named(e->steps[to].op)) return 0;
  const uint8_t target = (uint8_t)(GX_STEP + to);
  for (uint32_t from = 0; from < target; from++) {
    const int exists = from < GX_CONST ? from < e->n_in : from >= GX_STEP;
    if (!exists || !program_between(e, (uint8_t)from, target, 0.5, &unused)) continue;
    for (size_t f = 0; f < sizeof functions / sizeof functions[0]; f++) {
      if (functions[f].op == e->steps[to].op || !is_function(e, (uint8_t)from, target, functions[f].value))
        continue;
      e->steps[to].op = functions[f].op;
      e->steps[to].a = (uint8_t)from;
      e->steps[to].b = e->steps[to].c = 0;
      return 1;
    }
  }
  return 0;
}

static int rewrite(gexpr *e) {
  int changed = program_tidy(e);
  if (e->compute == BS_I64) return changed;
  for (uint32_t i = e->n_steps; i-- > 0;)
    if (i < e->n_steps && shorten(e, i)) {
      program_tidy(e);
      changed = 1;
    }
  return changed;
}

/* A number of the model becomes a constant of the program. 0: nothing was done. */
static int absorb(graph *g, uint32_t id, gexpr *e, uint32_t slot, bs_error *err) {
  double number;
  uint64_t bits;
  gnode *n = &g->nodes[id];
  if (e->n_const == GX_MAX_CONST || n->n_in < 2 || !match_number(g, n->in[slot], &number)) return 0;
  if (e->compute == BS_I64) {
    const int64_t whole = (int64_t)number;
    if ((double)whole != number || fabs(number) > 9e15) return 0;
    memcpy(&bits, &whole, sizeof bits);
  } else {
    memcpy(&bits, &number, sizeof bits);
  }
  gexpr constant = {.compute = e->compute, .n_const = 1, .n_out = 1, .outs = {GX_CONST}};
  constant.consts[0] = bits;
  if (!program_join(e, (uint8_t)slot, &constant, NULL, 0)) return 0;
  program_drop_input(e, (uint8_t)slot);
  for (uint32_t i = slot; i < n->n_in; i++)
    if (graph_set_input(g, id, i, i + 1u < n->n_in ? n->in[i + 1u] : GNONE, err) != BS_OK) return 0;
  n->n_in--;
  return 1;
}

int32_t gpass_expr(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err) {
  (void)ctx;
  for (uint32_t id = g->first; id != GNONE; id = g->nodes[id].next) {
    if (g->nodes[id].op != GOP_MAP) continue;
    gexpr e = g->exprs[g->nodes[id].expr];
    int changed = 0;
    for (uint32_t slot = g->nodes[id].n_in; slot-- > 0;)
      if (slot < g->nodes[id].n_in) changed |= absorb(g, id, &e, slot, err);
    if (!rewrite(&e) && !changed) continue;
    const uint32_t number = graph_expr(g, &e);
    if (number == GNONE) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a program");
    g->nodes[id].expr = number;
    ++*out_changes;
  }
  return BS_OK;
}
