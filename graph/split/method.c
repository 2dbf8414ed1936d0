/* SPDX-License-Identifier: MIT
 * method.c - which products of a graph become layers of a method. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/op/knob.h"
#include "graph/split/method.h"

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a split");
}

/* ---- the options ----------------------------------------------------------------------------- */

static int32_t copy_options(gmethod *s, const bs_session_options *o, bs_error *err) {
  s->keys = calloc(o->n_method_options + 1u, sizeof *s->keys);
  s->values = calloc(o->n_method_options + 1u, sizeof *s->values);
  s->method = bs_strdup(o->method);
  if (s->keys == NULL || s->values == NULL || s->method == NULL) return no_memory(err);
  for (uint32_t i = 0; i < o->n_method_options; i++) {
    s->keys[i] = bs_strdup(o->method_keys[i]);
    s->values[i] = bs_strdup(o->method_values[i]);
    s->n_options = i + 1;
    if (s->keys[i] == NULL || s->values[i] == NULL) return no_memory(err);
  }
  return BS_OK;
}

/* The class that the session's promise of bits needs of each layer, unless the caller gave one. Of a batch, a
 * method without classes keeps what it keeps. */
static int32_t add_repro(gmethod *s, const bs_method *method, uint32_t bits, bs_error *err) {
  static const char *const key = "repro", *const value = "R2";
  if (bits == BS_BITS_TOKENS) s->repro = BS_REPRO_R2;
  for (uint32_t i = 0; i < s->n_options; i++)
    if (strcmp(s->keys[i], key) == 0) return BS_OK;
  if (bits == BS_BITS_RUNS || bs_method_check_options(method, 1, &key, &value, NULL) != BS_OK) return BS_OK;
  s->keys[s->n_options] = bs_strdup(key);
  s->values[s->n_options] = bs_strdup(value);
  s->n_options++;
  return s->keys[s->n_options - 1] != NULL && s->values[s->n_options - 1] != NULL ? BS_OK : no_memory(err);
}

int32_t gmethod_make(bs_context *context, const bs_session_options *o, uint32_t world_size,
                     gmethod **out_split, bs_error *err) {
  const bs_method *method;
  void *state;
  *out_split = NULL;
  if (o->method == NULL) return BS_OK;
  const int32_t known = bs_find_method(context, o->method, &method, &state, err);
  if (known != BS_OK) return known;
  gmethod *s = calloc(1, sizeof *s);
  if (s == NULL) return no_memory(err);
  s->mask = o->mask;
  s->tokens = o->tokens;
  s->world_size = world_size;
  int32_t rc = copy_options(s, o, err);
  if (rc == BS_OK) rc = add_repro(s, method, o->tokenwise, err);
  s->bits = o->tokenwise;
  if (rc != BS_OK) {
    gmethod_free(s);
    return rc;
  }
  *out_split = s;
  return BS_OK;
}

void gmethod_free(gmethod *s) {
  if (s == NULL) return;
  for (uint32_t i = 0; i < s->n_options; i++) {
    free(s->keys[i]);
    free(s->values[i]);
  }
  free(s->keys);
  free(s->values);
  free(s->method);
  free(s);
}

/* ---- one product ----------------------------------------------------------------------------- */

int32_t gmethod_spec(const gmethod *s, const graph *g, const gnode *n, bs_layer_spec *out, bs_error *err) {
  const gvalue *x = &g->values[n->in[0]], *y = &g->values[n->out[0]];
  const int rows = x->rank == 2 && y->rank == 2;
  const char *why = n->op != GOP_MATMUL                                 ? "its weight is quantised"
                    : n->in[2] != GNONE                                 ? "a residual is part of it"
                    : !rows || y->dims[0] < 1                           ? "it has no rows"
                    : n->in[1] != GNONE && !graph_is_const(g, n->in[1]) ? "its bias is computed in the run"
                                                                        : NULL;
  if (why != NULL)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-SPLIT", "no method takes the product: %s", why);
  const gvalue *w = &g->values[n->weight];
  *out = (bs_layer_spec){.struct_size = (uint32_t)sizeof *out,
                         .has_bias = n->in[1] != GNONE,
                         .B = y->dims[0],
                         .N = w->dims[0],
                         .K = w->dims[1],
                         .x_dtype = x->dtype,
                         .w_dtype = w->dtype,
                         .y_dtype = y->dtype,
                         .accumulate = n->accumulate,
                         .activation = n->activation,
                         .x_placement = BS_REPLICATED,
                         .y_placement = BS_REPLICATED,
                         .mask = s->mask,
                         .n_options = s->n_options,
                         .option_keys = (const char *const *)s->keys,
                         .option_values = (const char *const *)s->values};
  return BS_OK;
}

int32_t gmethod_propose(bs_context *context, const gmethod *s, const graph *g, const gnode *n, uint32_t rank,
                        bs_proposal *out, bs_error *err) {
  bs_layer_spec spec;
  *out = (bs_proposal){.struct_size = (uint32_t)sizeof *out};
  int32_t rc = gmethod_spec(s, g, n, &spec, err);
  if (rc == BS_OK) rc = bs_method_propose(context, s->method, &spec, rank, s->world_size, out, err);
  if (rc != BS_OK || out->repro >= s->repro) return rc;
  bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-REPRO", "method %s promises R%u of the product, R%u is needed",
               s->method, out->repro, s->repro);
  bs_error_hint(err, "without the promise of bits (--with repro=runs) it is served");
  return BS_UNSUPPORTED;
}

/* ---- all products ---------------------------------------------------------------------------- */

/* Rows that follow each other without gaps, as methods take x and y. */
static int has_gaps(const gvalue *v) {
  return (v->dims[1] > 1 && v->strides[1] != 1) || (v->dims[0] > 1 && v->strides[0] != v->dims[1]);
}

/* A map that copies `from` to `to`, before node `at`. */
static int32_t add_copy(graph *g, uint32_t from, uint32_t to, uint32_t at, uint32_t origin, bs_error *err) {
  gexpr program = {.compute = g->values[from].dtype == BS_F64 ? BS_F64 : BS_F32, .n_in = 1, .n_out = 1};
  gnode copy = {
      .op = GOP_MAP, .n_in = 1, .n_out = 1, .in = {from}, .out = {to}, .weight = GNONE, .origin = origin};
  program.outs[0] = GX_IN;
  copy.expr = graph_expr(g, &program);
  return copy.expr == GNONE ? no_memory(err) : graph_add_node(g, &copy, at, NULL, err);
}

static int32_t add_dense(graph *g, uint32_t like, uint32_t *out_value, bs_error *err) {
  const gvalue v = g->values[like];
  return graph_add_root(g, GV_TEMP, v.dtype, v.rank, v.dims, NULL, NULL, out_value, err);
}

static int32_t make_dense(graph *g, uint32_t id, bs_error *err) {
  const gnode n = g->nodes[id];
  const uint32_t x = n.in[0], y = n.out[0];
  uint32_t dense = GNONE;
  int32_t rc = BS_OK;
  if (has_gaps(&g->values[x])) {
    rc = add_dense(g, x, &dense, err);
    if (rc == BS_OK) rc = add_copy(g, x, dense, id, n.origin, err);
    if (rc == BS_OK) rc = graph_set_input(g, id, 0, dense, err);
  }
  if (rc == BS_OK && has_gaps(&g->values[y])) {
    rc = add_dense(g, y, &dense, err);
    if (rc == BS_OK) rc = graph_set_output(g, id, 0, dense, err);
    if (rc == BS_OK) rc = add_copy(g, dense, y, g->nodes[id].next, n.origin, err);
  }
  return rc;
}

int32_t gmethod_mark(bs_context *context, const gmethod *s, graph *g, bs_error *err) {
  bs_error first = BS_ERROR_INIT;
  uint32_t products = 0, layers = 0;
  for (uint32_t id = g->first, next; id != GNONE; id = next) {
    next = g->nodes[id].next;
    if (!graph_is_product(g->nodes[id].op)) continue;
    bs_proposal proposal;
    bs_error why = BS_ERROR_INIT;
    int32_t rc = gmethod_propose(context, s, g, &g->nodes[id], 0, &proposal, &why);
    if (rc == BS_OK && s->world_size > 1)
      rc = gmethod_propose(context, s, g, &g->nodes[id], s->world_size - 1, &proposal, &why);
    if (rc != BS_OK && products == 0) first = why;
    products++;
    if (rc != BS_OK) continue;
    rc = make_dense(g, id, err);
    if (rc != BS_OK) return rc;
    g->nodes[id].layer = 1;
    layers++;
  }
  if (layers > 0) return BS_OK;
  if (products == 0) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-SPLIT", "the model has no product that a method could split");
    return BS_UNSUPPORTED;
  }
  bs_error_set(err, first.code, "BS-GRAPH-SPLIT", "method %s takes none of the model's %u products: %s",
               s->method, products, first.message);
  bs_error_hint(err, "%s", first.hint);
  return first.code;
}
