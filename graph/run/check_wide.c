/* SPDX-License-Identifier: MIT
 * check_wide.c - a node once more in f64: a graph of one node, over the values that its step reads. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "graph/run/check_inside.h"
#include "graph/run/verify.h"
#include "graph/split/method.h"

typedef struct widening {
  bs_session *s;
  graph *wide; /* the node in f64 */
  bs_error *err;
} widening;

int32_t gcheck_copy(const bs_tensor *t, double **out_values, bs_error *err) {
  *out_values = malloc((tensor_elements(t) + 1u) * sizeof **out_values);
  if (*out_values == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a check");
  bs_read_dense(BS_F64, *out_values, t);
  return BS_OK;
}

/* A dense constant in the small graph with the elements that the argument has now. */
static int32_t as_constant(widening *c, const bs_tensor *t, uint32_t *out_value) {
  gvalue v = {.rank = (uint8_t)t->rank, .dtype = t->dtype};
  memcpy(v.dims, t->dims, sizeof v.dims);
  void *data = graph_data(c->wide, graph_bytes(&v));
  if (data == NULL) return bs_error_set(c->err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a check");
  if (graph_count(&v) > 0) bs_read_dense(t->dtype, data, t);
  return graph_add_root(c->wide, GV_CONST, t->dtype, t->rank, t->dims, data, NULL, out_value, c->err);
}

/* A constant of the model, dense; the caller frees it. */
static int32_t read_constant(widening *c, uint32_t value, void **out_data) {
  const gvalue *v = &c->s->bound->g->values[value];
  *out_data = malloc((size_t)graph_count(v) * BS_DTYPE_BYTES(v->dtype) + 1u);
  if (*out_data == NULL)
    return bs_error_set(c->err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a check");
  gfold_enter(&c->s->graph->fold); /* a computed weight may exist in packed form alone */
  const int32_t rc = graph_read_const(c->s->bound->g, value, *out_data, c->err);
  gfold_leave(&c->s->graph->fold);
  return rc;
}

/* The rows, or the columns, of a weight [rows,cols] that a rank has in its layer: of F its part of N, of S
 * all columns as ranks hold them. */
static void pick(const void *from, void *to, int64_t rows, int64_t cols, uint32_t size,
                 const bs_order *row_order, int64_t first, const bs_order *col_order) {
  for (int64_t r = 0; r < rows; r++) {
    const int64_t row = row_order->n > 0 ? bs_order_at(row_order, first + r) : first + r;
    for (int64_t k = 0; k < cols; k++) {
      const int64_t col = col_order->n > 0 ? bs_order_at(col_order, k) : k;
      memcpy((unsigned char *)to + (uint64_t)(r * cols + k) * size,
             (const unsigned char *)from + (uint64_t)(row * cols + col) * size, size);
    }
  }
}

/* A weight, or a bias (one column), as the node has it: whole, or the part of a layer. */
static int32_t weight_constant(widening *c, const gnode *node, uint32_t value, uint32_t *out_value) {
  static const bs_order plain = {0};
  const gvalue *v = &c->s->bound->g->values[value];
  const gnode_split *split = node->layer != 0 ? &c->s->bound->g->splits[node->layer - 1] : NULL;
  const uint32_t role = split != NULL ? split->role : GNODE_ALONE;
  const int64_t cols = v->rank > 1 ? v->dims[1] : 1;
  gvalue dense = {.rank = v->rank, .dtype = v->dtype};
  memcpy(dense.dims, v->dims, sizeof dense.dims);
  if (role == GNODE_F) dense.dims[0] = c->s->bound->g->values[node->out[0]].dims[1];
  void *all = NULL, *data = graph_data(c->wide, graph_bytes(&dense));
  if (data == NULL) return bs_error_set(c->err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a check");
  const int32_t rc = read_constant(c, value, &all);
  const grank *r = c->s->rank;
  const int64_t first = role == GNODE_F ? dense.dims[0] * (int64_t)r->api->rank(r->rank) : 0;
  if (rc == BS_OK)
    pick(all, data, dense.dims[0], cols, BS_DTYPE_BYTES(v->dtype), role == GNODE_F ? &split->rows : &plain,
         first, role == GNODE_S && cols > 1 ? &split->held : &plain);
  free(all);
  return rc == BS_OK
             ? graph_add_root(c->wide, GV_CONST, v->dtype, v->rank, dense.dims, data, NULL, out_value, c->err)
             : rc;
}

/* A product with a packed weight as a contract, which takes both operands as they are; bias, activation and
 * residual are those of the product. */
static int32_t as_contract(widening *c, const gnode *from, gnode *n) {
  uint32_t weight;
  const uint32_t bias =
      from->layer != 0 && from->in[1] == GNONE ? c->s->bound->g->splits[from->layer - 1].bias : GNONE;
  int32_t rc = weight_constant(c, from, from->weight, &weight);
  if (rc == BS_OK && bias != GNONE) rc = weight_constant(c, from, bias, &n->in[1]);
  if (rc != BS_OK) return rc;
  const gvalue w = c->wide->values[weight];
  const int64_t dims[2] = {w.dims[1], w.dims[0]}, strides[2] = {w.strides[1], w.strides[0]};
  uint32_t turned;
  rc = graph_add_view(c->wide, weight, w.dtype, 2, dims, strides, 0, &turned, c->err);
  if (rc != BS_OK) return rc;
  n->op = GOP_CONTRACT;
  n->weight = GNONE;
  n->n_in = 3;
  n->in[2] = n->in[1];
  n->in[1] = turned;
  n->numbers[0] = 1;
  if (n->in[2] == GNONE) return BS_OK;
  const gvalue b = c->wide->values[n->in[2]];
  const int64_t row[2] = {1, b.dims[0]}, ones[2] = {1, 1};
  return graph_add_view(c->wide, n->in[2], b.dtype, 2, row, ones, 0, &n->in[2], c->err);
}

static int32_t add_residual(const widening *c, const bs_tensor *t, double *io_sum) {
  double *values = NULL;
  const int32_t rc = gcheck_copy(t, &values, c->err);
  for (uint64_t i = 0; rc == BS_OK && i < tensor_elements(t); i++) io_sum[i] += values[i];
  free(values);
  return rc;
}

/* ---- roundings ------------------------------------------------------------------------------- */

static uint8_t moved(uint8_t operand, const uint8_t *to) {
  return operand >= GX_STEP ? to[operand - GX_STEP] : operand;
}

/* The program with a factor before each step that rounds; where there is no room, the program itself. */
static gexpr beside_ties(const gexpr *e, double factor) {
  gexpr out = *e;
  uint8_t to[GX_MAX_STEPS];
  if (factor == 1 || e->n_const == GX_MAX_CONST || e->n_steps > GX_MAX_STEPS / 2) return out;
  const uint8_t by = (uint8_t)(GX_CONST + out.n_const);
  memcpy(&out.consts[out.n_const++], &factor, sizeof factor);
  memset(out.steps, 0, sizeof out.steps);
  out.n_steps = 0;
  for (uint32_t i = 0; i < e->n_steps; i++) {
    const uint8_t op = e->steps[i].op, rounding = op == BS_EXPR_TO;
    const uint32_t arity = gexpr_arity(op);
    uint8_t a = moved(e->steps[i].a, to), b = e->steps[i].b, c = e->steps[i].c;
    if (op == BS_EXPR_INDEX) a = e->steps[i].a;
    if (!rounding && arity > 1) b = moved(b, to);
    if (!rounding && arity > 2) c = moved(c, to);
    if (rounding && bs_dtype_is_float((uint32_t)b << 8 | c)) {
      out.steps[out.n_steps].op = BS_EXPR_MUL;
      out.steps[out.n_steps].a = a;
      out.steps[out.n_steps].b = by;
      a = (uint8_t)(GX_STEP + out.n_steps++);
    }
    out.steps[out.n_steps].op = op;
    out.steps[out.n_steps].a = a;
    out.steps[out.n_steps].b = b;
    out.steps[out.n_steps].c = c;
    to[i] = (uint8_t)(GX_STEP + out.n_steps++);
  }
  for (uint32_t i = 0; i < e->n_out; i++) out.outs[i] = moved(e->outs[i], to);
  return out;
}

/* ---- the node -------------------------------------------------------------------------------- */

/* Moves the floats of the small graph by their round-off, up or down by a hash of their place. */
static void move_inputs(widening *c, const gnode *n, double unit) {
  for (uint32_t i = 0; i < n->n_in; i++) {
    const gvalue *v = n->in[i] != GNONE ? &c->wide->values[c->wide->values[n->in[i]].base] : NULL;
    if (v == NULL || v->kind != GV_CONST || v->dtype != BS_F64) continue;
    double *data = (double *)(uintptr_t)v->data;
    for (int64_t k = 0; k < graph_count(v); k++)
      data[k] *= 1 + unit * ((uint64_t)(k + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 63 ? 1 : -1);
  }
}

/* Numbers that are too large and no constants become NaN, so that outputs show what depends on them. */
static void strike_inputs(widening *c, const gstep *s, const gnode *from, const gnode *n, double terms) {
  for (uint32_t i = 0; i < (from->op == GOP_MATMUL ? 1u : from->n_in); i++) {
    if (from->in[i] == GNONE || graph_is_const(c->s->bound->g, from->in[i])) continue;
    const gvalue *v = &c->wide->values[c->wide->values[n->in[i]].base];
    if (v->kind != GV_CONST || v->dtype != BS_F64) continue;
    double *data = (double *)(uintptr_t)v->data;
    for (int64_t k = 0; k < graph_count(v); k++)
      if (gnumber_too_large(s->args[i]->dtype, data[k], terms)) data[k] = NAN;
  }
}

/* The step's node in f64 over the values that it reads now, into dense memory: *out_data[i] of output i. */
static int32_t compute(widening *c, const gstep *s, const gcheck_change *change, double **out_data) {
  const gnode *from = &c->s->bound->g->nodes[s->node];
  gnode n = *from;
  int32_t rc = graph_new(&c->wide, c->err);
  for (uint32_t i = 0; i < n.n_in && rc == BS_OK; i++)
    if (n.in[i] != GNONE) rc = as_constant(c, i == 0 && change->x != NULL ? change->x : s->args[i], &n.in[i]);
  if (rc == BS_OK && n.op == GOP_MATMUL) rc = as_contract(c, from, &n);
  if (rc == BS_OK && graph_is_packed(n.op))
    rc = graph_add_quant(c->wide, graph_quant(c->s->bound->g, from->weight), NULL, &n.weight, c->err);
  for (uint32_t i = 0; i < n.n_out && rc == BS_OK; i++) {
    if (n.out[i] == GNONE) continue;
    const bs_tensor *t = s->args[from->n_in + i];
    rc = graph_add_root(c->wide, GV_TEMP, t->dtype, t->rank, t->dims, NULL, NULL, &n.out[i], c->err);
  }
  if (rc == BS_OK && n.op == GOP_MAP) {
    const gexpr program = beside_ties(&c->s->bound->g->exprs[from->expr], change->factor);
    n.expr = graph_expr(c->wide, &program);
  }
  n.origin = GNONE;
  if (rc == BS_OK) rc = graph_add_node(c->wide, &n, GNONE, NULL, c->err);
  if (rc == BS_OK) rc = graph_widen(c->wide, BS_F64, c->err);
  if (rc == BS_OK && change->moved > 0) move_inputs(c, &c->wide->nodes[c->wide->first], change->moved);
  if (rc == BS_OK && change->terms > 0)
    strike_inputs(c, s, from, &c->wide->nodes[c->wide->first], change->terms);
  void *data[GNODE_OUT] = {NULL};
  for (uint32_t i = 0; i < n.n_out && rc == BS_OK; i++) {
    if (n.out[i] == GNONE) continue;
    data[i] = graph_data(c->wide, graph_bytes(&c->wide->values[n.out[i]]));
    if (data[i] == NULL) rc = bs_error_set(c->err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a check");
  }
  if (rc == BS_OK) rc = gfold_run(&c->s->graph->fold, c->wide, &c->wide->nodes[c->wide->first], data, c->err);
  for (uint32_t i = 0; i < n.n_out && rc == BS_OK; i++) {
    if (n.out[i] == GNONE) continue;
    const gvalue *v = &c->wide->values[n.out[i]];
    const int64_t count = graph_count(v);
    out_data[i] = malloc(((size_t)count + 1u) * sizeof **out_data);
    if (out_data[i] == NULL)
      return bs_error_set(c->err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a check");
    for (int64_t k = 0; k < count; k++) out_data[i][k] = bs_load_f64(v->dtype, data[i], k);
  }
  return rc == BS_OK && from->op == GOP_MATMUL && from->in[2] != GNONE
             ? add_residual(c, s->args[2], out_data[0])
             : rc;
}

int32_t gcheck_wide(bs_session *s, const gstep *step, const gcheck_change *change, double **out_data,
                    bs_error *err) {
  widening c = {.s = s, .err = err};
  const int32_t rc = compute(&c, step, change, out_data);
  graph_free(c.wide);
  return rc;
}
