/* SPDX-License-Identifier: MIT
 * query.c - nodes and programs as the ABI wants them. */
#include "graph/ir/query.h"

#include <string.h>

#include "core/op/expr.h"

uint32_t gexpr_arity(uint8_t op) {
  if (op == BS_EXPR_INDEX || op == 0) return 0;
  if (op == BS_EXPR_TO || op < BS_EXPR_ADD) return 1;
  return op < BS_EXPR_FMA ? 2 : 3;
}

/* ---- programs -------------------------------------------------------------------------------- */

static uint8_t operand(const gexpr *e, uint8_t o) {
  if (o >= GX_STEP) return (uint8_t)(e->n_in + e->n_const + o - GX_STEP);
  if (o >= GX_CONST) return (uint8_t)(e->n_in + o - GX_CONST);
  return o;
}

void gexpr_pack(const gexpr *e, gquery *q) {
  uint32_t max_op = 0;
  for (uint32_t i = 0; i < e->n_const; i++) {
    q->consts[i] = e->consts[i];
    if (e->compute != BS_F32) continue;
    double wide;
    memcpy(&wide, &e->consts[i], sizeof wide);
    const float narrow = (float)wide;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    q->consts[i] = bits;
  }
  for (uint32_t i = 0; i < e->n_steps; i++) {
    bs_expr_step *s = &q->steps[i];
    const uint32_t arity = gexpr_arity(e->steps[i].op);
    s->op = e->steps[i].op;
    s->a = arity > 0 ? operand(e, e->steps[i].a) : e->steps[i].a;
    s->b = arity > 1 ? operand(e, e->steps[i].b) : e->steps[i].b;
    s->c = arity > 2 ? operand(e, e->steps[i].c) : e->steps[i].c;
    if (s->op > max_op) max_op = s->op;
  }
  for (uint32_t i = 0; i < e->n_out; i++) q->outs[i] = operand(e, e->outs[i]);
  q->expr = (bs_expr){.struct_size = (uint32_t)sizeof q->expr,
                      .compute = e->compute,
                      .n_in = e->n_in,
                      .n_const = e->n_const,
                      .n_steps = e->n_steps,
                      .n_out = e->n_out,
                      .max_op = max_op,
                      .consts = q->consts,
                      .steps = q->steps,
                      .outs = q->outs};
  q->expr.form = bs_expr_form_of(&q->expr);
}

/* ---- queries --------------------------------------------------------------------------------- */

uint32_t graph_arguments(const gnode *n, uint32_t out_values[BS_MAX_OP_ARGS]) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < n->n_in; i++) out_values[count++] = n->in[i];
  for (uint32_t i = 0; i < n->n_out && count < BS_MAX_OP_ARGS; i++) out_values[count++] = n->out[i];
  return count;
}

static void describe(const gvalue *v, bs_tensor_desc *out) {
  *out = (bs_tensor_desc){.struct_size = (uint32_t)sizeof *out, .dtype = v->dtype, .rank = v->rank};
  for (uint32_t i = 0; i < v->rank; i++) {
    out->dims[i] = v->dims[i];
    out->strides[i] = v->strides[i];
  }
}

/* Products of any number of tokens; attention of few queries, as a decoding step has them, and of all where
 * the bits are those of the definition. */
static uint32_t query_flags(const graph *g, const gnode *n) {
  const uint32_t bits = g->tokenwise >= BS_BITS_TOKENS ? BS_QUERY_BITS : 0;
  if (g->tokenwise == BS_BITS_RUNS) return 0;
  if (graph_is_product(n->op)) return bits | BS_QUERY_TOKENWISE;
  if (n->op != GOP_ATTENTION) return bits;
  const int few = g->values[n->in[0]].dims[2] <= GRAPH_TOKENWISE_QUERIES;
  return bits | (bits != 0 || few ? BS_QUERY_TOKENWISE : 0);
}

void graph_query(const graph *g, const gnode *n, gquery *q) {
  uint32_t values[BS_MAX_OP_ARGS];
  memset(q, 0, sizeof *q);
  const uint32_t nargs = graph_arguments(n, values);
  for (uint32_t i = 0; i < nargs; i++) {
    if (values[i] == GNONE) continue;
    describe(&g->values[values[i]], &q->descs[i]);
    q->args[i] = &q->descs[i];
  }
  q->query = (bs_op_query){.struct_size = (uint32_t)sizeof q->query,
                           .nargs = nargs,
                           .op = graph_op_name(n->op),
                           .args = q->args,
                           .accumulate = n->accumulate,
                           .activation = n->activation,
                           .flags = query_flags(g, n)};
  memcpy(q->query.attrs, n->attrs, sizeof q->query.attrs);
  memcpy(q->query.numbers, n->numbers, sizeof q->query.numbers);
  if (n->weight != GNONE) q->query.weight_dtype = g->values[n->weight].dtype;
  const gquant *quant = n->weight != GNONE ? graph_quant(g, n->weight) : NULL;
  if (quant != NULL) q->query.quant = &quant->quant;
  if (n->op == GOP_MAP) {
    gexpr_pack(&g->exprs[n->expr], q);
    q->query.expr = &q->expr;
  }
}
