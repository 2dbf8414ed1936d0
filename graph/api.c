/* SPDX-License-Identifier: MIT
 * api.c - the functions of graph.h that read and build models; those of sessions are in run/session.c. */
#include "graph/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "graph/run/args.h"

enum { BUILD_OPSET = 24 };

int32_t bs_graph_of(bs_context *context, gmodel *model, bs_graph **out_graph, bs_error *err) {
  bs_graph *g = calloc(1, sizeof *g);
  if (g == NULL) {
    gmodel_free(model);
    return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a model");
  }
  g->context = context;
  g->model = model;
  gfold_init(&g->fold, context);
  *out_graph = g;
  return BS_OK;
}

BS_API int32_t bs_graph_new(bs_context *context, bs_graph **out_graph, bs_error *err) {
  gmodel *model = NULL;
  if (context == NULL || out_graph == NULL) return gargs_null("bs_graph_new", "context and out_graph", err);
  const int32_t rc = gmodel_new(BUILD_OPSET, &model, err);
  return rc == BS_OK ? bs_graph_of(context, model, out_graph, err) : rc;
}

/* ---- building -------------------------------------------------------------------------------- */

static int32_t may_add(const bs_graph *g, const char *function, const bs_tensor_desc *desc, bs_error *err) {
  if (desc != NULL && gargs_size(function, "bs_tensor_desc", desc->struct_size, err) != BS_OK)
    return BS_INVALID_ARGUMENT;
  if (g->finished)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-BUILD",
                        "a model that was read, or that has a session, cannot be added to");
  if (desc != NULL && (desc->rank > BS_MAX_DIMS || !bs_dtype_known(desc->dtype)))
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-BUILD", "no tensor has dtype 0x%04x and rank %u",
                        desc->dtype, desc->rank);
  return BS_OK;
}

BS_API int32_t bs_graph_input(bs_graph *g, const char *name, const bs_tensor_desc *desc,
                              const char *const *dim_names, uint32_t *out_value, bs_error *err) {
  if (g == NULL || name == NULL || desc == NULL || out_value == NULL)
    return gargs_null("bs_graph_input", "graph, name, desc and out_value", err);
  const int32_t rc = may_add(g, "bs_graph_input", desc, err);
  return rc == BS_OK
             ? gmodel_input(g->model, name, desc->dtype, desc->rank, desc->dims, dim_names, out_value, err)
             : rc;
}

BS_API int32_t bs_graph_constant(bs_graph *g, const char *name, const bs_tensor_desc *desc, const void *data,
                                 uint32_t *out_value, bs_error *err) {
  uint64_t bytes = 0;
  if (g == NULL || desc == NULL || out_value == NULL)
    return gargs_null("bs_graph_constant", "graph, desc and out_value", err);
  const int32_t rc = may_add(g, "bs_graph_constant", desc, err);
  if (rc != BS_OK) return rc;
  if (!gmodel_shape_bytes(desc->dtype, desc->rank, desc->dims, &bytes))
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-BUILD", "constant '%.64s' has no size",
                        name != NULL ? name : "");
  if (data == NULL && bytes > 0) return gargs_null("bs_graph_constant", "data of the constant", err);
  return gmodel_constant(g->model, name, desc->dtype, desc->rank, desc->dims, data, bytes, 0, out_value, err);
}

/* Each has its name, and what its type points to. */
static int32_t check_attrs(const bs_attr *const *attrs, uint32_t n, bs_error *err) {
  int32_t rc = gargs_list("bs_graph_op", "attrs", attrs, n, err);
  for (uint32_t i = 0; i < n && rc == BS_OK; i++) {
    const bs_attr *a = attrs[i];
    uint64_t bytes = 0;
    rc = gargs_size("bs_graph_op", "bs_attr", a->struct_size, err);
    if (rc != BS_OK) break;
    int whole = a->name != NULL && (a->type != BS_ATTR_TEXT || a->text != NULL) &&
                (a->type != BS_ATTR_INTS || a->count == 0 || a->ints != NULL) &&
                (a->type != BS_ATTR_FLOATS || a->count == 0 || a->floats != NULL) &&
                (a->type != BS_ATTR_TENSOR || a->tensor != NULL);
    if (whole && a->type == BS_ATTR_TENSOR && a->data == NULL)
      whole = gmodel_shape_bytes(a->tensor->dtype, a->tensor->rank <= BS_MAX_DIMS ? a->tensor->rank : 0,
                                 a->tensor->dims, &bytes) &&
              bytes == 0;
    if (!whole)
      rc = gargs_null("bs_graph_op", "the name of each attribute, and its text, list or tensor", err);
    if (rc == BS_OK && a->type == BS_ATTR_TEXTS)
      rc = a->count > UINT32_MAX ? BS_INVALID_ARGUMENT
                                 : gargs_list("bs_graph_op", "texts", a->texts, (uint32_t)a->count, err);
  }
  return rc;
}

BS_API int32_t bs_graph_op(bs_graph *g, const char *onnx_op, const uint32_t *in, uint32_t n_in,
                           const bs_attr *const *attrs, uint32_t n_attr, uint32_t *out_values, uint32_t n_out,
                           bs_error *err) {
  if (g == NULL || onnx_op == NULL) return gargs_null("bs_graph_op", "graph and onnx_op", err);
  int32_t rc = may_add(g, "bs_graph_op", NULL, err);
  int known = 0;
  if (rc == BS_OK && ((in == NULL && n_in > 0) || (out_values == NULL && n_out > 0)))
    rc = gargs_null("bs_graph_op", "in of n_in values and out_values of n_out", err);
  if (rc == BS_OK) rc = check_attrs(attrs, n_attr, err);
  if (rc != BS_OK) return rc;
  if (lower_find(onnx_op, "", g->model->opset, &known) == NULL) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-OP", "the operator '%.64s'%s is not supported", onnx_op,
                 known ? " of opset 24" : "");
    return BS_UNSUPPORTED;
  }
  for (uint32_t i = 0; i < n_attr; i++)
    if (attrs[i]->type == BS_ATTR_GRAPH)
      return bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-OP", "branches cannot be built by calls");
  char name[48];
  snprintf(name, sizeof name, "n%u", g->model->n_nodes);
  return gmodel_op(g->model, onnx_op, name, in, n_in, attrs, n_attr, out_values, n_out, err);
}

BS_API int32_t bs_graph_output(bs_graph *g, const char *name, uint32_t value, bs_error *err) {
  if (g == NULL || name == NULL) return gargs_null("bs_graph_output", "graph and name", err);
  const int32_t rc = may_add(g, "bs_graph_output", NULL, err);
  return rc == BS_OK ? gmodel_output(g->model, name, value, err) : rc;
}

int32_t bs_graph_finish(bs_graph *g, bs_error *err) {
  if (g->finished) return BS_OK;
  const int32_t rc = gmodel_check(g->model, err);
  if (rc == BS_OK) g->finished = 1;
  return rc;
}

BS_API int32_t bs_graph_fix(bs_graph *g, const char *name, const bs_tensor *tensor, bs_error *err) {
  if (g == NULL || name == NULL || tensor == NULL)
    return gargs_null("bs_graph_fix", "graph, name and tensor", err);
  if (gargs_size("bs_graph_fix", "bs_tensor", tensor->struct_size, err) != BS_OK) return BS_INVALID_ARGUMENT;
  if (g->has_session)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-BUILD",
                        "an input is made a constant before the first session of its model");
  return gmodel_fix(g->model, name, tensor, err);
}

const char *bs_graph_warning(const bs_graph *g) {
  return g->model->warning;
}

int bs_graph_has_default(const bs_graph *g, const char *name) {
  uint32_t i = 0;
  while (i < g->model->n_defaults && strcmp(g->model->defaults[i].name, name) != 0) i++;
  return i < g->model->n_defaults;
}

/* ---- what cannot be served ---------------------------------------------------------------------- */

/* Symbols without a size get the first of these at which no node is wrong: a kernel may be larger than 8, the
 * place of 197 tokens needs pictures of 224. */
static const int64_t guesses[] = {8, 224, 512, 1};
enum { GUESSES = sizeof guesses / sizeof guesses[0] };

typedef struct asking {
  void (*each)(void *user, const bs_graph_issue *issue);
  void *user;
  uint64_t count, not_judged;
  bs_error first; /* why the first node is not judged */
} asking;

static void count_issue(void *user, const bs_graph_issue *issue) {
  asking *a = user;
  a->count++;
  if (a->each != NULL) a->each(a->user, issue);
}

static void pass_over(void *user, const gmodel_node *node, const bs_error *why) {
  asking *a = user;
  (void)node;
  if (a->not_judged++ == 0) a->first = *why;
}

/* Every node of the lowered graph that no implementation serves. */
static int32_t ask_backend(bs_graph *g, const char *backend, const graph *lowered, asking *a, bs_error *err) {
  const bs_session_options o = {.struct_size = (uint32_t)sizeof o, .threads = 1, .backend = backend};
  grank rank;
  int32_t rc = grank_open(g->context, &o, 1, &rank, err);
  if (rc != BS_OK) return rc;
  rc = grank_enter(&rank, err);
  for (uint32_t id = lowered->first; id != GNONE && rc == BS_OK; id = lowered->nodes[id].next) {
    const gnode *n = &lowered->nodes[id];
    gquery q;
    bs_op_answer answer = {.struct_size = (uint32_t)sizeof answer};
    graph_query(lowered, n, &q);
    rc = rank.api->op_supports(rank.rank, &q.query, &answer, err);
    if (rc != BS_OK || answer.level != BS_LEVEL_NO) continue;
    const bs_graph_issue issue = {
        .struct_size = (uint32_t)sizeof issue,
        .node = n->origin != GNONE ? graph_text_of(lowered, lowered->origins[n->origin].text) : "",
        .op = graph_op_name(n->op),
        .domain = "",
        .reason = answer.text};
    count_issue(a, &issue);
  }
  if (rank.depth > 0) rc = grank_leave(&rank, rc, err);
  grank_close(&rank);
  return rc;
}

/* The size at which the model is looked at. */
static int64_t guess_of(bs_graph *g, const bs_dim *const *dims, uint32_t n_dims) {
  for (uint32_t i = 0; i < GUESSES && g->model->n_symbols > n_dims; i++) {
    asking quiet = {0};
    graph *lowered = NULL;
    const lower_options options = {.dims = dims,
                                   .n_dims = n_dims,
                                   .missing = guesses[i],
                                   .folder = {.run = gfold_run, .user = &g->fold},
                                   .issue = count_issue,
                                   .issue_user = &quiet};
    const int32_t rc = lower_model(g->model, &options, &lowered, NULL);
    graph_free(lowered);
    if (rc != BS_INPUT) return guesses[i];
  }
  return guesses[0];
}

/* BS_OK with a note in err: what was not looked at, and the sizes that would help. */
static void tell_not_judged(const bs_graph *g, const asking *a, const bs_dim *const *dims, uint32_t n_dims,
                            bs_error *err) {
  char wanted[300] = "";
  size_t at = 0;
  for (uint32_t s = 0; s < g->model->n_symbols && at + 80 < sizeof wanted; s++) {
    uint32_t k = 0;
    while (k < n_dims && strcmp(dims[k]->name, g->model->symbols[s]) != 0) k++;
    if (k == n_dims)
      at += (size_t)snprintf(wanted + at, sizeof wanted - at, " --dim %.60s=N", g->model->symbols[s]);
  }
  bs_error_set(err, BS_OK, "BS-GRAPH-GUESS", "%llu node%s not judged, for lack of sizes: %.100s: %.300s",
               (unsigned long long)a->not_judged, a->not_judged == 1 ? " is" : "s are", a->first.where,
               a->first.message);
  bs_error_hint(err, "give%s", wanted);
}

BS_API int32_t bs_graph_check(bs_graph *g, const char *backend, const bs_dim *const *dims, uint32_t n_dims,
                              void (*each)(void *user, const bs_graph_issue *issue), void *user,
                              bs_error *err) {
  asking a = {.each = each, .user = user, .first = BS_ERROR_INIT};
  graph *lowered = NULL;
  if (g == NULL) return gargs_null("bs_graph_check", "graph", err);
  int32_t rc = gargs_dims("bs_graph_check", dims, n_dims, err);
  if (rc == BS_OK) rc = bs_graph_finish(g, err);
  if (rc != BS_OK) return rc;
  const lower_options options = {.dims = dims,
                                 .n_dims = n_dims,
                                 .missing = guess_of(g, dims, n_dims),
                                 .folder = {.run = gfold_run, .user = &g->fold},
                                 .issue = count_issue,
                                 .issue_user = &a,
                                 .not_judged = pass_over};
  rc = lower_model(g->model, &options, &lowered, err);
  if (rc == BS_OK && backend != NULL) rc = ask_backend(g, backend, lowered, &a, err);
  graph_free(lowered);
  if (rc == BS_UNSUPPORTED && a.count == 0 && a.not_judged > 0) {
    tell_not_judged(g, &a, dims, n_dims, err);
    return BS_OK;
  }
  if (rc != BS_OK || a.count == 0) return rc;
  bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-NODE", "%llu nodes are not supported",
               (unsigned long long)a.count);
  return BS_UNSUPPORTED;
}

/* ---- questions ------------------------------------------------------------------------------- */

BS_API uint32_t bs_graph_port_count(const bs_graph *g, uint32_t inputs) {
  if (g == NULL) return 0;
  return inputs ? g->model->n_inputs : g->model->n_outputs;
}

BS_API int32_t bs_graph_port(const bs_graph *g, uint32_t inputs, uint32_t index, bs_port *out_port,
                             bs_error *err) {
  if (g == NULL || out_port == NULL) return gargs_null("bs_graph_port", "graph and out_port", err);
  if (gargs_size("bs_graph_port", "bs_port", out_port->struct_size, err) != BS_OK) return BS_INVALID_ARGUMENT;
  if (index >= bs_graph_port_count(g, inputs))
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-PORT", "there is no port %u", index);
  const gmodel_port *p = inputs ? &g->model->inputs[index] : &g->model->outputs[index];
  const gmodel_value *v = &g->model->values[p->value];
  bs_port port = {.struct_size = out_port->struct_size, .dtype = v->dtype, .name = p->name, .rank = v->rank};
  for (uint32_t i = 0; v->rank <= BS_MAX_DIMS && i < v->rank; i++) {
    port.dims[i] = v->dims[i];
    if (v->symbols[i] != 0) port.symbols[i] = g->model->symbols[v->symbols[i] - 1u];
  }
  memcpy(out_port, &port, port.struct_size < sizeof port ? port.struct_size : sizeof port);
  return BS_OK;
}

BS_API int32_t bs_graph_info_get(const bs_graph *g, bs_graph_info *out_info, bs_error *err) {
  if (g == NULL || out_info == NULL) return gargs_null("bs_graph_info_get", "graph and out_info", err);
  if (gargs_size("bs_graph_info_get", "bs_graph_info", out_info->struct_size, err) != BS_OK)
    return BS_INVALID_ARGUMENT;
  const gmodel *m = g->model;
  bs_graph_info info = {.struct_size = out_info->struct_size,
                        .opset = m->opset,
                        .path = m->path,
                        .producer = m->producer,
                        .nodes = m->n_nodes,
                        .cache_tokens = m->cache_tokens,
                        .load_seconds = m->load_seconds,
                        .slots = m->slots};
  for (uint32_t i = 0; i < m->n_values; i++) {
    const gmodel_value *v = &m->values[i];
    uint64_t bytes = 0;
    if (v->kind == GMODEL_CONSTANT) {
      info.constants++;
      info.constant_bytes += v->bytes;
    }
    if (v->kind != GMODEL_STATE) continue;
    int64_t dims[BS_MAX_DIMS];
    memcpy(dims, v->dims, sizeof dims);
    if (m->slots > 0) dims[0] = m->slots;
    if (!gmodel_shape_bytes(v->dtype, v->rank, dims, &bytes)) continue;
    info.states++;
    info.state_bytes += bytes;
  }
  memcpy(out_info, &info, info.struct_size < sizeof info ? info.struct_size : sizeof info);
  return BS_OK;
}

typedef struct used_op {
  const char *op, *domain;
  uint32_t node, count; /* its first node; how many */
} used_op;

static int by_name(const void *a, const void *b) {
  const used_op *x = a, *y = b;
  int order = strcmp(x->op, y->op);
  if (order == 0) order = strcmp(x->domain, y->domain);
  return order != 0 ? order : (x->node > y->node) - (x->node < y->node);
}

static int by_node(const void *a, const void *b) {
  const used_op *x = a, *y = b;
  return (x->node > y->node) - (x->node < y->node);
}

BS_API int32_t bs_graph_ops(const bs_graph *g,
                            void (*each)(void *user, const char *op, const char *domain, uint64_t nodes),
                            void *user, bs_error *err) {
  if (g == NULL || each == NULL) return gargs_null("bs_graph_ops", "graph and each", err);
  const gmodel *m = g->model;
  used_op *ops = calloc(m->n_nodes + 1u, sizeof *ops);
  uint32_t n = 0;
  if (ops == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory to count operators");
  for (uint32_t i = 0; i < m->n_nodes; i++) ops[i] = (used_op){m->nodes[i].op, m->nodes[i].domain, i, 1};
  qsort(ops, m->n_nodes, sizeof *ops, by_name);
  for (uint32_t i = 0; i < m->n_nodes; i++) {
    if (n > 0 && strcmp(ops[n - 1].op, ops[i].op) == 0 && strcmp(ops[n - 1].domain, ops[i].domain) == 0)
      ops[n - 1].count++;
    else
      ops[n++] = ops[i];
  }
  qsort(ops, n, sizeof *ops, by_node);
  for (uint32_t i = 0; i < n; i++) each(user, ops[i].op, ops[i].domain, ops[i].count);
  free(ops);
  return BS_OK;
}

BS_API void bs_graph_close(bs_graph *g) {
  if (g == NULL) return;
  gfold_close(&g->fold);
  gmodel_free(g->model);
  free(g);
}
